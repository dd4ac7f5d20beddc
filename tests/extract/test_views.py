"""What an e-class is a view of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from waxeq.backend.call import View
from waxeq.egraph.snapshot import EClass, ENode, Snapshot
from waxeq.events import Events
from waxeq.extract.views import look, sources
from waxeq.frontend.trace import trace
from waxeq.ir.blocks import cut
from waxeq.ir.graph import expand
from waxeq.options import Options
from waxeq.search import block as blocks_search
from waxeq.search.session import Session


def swept(u, source):
    """Four sweeps of Jacobi's method, each of which looks at the same part of the source under other names of axes."""
    for _ in range(4):
        inner = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - source[1:-1, 1:-1]
        u = np.pad(0.25 * inner, 1)
    return u


def test_whatever_is_seen_in_an_input_is_seen_there_however_often_axes_are_renamed(tmp_path: Path) -> None:
    """The last sweeps had six other ways to see the source, and so a copy of it was made for them."""
    x = np.ones((9, 9), np.float32)
    (block,) = cut(expand(trace(swept, {"u": x, "source": 2 * x}).graph))
    with Session.open(Options.of(table=tmp_path / "t.duckdb", threads=1, measure=False), Events()) as session:
        at = blocks_search.saturated(session, block)
        space, _ = blocks_search.make_space(session.kernels, at.lowered, at.saturation.snapshot)
    classes = at.saturation.snapshot.classes
    most = 0
    for leaf in space.leaves:
        seen = {leaf}
        while more := {i for i, c in enumerate(classes) if i not in seen and seen.intersection(_views(c.nodes))}:
            seen |= more
        assert all(leaf in {s.base for s in sources(at.saturation.snapshot, i)} for i in seen)
        most = max(most, len(seen))
    assert most > 6, "there are more ways than are kept"


def rows(x):
    """Steps of a model that goes along an axis."""
    y = x[0]
    for i in range(1, 6):
        y = np.tanh(y + x[i])
    return y @ x[5]


def test_what_lies_at_a_known_place_is_seen_where_it_lies(tmp_path: Path) -> None:
    """Each x[i] was a kernel that copied it where something else than loops reads it."""
    x = np.ones((6, 40, 40), np.float32)
    (block,) = cut(expand(trace(rows, {"x": x}).graph))
    with Session.open(Options.of(table=tmp_path / "t.duckdb", threads=1, measure=False), Events()) as session:
        at = blocks_search.saturated(session, block)
        space, _ = blocks_search.make_space(session.kernels, at.lowered, at.saturation.snapshot)
    (leaf,), snapshot = space.leaves, at.saturation.snapshot
    dense = View.dense(space.leaves[leaf].order, snapshot.sizes, "float32")
    nodes = [(i, n) for i, c in enumerate(snapshot.classes) for n in c.nodes]
    taken = {i: None for i, n in nodes if n.head == "Gather" and n.args[-1] == leaf}
    seen = [s.view(dense, snapshot.sizes) for i in taken for s in sources(snapshot, i) if s.base == leaf]
    assert sorted(v.offset for v in seen if v is not None) == [1600 * i for i in range(6)]
    assert all(v is not None and v.shape == (40, 40) and v.strides == (40, 1) for v in seen)


def test_places_that_are_computed_or_counted_from_the_end_are_no_views() -> None:
    index = EClass(frozenset(), "int64", False, None, ())
    for place, fits in ((0.0, True), (4.0, True), (5.0, False), (-1.0, False), (None, False)):
        at = replace(index, constant=place)
        snapshot = Snapshot((at,), {}, {"k": 5, "n": 3})
        assert (look(snapshot, ENode("Gather", ("k", 0, 1), (1, 2))) is not None) is fits


def _views(nodes: tuple[ENode, ...]) -> list[int]:
    return [n.args[-1] for n in nodes if n.head in ("Slice", "Ren")]
