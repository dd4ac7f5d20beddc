"""Windows that slide along an axis."""

from __future__ import annotations

import numpy as np

from waxeq.errors import TypeMismatch
from waxeq.ir.op import Lowering, Named, Op
from waxeq.ir.types import TensorType
from waxeq.ops.movement import Slice


class Unfold(Op):
    """Windows of `size` elements, `dilation` apart, that start every `stride` elements of an axis: the axis counts the
    windows, a new last axis the elements of each. Element [.. o .., w] is element o*stride + w*dilation."""

    axis: int
    size: int
    stride: int = 1
    dilation: int = 1
    view = "again"

    def infer(self, x: TensorType) -> TensorType:
        ok = 0 <= self.axis < x.rank and min(self.size, self.stride, self.dilation) >= 1
        count = self.count(x.shape[self.axis]) if ok else 0
        if count < 1:
            raise TypeMismatch(f"windows of {self.size} elements along axis {self.axis} do not fit {x}")
        return TensorType(x.dtype, (*x.shape[: self.axis], count, *x.shape[self.axis + 1 :], self.size))

    def count(self, n: int) -> int:
        """How many windows an axis of size n holds."""
        return (n - self.dilation * (self.size - 1) - 1) // self.stride + 1

    def reference(self, x: np.ndarray) -> np.ndarray:
        windows = np.lib.stride_tricks.sliding_window_view(x, self.dilation * (self.size - 1) + 1, axis=self.axis)
        return windows[(slice(None),) * self.axis + (slice(None, None, self.stride), ...)][..., :: self.dilation]

    def lower(self, b: Lowering, out: TensorType, *xs: Named) -> Named:
        (x,) = xs
        k, count = x.axes[self.axis], out.shape[self.axis]
        part = TensorType(out.dtype, out.shape[:-1])
        if self.size == 1:
            y = Slice(self.axis, 0, self.stride, count).lower(b, part, x)
            return Named(y.term, (*y.axes, None))
        if count == 1:
            y = Slice(self.axis, 0, self.dilation, self.size).lower(b, part, x)
            rest = (None if i == self.axis else a for i, a in enumerate(y.axes))
            return Named(y.term, (*rest, y.axes[self.axis]))
        assert k is not None
        o, w = b.axis(count), b.axis(self.size)
        t = b.term("Unfold", k, o, w, self.stride, self.dilation, x.term)
        return Named(t, (*x.axes[: self.axis], o, *x.axes[self.axis + 1 :], w))
