"""Cuts: what may be computed together."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from waxeq.events import Deadline, Events
from waxeq.frontend.trace import trace
from waxeq.ir.blocks import cut
from waxeq.ir.graph import expand
from waxeq.options import Options
from waxeq.search.block import grow_all, make_space, saturated
from waxeq.search.session import Session

X = np.linspace(0.1, 1.0, 5_000, dtype=np.float32)


def steps(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two results of some eighty functions of elements, most of which they have in common."""
    for i in range(20):
        x, y = np.sqrt(x * y + (i + 1)), np.tanh(y)
    return x - y, x / y


def test_all_that_is_made_point_by_point_is_one_cut_whatever_the_time_is(tmp_path: Path) -> None:
    """In a search of 3 s a model of 124 such functions was twelve loops: growing cuts had not come to larger ones."""
    (block,) = cut(expand(trace(steps, {"x": X, "y": X + 1}).graph))
    options = Options.of(table=tmp_path / "t.duckdb", backends=("native",), threads=1)
    with Session.open(options, Events()) as session:
        at = saturated(session, block, session.rules.bare())
        space, roots = make_space(session.kernels, at.lowered, at.saturation.snapshot)
        found = grow_all(space, Deadline(0.0))
        leaves = set(space.leaves.values())
        whole = [c for c in found.rows if c.out in roots and set(c.inputs) <= leaves]
        assert not found.all
        assert {c.out for c in whole} == set(roots)
        assert all(len(c.nodes) > 80 for c in whole), "longer than cuts of other functions may be"
