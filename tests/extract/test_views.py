"""What an e-class is a view of."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from waxeq.egraph.snapshot import ENode
from waxeq.events import Events
from waxeq.extract.views import sources
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


def _views(nodes: tuple[ENode, ...]) -> list[int]:
    return [n.args[-1] for n in nodes if n.head in ("Slice", "Ren")]
