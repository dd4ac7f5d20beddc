"""Where a graph is cut: pieces of a bounded size, at places where little is torn apart."""

from __future__ import annotations

import numpy as np
import pytest

from waxeq.frontend.trace import trace
from waxeq.ir.blocks import MOST, cut
from waxeq.ir.graph import Graph, expand
from waxeq.ops.contraction import Einsum

pytestmark = pytest.mark.quick
X, W = np.ones((4, 6), np.float32), np.ones((6, 6), np.float32)
COINS = np.random.default_rng(0).integers(2, size=300)


def steps(x: np.ndarray, count: int, start: int = 0) -> np.ndarray:
    """A chain of elementwise steps that does not repeat itself."""
    for i in range(start, start + count):
        x = np.tanh(x) if COINS[i] else x * (1.5 + i)
    return x


def graph_of(model) -> Graph:
    return expand(trace(model, {"x": X, "w": W}).graph)


def sizes(graph: Graph, **given: int) -> list[int]:
    return [sum(bool(n.inputs) for n in b.graph.nodes) for b in cut(graph, **given)]


@pytest.mark.parametrize("before", [30, 40, 48, 60])
def test_a_long_stretch_is_cut_where_a_contraction_reads(before: int) -> None:
    """One value crosses everywhere in the chain; only before the product it has to be in memory anyway."""
    graph = graph_of(lambda x, w: steps(steps(x, before) @ w, 90 - before, before))
    first = cut(graph, most=60)[0]
    kinds = [type(n.op) for n in first.graph.nodes]
    assert Einsum not in kinds and sum(bool(n.inputs) for n in first.graph.nodes) == before


def test_pieces_are_no_larger_than_asked_for_and_hold_every_node_once() -> None:
    graph = graph_of(lambda x, w: steps(np.maximum(steps(x, 70) @ w, 0.0), 130, 70))
    assert max(sizes(graph)) <= MOST
    assert sum(sizes(graph)) == sum(bool(n.inputs) for n in graph.nodes)
    assert max(sizes(graph, most=20)) <= 64


def test_a_short_graph_is_one_block() -> None:
    graph = graph_of(lambda x, w: steps(steps(x, 20) @ w, 40, 20))
    assert len(cut(graph)) == 1
