"""Folds over axes."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from waxeq.basis.scalar import REDUCERS, load
from waxeq.errors import TypeMismatch
from waxeq.ir.op import Lowering, Named, Op
from waxeq.ir.types import TensorType

_PICKS = ("argmax", "argmin")


class Reduce(Op):
    """A fold over `axes` (ascending, non-negative): sum, max, min, prod, any, all; argmax and argmin take one axis."""

    f: str
    axes: tuple[int, ...]
    keepdims: bool = False
    functions: ClassVar = frozenset({"sum", *REDUCERS})

    @property
    def label(self) -> str:
        return self.f

    def infer(self, x: TensorType) -> TensorType:
        if tuple(sorted(set(self.axes))) != self.axes or any(not 0 <= a < x.rank for a in self.axes):
            raise TypeMismatch(f"{self.f} over axes {self.axes} does not fit {x}")
        if self.f not in self.functions:
            raise TypeMismatch(f"no fold is called {self.f!r}")
        if self.f in _PICKS and len(self.axes) != 1:
            raise TypeMismatch(f"{self.f} takes one axis, not {self.axes}")
        if (x.dtype == "bool" and self.f in ("sum", "prod")) or (x.dtype != "bool" and self.f in ("any", "all")):
            raise TypeMismatch(f"{self.f} is not defined on {x.dtype}; cast first")
        if self.f in ("max", "min", *_PICKS) and any(x.shape[a] == 0 for a in self.axes):
            raise TypeMismatch(f"{self.f} over an axis of size 0 of {x} has no value")
        kept = tuple(1 if i in self.axes else s for i, s in enumerate(x.shape) if self.keepdims or i not in self.axes)
        return TensorType("int64" if self.f in _PICKS else x.dtype, kept)

    def reference(self, x: np.ndarray) -> np.ndarray:
        if self.f in _PICKS:
            return np.asarray(load(REDUCERS[self.f][0])(x, axis=self.axes[0], keepdims=self.keepdims))
        if self.f in ("sum", "prod"):
            fold = np.add if self.f == "sum" else np.multiply
            return np.asarray(fold.reduce(x, axis=self.axes, keepdims=self.keepdims, dtype=x.dtype))
        return np.asarray(load(REDUCERS[self.f][0]).reduce(x, axis=self.axes, keepdims=self.keepdims))

    def lower(self, b: Lowering, out: TensorType, *xs: Named) -> Named:
        (x,) = xs
        t = x.term
        for i in self.axes:
            k = x.axes[i]
            if k is None:
                t = b.term("Num", 0.0, "int64") if self.f in _PICKS else t
            else:
                t = b.term("Sum", k, t) if self.f == "sum" else b.term("Red", self.f, k, t)
        kept = (None if i in self.axes else k for i, k in enumerate(x.axes) if self.keepdims or i not in self.axes)
        return Named(t, tuple(kept))
