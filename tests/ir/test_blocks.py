"""Where a graph is cut: pieces of a bounded size, at places where little is torn apart."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

import numpy as np
import pytest

from waxeq.frontend.trace import trace
from waxeq.ir import blocks
from waxeq.ir.blocks import MOST, Block, cut
from waxeq.ir.graph import Graph, expand
from waxeq.ir.interpret import interpret
from waxeq.ir.words import Word
from waxeq.ops.contraction import Einsum

pytestmark = pytest.mark.quick
X, W = np.ones((4, 6), np.float32), np.ones((6, 6), np.float32)
COINS = np.random.default_rng(0).integers(2, size=300)


def steps(x: np.ndarray, count: int, start: int = 0) -> np.ndarray:
    """A chain of elementwise steps that does not repeat itself."""
    for i in range(start, start + count):
        x = np.tanh(x) if COINS[i] else x * (1.5 + i)
    return x


def in_time(x: np.ndarray, count: int) -> np.ndarray:
    """Steps of 40 functions of elements each."""
    for _ in range(count):
        x = steps(x, 40)
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


def centred(x: np.ndarray, count: int) -> np.ndarray:
    """The same with a mean in every step."""
    for i in range(count):
        x = steps(x, 1, i) - np.mean(x, axis=i % 2, keepdims=True)
    return x


def test_pieces_are_no_larger_than_asked_for_and_hold_every_node_once() -> None:
    graph = graph_of(lambda x, w: centred(np.maximum(centred(x, 25) @ w, 0.0), 40))
    assert max(sizes(graph)) <= MOST
    assert sum(sizes(graph)) == sum(bool(n.inputs) for n in graph.nodes)
    assert max(sizes(graph, most=20)) <= 64


def test_what_is_made_point_by_point_is_one_block() -> None:
    """124 functions that price options were four blocks and eight loops: JAX had one, and two thirds of the time."""
    assert sizes(graph_of(lambda x, w: steps(x, 250))) == [250]
    assert sizes(graph_of(lambda x, w: steps(x, 300))) == [150, 150]
    assert sizes(graph_of(lambda x, w: in_time(x, 5))) == [200]
    assert sizes(graph_of(lambda x, w: np.sum(in_time(x, 5)))) == [200 - MOST // 2, MOST // 2 + 1], "whatever repeats"
    assert max(sizes(graph_of(lambda x, w: np.sum(in_time(x, 20))))) <= 80


def columns(x: np.ndarray, w: np.ndarray, many: int) -> np.ndarray:
    """Functions of the columns of a table."""
    y = x[:, 0]
    for i in range(many):
        y = np.tanh(y * x[:, i % 6] + 1.5)
    return y


def test_parts_of_an_input_are_made_point_by_point() -> None:
    """A hash over sixteen columns was four blocks, each of which went through all lines of memory."""
    graph = graph_of(lambda x, w: columns(x, w, 40))
    assert sizes(graph) == [sum(bool(n.inputs) for n in graph.nodes)] and sizes(graph)[0] > 120
    assert len(sizes(graph_of(lambda x, w: columns(np.exp(x), w, 40)))) > 1, "what is made may be worth having"


def filtered(x: np.ndarray, many: int) -> np.ndarray:
    """Sums over neighbours, of sums over neighbours."""
    for n in range(many):
        x = x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:] * (1.5 + n)
    return x


@pytest.mark.parametrize("size, blocks", [(300, 1), (30, 2)], ids=["large", "small"])
def test_what_is_made_of_neighbours_is_one_block(size: int, blocks: int) -> None:
    """Five filtered images were six blocks, each of which went through memory: it took a third longer. What the first
    cache holds is no reason."""
    x = np.ones((size, size), np.float32)

    def count(many: int, deep: int, last=lambda *ys: ys) -> int:
        def model(x: np.ndarray) -> np.ndarray | tuple[np.ndarray, ...]:
            return last(*(filtered(x * (n + 2.5), deep) for n in range(many)))

        return len(cut(expand(trace(model, {"x": x}).graph)))

    assert (count(6, 1) == 1) == (count(6, 1, lambda *ys: np.mean(sum(ys))) == 1) == (blocks == 1)
    assert count(6, 1, lambda *ys: sum(ys) - np.mean(ys[0], axis=0)) > 1, "a fold in between"
    assert count(1, 8) > 1 and count(6, 1, lambda *ys: np.pad(sum(ys), 1)) > 1, "steps in time"
    assert count(24, 1) > 1, "too long for one search"


def test_a_contraction_before_a_long_stretch_has_a_part_of_it() -> None:
    assert sizes(graph_of(lambda x, w: steps(x @ w, 110))) == [1 + MOST // 2, 110 - MOST // 2]
    assert sizes(graph_of(lambda x, w: steps(steps(x, 100) @ w, 100, 100))) == [100, 1 + MOST // 2, 100 - MOST // 2]


def test_a_short_graph_is_one_block() -> None:
    graph = graph_of(lambda x, w: steps(steps(x, 20) @ w, 40, 20))
    assert len(cut(graph)) == 1


def looked_at(a: np.ndarray, i: int, j: int) -> list[np.ndarray]:
    """Views of a square array, all of its shape."""
    n = a.shape[0]
    p = np.pad(a, 1)
    return [a.T, a[::-1], p[i : i + n, j : j + n], np.broadcast_to(a[i], (n, n)), a.reshape(-1)[::-1].reshape(n, n)]


def mixed(x: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Steps that are drawn, each over views of values before it; some of these are results."""
    made = [x, x.T]
    for _ in range(40):
        a, b = (made[max(0, len(made) - int(k))] for k in rng.geometric(0.3, size=2))
        i, j, k, m = (int(k) for k in rng.integers(0, 3, size=4))
        a, b = looked_at(a, i, j)[int(rng.integers(5))], looked_at(b, k, m)[int(rng.integers(5))]
        made += [[np.tanh(a) + b, a @ b, a - b.mean(0), np.maximum(a, b[i])][int(rng.integers(4))], a]
    return (made[-2], *(made[int(i)] for i in rng.integers(2, len(made), size=3)))


def by_blocks(graph: Graph, blocks: tuple[Block, ...], *leaves: np.ndarray) -> dict[str, np.ndarray]:
    known = dict(enumerate(leaves))
    for b in blocks:
        made = interpret(b.graph, {name: known[v] for name, v in b.leaves.items()})
        known |= {v: made[name] for name, v in b.outputs.items()}
    return {name: known[v] for name, v in graph.outputs}


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("most", [8, MOST])
def test_blocks_one_after_another_are_the_model(seed: int, most: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((3, 3))
    graph = expand(trace(lambda x: mixed(x, deepcopy(rng)), {"x": x}).graph)
    blocks = cut(graph, most=most)
    assert len(blocks) > 1
    want, got = interpret(graph, {"x": x}), by_blocks(graph, blocks, x)
    for name, y in want.items():
        np.testing.assert_array_equal(got[name], y)


def windows(x: np.ndarray, before: int) -> np.ndarray:
    """Nine views of one padded array, each read by what is far enough behind to be in another block."""
    p = np.pad(steps(x, before), 1)
    n, m = x.shape
    views = [p[i : i + n, j : j + m] for i in range(3) for j in range(3)]
    y = views[0]
    for i, v in enumerate(views[1:]):
        y = np.maximum(steps(y, 5, 7 * i), v)
    return y


@pytest.mark.parametrize("before", [24, 30, 36])
def test_views_are_made_by_the_blocks_that_read_them(before: int) -> None:
    graph = graph_of(lambda x, w: windows(x, before))
    blocks = cut(graph)
    assert len(blocks) > 1
    others_read = {v for b in blocks[:-1] for v in b.outputs.values()}
    assert not any(graph.nodes[v - len(graph.leaves)].op.view for v in others_read)


def passed(view) -> list[tuple[int, ...]]:
    """Shapes of what one block passes to the next, where a long chain goes on between a view and what reads it."""
    graph = graph_of(lambda x, w: view(steps(x, 10)) - steps(x, 60, 10)[:2])
    first, _ = cut(graph, most=40)
    return sorted(graph.type(v).shape for v in first.outputs.values())


def test_a_part_alone_is_passed_instead_of_all_that_it_is_of() -> None:
    assert passed(lambda y: y[:2]) == [(2, 6), (4, 6)]


def test_what_is_repeated_along_an_axis_is_passed_as_it_is() -> None:
    assert passed(lambda y: np.broadcast_to(y[:1] * 2, (2, 6))) == [(1, 6), (4, 6)]


def stepped(x: np.ndarray, numbers: list[float], power: bool = False) -> np.ndarray:
    """Steps that are equal but for a number each."""
    for c in numbers:
        y = np.sin(x) * np.float32(c) + np.tanh(x) / 3
        for _ in range(9):
            y = np.cos(y) * x - y
        x = y ** np.float32(c) if power else y
    return x


NUMBERS = [1.5 + i / 8 for i in range(12)]


def test_blocks_that_differ_in_numbers_are_one_that_is_passed_them() -> None:
    graph = graph_of(lambda x, w: stepped(x, NUMBERS))
    blocks = cut(graph)
    assert len({b.key for b in blocks}) <= 4 < len(NUMBERS) <= len(blocks)
    x = np.linspace(-2, 2, X.size, dtype=np.float32).reshape(X.shape)
    (want,), (got,) = interpret(graph, {"x": x, "w": W}).values(), by_blocks(graph, blocks, x).values()
    np.testing.assert_array_equal(got, want)


def edited(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The distance between two texts, a number for each letter."""
    above = np.arange(len(b) + 1).astype(np.float32)
    for i in range(len(a)):
        row = [np.float32(i + 1)]
        for j in range(len(b)):
            new = above[j] + np.where(a[i] == b[j], np.float32(0), np.float32(1))
            row.append(np.minimum(np.minimum(above[j + 1] + 1, row[j] + 1), new))
        above = np.stack([np.asarray(c, dtype=np.float32) for c in row])
    return above[-1]


def test_numbers_that_are_compared_and_put_beside_others_are_passed() -> None:
    """Regression: the first cell of each row is another number, and so rows were other blocks: 56 were searched."""
    a, b = (np.random.default_rng(i).integers(0, 4, n).astype(np.float32) for i, n in enumerate((24, 16)))
    graph = expand(trace(edited, {"a": a, "b": b}).graph)
    blocks = cut(graph)
    assert len({x.key for x in blocks}) < 20 < 100 < len(blocks)
    (got,) = by_blocks(graph, blocks, a, b).values()
    assert got == edited(a, b)


def test_numbers_that_rules_ask_for_stay_in_their_blocks() -> None:
    """Powers have laws of their own, and so has what is multiplied by one."""
    powers = cut(graph_of(lambda x, w: stepped(x, NUMBERS, power=True)))
    assert len({b.key for b in powers}) >= len(NUMBERS)
    ones = cut(graph_of(lambda x, w: stepped(x, [*NUMBERS, 1.0, 1.0])))
    assert any(n.op.label == "Const" and n.op.attributes["value"] == 1 for b in ones for n in b.graph.nodes)


def test_few_blocks_that_differ_in_numbers_keep_them() -> None:
    blocks = cut(graph_of(lambda x, w: stepped(x, NUMBERS[:4])))
    assert not any(not b.leaves for b in blocks)


def recurrent(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Many steps of a recurrent net, each of which reads a part of an input."""
    h = np.zeros_like(x[0])
    for t in range(x.shape[0]):
        z = x[t] @ w + np.tanh(h) @ w
        for _ in range(4):
            z = np.tanh(z) * np.exp(-z) + 1 / (1 + z * z)
        h = z * h + np.tanh(z)
    return h


@pytest.mark.parametrize("size", [6, 300])
def test_blocks_that_read_parts_of_an_input_are_one_that_is_passed_them(size: int) -> None:
    """Each step of a recurrent net was searched anew, as it reads another part of the input. Large parts stay
    where they are read: they would be copied."""
    x, w = np.linspace(-1, 1, 12 * size * 256, dtype=np.float32).reshape(12, 256, size), np.eye(size, dtype=np.float32)
    graph = expand(trace(recurrent, {"x": x, "w": w}).graph)
    blocks = cut(graph)
    steps = [b for b in blocks if any(type(n.op) is Einsum for n in b.graph.nodes)]
    assert len(steps) >= 12
    distinct = len({b.key for b in steps})
    assert distinct <= 3 if size == 6 else distinct == len(steps)
    if size == 6:
        (want,), (got,) = interpret(graph, {"x": x, "w": w}).values(), by_blocks(graph, blocks, x, w).values()
        np.testing.assert_array_equal(got, want)


def test_what_is_passed_is_made_before_who_reads_it_for_some_blocks_at_a_time() -> None:
    """Parts for thousands of steps would be one block, and lie in memory all the time."""
    x, w = np.ones((150, 2, 3), np.float32), np.eye(3, dtype=np.float32)
    graph = expand(trace(recurrent, {"x": x, "w": w}).graph)
    blocks = cut(graph)
    copies = [b for b in blocks if all(n.op.view for n in b.graph.nodes)]
    assert 2 <= len(copies) <= 5 and max(len(b.outputs) for b in copies) < 2 * MOST
    (want,), (got,) = interpret(graph, {"x": x, "w": w}).values(), by_blocks(graph, blocks, x, w).values()
    np.testing.assert_array_equal(got, want)


def selective(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Two layers of steps in time, each of which reads parts of what is made of all of them beforehand."""
    for _ in range(2):
        gates, taken = np.tanh(x @ w), np.exp(x @ w[:, ::-1])[:, :4]
        h, rows = np.zeros_like(x[0]), []
        for t in range(x.shape[0]):
            h = gates[t] * h + np.sin(x[t]) * np.sum(taken[t])
            for _ in range(5):
                h = np.tanh(h) * np.exp(-h * h) + 1 / (1 + h * h)
            rows.append(np.sum(h * gates[t]) + h)
        x = np.stack(rows)
    return x


def test_blocks_that_read_parts_of_what_others_make_are_one_that_is_passed_them() -> None:
    """Each step of a state space model was searched anew, as it reads another part of what is made of all tokens."""
    x, w = np.linspace(-1, 1, 24 * 6, dtype=np.float32).reshape(24, 6), np.eye(6, dtype=np.float32)
    graph = expand(trace(selective, {"x": x, "w": w}).graph)
    blocks = cut(graph)
    assert len(blocks) >= 40
    assert len({b.key for b in blocks}) <= len(blocks) // 6
    (want,), (got,) = interpret(graph, {"x": x, "w": w}).values(), by_blocks(graph, blocks, x, w).values()
    np.testing.assert_array_equal(got, want)


def test_a_long_graph_is_gone_through_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stretches were looked for again in all that was left after each."""

    def long(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        for i in range(40):
            x = steps(x, 92, i) - np.mean(x, axis=i % 2, keepdims=True)
        return x

    graph, looks, usual = graph_of(long), list[int](), Word.pointwise
    monkeypatch.setattr(Word, "pointwise", lambda self, v: looks.append(v) or usual(self, v))
    assert len(cut(graph)) >= 40
    assert len(looks) < 6 * len(graph.nodes)


def test_what_is_put_beside_each_other_is_one_block_with_what_it_is_made_of(
    inverses: Callable[[np.ndarray], np.ndarray],
) -> None:
    """Cofactors were cut apart, and passed from block to block: 18 kernels for one loop."""
    graph = expand(trace(inverses, {"a": np.ones((10, 3, 3), np.float32)}).graph)
    assert len(graph.nodes) > 64
    assert len(cut(graph)) == 1


def recursive(x: np.ndarray) -> np.ndarray:
    y = np.zeros_like(x)
    for i in range(2, len(x)):
        y[i] = 0.2 * x[i] + 0.3 * x[i - 1] + 0.2 * x[i - 2] + 0.4 * y[i - 1] - 0.3 * y[i - 2]
    return y


def test_steps_that_read_an_element_each_are_one_block() -> None:
    """A thousand steps of a filter were 82 blocks, of which 48 were different: each was searched."""
    x = np.random.default_rng(0).standard_normal(400)
    graph = expand(trace(recursive, {"x": x}).graph)
    blocks = cut(graph)
    keys = [b.key for b in blocks if any(n.op.label == "mul" for n in b.graph.nodes)]
    assert len(set(keys)) <= 4 and max(map(keys.count, keys)) > 100
    values: dict[int, np.ndarray] = {0: x}
    for b in blocks:
        made = interpret(b.graph, {n: values[v] for n, v in b.leaves.items()})
        values |= {v: made[o] for o, v in b.outputs.items()}
    np.testing.assert_allclose(values[graph.results[0]], recursive(x), rtol=1e-12)


def test_steps_that_read_a_row_each_are_equal_blocks() -> None:
    """Each read another row, and was a block of its own: 18 searches, where one does."""

    def smoothed(x):
        y = np.zeros_like(x)
        y[0] = x[0]
        for i in range(1, len(x)):
            y[i] = 0.9 * y[i - 1] + 0.1 * x[i]
        return y

    blocks = cut(expand(trace(smoothed, {"x": np.ones((300, 17), np.float32)}).graph))
    computed = [b.key for b in blocks if any(n.op.label == "mul" for n in b.graph.nodes)]
    assert len(computed) > 40 and len({*computed}) < 5


@pytest.mark.parametrize("seed", range(8))
def test_a_repeat_is_looked_for_in_few_places_and_missed_in_none(seed: int) -> None:
    rng = np.random.default_rng(seed)
    piece = rng.integers(0, 4, rng.integers(1, 70))
    before, repeated = rng.integers(0, 4, rng.integers(0, 90)), np.tile(piece, 200 // len(piece) + 3)
    letters = np.concatenate([before, repeated, piece[:9]])
    stretches = blocks._stretches_of(letters, blocks._LEAST)
    for period in range(blocks._LEAST, len(letters) // 2 + 1):
        ends = np.flatnonzero(letters[period:] != letters[:-period])
        run = int(np.diff(ends, prepend=-1, append=len(letters) - period).max()) - 1
        for least in range(period, run + 1, 7):
            assert blocks._may_repeat(stretches, period, least)
