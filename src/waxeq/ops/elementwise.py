"""Functions of the elements. Operands have one dtype and broadcast by NumPy's rule; casts are ops of their own."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from waxeq.basis.scalar import ADD, MUL, SCALARS, Scalar
from waxeq.errors import TypeMismatch
from waxeq.ir.op import Lowering, Named, Op
from waxeq.ir.types import TensorType, is_float, is_integer, numpy_dtype


def broadcast(*types: TensorType) -> tuple[int, ...]:
    """The shape operands broadcast to; raises TypeMismatch naming the shapes."""
    try:
        return np.broadcast_shapes(*(t.shape for t in types))
    except ValueError as e:
        raise TypeMismatch(f"shapes {' and '.join(str(t.shape) for t in types)} do not broadcast") from e


def _require_function(f: str, functions: frozenset[str]) -> None:
    if f not in functions:
        raise TypeMismatch(f"no function of this many scalars is called {f!r}")


def _require(f: Scalar, *types: TensorType) -> None:
    if len({t.dtype for t in types}) > 1:
        raise TypeMismatch(f"{f.name} takes one dtype, not {' and '.join(t.dtype for t in types)}; cast first")
    d = types[0].dtype
    fits = {"float": is_float(d), "number": d != "bool", "integer": is_integer(d), "bool": d == "bool", "any": True}
    if d == "bfloat16" and f.ufunc.startswith("scipy."):
        raise TypeMismatch(f"{f.name} is not defined on bfloat16, which SciPy does not know; cast to float32 first")
    if not fits[f.takes]:
        raise TypeMismatch(f"{f.name} is not defined on {d}")


class Map(Op):
    """A function of one scalar from `basis.scalar.SCALARS`, at every element."""

    pointwise = True
    f: str
    functions: ClassVar = frozenset(n for n, s in SCALARS.items() if s.arity == 1)

    @property
    def label(self) -> str:
        return self.f

    @property
    def scalar(self) -> Scalar:
        return SCALARS[self.f]

    def infer(self, x: TensorType) -> TensorType:
        _require_function(self.f, self.functions)
        f = self.scalar
        _require(f, x)
        return TensorType("bool" if f.gives == "bool" else x.dtype, x.shape)

    def reference(self, x: np.ndarray) -> np.ndarray:
        return SCALARS[self.f](x)

    @property
    def ufunc(self) -> np.ufunc | None:
        return self.scalar.own_ufunc

    def lower(self, b: Lowering, out: TensorType, *xs: Named) -> Named:
        (x,) = xs
        return Named(b.term("Map", self.f, x.term), x.axes)


class Zip(Op):
    """A function of two scalars: `add`, `mul` or one of `basis.scalar.SCALARS`."""

    pointwise = True
    f: str
    functions: ClassVar = frozenset({"add", "mul", *(n for n, s in SCALARS.items() if s.arity == 2)})

    @property
    def label(self) -> str:
        return self.f

    @property
    def scalar(self) -> Scalar:
        return {"add": ADD, "mul": MUL}.get(self.f) or SCALARS[self.f]

    def infer(self, x: TensorType, y: TensorType) -> TensorType:
        _require_function(self.f, self.functions)
        _require(self.scalar, x, y)
        return TensorType("bool" if self.scalar.gives == "bool" else x.dtype, broadcast(x, y))

    def reference(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return self.scalar(x, y)

    @property
    def ufunc(self) -> np.ufunc | None:
        return self.scalar.own_ufunc

    def lower(self, b: Lowering, out: TensorType, *xs: Named) -> Named:
        (x, y), axes = b.align(*xs)
        head: tuple[Any, ...] = {"add": ("Add",), "mul": ("Mul",)}.get(self.f, ("Zip", self.f))
        return Named(b.term(*head, x.term, y.term), axes)


class Select(Op):
    """x where the condition holds, else y."""

    pointwise = True
    onnx = "Where"

    def infer(self, c: TensorType, x: TensorType, y: TensorType) -> TensorType:
        if c.dtype != "bool" or x.dtype != y.dtype:
            raise TypeMismatch(
                f"Select takes a bool and two operands of one dtype, not {c.dtype}, {x.dtype}, {y.dtype}"
            )
        return TensorType(x.dtype, broadcast(c, x, y))

    def reference(self, c: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.where(c, x, y)

    def lower(self, b: Lowering, out: TensorType, *xs: Named) -> Named:
        (c, x, y), axes = b.align(*xs)
        return Named(b.term("Select", c.term, x.term, y.term), axes)


class Cast(Op):
    """Conversion to another dtype, as NumPy's astype."""

    pointwise = True
    dtype: str
    onnx = "Cast"

    def infer(self, x: TensorType) -> TensorType:
        return TensorType(self.dtype, x.shape)

    def reference(self, x: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            return x.astype(numpy_dtype(self.dtype))

    def ideal(self, x: np.ndarray) -> np.ndarray:
        return x if x.dtype == np.float64 and is_float(self.dtype) else self.reference(x)

    def lower(self, b: Lowering, out: TensorType, *xs: Named) -> Named:
        (x,) = xs
        return Named(b.term("Cast", self.dtype, x.term), x.axes)
