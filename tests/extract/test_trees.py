"""Cuts of which a plan can be made at once, where there is no time to look at others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np

from waxeq.events import Deadline, Events
from waxeq.extract.cuts import Cuts
from waxeq.extract.trees import trees
from waxeq.frontend.trace import trace
from waxeq.ir.blocks import cut
from waxeq.ir.graph import expand
from waxeq.options import Options
from waxeq.search import block as block_search
from waxeq.search.block import grow_all, make_space, saturated
from waxeq.search.session import Session

CELLS = 12


def warped(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Two rows of a table of time warping, of which each cell reads three others."""
    above = [np.abs(x[0] - y[j]) for j in range(CELLS)]
    for i in range(1, 3):
        cells = [np.abs(x[i] - y[0]) + above[0]]
        for j in range(1, CELLS):
            cells.append(np.abs(x[i] - y[j]) + np.minimum(np.minimum(above[j], cells[-1]), above[j - 1]))
        above = cells
    return np.stack(above)


def test_a_recurrence_is_a_call_for_each_of_its_cells_where_there_is_no_time(tmp_path: Path) -> None:
    """Regression: it was a call for each function of elements, 17,000 for a time warping of 60 x 60, which took longer
    to put together than to search for, and five times as long to run."""
    x, y = (np.linspace(0, 1, CELLS, dtype=np.float32) for _ in range(2))
    (block,) = cut(expand(trace(warped, {"x": x, "y": y}).graph), most=1000)
    options = Options.of(table=tmp_path / "t.duckdb", backends=("native", "numpy"), threads=1)
    with Session.open(options, Events()) as session:
        at = saturated(session, block, session.rules.bare())
        space, roots = make_space(session.kernels, at.lowered, at.saturation.snapshot)
        rows = grow_all(space, Deadline(0.0), roots=roots).rows
        assert block_search._whole(space, rows, roots), "there must be a plan"
        found = trees(Cuts(block_search._rough(space), Deadline(0.0)))
        made = [i for cut in found.values() for i in cut.inside]
        assert len(made) == len(set(made)), "nothing is made twice"
        assert 2 * CELLS < len(found) <= 3 * CELLS
        assert {c.out.number for c in rows if len(c.nodes) > 2} <= set(made) | {r.number for r in roots}


def test_what_is_put_beside_each_other_is_one_call_where_time_is_short(
    tmp_path: Path, inverses: Callable[[np.ndarray], np.ndarray]
) -> None:
    """It was copied there, nine times, from 24 calls: growing comes to the cut of all of it last."""
    (block,) = cut(expand(trace(inverses, {"a": np.ones((100, 3, 3), np.float32)}).graph))
    options = Options.of(table=tmp_path / "t.duckdb", backends=("native", "numpy"), threads=1)
    with Session.open(options, Events()) as session:
        at = saturated(session, block)
        space, roots = make_space(session.kernels, at.lowered, at.saturation.snapshot)
        rows = grow_all(space, Deadline(0.1), roots=roots).rows
        whole = next(c for c in rows if c.out in roots and sum(e.head == "Cat" for _, e in c.nodes) == 8)
        made = {c.out for c in rows if c.call.kernel.startswith("native.loops") and len(c.nodes) == 3}
        assert {s for s in whole.inputs if s.number not in space.leaves} <= made


def filtered(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """A convolution of 3 x 3, added to what it is of."""
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (1, 1), (1, 1))), (3, 3), axis=(1, 2))
    return np.maximum(np.einsum("chwij,ocij->ohw", windows, w) + x, 0)


def test_sums_of_products_are_a_call_of_generated_code_where_there_is_no_time(tmp_path: Path) -> None:
    """A ResNet was made of einsums that take 20 times as long, as no cut of a product with its sums was grown in time:
    searches of 5 s ended with the model as it is written."""
    x, w = np.ones((8, 10, 10), np.float32), np.ones((8, 8, 3, 3), np.float32)
    (block,) = cut(expand(trace(filtered, {"x": x, "w": w}).graph))
    options = Options.of(table=tmp_path / "t.duckdb", backends=("native", "numpy"), threads=1)
    with Session.open(options, Events()) as session:
        at = saturated(session, block, session.rules.bare())
        space, roots = make_space(session.kernels, at.lowered, at.saturation.snapshot)
        rows = grow_all(space, Deadline(0.0), roots=roots).rows
    assert block_search._whole(space, rows, roots)
    heads = [Counter(e.head for _, e in c.nodes) for c in rows if c.call.kernel.startswith("native.")]
    assert any(h["Sum"] == 3 and h["Mul"] == 1 for h in heads)
