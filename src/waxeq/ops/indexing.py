"""Ops that take or put elements at positions that are themselves data. Negative positions count from the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

import numpy as np

from waxeq.basis.scalar import SCATTERS
from waxeq.errors import TypeMismatch
from waxeq.ir.op import Lowering, Named, Op
from waxeq.ir.term import Term
from waxeq.ir.types import TensorType, is_integer


class Gather(Op):
    """Elements of one axis at the positions of an integer tensor, as NumPy's take: the index's dimensions stand where
    the axis was."""

    axis: int
    onnx = "Gather"

    def infer(self, x: TensorType, index: TensorType) -> TensorType:
        if not 0 <= self.axis < x.rank or not is_integer(index.dtype):
            raise TypeMismatch(f"take along axis {self.axis} does not fit {x} at {index}")
        return TensorType(x.dtype, (*x.shape[: self.axis], *index.shape, *x.shape[self.axis + 1 :]))

    def reference(self, x: np.ndarray, index: np.ndarray) -> np.ndarray:
        return np.take(x, index, axis=self.axis)

    def lower(self, b: Lowering, out: TensorType, *xs: Named) -> Named:
        x, index = xs
        labels = (list(range(len(x.axes))), [("index", i) for i in range(len(index.axes))])
        (x, index), axis = b.join((x, labels[0]), (index, labels[1]))
        k = x.axes[self.axis]
        t = x.term if k is None else b.term("Gather", k, index.term, x.term)
        at = tuple(axis["index", i] for i in range(len(index.axes)))
        return Named(t, (*x.axes[: self.axis], *at, *x.axes[self.axis + 1 :]))


class TakeAlong(Op):
    """For each place of the index, the element of its own row of x along one axis, as NumPy's take_along_axis. The
    other dimensions broadcast."""

    axis: int
    onnx = "GatherElements"

    def infer(self, x: TensorType, index: TensorType) -> TensorType:
        a = self.axis
        if not 0 <= a < x.rank or x.rank != index.rank or not is_integer(index.dtype):
            raise TypeMismatch(f"take along axis {a} does not fit {x} at {index}")
        try:
            rest = np.broadcast_shapes(_without(x.shape, a), _without(index.shape, a))
        except ValueError as e:
            raise TypeMismatch(f"take along axis {a}: {x} and {index} do not broadcast") from e
        return TensorType(x.dtype, (*rest[:a], index.shape[a], *rest[a:]))

    def reference(self, x: np.ndarray, index: np.ndarray) -> np.ndarray:
        return np.take_along_axis(x, index.astype(np.int64), axis=self.axis)

    def lower(self, b: Lowering, out: TensorType, *xs: Named) -> Named:
        x, index = xs
        at = range(out.rank)
        labels = [["from" if d == self.axis else d for d in at], ["to" if d == self.axis else d for d in at]]
        (x, index), axis = b.join((x, labels[0]), (index, labels[1]))
        k = x.axes[self.axis]
        t = x.term if k is None else b.term("Gather", k, index.term, x.term)
        return Named(t, tuple(axis[d] for d in labels[1]))


_AT: Mapping[str, Callable[..., None]] = {"add": np.add.at, "max": np.maximum.at, "min": np.minimum.at}


class Scatter(Op):
    """x with `update` put (f = "set"; the last one stays), added ("add"), or kept where it is larger ("max") or smaller
    ("min") at positions along one axis. The index is a vector; update is x with its length there."""

    f: str
    axis: int
    functions: ClassVar = frozenset(SCATTERS)

    def infer(self, x: TensorType, index: TensorType, update: TensorType) -> TensorType:
        a = self.axis
        fits = 0 <= a < x.rank and index.rank == 1 and is_integer(index.dtype) and x.dtype == update.dtype
        if not fits or update.shape != (*x.shape[:a], *index.shape, *x.shape[a + 1 :]):
            raise TypeMismatch(f"scatter of {update} at {index} along axis {a} does not fit {x}")
        if self.f not in self.functions or (self.f != "set" and x.dtype == "bool"):
            raise TypeMismatch(f"scatter by {self.f} is not defined on {x.dtype}")
        return x

    def reference(self, x: np.ndarray, index: np.ndarray, update: np.ndarray) -> np.ndarray:
        out = np.array(x)
        rows, given = np.moveaxis(out, self.axis, 0), np.moveaxis(update, self.axis, 0)
        if self.f == "set":
            rows[index] = given  # of several for one place NumPy keeps the last one
        else:
            _AT[self.f](rows, index, given)
        return out

    def lower(self, b: Lowering, out: TensorType, *xs: Named) -> Named:
        at = range(out.rank)
        labels = (["to" if d == self.axis else d for d in at], ["from"], ["from" if d == self.axis else d for d in at])
        (x, index, update), axis = b.join(*zip(xs, labels, strict=True))
        k, p = axis["to"], axis["from"]
        if p is not None and b.size(p) == 0:
            return xs[0]
        if k is None:
            t = self._onto_one(b, x, update, p)
        else:
            t = b.term("Scatter", self.f, k, p or b.axis(1), index.term, update.term, x.term)
        return Named(t, tuple(axis[d] for d in labels[0]))

    def _onto_one(self, b: Lowering, x: Named, update: Named, p: str | None) -> Term:
        """Along an axis of size 1 every update has the same place."""
        u = update.term
        if self.f == "set":
            return u if p is None else b.term("Gather", p, b.term("Num", -1.0, "int64"), u)
        if self.f == "add":
            return b.term("Add", x.term, u if p is None else b.term("Sum", p, u))
        return b.term("Zip", self.f, x.term, u if p is None else b.term("Red", self.f, p, u))


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return shape[:axis] + shape[axis + 1 :]
