"""The model as written, run op by op with NumPy's own functions: the baseline, and what is returned when nothing
beats it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from waxeq.basis.scalar import load
from waxeq.ir.graph import Graph
from waxeq.ir.interpret import settle
from waxeq.ir.op import Op
from waxeq.ops.contraction import Einsum, Matmul
from waxeq.ops.elementwise import Map, Zip
from waxeq.ops.reduction import Reduce


class Written:
    """Runs a graph; leaves are bound by name, results come by name. Allocates as NumPy does, which writes a result
    over an operand that nobody else holds.

    `bound`: constants, weights and states as they are now. Results may share memory with what was given.
    """

    def __init__(self, graph: Graph, tensors: Mapping[str, np.ndarray]) -> None:
        self.graph = graph
        self.bound = {**graph.constants, **tensors}
        self._steps: list[tuple[Callable, tuple[int, ...], np.dtype, int]] = []
        self._over: dict[int, tuple[np.ufunc, tuple[int, ...]]] = {}
        last = {i: v for v, n in graph.values() for i in n.inputs}
        keep = set(graph.results)
        self._dead: dict[int, list[int]] = {}
        for i, v in last.items():
            if i not in keep:
                self._dead.setdefault(v, []).append(i)
        alone = _alone(graph)
        for v, n in graph.values():
            self._steps.append((n.op.reference, n.inputs, n.type.numpy, v))
            if isinstance(n.op, (Map, Zip)) and isinstance(f := load(n.op.scalar.ufunc), np.ufunc):
                free = (i for i in self._dead.get(v, ()) if i in alone and graph.type(i) == n.type)
                self._over[v] = f, tuple(free)

    def __call__(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        values: list = [inputs.get(x.name, self.bound.get(x.name)) for x in self.graph.leaves]
        values += [None] * len(self._steps)
        with np.errstate(all="ignore"):
            for run, reads, dtype, v in self._steps:
                over = self._own(v, values)
                if over is None:
                    values[v] = settle(run(*[values[i] for i in reads]), dtype)
                else:
                    values[v] = self._over[v][0](*[values[i] for i in reads], out=over)
                for i in self._dead.get(v, ()):
                    values[i] = None
        results = {name: values[v] for name, v in self.graph.outputs}
        for name, v in self.graph.states:
            self.bound[name] = values[v]
        return results

    def _own(self, v: int, values: list) -> np.ndarray | None:
        """An operand that the value may be written over."""
        for i in self._over[v][1] if v in self._over else ():
            if values[i].flags.owndata:
                return values[i]
        return None


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
