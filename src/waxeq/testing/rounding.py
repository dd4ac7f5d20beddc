"""How far rounding may move each element of a result: Monte Carlo arithmetic (D. S. Parker, UCLA CSD-970002, 1997).

The term is evaluated in float64, many times at once, and the result of every step is moved at random by what rounding
it in its own dtype may do. What the results differ by is what any order of the same steps may differ by, element by
element: little where the term is well-conditioned, much where it cancels or decides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from waxeq.basis.evaluate import Ideal, NamedArray, summed_alone
from waxeq.basis.heads import FACTORED
from waxeq.basis.matrices import places
from waxeq.basis.typing import types
from waxeq.ir.term import Term, postorder
from waxeq.ir.types import is_float, numpy_dtype
from waxeq.testing.values import Canonical, Leaves

_DRAW, _DRAWS = "%draw", 9
"""The axis of the evaluations at once, the first of which is exact; a chance deviation under a tenth of the usual one
in all others is 1 in 10^9."""
_UNITS = 4.0
"""Units in the last place that one step may be off: what the functions of a C library are."""
_MOST, _NORMAL = 1 << 16, 16
"""Products that lie in memory for each draw, at most; and terms from which on what is drawn for each of them is normal
in all."""
_VARIANCE = 7 / 12
"""Of what lies between half and one, of either sign."""
_FAR = 8.0
"""How many times the largest deviation seen is allowed: both of two results may be off, further than was seen."""
_ROUNDED = frozenset({"Map", "Zip", "Add", "Mul", "Sum", "Scan", "Cast", "Scatter"})
"""Heads that compute with floats, as products along an axis do; others move them or choose among them."""
FOLDED = {"Sum": 0, "Red": 1, "Scan": 1, "Scatter": 2}
"""Where the axis stands that is folded: each of n terms may come first, and errors are of their magnitudes."""
_DRIFT = 32
"""Numbers of which one is added in order that cost a unit where all are alike: each rounds the same way then."""
_SIDES: Mapping[str, Callable[..., np.ndarray]] = {
    "tan": lambda x: np.round(x / np.pi),
    "recip": np.sign,
    "div": lambda x, y: np.sign(y),
}
"""Between which poles of a function its arguments lie. Others end at their poles: beyond lies no number."""


class _Draws(Canonical):
    """Evaluation where what is made is compared with nothing: large arrays are read as they lie, not laid out anew."""

    def present(self, x: NamedArray, *names: str) -> NamedArray:
        """With new draws as the first axis: each is an array as BLAS takes one."""
        found = super().present(x, *names)
        if _DRAW in x.axes or _DRAW not in found.axes:
            return found
        rest = tuple(k for k in found.axes if k != _DRAW)
        return NamedArray((_DRAW, *rest), found.aligned((_DRAW, *rest)))

    def _pointwise(self, f: Any, *xs: NamedArray) -> NamedArray:
        axes = tuple(sorted({k for x in xs for k in x.axes}))
        return NamedArray(axes, np.asarray(f(*(x.aligned(axes) for x in xs))))

    def _sum(self, k: str, x: NamedArray) -> NamedArray:
        x = self.present(x, k)
        rest, axis = tuple(a for a in x.axes if a != k), x.axes.index(k)
        return NamedArray(rest, np.asarray(np.add.reduce(x.data, axis=axis, dtype=x.data.dtype)))


def deviations(
    root: Term, leaves: Leaves, sizes: Mapping[str, int], error: float, rng: np.random.Generator, own: NamedArray
) -> NamedArray:
    """Bounds on what two evaluations of a float term may differ by, at least 0 and infinite where a draw had no finite
    value, on the term's axes or some of them. `error`: the relative error that each step may make besides. `own`: its
    value with each step rounded, where finite one evaluation more: a kernel may round less often."""
    if not is_float(types(root)[root].dtype):
        return NamedArray((), np.zeros(()))
    e = _Draws({**sizes, _DRAW: _DRAWS}, Ideal())
    kinds, done = types(root), {}
    sums = {t.terms[0]: t for t in postorder(root) if t.head == "Sum" and is_float(kinds[t].dtype)}
    many = {t for t in summed_alone(root) if t in sums and _many(kinds, t, sums[t], e.sizes)}
    for t in postorder(root):
        if t in many:
            continue
        args = [done.get(a) if isinstance(a, Term) else a for a in t.args]
        if t.head == "Sum" and t.terms[0] in many:
            pair = [done[a] for a in t.terms[0].terms]
            done[t] = _contracted(e, t.args[0], pair, kinds[t].dtype, error, rng)
            continue
        if t.head in FACTORED:
            done[t] = _factored(e, t, args, kinds[t].dtype, error, rng)
            continue
        x = e.apply(t.head, args, {n: _widened(a) for n, a in leaves.items()})
        if _rounds(t, error) and is_float(kinds[t].dtype):
            x = _moved(e, t, args, _undecided(e, t, args, x), kinds[t].dtype, error, rng)
        done[t] = x
    return _spread(done[root], own)


def _rounds(t: Term, error: float) -> bool:
    """Whether a step computes, or is a leaf that is taken for another by so much."""
    chooses = t.head in ("Scan", "Scatter") and t.args[0] in ("max", "min")
    return (t.head in _ROUNDED and not chooses) or t.args[0] == "prod" or (error > 0 and not t.terms)


def _spread(x: NamedArray, own: NamedArray) -> NamedArray:
    """What the draws of a value, and its own where that is finite, differ by at most."""
    if _DRAW not in x.axes:
        return NamedArray((), np.zeros(()))
    order = tuple(k for k in own.axes if k != _DRAW)
    data, value = x.aligned((*order, _DRAW)), own.aligned(order).astype(np.float64)
    with np.errstate(all="ignore"):
        value = np.where(np.isfinite(value), value, data[..., 0])
        high, low = np.maximum(np.max(data, axis=-1), value), np.minimum(np.min(data, axis=-1), value)
        spread = _FAR * (high - low)
    return NamedArray(order, np.where(np.isfinite(spread), spread, np.inf))


def _many(kinds: Mapping[Term, Any], product: Term, total: Term, sizes: Mapping[str, int]) -> bool:
    """Whether the products of a sum along an axis that both sides have are more than are drawn one by one."""
    k = total.args[0]
    return (
        all(k in kinds[a].axes for a in product.terms)
        and sizes[k] >= _NORMAL
        and math.prod(sizes[a] for a in kinds[product].axes) > _MOST
    )


def _contracted(
    e: _Draws, k: str, pair: Sequence[NamedArray], dtype: str, error: float, rng: np.random.Generator
) -> NamedArray:
    """The sum of many rounded products, moved as each of them and the sum would be: what is drawn alone for each of
    many terms adds up to a normal deviation, and no product lies in memory."""
    eps, least = _least(dtype)
    first = [_first(x) for x in pair]  # magnitudes are much the same in all draws
    squares, size = (e.contracted(k, *(NamedArray(x.axes, f(x.data)) for x in first)) for f in (np.square, np.abs))
    x, n = e.present(e.contracted(k, *pair), _DRAW), e.sizes[k]
    with np.errstate(all="ignore"):
        apart = np.sqrt(_VARIANCE * ((_UNITS * eps + error) ** 2 * squares.aligned(x.axes) + n * least**2))
        data = x.data + _stilled(rng.standard_normal(x.data.shape), x.axes) * apart
    return _off(NamedArray(x.axes, data), size, eps * math.sqrt(n) + error, least, rng)


def _first(x: NamedArray) -> NamedArray:
    """The value in the first draw."""
    if _DRAW not in x.axes:
        return x
    return NamedArray(tuple(k for k in x.axes if k != _DRAW), np.take(x.data, 0, x.axes.index(_DRAW)))


def _widened(x: NamedArray) -> NamedArray:
    return NamedArray(x.axes, x.data.astype(np.float64)) if x.data.dtype.kind not in "biu" else x


def _moved(
    e: _Draws, t: Term, args: list[Any], x: NamedArray, dtype: str, error: float, rng: np.random.Generator
) -> NamedArray:
    """The value with what rounding may add, another in every draw and never nothing, so that no two steps cancel."""
    eps, least = _least(dtype)
    x, unit, size = e.present(x, _DRAW), _UNITS * eps, x
    if t.head in FOLDED:
        n = e.sizes[t.args[FOLDED[t.head]]]
        steps = math.sqrt(n) if t.head != "Scan" else max(math.sqrt(n), n / _DRIFT)
        unit, size = eps * steps, e.apply(t.head, [_magnitude(a) for a in args])
    return _off(x, size, unit + error, least, rng)


def _factored(e: _Draws, t: Term, args: list[Any], dtype: str, error: float, rng: np.random.Generator) -> NamedArray:
    """What is made of a factored matrix: the value for another one, whose elements are off by some units of the largest
    (J. H. Wilkinson, Rounding Errors in Algebraic Processes, 1963), and rounded itself. No number where that other one
    is singular or not positive definite."""
    eps, least = _least(dtype)
    i, j, a = places(t.head, args)
    rest, m = e._last(e.present(a, _DRAW), i, j)
    n = m.shape[-1]
    size = NamedArray(rest, np.max(np.abs(m), axis=(-2, -1), initial=0.0))
    moved = _off(NamedArray((*rest, i, j), m), size, _UNITS * eps * math.sqrt(n) + error, least, rng)
    try:
        x = e.apply(t.head, [moved if arg is a else arg for arg in args])
    except np.linalg.LinAlgError:
        return NamedArray((_DRAW,), np.full(_DRAWS, np.nan))
    if t.args[0] == "sign":
        return x
    with np.errstate(all="ignore"):
        logs = n * (1.0 + np.abs(np.log(size.data))) if t.head == "Det" else np.zeros(size.data.shape)
    unit = NamedArray(rest, logs if t.args[0] == "logabs" else np.ones_like(logs) + logs)
    size = unit if t.args[0] == "logabs" else e._mul(unit, _magnitude(x))
    return _off(x, size, _UNITS * eps + error, least, rng)


def _off(x: NamedArray, size: NamedArray, unit: float, least: float, rng: np.random.Generator) -> NamedArray:
    """Values moved by half to one unit of `size` and of the least number, either way."""
    by = rng.random(x.data.shape, np.float32) - np.float32(0.5)
    by += np.copysign(np.float32(0.5), by)
    with np.errstate(all="ignore"):
        return NamedArray(x.axes, x.data + _stilled(by, x.axes) * (unit * np.abs(size.aligned(x.axes)) + least))


def _stilled(by: np.ndarray, axes: Sequence[str]) -> np.ndarray:
    """Deviations with none in the first draw: all others may end at one bound of a function that levels off. Two are
    opposite: what jumps or has a pole between them is seen from both sides."""
    draws = np.moveaxis(by, axes.index(_DRAW), 0)
    draws[0], draws[2] = 0.0, -draws[1]
    return by


def _undecided(e: _Draws, t: Term, args: list[Any], x: NamedArray) -> NamedArray:
    """A value with no number in its first draw where a pole lies among the draws of what it is made of: how much two
    results differ there is not to be seen from a few."""
    sides = _SIDES.get(t.args[0]) if t.head in ("Map", "Zip") else None
    if sides is None or all(_DRAW not in a.axes for a in args[1:]):
        return x
    y = e._pointwise(sides, *args[1:])
    draws = y.axes.index(_DRAW)
    apart = np.any(y.data != np.take(y.data, [0], draws), axis=draws)
    x = e.present(x, _DRAW)
    first = NamedArray((_DRAW,), np.arange(_DRAWS) == 0)
    apart = NamedArray(tuple(k for k in y.axes if k != _DRAW), apart)
    return e._pointwise(lambda x, apart, first: np.where(apart & first, np.nan, x), x, apart, first)


def _magnitude(x: Any) -> Any:
    return NamedArray(x.axes, np.abs(x.data)) if isinstance(x, NamedArray) and x.data.dtype.kind == "f" else x


def _least(dtype: str) -> tuple[float, float]:
    """The unit in the last place of a float, relative, and the least number that kernels may make of what is less."""
    info = _finfo(dtype)
    return float(info.eps), float(info.smallest_subnormal if dtype == "float16" else info.tiny)


def largest(dtype: str) -> float:
    """The largest number of a float."""
    return float(_finfo(dtype).max)


def _finfo(dtype: str) -> Any:
    """What NumPy knows of a float; bfloat16 alone needs ml_dtypes, which is not everywhere that kernels are checked."""
    if dtype != "bfloat16":
        return np.finfo(numpy_dtype(dtype))
    from ml_dtypes import finfo

    return finfo(numpy_dtype(dtype))
