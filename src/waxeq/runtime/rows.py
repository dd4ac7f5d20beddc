"""Some rows of what a graph computes, by that graph on some rows of its leaves.

The reference of large products takes longer in float64 than all else of a search. A row of `a @ b` is made of one row
of `a`, so that a float64 reference of one row in eight takes an eighth of the time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from waxeq.ir.graph import Graph, GraphBuilder, Node
from waxeq.ir.types import TensorType
from waxeq.ops.contraction import Matmul

STEP = 8
"""One row in so many is looked at, which is of every group of so many, of those that begin at a multiple of it."""
_WORTH = 4e9
"""Operations of products, from which a reference of some rows is made: about a tenth of a second of float64."""


def sampled(size: int) -> np.ndarray:
    """Which of so many rows: the first, the last, and one of each group of `STEP`, at all places within a group."""
    groups = np.arange(0, size, STEP)
    rows = np.minimum(groups + groups // STEP * 5 % STEP, size - 1)
    return np.unique(np.append(rows, [size - 1] * (size > 0))).astype(np.intp)


@dataclass(frozen=True)
class Rows:
    """A graph of some rows of every output. `partial`: its leaves of which it takes rows, with the name of the leaf of
    the whole graph that they are rows of."""

    graph: Graph
    partial: Mapping[str, str]

    def given(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Arrays for its leaves, of those of the whole graph."""
        some = {n: arrays[whole][sampled(len(arrays[whole]))] for n, whole in self.partial.items()}
        return {**arrays, **some}


def some_rows(graph: Graph) -> Rows | None:
    """The graph of some rows of all outputs, where a reference of these takes far less time: outputs are sums, products
    and functions of elements of products of matrices. None for any other graph."""
    if graph.states or any(not graph.type(v).rank for _, v in graph.outputs) or _operations(graph) < _WORTH:
        return None
    needed = _needed(graph)
    if needed is None:
        return None
    some = _made(graph, needed)
    return some if _operations(graph) - _operations(some.graph) > _WORTH else None


def _operations(graph: Graph) -> float:
    """Multiplications and additions of products."""
    depths = [(n.type.elements, graph.type(n.inputs[0]).shape[-1]) for n in graph.nodes if isinstance(n.op, Matmul)]
    return 2.0 * math.fsum(elements * depth for elements, depth in depths)


def _needed(graph: Graph) -> dict[tuple[int, bool], tuple[bool, ...]] | None:
    """What some rows of the outputs are made of: values, with whether it is rows of them, and which operands of theirs
    rows of are needed. None where there is no making some rows without all."""
    wanted = {(v, True) for _, v in graph.outputs}
    found = dict[tuple[int, bool], tuple[bool, ...]]()
    for v in reversed(range(len(graph.leaves) + len(graph.nodes))):
        for rows in (r for r in (True, False) if (v, r) in wanted):
            node = graph.node(v)
            which = () if node is None else _operands(graph, node) if rows else (False,) * len(node.inputs)
            if which is None:
                return None
            found[v, rows] = which
            wanted.update(zip(node.inputs if node else (), which, strict=True))
    return found


def _operands(graph: Graph, node: Node) -> tuple[bool, ...] | None:
    """Which operands only rows of are needed for rows of a result; None where that takes all."""
    types = [graph.type(i) for i in node.inputs]
    if node.op.pointwise:
        return tuple(t.rank == node.type.rank and t.shape[0] == node.type.shape[0] for t in types)
    if isinstance(node.op, Matmul) and [t.rank for t in types] in ([2, 2], [2, 1]):
        return True, False
    return None


def _made(graph: Graph, needed: Mapping[tuple[int, bool], tuple[bool, ...]]) -> Rows:
    """The graph of what is needed."""
    b, at, partial = GraphBuilder(), dict[tuple[int, bool], int](), dict[str, str]()
    for (v, rows), which in sorted(needed.items()):
        node = graph.node(v)
        if node is not None:
            b.source = node.source
            at[v, rows] = b(node.op, *(at[key] for key in zip(node.inputs, which, strict=True)))
            continue
        leaf = graph.leaves[v]
        if rows:
            name, shape = f"{leaf.name}[rows]", leaf.type.shape
            partial[name] = leaf.name
            at[v, rows] = b.leaf(name, TensorType(leaf.type.dtype, (len(sampled(shape[0])), *shape[1:])))
        else:
            at[v, rows] = b.leaf(leaf.name, leaf.type, leaf.kind, graph.constants.get(leaf.name))
    return Rows(b.finish([(n, at[v, True]) for n, v in graph.outputs]), partial)
