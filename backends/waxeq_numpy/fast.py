"""Fused loops in which costly functions are approximated by a few cheap steps on a tile in cache."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from waxeq.backend.call import Call
from waxeq.backend.kernel import Instruction
from waxeq.ir.term import Term, postorder
from waxeq_numpy.loops import Loops
from waxeq_numpy.nest import Nest, Stage, nest

_LINE = 64


@dataclass(frozen=True)
class Approximation:
    """Steps that compute a function of float32 values with `registers` scratch arrays of the tile's shape; `error` is
    the largest relative error measured over all finite arguments, `passes` how many ufuncs run."""

    steps: Callable[[np.ndarray, np.ndarray, Sequence[np.ndarray]], Iterator[Instruction]]
    registers: int
    passes: int
    error: float


_ERF_P = (1.1283791, 0.19352508, 0.05309907, 0.0038824903, 0.0002845471, 1.9869312e-06)
_ERF_Q = (1.0, 0.5048397, 0.11534172, 0.015205526, 0.0011853658, 3.742076e-05)
"""erf x = x P(x^2) / Q(x^2) on |x| <= 4: least squares in relative error, iterated after Sanathanan and Koerner (IEEE
Trans. Automatic Control 8, 1963). At 4 the function is 1 to float32 precision."""


def _erf(x: np.ndarray, out: np.ndarray, registers: Sequence[np.ndarray]) -> Iterator[Instruction]:
    z, q = registers
    f = np.float32
    yield partial(np.minimum, x, f(4), out=out)
    yield partial(np.maximum, out, f(-4), out=out)
    yield partial(np.multiply, out, out, out=z)
    yield from _polynomial(_ERF_Q, z, q)
    yield partial(np.divide, out, q, out=out)
    yield from _polynomial(_ERF_P, z, q)
    yield partial(np.multiply, out, q, out=out)
    yield partial(np.clip, out, f(-1), f(1), out=out)  # what reads the result may rely on its range


def _polynomial(coefficients: Sequence[float], z: np.ndarray, out: np.ndarray) -> Iterator[Instruction]:
    """Horner's scheme, lowest coefficient first in the list."""
    *rest, second, first = (np.float32(c) for c in coefficients)
    yield partial(np.multiply, z, first, out=out)
    yield partial(np.add, out, second, out=out)
    for c in reversed(rest):
        yield partial(np.multiply, out, z, out=out)
        yield partial(np.add, out, c, out=out)


APPROXIMATIONS: Mapping[str, Approximation] = {"erf": Approximation(_erf, 2, 26, 5e-7)}


def _approximated(t: Term) -> Approximation | None:
    return APPROXIMATIONS.get(t.args[0]) if t.head == "Map" else None


class FastLoops(Loops):
    """Loops in tiles of about 32 Ki elements, with approximations in float32 for the functions that have one."""

    name = "loops_fast"
    target = 1 << 15
    tiled = False
    error = max(a.error for a in APPROXIMATIONS.values())

    def matches(self, meaning: Term) -> bool:
        return any(_approximated(t) for t in postorder(meaning))

    def fits(self, n: Nest) -> bool:
        return all(n.kinds[t.terms[0]].dtype == "float32" for t in n.terms if _approximated(t))

    def workspace(self, call: Call) -> int:
        n = nest(call, self.target)
        return n.scratch + _registers(n) * _width(n)

    def passes(self, s: Stage) -> Mapping[str, int]:
        a = _approximated(s.term)
        return super().passes(s) if a is None else {"add": a.passes}

    def steps(
        self, n: Nest, s: Stage, xs: list[np.ndarray], out: np.ndarray, workspace: np.ndarray
    ) -> Iterator[Instruction]:
        a = _approximated(s.term)
        if a is None:
            yield from super().steps(n, s, xs, out, workspace)
        else:
            places = (n.scratch + i * _width(n) for i in range(a.registers))
            yield from a.steps(xs[0], out, [np.ndarray(out.shape, out.dtype, workspace.data, p) for p in places])


def _registers(n: Nest) -> int:
    return max((a.registers for t in n.terms if (a := _approximated(t))), default=0)


def _width(n: Nest) -> int:
    """Bytes of the largest register, whole cache lines."""
    need = max((math.prod(n.extent(s.axes)) * 4 for s in n.stages if _approximated(s.term)), default=0)
    return -(-need // _LINE) * _LINE


KERNELS = (FastLoops,)
