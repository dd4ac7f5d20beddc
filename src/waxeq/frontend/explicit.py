"""NumPy's implicit rules made explicit: promotion, broadcasting, negative axes become ops and attributes of a graph."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from waxeq.errors import TypeMismatch
from waxeq.ir.graph import GraphBuilder
from waxeq.ir.types import TensorType, dtype_name, is_float, numpy_dtype
from waxeq.ops.elementwise import Cast, Map, Select, Zip
from waxeq.ops.movement import BroadcastTo
from waxeq.ops.source import Const

Scalar = bool | int | float
Operand = int | Scalar
"""A value of the graph under construction, given as `Value`, or a Python scalar."""


class Value(int):
    """The number of a value in a GraphBuilder, told apart from a Python int."""


def axis_index(axis: int, rank: int) -> int:
    """A non-negative axis. Raises TypeMismatch."""
    if not -rank <= axis < rank:
        raise TypeMismatch(f"axis {axis} is out of bounds for an array of {rank} dimensions")
    return axis % rank


def axes_tuple(axis: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Ascending non-negative axes; None is all of them. Raises TypeMismatch."""
    if axis is None:
        return tuple(range(rank))
    rows = (axis,) if isinstance(axis, (int, np.integer)) else tuple(axis)
    found = sorted(axis_index(int(a), rank) for a in rows)
    if len(set(found)) < len(found):
        raise TypeMismatch(f"an axis is named twice in {rows}")
    return tuple(found)


class Explicit:
    """Adds ops to a builder with NumPy's rules applied."""

    def __init__(self, builder: GraphBuilder) -> None:
        self.b = builder

    def type(self, x: Value) -> TensorType:
        return self.b.type(x)

    def const(self, value: Scalar, dtype: str) -> Value:
        """A scalar. Raises OverflowError, as NumPy does, for a Python int that the dtype does not hold."""
        if is_float(dtype):
            return Value(self.b(Const(float(value), dtype)))
        return Value(self.b(Const(np.asarray(value, numpy_dtype(dtype)).item(), dtype)))

    def cast(self, x: Value, dtype: str) -> Value:
        return x if self.type(x).dtype == dtype else Value(self.b(Cast(dtype), x))

    def common_dtype(self, *xs: Operand) -> str:
        """The dtype that operands have in common: NumPy 2's rule, Python scalars being weak (NEP 50)."""
        kinds = [self.type(x).numpy if isinstance(x, Value) else type(x) for x in xs]
        return dtype_name(np.result_type(*(k if isinstance(k, np.dtype) else k(0) for k in kinds)))

    def common(self, *xs: Operand) -> tuple[Value, ...]:
        """Operands in their common dtype."""
        dtype = self.common_dtype(*xs)
        return tuple(self.to(x, dtype) for x in xs)

    def wrapped(self, *xs: Operand) -> tuple[Value, ...]:
        """Operands in their common dtype, as functions that choose among them have it: what it does not hold of a
        Python int is cut off, as in a cast of an int64. Raises OverflowError for one that no 64 bits hold."""
        dtype = self.common_dtype(*xs)
        rows = (x if isinstance(x, (Value, float)) else np.asarray(x) for x in xs)
        cut = (r.astype(numpy_dtype(dtype)).item() if isinstance(r, np.ndarray) else r for r in rows)
        return tuple(self.to(x, dtype) for x in cut)

    def to(self, x: Operand, dtype: str) -> Value:
        """An operand in the given dtype."""
        return self.cast(x, dtype) if isinstance(x, Value) else self.const(x, dtype)

    def map(self, f: str, x: Value) -> Value:
        return Value(self.b(Map(f), x))

    def zip(self, f: str, x: Operand, y: Operand) -> Value:
        return Value(self.b(Zip(f), *self.common(x, y)))

    def full(self, value: Scalar, dtype: str, shape: tuple[int, ...]) -> Value:
        return Value(self.b(BroadcastTo(shape), self.const(value, dtype)))

    def select(self, c: Value, x: Operand, y: Operand) -> Value:
        return Value(self.b(Select(), self.cast(c, "bool"), *self.common(x, y)))
