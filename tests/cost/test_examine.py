"""Rows that cannot be right are found and explained, put aside and dropped; rows that can be are left alone."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import pytest

from waxeq.cost.ceilings import Ceilings
from waxeq.cost.device import Device, Peaks
from waxeq.cost.examine import examine, set_aside
from waxeq.cost.gc import collect, spare
from waxeq.cost.key import METHOD, Timing
from waxeq.cost.survey import Present, counts, survey
from waxeq.cost.table import TimingTable
from waxeq.errors import TableWriteError

Make = Callable[..., Timing]
HERE = Device("A CPU", 2, 1 << 15, 1 << 20, 1 << 25, 4 << 30, "Linux x86_64", "3.11", "2.5.0", "openblas", 1)
THERE = replace(HERE, model="Another CPU")
BEFORE = replace(HERE, numpy="2.4.0")
PRESENT = Present({"numpy.gemm": lambda: "c0de"}, frozenset({"numpy"}), (HERE,))
PEAKS = Peaks({"float32": 1e11}, 1e10, 1e11, 1e-6)


@pytest.fixture
def table(table: TimingTable, monkeypatch: pytest.MonkeyPatch) -> TimingTable:
    monkeypatch.setattr("waxeq.cost.table.measure_peaks", lambda threads: PEAKS)
    for device in (HERE, THERE, BEFORE):
        table.peaks(device)
    return table


def good(timing: Make, n: int, **given: object) -> Timing:
    given = {"device": HERE.id, "samples": tuple(1e-5 * (1 + 0.01 * i) for i in range(10)), **given}
    return timing(n, **given)


def spoil(table: TimingTable, change: str, given: tuple = ()) -> None:
    """Change the row of the first call, as a damaged disk or a foreign program might."""
    with table.database(changes=True) as db:
        db.execute(f"UPDATE timings SET {change} WHERE written = 1001.0", list(given))


def found_in(table: TimingTable, present: Present = PRESENT) -> list[Any]:
    with table.database() as db:
        return examine(db, present, Ceilings(db, present, lambda threads: PEAKS))


def test_nothing_is_wrong_with_good_rows(table: TimingTable, timing: Make) -> None:
    table.record([good(timing, n) for n in range(1, 20)])
    table.record([good(timing, 30, max_relative_error=math.nan, rms_relative_error=math.nan)])
    table.record([good(timing, 31, max_relative_error=math.inf, rms_relative_error=math.inf)])
    assert found_in(table) == []


@pytest.mark.parametrize(
    ("change", "kind", "said"),
    [
        ("samples = [1e-5, 'nan'::DOUBLE]", "poisoned", "a sample of nan s"),
        ("samples = [1e-5, 0.0]", "poisoned", "a sample of 0.0 s"),
        ("samples = [1e-5, -1e-5]", "poisoned", "a sample of -1e-05 s"),
        ("samples = [1e-5, 'inf'::DOUBLE]", "poisoned", "a sample of inf s"),
        ("samples = []", "poisoned", "no samples"),
        ("samples = NULL", "poisoned", "has no samples"),
        ("samples = [1e-5, 1e-1]", "poisoned", "contradict each other"),
        ("samples = [1.1e-5, 1.2e-5]", "poisoned", "its id is not of its samples"),
        ("dims = 'i0=77'", "poisoned", "its digest is not of its key"),
        ("text_hash = 'no'", "poisoned", "the hash of its text"),
        ("features = '{\"bytes\": -1}'", "poisoned", "non-negative numbers by name"),
        ("features = 'no json'", "poisoned", "non-negative numbers by name"),
        ("max_relative_error = 1e-9", "poisoned", "cannot be"),
        ("rms_relative_error = -1", "poisoned", "cannot be"),
        ("written = 9e12", "poisoned", "not yet"),
        ("kernel = 'numpy.gone'", "unknown", "no kernel numpy.gone"),
        ("backend = 'other'", "unknown", "backend other is not installed"),
        ("code = 'older'", "stale", "was changed since"),
        (f"method = {METHOD - 1}", "stale", "timed in another way"),
        ("device = 'nobody'", "unknown", "nothing says what device nobody is"),
    ],
)
def test_each_kind_of_damage_is_explained(table: TimingTable, timing: Make, change: str, kind: str, said: str) -> None:
    table.record([good(timing, n) for n in (1, 2)])
    spoil(table, change)
    found = found_in(table)
    assert (found[0].kind, found[0].rows) == (kind, 1) and said in found[0].reason
    assert "waxeq db" in found[0].advice
    if kind == "poisoned":
        assert len(found) == 1 and len(found[0].ids) == 1


def test_faster_than_the_machine_can_be(table: TimingTable, timing: Make) -> None:
    samples = (1e-5,) * 4
    rows = [
        good(timing, 1, samples=samples, features={"flops": 1e11 * 1e-5 * 4.5}),
        good(timing, 2, samples=samples, features={"flops": 1e11 * 1e-5 * 3.5}),
        good(timing, 3, samples=samples, features={"bytes": 1e11 * 1e-5 * 4.5}),
        good(timing, 4, samples=samples, features={"bytes": 1e11 * 1e-5 * 4.5}, text="(Gather k x y)"),
        good(timing, 5, samples=(1e-9,) * 4),
    ]
    table.record(rows)
    found = {f.ids[0]: f for f in found_in(table)}
    assert set(found) == {rows[n].id for n in (0, 2, 4)} and {f.kind for f in found.values()} == {"implausible"}
    assert "operations a second" in found[rows[0].id].reason and "bytes a second" in found[rows[2].id].reason


def test_ceilings_that_were_measured_on_a_busy_machine_are_measured_again(table: TimingTable, timing: Make) -> None:
    samples, asked = (1e-5,) * 4, list[int]()
    rows = [
        good(timing, 1, samples=samples, features={"flops": 1e11 * 1e-5 * 4.5}),
        good(timing, 2, samples=samples, features={"flops": 3e11 * 1e-5 * 4.5}),
        good(timing, 3, samples=samples, features={"bytes": 1e11 * 1e-5 * 4.5}),
        good(timing, 4, samples=samples, features={"flops": 1e11 * 1e-5 * 4.5}, device=THERE.id),
    ]
    table.record(rows)

    def measured(threads: int) -> Peaks:
        asked.append(threads)
        return Peaks({"float32": 2e11, "float64": 1e11}, 1e9, 1e9, 1e-5)

    with table.database() as db:
        ceilings = Ceilings(db, PRESENT, measured)
        found = {f.ids[0] for f in examine(db, PRESENT, ceilings)}
    assert found == {rows[1].id, rows[2].id, rows[3].id}, "the first is possible; of others nothing more is known"
    assert asked == [HERE.threads], "once, and only what is here"
    better = Peaks({"float32": 2e11, "float64": 1e11}, PEAKS.bandwidth, PEAKS.cache_bandwidth, PEAKS.launch)
    assert ceilings.raised == {HERE: better}, "what was better before stays"


def test_kernels_of_another_device_are_held_to_what_that_can_do(table: TimingTable, timing: Make) -> None:
    samples = (1e-5,) * 4
    swift, swifter = ({"flops": 1e11 * 1e-5 * times} for times in (40.0, 400.0))
    table.record([good(timing, n, samples=samples, features=f) for n, f in ((1, swift), (2, swifter))])
    gpu = replace(PRESENT, elsewhere={"numpy.gemm": lambda: {**asdict(PEAKS), "flops": {"float32": 2e12}}})
    (found,) = found_in(table, gpu)
    assert found.kind == "implausible" and "4e+13 operations" in found.reason

    def missing() -> None:
        raise TableWriteError("no driver")

    assert found_in(table, replace(PRESENT, elsewhere={"numpy.gemm": missing})) == []
    assert len(found_in(table)) == 2


def test_two_moods_are_a_finding(table: TimingTable, timing: Make) -> None:
    table.record(
        [good(timing, 1, samples=tuple([1e-5 + 1e-8 * n for n in range(10)] + [3e-5 + 1e-8 * n for n in range(10)]))]
    )
    (found,) = found_in(table)
    assert found.kind == "bimodal" and "50% of 20 samples" in found.reason


def test_what_other_machines_timed_is_no_fault(table: TimingTable, timing: Make) -> None:
    table.record([good(timing, 1), good(timing, 2, device=THERE.id), good(timing, 3, device=BEFORE.id)])
    table.record([good(timing, 4, device=THERE.id, code="by another compiler")])
    with table.database() as db:
        parts = {p.device: p for p in survey(db, PRESENT)}
        assert counts(survey(db, PRESENT)) == {"current": 1, "stale": 1, "unknown": 0, "elsewhere": 2}
    assert "numpy 2.4.0 -> 2.5.0" in parts[BEFORE.id].why and "model Another CPU -> A CPU" in parts[THERE.id].why
    (found,) = found_in(table)
    assert (found.kind, found.device) == ("stale", BEFORE.id)


def test_what_is_put_aside_does_not_count_and_is_kept(table: TimingTable, timing: Make) -> None:
    rows = [good(timing, n) for n in (1, 2, 3)]
    table.record(rows)
    spoil(table, "samples = [1e-5, 0.0]")
    assert set_aside(table, found_in(table)) == 1
    assert found_in(table) == [] and set_aside(table, found_in(table)) == 0
    assert set(table.lookup([t.key for t in rows])) == {t.key for t in rows[1:]}
    assert {t.key for t in table.families(HERE.id)} == {t.key for t in rows[1:]}
    with table.database() as db:
        kept = db.execute("SELECT kind, reason, samples, moved FROM quarantine").fetchall()
    assert [row[:1] for row in kept] == [("poisoned",)] and kept[0][2] == [1e-5, 0.0]
    assert "0.0 s" in kept[0][1] and abs(kept[0][3] - time.time()) < 600


def test_a_row_that_is_no_timing_is_never_read(table: TimingTable, timing: Make) -> None:
    rows = [good(timing, n) for n in (1, 2)]
    table.record(rows)
    for change in ("samples = [1e-5, 'nan'::DOUBLE]", "samples = NULL", "features = 'no json'"):
        spoil(table, change)
        assert set(table.lookup([t.key for t in rows])) == {rows[1].key}
        assert {t.key for t in table.families(HERE.id)} == {rows[1].key}


# -- dropping


def test_gc_drops_what_it_said_and_nothing_else(table: TimingTable, timing: Make) -> None:
    keep = [good(timing, n) for n in range(2, 6)] + [good(timing, 6, device=THERE.id)]
    old = [good(timing, n, when=10.0, samples=(2e-5, 3e-5)) for n in range(2, 5)]
    table.record([good(timing, 1), *keep, *old, good(timing, 7, code="older"), good(timing, 8, device=BEFORE.id)])
    table.memo_put("plan", "a", "one")
    spoil(table, "samples = [1e-5, 0.0]")
    assert set_aside(table, found_in(table)) == 1
    before = spare(table, PRESENT)
    assert (before.superseded, before.unused, before.quarantined, before.kept) == (3, 2, 1, 5)
    assert spare(table, PRESENT) == before, "saying what would be dropped drops nothing"
    done = collect(table, PRESENT)
    assert replace(done, after=before.after) == before and done.after == table.path.stat().st_size
    assert table.lookup([t.key for t in keep]) == {t.key: t for t in keep}
    assert table.memo_get("plan", "a") == "one" and set(table.devices()) == {d.id for d in (HERE, THERE, BEFORE)}
    again = spare(table, PRESENT)
    assert (again.superseded, again.unused, again.quarantined, again.kept) == (0, 0, 0, 5)
    assert spare(table, PRESENT, frozenset({"stale", "elsewhere"})).unused == 1


def test_gc_forgets_old_searches(table: TimingTable, timing: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans of models that are no more, and of other versions, were kept for ever: a key does not say of which."""
    table.record([good(timing, 1)])
    long_ago = time.time() - 31 * 86400
    monkeypatch.setattr("time.time", lambda: long_ago)
    table.memo_put("block", "old", "a plan")
    table.memo_put("peaks", "old", "what the machine does at most")
    monkeypatch.undo()
    table.memo_put("block", "new", "a plan")
    assert spare(table, PRESENT).forgotten == collect(table, PRESENT).forgotten == 1
    assert [table.memo_get(*k) for k in (("block", "old"), ("block", "new"))] == [None, "a plan"]
    assert table.memo_get("peaks", "old") == "what the machine does at most" and spare(table, PRESENT).forgotten == 0


def test_gc_keeps_certificates(table: TimingTable, timing: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: after 30 days `waxeq db gc` took a rule its certificate, and a program that names it was refused."""
    table.record([good(timing, 1)])
    long_ago = time.time() - 31 * 86400
    monkeypatch.setattr("time.time", lambda: long_ago)
    table.memo_put("certificate", "old", "sound")
    monkeypatch.undo()
    assert collect(table, PRESENT).forgotten == 0 and table.memo_get("certificate", "old") == "sound"


def test_gc_makes_the_file_smaller(table: TimingTable, timing: Make) -> None:
    table.record([good(timing, n, code="older", text=hashlib.sha512(b"%d" % n).hexdigest()) for n in range(9000)])
    table.record([good(timing, 1)])
    done = collect(table, PRESENT)
    assert done.unused == 9000 and done.after < done.before


@pytest.mark.parametrize("fails", ["os.replace", "os.fsync"])
def test_gc_on_a_full_disk_leaves_the_table_as_it_was(
    table: TimingTable, timing: Make, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    rows = [good(timing, 1), good(timing, 1, when=5.0)]
    table.record(rows)
    table.merge()

    def full(*given: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as m:
        m.setattr(fails, full)
        with pytest.raises(TableWriteError, match="No space left"):
            collect(table, PRESENT)
    assert table.status()["timings"][0]["rows"] == 2
    assert [p.name for p in table.path.parent.iterdir() if p.name.endswith(".new")] == []
    assert collect(table, PRESENT).superseded == 1
