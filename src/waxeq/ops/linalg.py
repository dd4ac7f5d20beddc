"""Ops on square matrices, which lie along the last two dimensions: systems of equations, factors, determinants."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from waxeq.basis.evaluate import determinant
from waxeq.basis.heads import MATRICES
from waxeq.basis.scalar import DETERMINANTS
from waxeq.errors import TypeMismatch
from waxeq.ir.op import Lowering, Named, Op
from waxeq.ir.term import Term
from waxeq.ir.types import TensorType


def _require_square(what: str, a: TensorType) -> None:
    if a.rank < 2 or a.shape[-1] != a.shape[-2]:
        raise TypeMismatch(f"{what} takes square matrices along the last two dimensions, not {a}")
    if a.dtype not in MATRICES:
        raise TypeMismatch(f"{what} is not defined on {a.dtype}; cast to float32 or float64 first")


class Solve(Op):
    """x with a @ x = b, for matrices a (..., n, n) and b (..., n, m); what is before them broadcasts. Raises
    np.linalg.LinAlgError for a matrix that is singular."""

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        _require_square("solve", a)
        if b.dtype != a.dtype or b.rank < 2 or b.shape[-2] != a.shape[-1]:
            raise TypeMismatch(f"solve of {a} for {b}: the right side is (..., n, m) and of the matrix's dtype")
        try:
            batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        except ValueError as e:
            raise TypeMismatch(f"solve: {a} and {b} do not broadcast") from e
        return TensorType(a.dtype, (*batch, *b.shape[-2:]))

    def reference(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.linalg.solve(a, b)

    def lower(self, b: Lowering, out: TensorType, *xs: Named) -> Named:
        labels = []
        for x, last in zip(xs, (("row", "column"), ("row", "side")), strict=True):
            labels.append([*range(out.rank - len(x.axes), out.rank - 2), *last])
        (a, right), axis = b.join(*zip(xs, labels, strict=True))
        i, j = axis["row"], axis["column"]
        if i is None or j is None:
            i, j = b.axis(1), b.axis(1)
            term = _only(b, b.term("Solve", i, j, a.term, right.term), j)
        else:
            term = b.term("Solve", i, j, a.term, right.term)
        return Named(term, (*(axis[d] for d in range(out.rank - 2)), axis["column"], axis["side"]))


class Cholesky(Op):
    """The lower triangular l with l @ l.T = a, zeros above its diagonal, for symmetric matrices a (..., n, n), of which
    only the lower triangle is read. Raises np.linalg.LinAlgError for one that is not positive definite."""

    def infer(self, a: TensorType) -> TensorType:
        _require_square("cholesky", a)
        return a

    def reference(self, a: np.ndarray) -> np.ndarray:
        return np.linalg.cholesky(a)

    def lower(self, b: Lowering, out: TensorType, *xs: Named) -> Named:
        (a,) = xs
        *_, i, j = a.axes
        if i is None or j is None:
            i, j = b.axis(1), b.axis(1)
            return Named(_only(b, b.term("Cholesky", i, j, a.term), i, j), a.axes)
        return Named(b.term("Cholesky", i, j, a.term), a.axes)


class Determinant(Op):
    """Of matrices (..., n, n) the determinant (f = "det"), its sign ("sign": -1, 0 or 1) or the logarithm of its
    magnitude ("logabs"), which is finite where the determinant itself overflows."""

    f: str
    functions: ClassVar = frozenset(DETERMINANTS)

    @property
    def label(self) -> str:
        return f"determinant {self.f}"

    def infer(self, a: TensorType) -> TensorType:
        _require_square("the determinant", a)
        if self.f not in self.functions:
            raise TypeMismatch(f"there is no determinant {self.f!r}")
        return TensorType(a.dtype, a.shape[:-2])

    def reference(self, a: np.ndarray) -> np.ndarray:
        return determinant(self.f, a)

    def lower(self, b: Lowering, out: TensorType, *xs: Named) -> Named:
        (a,) = xs
        *rest, i, j = a.axes
        if i is not None and j is not None:
            term = b.term("Det", self.f, i, j, a.term)
        elif self.f == "det":
            term = a.term
        elif self.f == "sign":
            term = b.term("Map", "sign", a.term)
        else:
            term = b.term("Map", "log", b.term("Map", "abs", a.term))
        return Named(term, tuple(rest))


def _only(b: Lowering, t: Term, *axes: str) -> Term:
    """What there is along axes of size 1, which are left out then."""
    for k in axes:
        t = b.term("Gather", k, b.term("Num", 0.0, "int64"), t)
    return t
