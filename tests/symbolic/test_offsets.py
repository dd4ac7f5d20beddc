"""Offsets as functions of sizes: no two live buffers overlap, at any size."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import waxeq as wx
from waxeq.memory.assign import Assignment, assign
from waxeq.memory.check import check_assignment
from waxeq.memory.estimate import plan_estimate
from waxeq.memory.liveness import Buffer, InPlace
from waxeq.plan.compose import DIRECT
from waxeq.symbolic.offsets import formulas, offsets_at, places
from waxeq.symbolic.peak import peak_at, peaks
from waxeq.symbolic.size import Size, sized, symbol


@dataclass(frozen=True)
class Drawn:
    """A buffer whose bytes are a + b T + c T**2."""

    name: str
    numbers: tuple[int, int, int]
    first: int
    last: int

    @property
    def size(self) -> Size | int:
        a, b, c = self.numbers
        t = symbol("T")
        return sized(a + b * t + c * t * t)

    def at(self, t: int) -> Buffer:
        a, b, c = self.numbers
        return Buffer(self.name, a + b * t + c * t * t, self.first, self.last)


@st.composite
def programs(draw: st.DrawFn) -> list[Drawn]:
    rows = []
    for i in range(draw(st.integers(1, 9))):
        first = draw(st.integers(0, 8))
        numbers = draw(st.tuples(st.integers(0, 300), st.integers(0, 70), st.integers(0, 3)))
        rows.append(Drawn(f"t{i}", numbers, first, first + draw(st.integers(0, 5))))
    return rows


def wishes(rows: list[Drawn]) -> list[InPlace]:
    """Results that may replace an operand of the same size at every T."""
    return [
        InPlace(b.name, a.name) for a in rows for b in rows
        if a is not b and a.last == b.first and a.first < b.first and a.numbers == b.numbers
    ]  # fmt: skip


@given(programs(), st.integers(1, 5000), st.lists(st.integers(1, 5000), min_size=1, max_size=6))
@settings(deadline=None)
def test_live_buffers_are_apart_at_every_size(rows: list[Drawn], made_at: int, sizes: list[int]) -> None:
    found = assign([r.at(made_at) for r in rows], wishes(rows))
    pairs = [(w.buffer, w.reuses) for w in found.in_place]
    order = places({r.name: (r.first, r.last) for r in rows}, found.offsets, pairs)
    for t in (1, made_at, *sizes):
        buffers = [r.at(t) for r in rows]
        offsets, end = offsets_at(order, {b.name: b.bytes for b in buffers})
        check_assignment(buffers, Assignment(offsets, end, end), found.in_place)
    at_home = offsets_at(order, {r.name: r.at(made_at).bytes for r in rows})[1]
    assert at_home <= found.arena_bytes


@given(programs(), st.integers(1, 400))
@settings(deadline=None, max_examples=15)
def test_the_formulas_are_the_offsets(rows: list[Drawn], t: int) -> None:
    found = assign([r.at(17) for r in rows])
    order = places({r.name: (r.first, r.last) for r in rows}, found.offsets, [])
    offsets, _ = offsets_at(order, {r.name: r.at(t).bytes for r in rows})
    written = formulas(order, {r.name: r.size for r in rows})
    assert {n: int(e.subs(symbol("T"), t)) for n, e in written.items()} == offsets


@pytest.mark.quick
def test_a_buffer_in_a_gap_moves_when_it_outgrows_it() -> None:
    rows = [Drawn("low", (64, 0, 0), 0, 3), Drawn("gap", (0, 64, 0), 0, 1), Drawn("high", (640, 0, 0), 0, 3)]
    order = places({r.name: (0, 1) for r in rows}, {"low": 0, "gap": 64, "high": 128}, [])
    offsets, end = offsets_at(order, {r.name: r.at(10).bytes for r in rows})
    assert (offsets, end) == ({"low": 0, "gap": 64, "high": 704}, 1344)


@pytest.mark.slow
def test_a_large_result_takes_no_room_in_the_arena(tmp_path: Path) -> None:
    """It is written where its caller gets it, and only a small one lies in the arena first."""
    options = wx.Options(table=tmp_path / "t.duckdb", trial=False, measure=False, cost="roofline", polish=False)
    x = np.ones((99, 64), np.float32)
    result = wx.optimize(lambda x: np.exp(x), x, dims={"T": (1, 65536, {"x": 0})}, options=options)
    i = result.intervals[-1]
    assert not i.plan.as_written
    least, most = (i.plan.at({"T": t}, result.kernels) for t in (1, 65536))
    assert (least.arena_bytes, most.arena_bytes) == (256, 0)
    said = peak_at(peaks(i, result.plans.dims, result.kernels), {"T": 65536})
    assert 0 <= said - plan_estimate(most).peak_bytes <= DIRECT
