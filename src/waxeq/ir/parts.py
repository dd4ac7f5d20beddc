"""Values that are some elements of another, as these follow each other in memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from waxeq.ir.graph import Graph
from waxeq.ir.op import Op


def parts_of(graph: Graph, value: int) -> Iterator[tuple[int, int]]:
    """What a value is an unbroken part of, and which element of that is its first: the nearest first."""
    ops: list[Op] = []
    while value >= len(graph.leaves):
        node = graph.nodes[value - len(graph.leaves)]
        if node.op.view != "once":
            return
        ops.append(node.op)
        (value,) = node.inputs
        first = _first(ops, graph.type(value).shape)
        if first is not None:
            yield value, first


def _first(ops: list[Op], shape: tuple[int, ...]) -> int | None:
    """Where the elements begin that views, the last of them first, leave of an array; None where they do not follow
    each other. No element is looked at, so that none is given memory."""
    whole = part = np.empty(shape, np.uint8)
    for op in reversed(ops):
        if op.label == "Reshape" and not part.flags.c_contiguous:
            return None
        part = op.reference(part)
    if not part.size or not part.flags.c_contiguous or not np.may_share_memory(whole, part):
        return None
    return part.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
