"""Running folds and sorting along an axis."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar, Literal

import numpy as np

from waxeq.basis.scalar import SCANS, load
from waxeq.errors import TypeMismatch
from waxeq.ir.op import Lowering, Named, Op
from waxeq.ir.types import TensorType, comparable

_WIDE = 512
"""Elements beside each other from which on a step of a running fold is one call of NumPy."""


def _require_axis(what: str, axis: int, x: TensorType) -> None:
    if not 0 <= axis < x.rank:
        raise TypeMismatch(f"{what} along axis {axis} does not fit {x}")


class Scan(Op):
    """The running fold along an axis: sum, prod, max or min of the elements up to each place, it included."""

    f: str
    axis: int
    onnx = "CumSum"
    functions: ClassVar = frozenset(SCANS)

    @property
    def label(self) -> str:
        return f"running {self.f}"

    def infer(self, x: TensorType) -> TensorType:
        _require_axis(self.label, self.axis, x)
        if self.f not in SCANS or x.dtype == "bool":
            raise TypeMismatch(f"{self.label} is not defined on {x.dtype}; cast first")
        return x

    def reference(self, x: np.ndarray) -> np.ndarray:
        return load(SCANS[self.f]).accumulate(x, axis=self.axis, dtype=x.dtype)

    def ideal(self, x: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        fold, y = load(SCANS[self.f]), np.empty_like(x) if out is None else out
        if math.prod(x.shape[self.axis + 1 :]) < _WIDE:
            return fold.accumulate(x, axis=self.axis, dtype=x.dtype, out=y)
        # the same folds in the same order, a whole step at a time: NumPy goes along the axis element by element, and
        # each of these is in another line of the cache
        steps, rows = np.moveaxis(y, self.axis, 0), np.moveaxis(x, self.axis, 0)
        steps[:1] = rows[:1]
        for i in range(1, len(rows)):
            fold(steps[i - 1], rows[i], out=steps[i])
        return y

    @property
    def ideal_into(self) -> Callable[..., np.ndarray]:
        return self.ideal

    def lower(self, b: Lowering, out: TensorType, *xs: Named) -> Named:
        (x,) = xs
        k = x.axes[self.axis]
        return x if k is None else Named(b.term("Scan", self.f, k, x.term), x.axes)


def quickest(dtype: np.dtype) -> Literal["quicksort", "stable"]:
    """The kind of NumPy's sort that takes the least: its stable one goes by the digits of narrow integers."""
    return "stable" if dtype.itemsize <= 2 and dtype != np.float16 else "quicksort"


class Sort(Op):
    """Elements of each row along an axis in rising order, NaN last."""

    axis: int

    def infer(self, x: TensorType) -> TensorType:
        _require_axis("sort", self.axis, x)
        return x

    def reference(self, x: np.ndarray) -> np.ndarray:
        y = comparable(x)
        return np.sort(y, axis=self.axis, kind=quickest(y.dtype)).astype(x.dtype, copy=False)

    def lower(self, b: Lowering, out: TensorType, *xs: Named) -> Named:
        (x,) = xs
        k = x.axes[self.axis]
        return x if k is None else Named(b.term("Sort", k, x.term), x.axes)


class Argsort(Op):
    """Positions that sort each row along an axis; equal elements keep their order."""

    axis: int

    def infer(self, x: TensorType) -> TensorType:
        _require_axis("argsort", self.axis, x)
        return TensorType("int64", x.shape)

    def reference(self, x: np.ndarray) -> np.ndarray:
        return np.argsort(comparable(x), axis=self.axis, kind="stable")

    def lower(self, b: Lowering, out: TensorType, *xs: Named) -> Named:
        (x,) = xs
        k = x.axes[self.axis]
        return Named(b.term("Num", 0.0, "int64") if k is None else b.term("Argsort", k, x.term), x.axes)
