"""Values of terms: inputs drawn to hurt, and evaluation whose bits do not depend on how an array lies in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from waxeq.basis.evaluate import PRIME, Evaluator, Field, NamedArray, Native
from waxeq.basis.heads import HEADS
from waxeq.basis.matrices import factored, make_regular
from waxeq.basis.typing import types
from waxeq.egraph.verify import in_field
from waxeq.ir.term import Term, postorder
from waxeq.ir.types import FLOATS, is_float

Leaves = Mapping[str, NamedArray]
_SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0])


class Canonical(Evaluator):
    """Evaluation on contiguous arrays with their axes in order of name: NumPy's vector loops and its order of adding
    depend on strides, and equal tensors must not differ in bits for that."""

    def apply(self, head: str, args: Any, leaves: Leaves | None = None) -> NamedArray:
        x = super().apply(head, args, leaves)
        order = tuple(sorted(x.axes))
        return NamedArray(order, np.ascontiguousarray(x.aligned(order)).reshape(_shape(x, order)))

    def _last(self, x: NamedArray, *names: str) -> tuple[tuple[str, ...], np.ndarray]:
        rest, a = super()._last(x, *names)
        order = tuple(sorted(rest))
        if order != rest:
            a = NamedArray((*rest, *names), a).aligned((*order, *names))
        return order, np.ascontiguousarray(a).reshape(a.shape)

    def _pointwise(self, f: Any, *xs: NamedArray) -> NamedArray:
        axes = tuple(sorted({k for x in xs for k in x.axes}))
        arrays = np.broadcast_arrays(*(x.aligned(axes) for x in xs))
        return NamedArray(axes, np.asarray(f(*(np.ascontiguousarray(a).reshape(a.shape) for a in arrays))))


def _shape(x: NamedArray, order: tuple[str, ...]) -> tuple[int, ...]:
    return tuple(x.data.shape[x.axes.index(k)] for k in order)


def evaluate(root: Term, leaves: Leaves, sizes: Mapping[str, int], domain: Native) -> dict[Term, NamedArray]:
    """The value of every subterm. Raises what NumPy raises where one has no value."""
    e, done = Canonical(sizes, domain), {}
    for t in postorder(root):
        done[t] = e.apply(t.head, [done[a] if isinstance(a, Term) else a for a in t.args], leaves)
    return done


def truncations(root: Term) -> Iterator[Term]:
    """Subterms that convert floats to integers."""
    kinds = types(root)
    for t in postorder(root):
        if t.head == "Cast" and not is_float(t.args[0]) and t.args[0] != "bool" and is_float(kinds[t.terms[0]].dtype):
            yield t


def unheld(t: Term, x: np.ndarray) -> bool:
    """Whether the integer that a truncation `t` converts `x` to cannot hold some element of it: NumPy, C and vector
    instructions then each make of it what they like."""
    ends, whole = np.iinfo(t.args[0]), np.trunc(x.astype(np.float64))
    with np.errstate(invalid="ignore"):
        return not bool(np.all((whole >= float(ends.min)) & (whole < float(ends.max) + 1.0)))  # NaN is in no range


def polynomial(root: Term) -> bool:
    """Whether a term can be tried over a prime field."""
    return all(in_field(t.head, t.args) for t in postorder(root))


def draw_leaves(
    roots: tuple[Term, ...], sizes: Mapping[str, int], kind: str, domain: Native, rng: np.random.Generator
) -> dict[str, NamedArray]:
    """Arrays for every leaf of the terms, in the dtypes of the domain; indices lie within what they index,
    and matrices that are factored are positive definite.

    kind: normal; positive (0.5 to 1.5); unit (-1 to 1); sparse (normal with zeros); large (up to a thousand, where exp
    overflows); special (normal with NaN, infinities and both zeros); extreme (the largest, smallest and subnormal
    numbers of the dtype). Integers are small, but of any size in the kinds sparse and extreme.
    """
    bounds, matrices = _bounds(roots, sizes), factored(*roots)
    found: dict[str, NamedArray] = {}
    for t in postorder(*roots):
        if t.head not in ("In", "Par"):
            continue
        name, axes, dtype = t.args
        order = tuple(sorted(axes))
        shape = tuple(sizes[k] for k in order)
        if isinstance(domain, Field):
            data = rng.integers(0, PRIME, shape, dtype=np.uint64)
        elif dtype in FLOATS:
            data = _floats(kind, dtype, shape, domain, rng)
        elif dtype == "bool":
            data = rng.integers(0, 2, shape)
        else:
            data = _integers(kind, dtype, shape, bounds.get(t), rng)
        found[name] = NamedArray(order, np.asarray(data).astype(domain.dtype(dtype)))
        if t in matrices:
            make_regular(found[name].data, order, *matrices[t])
    return found


def _floats(kind: str, dtype: str, shape: tuple[int, ...], domain: Native, rng: np.random.Generator) -> np.ndarray:
    normal = rng.standard_normal(shape)
    if kind == "positive":
        return rng.uniform(0.5, 1.5, shape)
    if kind == "unit":
        return rng.uniform(-1.0, 1.0, shape)
    if kind == "sparse":
        return np.where(rng.random(shape) < 0.3, 0.0, normal)
    if kind == "large":
        return rng.uniform(-1.0, 1.0, shape) * rng.choice([100.0, 1000.0], shape)
    if kind == "special":
        return np.where(rng.random(shape) < 0.35, rng.choice(_SPECIAL, shape), normal)
    if kind == "extreme":
        import ml_dtypes

        f = ml_dtypes.finfo(domain.dtype(dtype))
        ends = [float(x) for x in (f.max, f.tiny, f.smallest_subnormal, f.eps)]
        return normal * rng.choice([1.0, *ends], shape)
    return normal


def _integers(kind: str, dtype: str, shape: tuple[int, ...], bound: int | None, rng: np.random.Generator) -> np.ndarray:
    """Small, or below the bound of an index, or anything the dtype holds, where sums wrap around."""
    if bound is not None:
        return rng.integers(0, max(1, bound), shape)
    if kind in ("sparse", "extreme"):
        ends = np.iinfo(dtype)
        return rng.integers(ends.min, ends.max, shape, dtype=dtype, endpoint=True)
    return rng.integers(0 if dtype[0] == "u" else -4, 5, shape)


_KEEP = frozenset({"Ren", "Split", "Merge", "Diag", "Slice", "Unfold", "Cat", "Cast", "Gather", "Select", "Scatter"})


def _bounds(roots: tuple[Term, ...], sizes: Mapping[str, int]) -> dict[Term, int]:
    """For each term whose elements become indices unchanged: the size of the smallest axis they index."""
    found: dict[Term, int] = {}
    for t in reversed(list(postorder(*roots))):
        if t.head in ("Gather", "Scatter"):
            places = dict(zip((n for n, _ in HEADS[t.head].args), t.args, strict=True))
            found[places["i"]] = min(found.get(places["i"], 1 << 30), sizes[places["k"]])
        if t in found and t.head in _KEEP:
            kept = t.terms[1:] if t.head in ("Gather", "Select", "Scatter") else t.terms
            for x in kept:
                found[x] = min(found.get(x, 1 << 30), found[t])
    return found
