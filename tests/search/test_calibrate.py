"""Calibration: the grid reaches every kernel, and a run that is cut short keeps what it measured."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from waxeq.backend.call import Call
from waxeq.backend.discover import backends, kernels
from waxeq.basis.typing import sizes_fit, types
from waxeq.cost.device import current_device
from waxeq.cost.exchange import merge
from waxeq.cost.key import Timing
from waxeq.cost.table import TimingTable
from waxeq.egraph.kernels import patterns
from waxeq.errors import TableError
from waxeq.events import Event, Events, Progress, StageFinished, StageStarted
from waxeq.options import Options
from waxeq.search import calibrate as module
from waxeq.search import samples as samples_search
from waxeq.search.calibrate import calibrate
from waxeq.search.samples import samples
from waxeq.search.session import Session


def options(tmp_path: Path) -> Options:
    return Options.of(table=tmp_path / "t.duckdb", threads=1)


@pytest.mark.parametrize("quick", [True, False])
def test_the_grid_is_well_typed(quick: bool) -> None:
    for s in samples(quick):
        kind = types(s.meaning)[s.meaning]
        spread = s.meaning.head == "In"  # a copy may spread its operand along further axes
        assert kind.axes <= set(s.order) if spread else kind.axes == set(s.order), s.meaning
        assert sizes_fit(s.meaning, s.sizes) and min(s.sizes.values()) > 0
        assert all(v.is_dense or v.extent < v.elements for v in s.operands)  # windows share elements


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.usefixtures("wide")
def test_the_grid_reaches_every_kernel(quick: bool) -> None:
    found = kernels(backends())
    forms, left = patterns(found), dict(found)
    for s in samples(quick):
        for kernel in {c.kernel for c in s.calls(left, forms)}:  # those that were reached are not asked again
            del left[kernel]
    assert not left


@pytest.mark.usefixtures("few")
def test_calls_are_made_on_the_threads_they_are_filed_under(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Timings of one thread were once taken for those of two."""
    seen: list[Call] = []
    monkeypatch.setattr("waxeq.search.session.Session.measure", lambda self, calls, *_: seen.extend(calls) or 0)
    calibrate(options(tmp_path).model_copy(update={"threads": 2}), Events(), quick=True)
    assert seen and {c.threads for c in seen} == {2}


def test_what_kernels_prepare_once_is_timed_prepared() -> None:
    """Every third call of the grid stands for all."""
    found = kernels(backends())
    forms = patterns(found)
    for s in islice(samples(True), 0, None, 3):
        calls = list(s.calls(found, forms, 2))
        for c in calls:
            kept = [d for f in ((0,), (1,)) if found[c.kernel].retained(d := replace(c, fixed=f))]
            kept = [d for d in kept if len(c.operands) == 2 and found[c.kernel].accepts(d)]
            assert not kept or any(d.kernel == c.kernel and d.fixed for d in calls), c


def taken_in(table: Path, path: Path | None) -> int:
    assert path is not None
    return merge(TimingTable.open(table), [path])[0].new


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every sixteenth call of the grid, in batches of 32: to work out what to time is most of a run that is stopped."""
    monkeypatch.setattr(module, "samples", lambda quick: islice(samples(quick), 0, None, 16))
    monkeypatch.setattr(module, "_BATCH", {True: 32, False: 32})


def stopping(after: int) -> tuple[Events, list[Event]]:
    """Events that ask to stop when so many calls are about to have been timed, as Ctrl-C does; and what was seen."""
    seen: list[Event] = []

    def listen(event: Event) -> None:
        seen.append(event)
        if sum(isinstance(e, Progress) for e in seen) == after:
            events.request_stop()

    events = Events(listen)
    return events, seen


@pytest.mark.usefixtures("few")
def test_a_run_that_is_stopped_keeps_what_it_measured(tmp_path: Path) -> None:
    events, seen = stopping(40)
    first = calibrate(options(tmp_path), events, out=tmp_path, quick=False)
    assert first.rows == 32 and first.left, "a batch, of which some calls were timed a second time"
    assert first.device == current_device(1).id and first.path == tmp_path / f"{first.device}.parquet"
    stages = [e for e in seen if isinstance(e, (StageStarted, StageFinished))]
    assert isinstance(stages[0], StageStarted) and seen[-1] is stages[-1] and isinstance(seen[-1], StageFinished)
    table = TimingTable.open(tmp_path / "t.duckdb")
    rows = table.families(first.device)
    assert len(rows) == 32 == taken_in(tmp_path / "copy.duckdb", first.path)
    assert all(t.samples and t.features for t in rows)
    assert table.devices()[first.device].threads == 1

    again = calibrate(options(tmp_path), stopping(1)[0])
    assert again.rows == 1 and again.path is None
    assert len(table.families(first.device)) == 33, "calls that the table knows are not timed again"


@pytest.mark.usefixtures("few")
def test_what_a_shipped_table_knew_is_in_the_file_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = calibrate(options(tmp_path), stopping(40)[0], out=tmp_path)
    assert first.path is not None
    monkeypatch.setattr("waxeq.search.tables.calibration_tables", lambda: [first.path])
    other = Options.of(table=tmp_path / "other.duckdb", threads=1)
    again = calibrate(other, stopping(3)[0], out=tmp_path)
    assert again.rows and again.path == first.path
    assert taken_in(tmp_path / "copy.duckdb", first.path) == 32 + again.rows


def test_of_a_call_that_is_timed_again_the_faster_timing_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine that is slow for an hour all visits of a call are slow; it is another time that tells."""
    monkeypatch.setattr(module, "_VISITS", 1)
    given = [s for s in samples(True) if s.meaning.head == "Map"][:3]
    monkeypatch.setattr(module, "samples", lambda quick: iter(given))
    speed = iter([2e-3, 1e-3, 3e-3])
    truly = Session._timed

    def run(again: bool) -> tuple[int, list[float]]:
        factor = next(speed)

        def timed(self: Session, call: Call, seconds: float) -> Timing:
            return replace(truly(self, call, seconds), samples=(factor,), disturbed=False)

        monkeypatch.setattr(Session, "_timed", timed)
        found = calibrate(options(tmp_path), Events(), again=again)
        assert found.left == 0
        return found.rows, [t.seconds for t in TimingTable.open(tmp_path / "t.duckdb").families(found.device)]

    count, first = run(False)
    assert count and first == [2e-3] * count
    assert run(True) == (count, [1e-3] * count), "the faster one took the place of what was known"
    assert run(True) == (count, [1e-3] * count), "a slower one did not"


@pytest.mark.parametrize("quick", [True, False])
def test_a_run_ends_while_it_works_out_what_to_time(
    tmp_path: Path, quick: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which takes some seconds, before anything is timed."""
    events, asked = Events(), list[int]()
    monkeypatch.setattr(
        samples_search.Sample, "calls", lambda self, *_: asked.append(1) or events.request_stop() or iter(())
    )
    found = calibrate(options(tmp_path), events, quick=quick)
    assert (found.rows, found.left, asked) == (0, None, [1]), "nobody knows what was left"


@pytest.mark.usefixtures("few")
def test_a_quick_run_ends_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUICK", 0.0)
    found = calibrate(options(tmp_path), Events(), quick=True)
    assert found.rows == 0 and found.left


@pytest.mark.usefixtures("few")
def test_a_quick_run_measures_until_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It once kept two fifths of its minute for choosing and timing plans, of which it has none."""
    seen: list[bool] = []

    def measured(self: Session, *_: object) -> int:
        object.__setattr__(self.deadline, "start", self.deadline.clock() - 0.8 * module.QUICK)
        seen.append(self.pressed)
        self.events.request_stop()
        return 0

    monkeypatch.setattr(Session, "measure", measured)
    calibrate(options(tmp_path), Events(), quick=True)
    assert seen == [False]


def test_a_place_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="there is no folder"):
        calibrate(options(tmp_path), Events(), out=tmp_path / "nowhere" / "a.parquet", quick=True)
    with pytest.raises(TableError, match="make it, or name a file"):
        calibrate(options(tmp_path), Events(), out=tmp_path / "nowhere", quick=True)
