"""The nodes of a graph in execution order as a word, and what is known of its letters: what blocks are cut by."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np

from waxeq.ir.graph import Graph, Node

_SWEPT = 192
"""Nodes of a graph that is one block where each is made of what lies around its own place, and what is computed is
looked at in several ways: what one loop makes of it the next may find in cache, if both are of one block."""
_LARGE = 1 << 16
"""Bytes of what is looked at in several ways from which it is worth keeping in cache."""
_DEEP = 3
"""Looks, each at what is made of the one before, that such a graph has at most."""


@dataclass(frozen=True)
class Word:
    """The nodes of a graph that a cut can fall between, as value numbers in order; `sources` are those without
    operands. `letters` are equal for nodes that do the same on equal types.

    By position of a cut: `crossing` counts the values made before it that are needed after it, and `torn` those of them
    that are next read by a node that could have been computed along with them: what a cut there keeps apart. A result
    is needed at the end.
    """

    graph: Graph
    nodes: tuple[int, ...]
    sources: frozenset[int]
    letters: tuple[int, ...]
    crossing: tuple[int, ...]
    torn: tuple[int, ...]

    @staticmethod
    def of(graph: Graph) -> Word:
        results = frozenset(graph.results)
        sources = frozenset(v for v, n in graph.values() if not n.inputs and v not in results)
        nodes = tuple(v for v, n in graph.values() if v not in sources)
        known: dict[str, int] = {}
        texts = (
            f"{_named(n)}:{n.type}:{','.join(str(graph.type(i)) for i in n.inputs)}"
            for v, n in graph.values()
            if v not in sources
        )
        letters = tuple(known.setdefault(t, len(known)) for t in texts)
        readers: dict[int, list[int]] = {}
        for at, v in enumerate(nodes):
            for i in dict.fromkeys(graph.nodes[v - len(graph.leaves)].inputs):
                readers.setdefault(i, []).append(at)
        needed = {i: ats[-1] for i, ats in readers.items()} | dict.fromkeys(graph.results, len(nodes))
        torn = [elementwise(graph, v) for v in nodes]
        spans = [(at + 1, needed[v]) for at, v in enumerate(nodes) if v in needed]
        gaps = ((a + 1, b) for at, v in enumerate(nodes) for a, b in pairwise((at, *readers.get(v, ()))) if torn[b])
        return Word(graph, nodes, sources, letters, _depth(spans, len(nodes)), _depth(gaps, len(nodes)))

    def node(self, value: int) -> Node:
        return self.graph.nodes[value - len(self.graph.leaves)]

    def pointwise(self, value: int) -> bool:
        """Whether a value is made point by point, or the same number everywhere, or a part of a leaf."""
        node = self.node(value)
        return node.op.pointwise or self.sources.issuperset(node.inputs) or self.part(value)

    def in_one_loop(self, value: int) -> bool:
        """Whether one loop may make a value along with its operands: point by point, one beside the other, or again
        along axes that they lack."""
        node = self.node(value)
        match node.op.label:
            case "Concat" | "BroadcastTo":
                return True
            case "Reshape":
                made, read = (self.graph.type(v).shape for v in (value, *node.inputs))
                return [n for n in made if n != 1] == [n for n in read if n != 1]
            case _:
                return self.pointwise(value)

    def part(self, value: int) -> bool:
        """Whether a value is a leaf, or a view of one in which no element comes again."""
        while value >= len(self.graph.leaves) and self.node(value).op.view == "once":
            value = self.node(value).inputs[0]
        return value < len(self.graph.leaves)


def _named(node: Node) -> str:
    """What a node does. One part of an array along its first axis is like any other, as each step of a loop reads its
    own."""
    if node.op.label == "Slice":
        axis, count = (node.op.attributes[k] for k in ("axis", "count"))
        if count == 1 and all(n == 1 for n in node.type.shape[:axis]):
            return "one part"
    return repr(node.op)


def elementwise(graph: Graph, value: int) -> bool:
    """Whether a node could be computed along with its operands. A contraction could not: its operands do not broadcast
    to its result, as far as types tell."""
    node = graph.nodes[value - len(graph.leaves)]
    if len(node.inputs) < 2:
        return True
    try:
        shape = np.broadcast_shapes(*(graph.type(i).shape for i in node.inputs))
    except ValueError:
        return False
    return shape == node.type.shape


def _depth(spans: Iterable[tuple[int, int]], most: int) -> tuple[int, ...]:
    """How many spans (first, last) each of the positions 0 to `most` lies in."""
    steps = [0] * (most + 2)
    for first, last in spans:
        steps[first] += 1
        steps[last + 1] -= 1
    return tuple(accumulate(steps[:-1]))


def is_fixed(graph: Graph, value: int) -> bool:
    """Whether a value is a leaf that is the same in every call."""
    return value < len(graph.leaves) and graph.leaves[value].kind in ("weight", "constant")


def is_swept(word: Word) -> bool:
    """Whether a graph filters images: each value is made of what lies around its place, and no larger, but for numbers
    that all comes to at last. It is not too long for one search, and no steps in time, which are padded or many: each
    of those is searched well alone."""
    if len(word.nodes) > _SWEPT:
        return False
    looks, depth = dict[int, int](), dict[int, int]()
    for v in word.nodes:
        node, last = word.node(v), word.graph.type(v).elements == 1
        if not (last or word.pointwise(v) or node.op.view == "once"):
            return False
        i = node.inputs[0]
        looked = bool(node.op.view) and i >= len(word.graph.leaves) and not word.node(i).op.view
        looks[i] = looks.get(i, 0) + looked
        depth[v] = looked + max(depth.get(a, 0) for a in node.inputs)
    large = any(n > 1 and word.graph.type(i).bytes >= _LARGE for i, n in looks.items())
    return large and max(depth.values()) <= _DEEP
