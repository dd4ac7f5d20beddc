"""Values that come from nowhere: scalars and index ranges."""

from __future__ import annotations

import math

import numpy as np

from waxeq.ir.op import Lowering, Named, Op
from waxeq.ir.types import TensorType, numpy_dtype


class Const(Op):
    """A scalar of the given dtype."""

    value: float | int | bool
    dtype: str

    def __post_init__(self) -> None:
        if self.value != self.value:
            object.__setattr__(self, "value", math.nan)  # one object, so that equal constants are equal

    def infer(self) -> TensorType:
        return TensorType(self.dtype, ())

    def reference(self) -> np.ndarray:
        with np.errstate(all="ignore"):
            return np.asarray(self.value).astype(numpy_dtype(self.dtype))

    def lower(self, b: Lowering, out: TensorType) -> Named:
        if self.value == 0 and math.copysign(1.0, self.value) < 0:  # the e-graph has one zero
            return Named(b.term("Map", "neg", b.term("Num", 0.0, self.dtype)), ())
        if float(self.value) == self.value or self.value != self.value:
            return Named(b.term("Num", float(self.value), self.dtype), ())
        high, low = divmod(int(self.value), 1 << 32)  # an integer that float64 does not hold
        scale, rest = (b.term("Num", float(v), self.dtype) for v in (1 << 32, low))
        return Named(b.term("Add", b.term("Mul", b.term("Num", float(high), self.dtype), scale), rest), ())


class Iota(Op):
    """0, 1, ... size-1."""

    size: int
    dtype: str
    onnx = "Range"

    def infer(self) -> TensorType:
        return TensorType(self.dtype, (self.size,))

    def reference(self) -> np.ndarray:
        return np.arange(self.size).astype(numpy_dtype(self.dtype))

    def lower(self, b: Lowering, out: TensorType) -> Named:
        k = b.fresh(self.size)
        return Named(b.term("Num", 0.0, self.dtype) if k is None else b.term("Iota", k, self.dtype), (k,))
