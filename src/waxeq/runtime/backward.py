"""Whole numbers made from floats: how far off those must have been for a result to come out as it did.

Floats that differ in the last place may fall to two sides of a step, and what is made of them then differs by a whole
unit. What tells a plan that rounds otherwise from a plan that is wrong is the float before the step. Source: backward
errors, Wilkinson, Rounding Errors in Algebraic Processes, 1963.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from waxeq.ir.graph import Graph, Node
from waxeq.ir.types import is_float
from waxeq.ops.elementwise import Cast, Map, Zip

_STEPS = frozenset({"rint", "floor", "ceil", "trunc"})
_RISING = frozenset({"max", "min", "add", "sub"})
"""Functions that rise in their first argument, whatever the second one is."""
_SIGNED = frozenset({"mul", "div", "floordiv"})
"""Functions that rise in their first argument where the second one is above zero, and fall where it is below."""
_DOUBLINGS, _HALVINGS = 60, 30
"""How often the distance at which a step is looked for doubles, up to the size of a float or the RMS of all, and how
often the one at which it is found is halved."""

Function = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Steps:
    """How an output rises, or `falls`, in steps with a float of the model. `value`: the number of that in the graph;
    `moves`: how its elements are laid out in the output, `functions`: what each of them goes through."""

    value: int
    moves: tuple[Function, ...]
    functions: tuple[Function, ...]
    falls: bool

    def laid_out(self, value: np.ndarray) -> np.ndarray:
        """The float of each element of the output."""
        for f in self.moves:
            value = f(value)
        return value

    def taken(self, value: np.ndarray) -> np.ndarray:
        """What elements of the output come to."""
        with np.errstate(all="ignore"):
            for f in self.functions:
                value = f(value)
        return value

    def error(self, exact: np.ndarray, got: np.ndarray, written: np.ndarray) -> tuple[float, float]:
        """(largest, RMS) of what the float was off by at least, over its RMS. `exact`: the float in float64; `got`: the
        output; `written`: that of the model as written, which explains elements whose float is not finite. Infinite
        where elements are what no float nearby comes to."""
        y = self.laid_out(exact)
        if y.shape != got.shape or got.dtype != written.dtype:
            return np.inf, np.inf
        off = np.zeros(y.shape)
        rms = float(np.sqrt(np.mean(np.square(y[np.isfinite(y)])))) if np.isfinite(y).any() else 0.0
        other = self.taken(y) != got
        off[other] = self._least(y[other], got[other], rms)
        off[~np.isfinite(y)] = np.where(got == written, 0.0, np.inf)[~np.isfinite(y)]
        if not off.any():
            return 0.0, 0.0
        if rms == 0.0:
            return np.inf, np.inf
        return float(off.max()) / rms, float(np.sqrt(np.mean(np.square(off)))) / rms

    def _least(self, y: np.ndarray, got: np.ndarray, rms: float) -> np.ndarray:
        """By how much floats must be moved to come to something else, by bisection; infinite where they do not. It is
        looked for nearby first: what is converted to few bits begins again somewhere."""
        above = got > self.taken(y)
        side = np.where(above != self.falls, 1.0, -1.0)

        def beyond(distance: np.ndarray) -> np.ndarray:
            there = self.taken(y + side * distance)
            return np.where(above, there >= got, there <= got)

        near, far = np.zeros(y.shape), np.maximum(np.abs(y), rms) * 0.5**_DOUBLINGS
        for _ in range(_DOUBLINGS):
            short = ~beyond(far)
            near, far = np.where(short, far, near), np.where(short, 2 * far, far)
        for _ in range(_HALVINGS):
            middle = (near + far) / 2
            there = beyond(middle)
            near, far = np.where(there, near, middle), np.where(there, middle, far)
        return np.where(self.taken(y + side * far) == got, far, np.inf)


def steps(graph: Graph, output: int) -> Steps | None:
    """The steps in which an output of whole numbers rises or falls with a float; None for one that does not."""
    moves, functions = list[Function](), list[Function]()
    found: Steps | None = None
    v, falls = output, False
    while (n := graph.node(v)) is not None:
        if n.op.view == "once":
            moves.insert(0, n.op.reference)
            v = n.inputs[0]
        elif (f := _function(graph, n)) is not None:
            functions.insert(0, f.apply)
            falls ^= f.falls
            v = n.inputs[f.operand]
        else:
            break
        if _is_step(graph, n):  # what comes before the first step is no matter of steps
            found = Steps(v, tuple(moves), tuple(functions), falls)
    return found


def _is_step(graph: Graph, n: Node) -> bool:
    if isinstance(n.op, Cast):
        return is_float(graph.type(n.inputs[0]).dtype) and not is_float(n.type.dtype) and n.type.dtype != "bool"
    if isinstance(n.op, Zip):
        return n.op.f == "floordiv" and is_float(n.type.dtype)
    return isinstance(n.op, Map) and n.op.f in _STEPS


class _Function(NamedTuple):
    """A function of one operand of a node, the others being constant, that never falls, or never rises."""

    apply: Function
    falls: bool = False
    operand: int = 0


def _function(graph: Graph, n: Node) -> _Function | None:
    if isinstance(n.op, Cast):
        return _Function(n.op.ideal) if n.type.dtype != "bool" else None
    if isinstance(n.op, Map) and n.op.f in (*_STEPS, "neg"):
        return _Function(n.op.reference, falls=n.op.f == "neg")
    if not isinstance(n.op, Zip):
        return None
    f, apply = n.op.f, n.op.reference
    numbers = [_number(graph, i) for i in n.inputs]
    if (second := numbers[1]) is not None:
        if f in _RISING or (f == "shr" and second >= 0) or (f in _SIGNED and second):
            falls = f in _SIGNED and bool(second < 0)
            return _Function(lambda x: apply(x, second.astype(x.dtype)), falls)
    elif (first := numbers[0]) is not None and (f in _RISING or (f == "mul" and first)):
        falls = f == "sub" or (f == "mul" and bool(first < 0))
        return _Function(lambda x: apply(first.astype(x.dtype), x), falls, 1)
    return None


def _number(graph: Graph, value: int) -> np.ndarray | None:
    """The number that a value is; None where it is none."""
    node = graph.node(value)
    return None if node is None or node.inputs or graph.type(value).shape else node.op.reference()


def stepped(graph: Graph) -> Mapping[str, Steps]:
    """The outputs of whole numbers that rise in steps with a float, by name."""
    whole = [(n, v) for n, v in graph.outputs if not is_float(graph.type(v).dtype)]
    return {n: s for n, v in whole if (s := steps(graph, v)) is not None}
