"""Calibration: the grid reaches every kernel, and a run that is cut short keeps what it measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from waxeq.backend.discover import backends, kernels
from waxeq.basis.typing import sizes_fit, types
from waxeq.cost.device import current_device
from waxeq.cost.table import TimingTable
from waxeq.egraph.kernels import patterns
from waxeq.errors import TableError
from waxeq.events import Event, Events, Progress, StageFinished, StageStarted
from waxeq.options import Options
from waxeq.search import calibrate as module
from waxeq.search.calibrate import calibrate
from waxeq.search.samples import samples


@pytest.fixture(autouse=True)
def _nothing_shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a checkout knows of this machine is not what is tested here."""
    monkeypatch.setattr("waxeq.search.session.calibration_tables", lambda: [])


def options(tmp_path: Path) -> Options:
    return Options.of(table=tmp_path / "t.duckdb", threads=1)


@pytest.mark.parametrize("quick", [True, False])
def test_the_grid_is_well_typed(quick: bool) -> None:
    for s in samples(quick):
        kind = types(s.meaning)[s.meaning]
        spread = s.meaning.head == "In"  # a copy may spread its operand along further axes
        assert kind.axes <= set(s.order) if spread else kind.axes == set(s.order), s.meaning
        assert sizes_fit(s.meaning, s.sizes) and min(s.sizes.values()) > 0
        assert all(v.is_dense for v in s.operands)


@pytest.mark.parametrize("quick", [True, False])
def test_the_grid_reaches_every_kernel(quick: bool) -> None:
    found = kernels(backends())
    forms = patterns(found)
    assert {c.kernel for s in samples(quick) for c in s.calls(found, forms)} == set(found)


def test_a_short_run_keeps_what_it_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUICK", 2.0)
    seen: list[Event] = []
    first = calibrate(options(tmp_path), Events(seen.append), out=tmp_path, quick=True)
    assert first.rows > 0 and first.left > 0
    assert first.device == current_device(1).id and first.path == tmp_path / f"{first.device}.parquet"
    assert isinstance(seen[0], StageStarted) and isinstance(seen[-1], StageFinished)
    assert sum(isinstance(e, Progress) for e in seen) == first.rows
    table = TimingTable.open(tmp_path / "t.duckdb")
    rows = table.families(first.device)
    assert len(rows) == first.rows == TimingTable.open(tmp_path / "copy.duckdb").import_parquet(first.path)
    assert all(len(t.samples) >= 3 and t.features for t in rows)
    assert json.loads(table.devices()[first.device].json())["threads"] == 1

    again = calibrate(options(tmp_path), Events(), quick=True)
    assert again.rows + again.left <= first.left, "calls that the table knows are not timed again"
    assert again.path is None


def test_a_wish_to_stop_keeps_what_was_measured(tmp_path: Path) -> None:
    def stop(event: Event) -> None:
        if isinstance(event, Progress) and event.done == 4:
            events.request_stop()

    events = Events(stop)
    found = calibrate(options(tmp_path), events, quick=True)
    assert found.rows == 5
    assert len(TimingTable.open(tmp_path / "t.duckdb").families(found.device)) == 5


def test_a_place_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="there is no folder"):
        calibrate(options(tmp_path), Events(), out=tmp_path / "nowhere" / "a.parquet", quick=True)
