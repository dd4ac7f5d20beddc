"""Ops that move elements and compute nothing."""

from __future__ import annotations

import math

import numpy as np

from waxeq.errors import TypeMismatch
from waxeq.ir.op import Lowering, Named, Op
from waxeq.ir.term import Term
from waxeq.ir.types import TensorType


class Transpose(Op):
    """Axes in the order `perm`. In the basis this is nothing at all: axes have names, not positions."""

    perm: tuple[int, ...]
    onnx = "Transpose"
    view = "once"

    def infer(self, x: TensorType) -> TensorType:
        if sorted(self.perm) != list(range(x.rank)):
            raise TypeMismatch(f"transpose by {self.perm} does not fit {x}")
        return TensorType(x.dtype, tuple(x.shape[i] for i in self.perm))

    def reference(self, x: np.ndarray) -> np.ndarray:
        return x.transpose(self.perm)

    def lower(self, b: Lowering, out: TensorType, *xs: Named) -> Named:
        (x,) = xs
        return Named(x.term, tuple(x.axes[i] for i in self.perm))


class Reshape(Op):
    """The same elements in row-major order in another shape."""

    shape: tuple[int, ...]
    onnx = "Reshape"
    view = "once"

    def infer(self, x: TensorType) -> TensorType:
        if math.prod(self.shape) != x.elements:
            raise TypeMismatch(f"{x} does not reshape to {self.shape}")
        return TensorType(x.dtype, self.shape)

    def reference(self, x: np.ndarray) -> np.ndarray:
        return x.reshape(self.shape)

    def lower(self, b: Lowering, out: TensorType, *xs: Named) -> Named:
        (x,) = xs
        axes = [k for k in x.axes if k is not None]
        want = [s for s in self.shape if s != 1]
        t, made = x.term, []
        for have, to in _groups([b.size(k) for k in axes], want):
            t, new = _regroup(b, t, axes[have[0] : have[1]], want[to[0] : to[1]])
            made += new
        names = iter(made)
        return Named(t, tuple(None if s == 1 else next(names) for s in self.shape))


def _groups(have: list[int], want: list[int]) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Cut two lists of sizes with one product into the finest matching runs with equal products."""
    if 0 in have:
        return [((0, len(have)), (0, len(want)))]
    runs, i, j = [], 0, 0
    while i < len(have) or j < len(want):
        i0, j0, a, c = i, j, 1, 1
        while i == i0 or j == j0 or a != c:
            if i == i0 or (a < c and j > j0):
                a, i = a * have[i], i + 1
            else:
                c, j = c * want[j], j + 1
        runs.append(((i0, i), (j0, j)))
    return runs


def _regroup(b: Lowering, t: Term, axes: list[str], sizes: list[int]) -> tuple[Term, list[str]]:
    """Turn a run of axes into a run of new axes of the given sizes: merge to one, then split."""
    if [b.size(k) for k in axes] == sizes:
        return t, axes
    one = axes[0]
    for k in axes[1:]:
        merged = b.fresh(b.size(one) * b.size(k))
        t, one = b.term("Merge", one, k, merged, t), str(merged)
    made: list[str] = []
    for i, s in enumerate(sizes[:-1]):
        outer, inner = str(b.fresh(s)), str(b.fresh(math.prod(sizes[i + 1 :])))
        t, one = b.term("Split", one, outer, inner, t), inner
        made.append(outer)
    return t, [*made, one]


class BroadcastTo(Op):
    """The operand repeated along new leading axes and axes of size 1, as NumPy's broadcast_to."""

    shape: tuple[int, ...]
    onnx = "Expand"
    view = "again"

    def infer(self, x: TensorType) -> TensorType:
        try:
            fits = np.broadcast_shapes(x.shape, self.shape) == self.shape
        except ValueError:
            fits = False
        if not fits:
            raise TypeMismatch(f"{x} does not broadcast to {self.shape}")
        return TensorType(x.dtype, self.shape)

    def reference(self, x: np.ndarray) -> np.ndarray:
        return np.broadcast_to(x, self.shape)

    def lower(self, b: Lowering, out: TensorType, *xs: Named) -> Named:
        (x,) = xs
        old = (None,) * (len(self.shape) - len(x.axes)) + x.axes
        return Named(x.term, tuple(b.fresh(s) if k is None else k for k, s in zip(old, self.shape, strict=True)))


class Slice(Op):
    """`count` elements of one axis: start, start + step, ... (step may be negative)."""

    axis: int
    start: int
    step: int
    count: int
    onnx = "Slice"
    view = "once"

    def infer(self, x: TensorType) -> TensorType:
        n = x.shape[self.axis] if 0 <= self.axis < x.rank else -1
        last = self.start + self.step * (self.count - 1)
        if n < 0 or self.step == 0 or (self.count and not (0 <= self.start < n and 0 <= last < n)):
            raise TypeMismatch(
                f"slice {self.start}::{self.step} of {self.count} along axis {self.axis} does not fit {x}"
            )
        return TensorType(x.dtype, (*x.shape[: self.axis], self.count, *x.shape[self.axis + 1 :]))

    @property
    def index(self) -> tuple[slice, ...]:
        """What NumPy takes for it."""
        stop = self.start + self.step * self.count if self.count else self.start
        part = slice(self.start, stop if stop >= 0 else None, self.step)
        return (slice(None),) * self.axis + (part,)

    def reference(self, x: np.ndarray) -> np.ndarray:
        return x[self.index]

    def lower(self, b: Lowering, out: TensorType, *xs: Named) -> Named:
        (x,) = xs
        k = x.axes[self.axis]
        if (self.start, self.step, self.count) == (0, 1, b.size(k)):
            return x
        new = b.fresh(self.count)
        if k is None:  # nothing is left of an axis of size 1
            return Named(x.term, (*x.axes[: self.axis], new, *x.axes[self.axis + 1 :]))
        t = x.term
        if new is None:
            t = b.term("Gather", k, b.term("Num", float(self.start), "int64"), t)
        else:
            t = b.term("Slice", k, new, self.start, self.step, t)
        return Named(t, (*x.axes[: self.axis], new, *x.axes[self.axis + 1 :]))


class Concat(Op):
    """Operands one after another along an axis."""

    axis: int
    arity = None
    onnx = "Concat"

    def infer(self, *types: TensorType) -> TensorType:
        first = types[0]
        rest = {(t.dtype, t.shape[: self.axis], t.shape[self.axis + 1 :], t.rank) for t in types}
        if len(rest) != 1 or not 0 <= self.axis < first.rank:
            raise TypeMismatch(f"concatenation along axis {self.axis} does not fit {', '.join(map(str, types))}")
        size = sum(t.shape[self.axis] for t in types)
        return TensorType(first.dtype, (*first.shape[: self.axis], size, *first.shape[self.axis + 1 :]))

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        return np.concatenate(arrays, axis=self.axis)

    def lower(self, b: Lowering, out: TensorType, *xs: Named) -> Named:
        full = [x for x in xs if b.size(x.axes[self.axis]) > 0] or xs[:1]
        labels = [[("apart", i) if d == self.axis else d for d in range(out.rank)] for i in range(len(full))]
        joined, axis = b.join(*zip(full, labels, strict=True))
        t, k = joined[0].term, axis["apart", 0]
        for i, x in enumerate(joined[1:], 1):
            new = b.axis(b.size(k) + b.size(axis["apart", i]))
            t, k = b.term("Cat", k or b.axis(1), axis["apart", i] or b.axis(1), new, t, x.term), new
        return Named(t, tuple(k if d == self.axis else axis[d] for d in range(out.rank)))


class Pad(Op):
    """`low` elements before and `high` after, along one axis, all of one value."""

    axis: int
    low: int
    high: int
    value: float
    onnx = "Pad"

    def infer(self, x: TensorType) -> TensorType:
        if not 0 <= self.axis < x.rank or self.low < 0 or self.high < 0:
            raise TypeMismatch(f"padding {self.low}, {self.high} along axis {self.axis} does not fit {x}")
        n = x.shape[self.axis] + self.low + self.high
        return TensorType(x.dtype, (*x.shape[: self.axis], n, *x.shape[self.axis + 1 :]))

    def reference(self, x: np.ndarray) -> np.ndarray:
        width = [(self.low, self.high) if i == self.axis else (0, 0) for i in range(x.ndim)]
        with np.errstate(all="ignore"):
            return np.pad(x, width, constant_values=np.asarray(self.value).astype(x.dtype))

    def lower(self, b: Lowering, out: TensorType, *xs: Named) -> Named:
        (x,) = xs
        if not self.low and not self.high:
            return x
        new = b.fresh(out.shape[self.axis])
        if new is None:  # one element of padding beside nothing
            t = b.term("Num", float(self.value), out.dtype)
        else:
            t = b.term("Pad", x.axes[self.axis] or b.axis(1), new, self.low, float(self.value), x.term)
        return Named(t, (*x.axes[: self.axis], new, *x.axes[self.axis + 1 :]))


class Diagonal(Op):
    """The elements with equal positions on two axes of one size, as a new last axis."""

    axis1: int
    axis2: int
    view = "once"

    def infer(self, x: TensorType) -> TensorType:
        i, j = self.axis1, self.axis2
        if not (0 <= i < x.rank and 0 <= j < x.rank and i != j and x.shape[i] == x.shape[j]):
            raise TypeMismatch(f"the diagonal of axes {i} and {j} does not fit {x}")
        rest = tuple(s for d, s in enumerate(x.shape) if d not in (i, j))
        return TensorType(x.dtype, (*rest, x.shape[i]))

    def reference(self, x: np.ndarray) -> np.ndarray:
        return np.diagonal(x, axis1=self.axis1, axis2=self.axis2)

    def lower(self, b: Lowering, out: TensorType, *xs: Named) -> Named:
        (x,) = xs
        i, j = x.axes[self.axis1], x.axes[self.axis2]
        rest = tuple(k for d, k in enumerate(x.axes) if d not in (self.axis1, self.axis2))
        if i is None or j is None:
            return Named(x.term, (*rest, None))
        new = b.axis(b.size(i))
        return Named(b.term("Diag", i, j, new, x.term), (*rest, new))
