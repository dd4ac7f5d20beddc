"""The value of a term on arrays with named axes: the meaning that rules, kernels and plans are checked against."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from waxeq.basis.scalar import ADD, MUL, REDUCERS, SCALARS, SCANS, load
from waxeq.ir.term import Term, postorder
from waxeq.ir.types import FLOATS, comparable, numpy_dtype

PRIME = 2_147_483_647
"""The field of polynomial identity tests; products of two residues fit in a uint64."""


@dataclass(frozen=True, slots=True)
class NamedArray:
    """An array whose positions are named axes."""

    axes: tuple[str, ...]
    data: np.ndarray

    def aligned(self, order: Sequence[str]) -> np.ndarray:
        """The array with its axes in `order`; an axis it lacks has size 1 there."""
        have = [k for k in order if k in self.axes]
        if len(have) != len(self.axes):
            raise ValueError(f"axes {self.axes} do not all lie in {tuple(order)}")
        moved = self.data.transpose([self.axes.index(k) for k in have])
        return moved[tuple(slice(None) if k in self.axes else None for k in order)]


class Native:
    """Evaluation in the dtype of each term."""

    def dtype(self, name: str) -> np.dtype:
        return numpy_dtype(name)

    def number(self, value: float, dtype: str) -> np.ndarray:
        with np.errstate(all="ignore"):
            return np.asarray(value).astype(self.dtype(dtype))

    def scalar(self, name: str, *xs: np.ndarray) -> np.ndarray:
        return SCALARS[name](*xs)

    def add(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return ADD(x, y)

    def mul(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return MUL(x, y)

    def sum(self, x: np.ndarray, axis: int) -> np.ndarray:
        return np.add.reduce(x, axis=axis, dtype=x.dtype)


class Ideal(Native):
    """Evaluation of every float in float64: the reals, as near as they can be had."""

    def dtype(self, name: str) -> np.dtype:
        return np.dtype(np.float64) if name in FLOATS else numpy_dtype(name)

    def number(self, value: float, dtype: str) -> np.ndarray:
        rounded = np.asarray(value).astype(numpy_dtype(dtype))
        return rounded.astype(self.dtype(dtype))


class Field(Native):
    """Evaluation over the integers modulo `PRIME`, exact: two polynomials that agree here at random points are equal
    but for a chance of degree/PRIME (Schwartz-Zippel)."""

    def dtype(self, name: str) -> np.dtype:
        return np.dtype(np.uint64)

    def number(self, value: float, dtype: str) -> np.ndarray:
        n, d = float(value).as_integer_ratio()
        return np.asarray(n * pow(d, -1, PRIME) % PRIME, dtype=np.uint64)

    def scalar(self, name: str, *xs: np.ndarray) -> np.ndarray:
        if name in _FIELD:
            return _FIELD[name](*xs)
        raise NotPolynomial(name)

    def add(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return (x + y) % np.uint64(PRIME)

    def mul(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return (x * y) % np.uint64(PRIME)

    def sum(self, x: np.ndarray, axis: int) -> np.ndarray:
        return np.add.reduce(x, axis=axis, dtype=np.uint64) % np.uint64(PRIME)


class NotPolynomial(ValueError):
    """A term that has no meaning over a prime field."""


_P = np.uint64(PRIME)
_FIELD: Mapping[str, Callable] = {
    "neg": lambda x: (_P - x) % _P,
    "sub": lambda x, y: (x + (_P - y)) % _P,
    "square": lambda x: (x * x) % _P,
}

Sizes = Mapping[str, int]
_Rule = Callable[..., NamedArray]


class Evaluator:
    """Evaluates heads one at a time, in a domain, with the sizes of axes. `contracts`: sums over products of float64
    are made without the products in memory, and add up in the order of BLAS."""

    def __init__(self, sizes: Sizes, domain: Native | None = None, *, contracts: bool = False) -> None:
        self.sizes = sizes
        self.domain = domain or Native()
        self.contracts = contracts

    def apply(self, head: str, args: Sequence[Any], leaves: Mapping[str, NamedArray] | None = None) -> NamedArray:
        """The value of `head` on `args`, whose tensors are NamedArrays; leaves are looked up by name."""
        with np.errstate(all="ignore"):
            if head in ("In", "Par"):
                assert leaves is not None
                return leaves[args[0]]
            return getattr(self, f"_{head.lower()}")(*args)

    def term(self, root: Term, leaves: Mapping[str, NamedArray]) -> NamedArray:
        """The value of a term."""
        done: dict[Term, NamedArray] = {}
        inside = summed_alone(root) if self.contracts else frozenset[Term]()
        for t in postorder(root):
            if t in inside:
                continue
            product = t.terms[0] if t.head == "Sum" else None
            if product in inside:
                done[t] = self.contracted(t.args[0], *(done[a] for a in product.terms))
            else:
                done[t] = self.apply(t.head, [done[a] if isinstance(a, Term) else a for a in t.args], leaves)
        return done[root]

    def contracted(self, k: str, x: NamedArray, y: NamedArray) -> NamedArray:
        """The sum along an axis of a product."""
        if {x.data.dtype, y.data.dtype} != {np.dtype(np.float64)} or k not in x.axes or k not in y.axes:
            with np.errstate(all="ignore"):
                return self._sum(k, self._mul(x, y))
        number = {a: i for i, a in enumerate(dict.fromkeys((*x.axes, *y.axes)))}
        rest = tuple(a for a in number if a != k)
        rows = (number[a] for a in x.axes), (number[a] for a in y.axes), (number[a] for a in rest)
        ours, theirs, out = map(list, rows)
        with np.errstate(all="ignore"):
            return NamedArray(rest, np.asarray(np.einsum(x.data, ours, y.data, theirs, out, optimize=True)))

    # -- helpers

    def present(self, x: NamedArray, *names: str) -> NamedArray:
        """x with every name among its axes, broadcast along those it lacked."""
        extra = tuple(k for k in names if k not in x.axes)
        if not extra:
            return x
        shape = (*x.data.shape, *(self.sizes[k] for k in extra))
        return NamedArray(x.axes + extra, np.broadcast_to(x.data.reshape(x.data.shape + (1,) * len(extra)), shape))

    def _pointwise(self, f: Callable[..., np.ndarray], *xs: NamedArray) -> NamedArray:
        axes = tuple(dict.fromkeys(k for x in xs for k in x.axes))
        return NamedArray(axes, np.asarray(f(*(x.aligned(axes) for x in xs))))

    def _last(self, x: NamedArray, *names: str) -> tuple[tuple[str, ...], np.ndarray]:
        """(the other axes, the array with `names` as its last axes)."""
        x = self.present(x, *names)
        rest = tuple(k for k in x.axes if k not in names)
        return rest, x.aligned((*rest, *names))

    # -- heads

    def _num(self, value: float, dtype: str) -> NamedArray:
        return NamedArray((), self.domain.number(value, dtype))

    def _iota(self, k: str, dtype: str) -> NamedArray:
        return NamedArray((k,), np.arange(self.sizes[k]).astype(self.domain.dtype(dtype)))

    def _map(self, f: str, x: NamedArray) -> NamedArray:
        return self._pointwise(lambda a: self.domain.scalar(f, a), x)

    def _zip(self, f: str, x: NamedArray, y: NamedArray) -> NamedArray:
        return self._pointwise(lambda a, b: self.domain.scalar(f, a, b), x, y)

    def _add(self, x: NamedArray, y: NamedArray) -> NamedArray:
        return self._pointwise(self.domain.add, x, y)

    def _mul(self, x: NamedArray, y: NamedArray) -> NamedArray:
        return self._pointwise(self.domain.mul, x, y)

    def _select(self, c: NamedArray, x: NamedArray, y: NamedArray) -> NamedArray:
        return self._pointwise(np.where, c, x, y)

    def _cast(self, dtype: str, x: NamedArray) -> NamedArray:
        return NamedArray(x.axes, x.data.astype(self.domain.dtype(dtype)))

    def _sum(self, k: str, x: NamedArray) -> NamedArray:
        rest, a = self._last(x, k)
        return NamedArray(rest, np.asarray(self.domain.sum(a, -1)))

    def _red(self, f: str, k: str, x: NamedArray) -> NamedArray:
        rest, a = self._last(x, k)
        fold = load(REDUCERS[f][0])
        return NamedArray(
            rest, np.asarray(fold.reduce(a, axis=-1, dtype=a.dtype) if hasattr(fold, "reduce") else fold(a, axis=-1))
        )

    def _ren(self, a: str, b: str, x: NamedArray) -> NamedArray:
        x = self.present(x, a)
        return NamedArray(tuple(b if k == a else k for k in x.axes), x.data)

    def _split(self, k: str, p: str, q: str, x: NamedArray) -> NamedArray:
        rest, a = self._last(x, k)
        return NamedArray((*rest, p, q), a.reshape((*a.shape[:-1], self.sizes[p], self.sizes[q])))

    def _merge(self, p: str, q: str, k: str, x: NamedArray) -> NamedArray:
        rest, a = self._last(x, p, q)
        return NamedArray((*rest, k), a.reshape((*a.shape[:-2], self.sizes[p] * self.sizes[q])))

    def _diag(self, i: str, j: str, k: str, x: NamedArray) -> NamedArray:
        rest, a = self._last(x, i, j)
        return NamedArray((*rest, k), np.diagonal(a, axis1=-2, axis2=-1))

    def _slice(self, k: str, n: str, start: int, step: int, x: NamedArray) -> NamedArray:
        rest, a = self._last(x, k)
        return NamedArray((*rest, n), a[..., start + step * np.arange(self.sizes[n])])

    def _pad(self, k: str, n: str, low: int, value: float, x: NamedArray) -> NamedArray:
        rest, a = self._last(x, k)
        high = self.sizes[n] - low - self.sizes[k]
        fill = self.domain.number(value, "float64").astype(a.dtype)
        width = [(0, 0)] * len(rest) + [(low, high)]
        return NamedArray((*rest, n), np.pad(a, width, constant_values=fill))

    def _cat(self, p: str, q: str, n: str, x: NamedArray, y: NamedArray) -> NamedArray:
        x, y = self._ren(p, n, x), self._ren(q, n, y)
        rest = tuple(dict.fromkeys(k for k in (*x.axes, *y.axes) if k != n))
        parts = [self.present(part, *rest).aligned((*rest, n)) for part in (x, y)]
        return NamedArray((*rest, n), np.concatenate(parts, axis=-1))

    def _gather(self, k: str, i: NamedArray, x: NamedArray) -> NamedArray:
        x = self.present(x, k)
        rest = tuple(a for a in x.axes if a != k)
        axes = tuple(dict.fromkeys((*i.axes, *rest)))
        grid = [NamedArray((a,), np.arange(self.sizes[a])).aligned(axes) for a in rest]
        return NamedArray(axes, x.aligned((k, *rest))[(i.aligned(axes), *grid)])

    def _scatter(self, f: str, k: str, p: str, i: NamedArray, u: NamedArray, x: NamedArray) -> NamedArray:
        i, u, x = self.present(i, p), self.present(u, p), self.present(x, k)
        rest = tuple(dict.fromkeys(a for a in (*x.axes, *i.axes, *u.axes) if a not in (k, p)))
        out = np.ascontiguousarray(self.present(x, *rest).aligned((k, *rest))).copy()
        axes = (p, *rest)
        shape = (self.sizes[p], *out.shape[1:])
        index = np.broadcast_to(i.aligned(axes), shape)
        grid = [NamedArray((a,), np.arange(self.sizes[a])).aligned(rest) for a in rest]
        update = np.broadcast_to(u.aligned(axes), shape)
        for at in range(self.sizes[p]):  # in order: of several updates of one place the last one stays
            place = (index[at], *grid)
            out[place] = self._met(f, out[place], update[at])
        return NamedArray((k, *rest), out)

    def _met(self, f: str, x: np.ndarray, u: np.ndarray) -> np.ndarray:
        """What becomes of elements that updates meet."""
        return u if f == "set" else self.domain.add(x, u) if f == "add" else self.domain.scalar(f, x, u)

    def _unfold(self, k: str, o: str, w: str, stride: int, dilation: int, x: NamedArray) -> NamedArray:
        rest, a = self._last(x, k)
        at = stride * np.arange(self.sizes[o])[:, None] + dilation * np.arange(self.sizes[w])[None, :]
        return NamedArray((*rest, o, w), a[..., at])

    def _scan(self, f: str, k: str, x: NamedArray) -> NamedArray:
        rest, a = self._last(x, k)
        return NamedArray((*rest, k), load(SCANS[f]).accumulate(a, axis=-1, dtype=a.dtype))

    def _sort(self, k: str, x: NamedArray) -> NamedArray:
        rest, a = self._last(x, k)
        return NamedArray((*rest, k), np.sort(comparable(a), axis=-1, kind="stable").astype(a.dtype, copy=False))

    def _argsort(self, k: str, x: NamedArray) -> NamedArray:
        rest, a = self._last(x, k)
        return NamedArray((*rest, k), np.argsort(comparable(a), axis=-1, kind="stable"))

    def _solve(self, i: str, j: str, a: NamedArray, b: NamedArray) -> NamedArray:
        rest, m = self._last(a, i, j)
        b = self.present(b, i)
        aside = tuple(k for k in b.axes if k != i and k not in rest)
        right = b.aligned((*rest, i, *aside))
        count = math.prod(right.shape[len(rest) + 1 :])
        x = np.linalg.solve(m, right.reshape((*right.shape[: len(rest) + 1], count)))
        return NamedArray((*rest, j, *aside), x.reshape((*x.shape[:-1], *right.shape[len(rest) + 1 :])))

    def _triangular(self, f: str, i: str, j: str, a: NamedArray, b: NamedArray) -> NamedArray:
        rest, m = self._last(a, i, j)
        return self._solve(i, j, NamedArray((*rest, i, j), np.tril(m) if f == "lower" else np.triu(m)), b)

    def _cholesky(self, i: str, j: str, a: NamedArray) -> NamedArray:
        rest, m = self._last(a, i, j)
        return NamedArray((*rest, i, j), np.linalg.cholesky(m))

    def _det(self, f: str, i: str, j: str, a: NamedArray) -> NamedArray:
        rest, m = self._last(a, i, j)
        return NamedArray(rest, np.asarray(determinant(f, m)))


def determinant(f: str, m: np.ndarray) -> np.ndarray:
    """Of matrices along the last two axes, one of `DETERMINANTS`."""
    if f == "det":
        return np.linalg.det(m)
    sign, logabs = np.linalg.slogdet(m)
    return sign if f == "sign" else logabs


def summed_alone(root: Term) -> frozenset[Term]:
    """The products that one sum needs, and nothing else."""
    users: dict[Term, list[Term | None]] = {root: [None]}
    for t in postorder(root):
        for a in t.terms:
            users.setdefault(a, []).append(t)
    return frozenset(
        t for t, by in users.items() if t.head == "Mul" and len(by) == 1 and by[0] is not None and by[0].head == "Sum"
    )
