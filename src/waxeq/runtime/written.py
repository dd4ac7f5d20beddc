"""The model as written, run op by op with NumPy's own functions: the baseline, and what is returned when nothing
beats it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter, methodcaller
from typing import Any, ClassVar, NamedTuple

import numpy as np

from waxeq.backend import blas
from waxeq.ir.graph import Graph, Node
from waxeq.ir.interpret import settle
from waxeq.ir.op import Op
from waxeq.ir.types import TensorType
from waxeq.ops.contraction import Einsum, Matmul
from waxeq.ops.elementwise import Map, Zip
from waxeq.ops.linalg import Cholesky, Determinant, Solve
from waxeq.ops.movement import Pad, Reshape, Slice
from waxeq.ops.reduction import Reduce
from waxeq.runtime.quiet import in_use, quiet_context

_Array = np.ndarray
_BY_BLAS = (Einsum, Matmul, Solve, Cholesky, Determinant)
"""What NumPy has done by its BLAS and LAPACK, where it can."""


class _Step(NamedTuple):
    """One op: what runs on which values, and which values nobody reads after it. `over`: dead operands of the result's
    type that a ufunc may write it over."""

    run: Callable[..., Any]
    reads: Callable[[list], tuple]
    dtype: np.dtype
    value: int
    dead: tuple[int, ...]
    over: tuple[int, ...]


class Written:
    """Runs a graph; leaves are bound by name. Allocates as NumPy does, which writes a result over an operand that
    nobody else holds.

    `tensors`: weights and states; states are replaced by a call. `threads`: of BLAS while it runs; None: as many as the
    process gives it.
    """

    direct: ClassVar[None] = None

    def __init__(self, graph: Graph, tensors: Mapping[str, np.ndarray], threads: int | None = None) -> None:
        self.graph = graph
        multiplies = any(isinstance(n.op, _BY_BLAS) for n in graph.nodes)
        self._within = None if threads is None or not multiplies else blas.bound(threads)
        self.names = tuple(n for n, _ in graph.outputs)
        self._inputs = tuple(i for i, x in enumerate(graph.leaves) if x.kind == "input")
        self._takes = tuple(graph.leaves[i].name for i in self._inputs)
        bound = {**graph.constants, **tensors}
        self._start: list[Any] = [bound.get(x.name) for x in graph.leaves] + [None] * len(graph.nodes)
        self._place = {x.name: i for i, x in enumerate(graph.leaves)}
        alone, dead, borders = _alone(graph), _dead(graph), _borders(graph)
        self._steps: list[_Step] = []
        for v, n in graph.values():
            if n.inputs or n.type.elements != 1:
                self._steps.append(_step(graph, v, n, dead.get(v, ()), alone, borders))
            else:  # a number is the same in every call
                self._start[v] = settle(n.op.reference(), n.type.numpy)
        results = graph.results
        self._own = frozenset(v for v in results if v in alone and results.count(v) == 1)
        ends = tuple(v for _, v in graph.outputs)
        self._plain = ends if self._own.issuperset(ends) and not graph.states else ()
        self._context = quiet_context()

    def __call__(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run once on arrays by name; results by name."""
        return dict(zip(self.names, self.run([inputs[n] for n in self._takes]), strict=True))

    def run(self, args: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Run once on arrays of the right types, in the order of the input leaves; results in order. They share no
        memory with anything else. Raises UsageError when another thread is in a call, of a model with states."""
        if not self.graph.states:
            return self._context.copy().run(self._bound, args)
        try:
            return self._context.run(self._bound, args)
        except RuntimeError as e:
            raise in_use(e) from None

    def _bound(self, args: Sequence[np.ndarray]) -> list[np.ndarray]:
        if self._within is None:
            return self._run(args)
        rows: list[np.ndarray] = []
        self._within((lambda: rows.extend(self._run(args)),))
        return rows

    def _run(self, args: Sequence[np.ndarray]) -> list[np.ndarray]:
        values = self._start.copy()
        for i, a in zip(self._inputs, args):  # noqa: B905  # of one length, and this is every call
            values[i] = a
        for run, reads, dtype, v, dead, over in self._steps:
            for i in over:
                if values[i].flags.owndata:
                    values[v] = run(*reads(values), out=values[i])
                    break
            else:
                y = run(*reads(values))
                values[v] = y if type(y) is _Array and y.dtype is dtype else settle(y, dtype)
            for i in dead:
                values[i] = None
        if self._plain:
            return [values[v] for v in self._plain]
        return self._results(values, args)

    def _results(self, values: list, args: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Outputs, and states put in their place; what may share memory with anything that lives on is copied."""
        rows: list[np.ndarray] = []
        for _, v in self.graph.outputs:
            a = values[v]
            if v not in self._own:
                held = (*args, *(x for x in self._start if x is not None), *rows)
                a = a.copy() if any(np.may_share_memory(a, h) for h in held) else a
            rows.append(a)
        if self.graph.states:
            new = [(n, values[v] if v in self._own else values[v].copy()) for n, v in self.graph.states]
            for name, a in new:
                self._start[self._place[name]] = a
        return rows

    @property
    def tensors(self) -> dict[str, np.ndarray]:
        """What it is bound to: constants, weights, and states as they are now."""
        return {x.name: self._start[i] for i, x in enumerate(self.graph.leaves) if x.kind != "input"}


def _step(
    graph: Graph, v: int, n: Node, dead: Sequence[int], alone: set[int], borders: Mapping[int, Sequence[Pad]]
) -> _Step:
    run, over = n.op.reference, ()
    if n.op.ufunc is not None:
        run, over = n.op.ufunc, tuple(i for i in dead if i in alone and graph.type(i) == n.type)
    elif isinstance(n.op, Matmul):
        run = np.matmul
    elif isinstance(n.op, Slice):
        run = itemgetter(n.op.index)
    elif isinstance(n.op, Reshape):
        run = methodcaller("reshape", n.op.shape)
    elif isinstance(n.op, Pad):
        run = _bordered(n.type, borders[v])
    return _Step(run, _reader(n.inputs), n.type.numpy, v, tuple(dead), over)


def _reader(inputs: tuple[int, ...]) -> Callable[[list], tuple]:
    """What picks operands."""
    if len(inputs) > 1:
        return itemgetter(*inputs)
    if inputs:
        (i,) = inputs
        return lambda values: (values[i],)
    return lambda values: ()


def _borders(graph: Graph) -> dict[int, list[Pad]]:
    """By value, the paddings of one number that it does in the place of those it reads, which nobody else does: a model
    pads several axes at once, each of which is a copy by itself here. None where another does it."""
    readers = Counter(i for n in graph.nodes for i in n.inputs) + Counter(graph.results)
    rows: dict[int, list[Pad]] = {}
    for v, n in graph.values():
        if isinstance(n.op, Pad):
            (i,) = n.inputs
            before = rows.get(i, [])
            joined = before and readers[i] == 1 and repr(before[-1].value) == repr(n.op.value)
            rows[v] = [*before, n.op] if joined else [n.op]
            rows |= {i: []} if joined else {}
    return rows


def _bordered(made: TensorType, pads: Sequence[Pad]) -> Callable[[_Array], _Array]:
    """What `np.pad` does, which takes longer to look at its arguments than to copy a small array."""
    if not pads:
        return lambda x: x
    ends = [(0, n) for n in made.shape]
    for p in reversed(pads):
        low, high = ends[p.axis]
        ends[p.axis] = low + p.low, high - p.high
    inner = tuple(slice(*e) for e in ends)
    outer = [
        (*inner[:axis], side)
        for axis, (low, high) in enumerate(ends)
        for side in (slice(0, low), slice(high, made.shape[axis]))
        if side.start < side.stop
    ]
    with np.errstate(all="ignore"):
        value = np.asarray(pads[0].value).astype(made.numpy)

    def run(x: _Array) -> _Array:
        y = np.empty(made.shape, made.numpy)
        y[inner] = x
        for at in outer:
            y[at] = value
        return y

    return run


def _dead(graph: Graph) -> dict[int, list[int]]:
    """For each value, the ones that nobody reads after it is computed."""
    last = {i: v for v, n in graph.values() for i in n.inputs}
    keep, rows = set(graph.results), {}
    for i, v in last.items():
        if i not in keep:
            rows.setdefault(v, []).append(i)
    return rows


def _alone(graph: Graph) -> set[int]:
    """Values that share memory with no other: neither they nor what reads them are views."""
    computed = {v for v, n in graph.values() if _computes(n.op)}
    viewed = {i for v, n in graph.values() if v not in computed for i in n.inputs}
    return computed - viewed


def _computes(op: Op) -> bool:
    """Whether the result is new memory; an einsum of one operand may be a view of it."""
    if isinstance(op, Einsum):
        return "," in op.spec
    return isinstance(op, (Map, Zip, Matmul, Reduce))
