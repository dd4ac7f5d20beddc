"""The model as written, run op by op with NumPy's own functions: the baseline, and what is returned when nothing
beats it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from waxeq.ir.graph import Graph
from waxeq.ir.interpret import settle


class Written:
    """Runs a graph; leaves are bound by name, results come by name. Allocates as NumPy does.

    `bound`: constants, weights and states as they are now. Results may share memory with what was given.
    """

    def __init__(self, graph: Graph, tensors: Mapping[str, np.ndarray]) -> None:
        self.graph = graph
        self.bound = {**graph.constants, **tensors}
        self._steps: list[tuple[Callable, tuple[int, ...], np.dtype, int]] = []
        last = {i: v for v, n in graph.values() for i in n.inputs}
        keep = set(graph.results)
        self._dead: dict[int, list[int]] = {}
        for i, v in last.items():
            if i not in keep:
                self._dead.setdefault(v, []).append(i)
        for v, n in graph.values():
            self._steps.append((n.op.reference, n.inputs, n.type.numpy, v))

    def __call__(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        values: list = [inputs.get(x.name, self.bound.get(x.name)) for x in self.graph.leaves]
        values += [None] * len(self._steps)
        with np.errstate(all="ignore"):
            for run, reads, dtype, v in self._steps:
                values[v] = settle(run(*[values[i] for i in reads]), dtype)
                for i in self._dead.get(v, ()):
                    values[i] = None
        results = {name: values[v] for name, v in self.graph.outputs}
        for name, v in self.graph.states:
            self.bound[name] = values[v]
        return results
