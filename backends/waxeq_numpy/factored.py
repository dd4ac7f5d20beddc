"""Kernels that factor matrices: LAPACK, called from NumPy, which goes through a batch matrix by matrix."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from waxeq.backend.call import Call, aligned
from waxeq.backend.kernel import Instruction, Kernel
from waxeq.basis.evaluate import determinant
from waxeq.basis.matrices import places


class _Factored(Kernel):
    """Takes any strides; allocates while it runs. Raises np.linalg.LinAlgError as NumPy does."""

    def accepts(self, call: Call) -> bool:
        return True

    def features(self, call: Call) -> Mapping[str, float]:
        i, j, a = places(call.meaning.head, call.meaning.args)
        n = call.sizes[i]
        batch = math.prod(call.sizes[k] for k in a.args[1] if k not in (i, j))
        moved = sum(v.bytes for v in (*call.operands, call.out))
        return {"launches": 1.0, "batches": batch, "flops": self.operations(call, n, batch), "slow_bytes": float(moved)}

    @abstractmethod
    def operations(self, call: Call, n: int, batch: float) -> float:
        """Of `batch` matrices of n rows."""

    def bind(
        self, call: Call, operands: Sequence[np.ndarray], out: np.ndarray, workspace: np.ndarray
    ) -> Sequence[Instruction]:
        i, j, _ = places(call.meaning.head, call.meaning.args)
        a = call.operands[0]
        rest = tuple(k for k in a.axes if k not in (i, j))
        m = aligned(operands[0], a, (*rest, i, j))
        m = np.broadcast_to(m, (*m.shape[:-2], call.sizes[i], call.sizes[j]))
        f, order = self.made(call, m, rest, operands[1:])
        more = tuple(k for k in call.out.axes if k not in order)
        return (partial(_written, f, aligned(out, call.out, (*more, *order))),)

    @abstractmethod
    def made(
        self, call: Call, m: np.ndarray, rest: tuple[str, ...], others: Sequence[np.ndarray]
    ) -> tuple[Callable[[], np.ndarray], tuple[str, ...]]:
        """What makes the result of matrices m, along `rest`, and its axes."""


def _written(f: Callable[[], np.ndarray], out: np.ndarray) -> None:
    np.copyto(out, f())


class Solve(_Factored):
    """Systems of equations, by triangular factors with the rows exchanged."""

    name = "solve"
    pattern = "(Solve i j a b)"

    def operations(self, call: Call, n: int, batch: float) -> float:
        return batch * 2 / 3 * n**3 + 2.0 * n * call.out.elements

    def made(
        self, call: Call, m: np.ndarray, rest: tuple[str, ...], others: Sequence[np.ndarray]
    ) -> tuple[Callable[[], np.ndarray], tuple[str, ...]]:
        return self.solving(call, m, rest, others, np.asarray)

    @staticmethod
    def solving(
        call: Call,
        m: np.ndarray,
        rest: tuple[str, ...],
        others: Sequence[np.ndarray],
        part: Callable[[np.ndarray], np.ndarray],
    ) -> tuple[Callable[[], np.ndarray], tuple[str, ...]]:
        """With that part of the matrices."""
        i, j, _ = places(call.meaning.head, call.meaning.args)
        b, n = call.operands[1], call.sizes[i]
        sides = tuple(k for k in b.axes if k != i and k not in rest)
        right = aligned(others[0], b, (*rest, i, *sides))
        batch, wide = right.shape[: len(rest)], right.shape[len(rest) + 1 :]
        right = np.broadcast_to(right, (*batch, n, *wide))

        def solved() -> np.ndarray:
            x = np.linalg.solve(part(m), right.reshape((*batch, n, math.prod(wide))))
            return x.reshape((*x.shape[:-1], *wide))

        return solved, (*rest, j, *sides)


class Triangular(Solve):
    """Systems of equations with one triangle of a matrix."""

    name = "triangular"
    pattern = "(Triangular f i j a b)"

    def made(
        self, call: Call, m: np.ndarray, rest: tuple[str, ...], others: Sequence[np.ndarray]
    ) -> tuple[Callable[[], np.ndarray], tuple[str, ...]]:
        return self.solving(call, m, rest, others, np.tril if call.meaning.args[0] == "lower" else np.triu)


class Cholesky(_Factored):
    """Factors of symmetric matrices."""

    name = "cholesky"
    pattern = "(Cholesky i j a)"

    def operations(self, call: Call, n: int, batch: float) -> float:
        return batch / 3 * n**3

    def made(
        self, call: Call, m: np.ndarray, rest: tuple[str, ...], others: Sequence[np.ndarray]
    ) -> tuple[Callable[[], np.ndarray], tuple[str, ...]]:
        i, j = call.meaning.args[:2]
        return partial(np.linalg.cholesky, m), (*rest, i, j)


class Determinant(_Factored):
    """Determinants, by triangular factors."""

    name = "determinant"
    pattern = "(Det f i j a)"

    def operations(self, call: Call, n: int, batch: float) -> float:
        return batch * 2 / 3 * n**3

    def made(
        self, call: Call, m: np.ndarray, rest: tuple[str, ...], others: Sequence[np.ndarray]
    ) -> tuple[Callable[[], np.ndarray], tuple[str, ...]]:
        return partial(determinant, call.meaning.args[0], m), rest


KERNELS = (Solve, Triangular, Cholesky, Determinant)
