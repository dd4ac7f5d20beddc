"""Timings from and for other tables: nothing twice, nothing lost, what cannot be right apart, and fair comparisons."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from waxeq.cost.device import Device, Peaks
from waxeq.cost.examine import Finding, set_aside
from waxeq.cost.exchange import around_median, diff, export, median, merge, pair
from waxeq.cost.key import Timing
from waxeq.cost.near import Near
from waxeq.cost.shards import Shards, timing_rows
from waxeq.cost.survey import Present, survey
from waxeq.cost.table import TimingTable
from waxeq.cost.unsaved import look
from waxeq.errors import TableError

Make = Callable[..., Timing]
HERE = Device("A CPU", 2, 1 << 15, 1 << 20, 1 << 25, 4 << 30, "Linux x86_64", "3.11", "2.5.0", "openblas", 1)


@pytest.fixture
def other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TimingTable:
    monkeypatch.setattr("waxeq.cost.table.measure_peaks", lambda threads: Peaks({"float32": 1e11}, 1e10, 1e11, 1e-6))
    found = TimingTable.open(tmp_path / "other" / "o.duckdb")
    found.peaks(HERE)
    return found


# -- merging


def test_merging_twice_is_merging_once(table: TimingTable, other: TimingTable, timing: Make) -> None:
    rows = [timing(n, samples=(0.1 + 1e-9 * n, 0.2)) for n in range(5)]
    table.record(rows[:2])
    other.record(rows[:4])
    other.merge()
    other.record(rows[4:])  # this one waits in a shard
    (found,) = merge(table, [other.path])
    assert (found.new, found.known, found.refused) == (3, 2, 0) and set(found.devices) == {HERE.id}
    assert table.lookup([t.key for t in rows]) == {t.key: t for t in rows}, "raw samples to the last digit"
    assert table.devices() == {HERE.id: HERE} and table.peaks(HERE) == other.peaks(HERE)
    (again,) = merge(table, [other.path])
    assert (again.new, again.known, again.memos) == (0, 5, 0)
    assert other.lookup([t.key for t in rows]) == {t.key: t for t in rows}, "the other table is as it was"


def test_a_table_of_which_there_are_only_shards_is_one(table: TimingTable, timing: Make, tmp_path: Path) -> None:
    """As a search with a budget leaves it until its process ends."""
    with pytest.raises(TableError, match="there is no table at"):
        merge(table, [tmp_path / "o.duckdb"])
    other = TimingTable.open(tmp_path / "o.duckdb")
    other.record([timing(n) for n in range(3)])
    other.memo_put("plan", "a", "one")
    assert len(diff(other.path, other.path).pairs) == 3
    (found,) = merge(table, [other.path])
    assert (found.new, found.memos) == (3, 1) and not other.path.exists() and len(table.families("here")) == 3
    assert look(other.path).status()["timings"][0]["rows"] == 3 and other.path.exists()


@pytest.mark.parametrize("few", [100, 0], ids=["followed", "anew"])
def test_the_near_copy_follows_a_merge(
    table: TimingTable, other: TimingTable, timing: Make, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes in what is new, as making it anew does, which takes minutes of a large table."""
    monkeypatch.setattr("waxeq.cost.copies._FEW", few)
    table.record([timing(n) for n in range(3)])
    other.record([timing(1, when=1.0), timing(2, when=9e8, samples=(0.5,)), *(timing(n) for n in range(3, 6))])
    other.memo_put("plan", "abc", "one")
    made, make = list[Path](), Near.made
    monkeypatch.setattr(Near, "made", lambda path, rows: made.append(path) or make(path, rows))
    assert merge(table, [other.path])[0].new == 5
    keys = [timing(n).key for n in range(6)]
    found = table.lookup(keys), table.families("here"), table.memos("plan", ["abc"]), table.devices()
    assert len(made) == (few == 0)
    assert found[0][keys[2]].samples == (0.5,) and found[0][keys[1]].when == 1001.0 and found[2] == {"abc": "one"}
    Near.remove(Near.beside(table.path))
    assert found == (table.lookup(keys), table.families("here"), table.memos("plan", ["abc"]), table.devices())


def test_shards_of_a_machine_without_duckdb(table: TimingTable, timing: Make, tmp_path: Path) -> None:
    """All that such a machine has of a table is the shards; they come as files or as a folder."""
    script = """
import sys
from importlib import util
found = util.find_spec
util.find_spec = lambda name, *more: None if name == "duckdb" else found(name, *more)
sys.modules["duckdb"] = None
sys.path.insert(0, sys.argv[2])
from waxeq.cost.key import Timing, TimingKey
from waxeq.cost.table import TimingTable
from waxeq.cost.unsaved import look
def timing(n):
    key = TimingKey("numpy", "numpy.gemm", "c0de", str(n), "", "", "float32", "here", 1)
    return Timing(key, (1e-6, 1.1e-6), 0.0, 0.0, {"launches": 1.0}, float(n + 1))
table = TimingTable.open(sys.argv[1])
table.record([timing(0), timing(1)])
table.memo_put("plan", "a", "one")
table.record([timing(2)])
table.tidy()
table = TimingTable.open(sys.argv[1])
assert len(table.lookup([timing(n).key for n in range(4)])) == 3 and len(table.families("here")) == 3
assert table.memo_get("plan", "a") == "one" and table.memo_get("plan", "b") is None
"""
    away = tmp_path / "away" / "a.duckdb"
    done = subprocess.run([sys.executable, "-c", script, away, "."], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not away.exists()
    folder = Shards.beside(away).folder
    (found,) = merge(table, [folder])
    assert (found.new, found.known, found.memos, found.damaged) == (3, 0, 1, ())
    assert [t.samples for t in table.families("here")] == [(1e-6, 1.1e-6)] * 3 and table.memo_get("plan", "a") == "one"
    singles = merge(table, sorted(folder.glob("*.jsonl")))
    assert len(singles) == 3 and sum(s.known for s in singles) == 3 and not any(s.new for s in singles)


def test_damaged_lines_and_poisoned_rows_are_kept_apart(table: TimingTable, timing: Make, tmp_path: Path) -> None:
    rows = timing_rows([timing(n) for n in range(1, 5)])
    rows[1]["digest"] = "0" * 32
    rows[2]["written"] = 9e12
    path = tmp_path / "s.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)) + '\n{"kind": "timing"}\n')
    (found,) = merge(table, [path])
    assert found.damaged and "line 5" in found.damaged[0]
    assert set(table.lookup([timing(n).key for n in range(1, 5)])) == {timing(n).key for n in (1, 2, 4)}
    assert (found.new, found.refused) == (3, 1)  # the digest of a row is worked out anew
    with table.database() as db:
        (reason,) = db.execute("SELECT reason FROM quarantine").fetchone()
    assert str(path) in reason and "not yet" in reason


def test_certificates_are_not_taken_from_others(table: TimingTable, other: TimingTable) -> None:
    other.memo_put("certificate", "a", "sound")
    other.memo_put("plan", "a", "theirs")
    table.memo_put("plan", "b", "ours")
    merge(table, [other.path])
    assert table.memo_get("certificate", "a") is None
    assert (table.memo_get("plan", "a"), table.memo_get("plan", "b")) == ("theirs", "ours")


def test_what_cannot_be_merged_is_named(table: TimingTable, tmp_path: Path) -> None:
    no_table = tmp_path / "no.duckdb"
    no_table.write_bytes(b"no table" * 1000)
    for path in (tmp_path / "none.duckdb", no_table, table.path):
        with pytest.raises(TableError, match=path.name):
            merge(table, [path])
    assert table.status()["timings"] == []


@pytest.mark.parametrize("damage", ["column", "pages"])
def test_a_source_that_is_damaged_is_named_and_not_the_table(
    table: TimingTable, other: TimingTable, timing: Make, tmp_path: Path, damage: str
) -> None:
    other.record([timing(n, device=HERE.id) for n in range(40)])
    path, bad = tmp_path / "good.parquet", tmp_path / "bad.parquet"
    export(other, path)
    if damage == "column":
        duckdb.sql(f"COPY (SELECT * EXCLUDE features FROM '{path}') TO '{bad}' (FORMAT parquet)")
    else:
        whole = path.read_bytes()
        bad.write_bytes(whole[:4] + bytes(b ^ 0xA5 for b in whole[4:60]) + whole[60:])
    for refused in (lambda: merge(table, [bad]), lambda: diff(path, bad)):
        with pytest.raises(TableError, match=r"bad\.parquet cannot be read") as e:
            refused()
        assert str(table.path) not in str(e.value)
    assert merge(table, [path])[0].new == 40


def test_a_description_that_is_none_is_refused_and_hides_nothing(
    table: TimingTable, other: TimingTable, timing: Make, tmp_path: Path
) -> None:
    """One of them, and every command that asked for devices ended in an error."""
    other.record([timing(1, device="odd"), timing(2, device=HERE.id)])
    with other.database(changes=True) as db:
        db.execute("INSERT INTO devices VALUES ('odd', '{\"model\": 1}'), ('none', NULL)")
    assert set(other.devices()) == {HERE.id} == set(other.status()["devices"])
    with other.database() as db:
        assert len(survey(db, Present({}, frozenset(), (HERE,)))) == 2
    export(other, tmp_path / "o.parquet")
    for path in (other.path, tmp_path / "o.parquet"):
        (found,) = merge(table, [path])
        assert set(found.devices) == {HERE.id} and "the description of device odd is damaged" in found.damaged
        assert set(diff(table.path, path).devices_b) == {HERE.id}
    assert table.devices() == {HERE.id: HERE} and table.status()["timings"][0]["rows"] == 1
    with table.database() as db:
        assert db.execute("SELECT id FROM devices").fetchall() == [(HERE.id,)]


def test_what_was_put_aside_does_not_come_back(table: TimingTable, other: TimingTable, timing: Make) -> None:
    rows = [timing(n) for n in range(3)]
    for t in (table, other):
        t.record(rows)
        t.merge()
    assert set_aside(table, [Finding("bimodal", "k", "here", "x", "two moods", 1, (rows[1].id,))]) == 1
    (found,) = merge(table, [other.path])
    assert (found.new, found.known, found.refused) == (0, 3, 0)
    table.record(rows)  # as a shard that was in the archive and did not go, as its process was killed
    table.merge()
    assert set(table.lookup([t.key for t in rows])) == {rows[0].key, rows[2].key}


def test_a_row_without_an_id_is_refused(table: TimingTable, other: TimingTable, timing: Make, tmp_path: Path) -> None:
    other.record([timing(1, samples=(0.5,)), timing(2), timing(3)])
    export(other, tmp_path / "o.parquet")
    path = tmp_path / "none.parquet"
    cut = f"SELECT * REPLACE (CASE WHEN written < 1002 THEN NULL ELSE id END AS id) FROM '{tmp_path / 'o.parquet'}'"
    duckdb.sql(f"COPY ({cut}) TO '{path}' (FORMAT parquet)")
    found = [merge(table, [p])[0] for p in (path, path, other.path)]
    assert [(f.new, f.known, f.refused) for f in found] == [(2, 0, 1), (0, 3, 0), (1, 2, 0)]
    with table.database() as db:
        (reason,) = db.execute("SELECT reason FROM quarantine").fetchone()
    assert "it has no id" in reason and len(table.families("here")) == 3


def test_parquet_there_and_back(table: TimingTable, other: TimingTable, timing: Make, tmp_path: Path) -> None:
    rows = [timing(n, device=HERE.id, samples=(0.1 + 1e-9 * n,)) for n in range(4)]
    other.record([*rows, timing(1, device=HERE.id, when=1.0), timing(9, device="there")])
    path = tmp_path / "it's.parquet"
    assert export(other, path, HERE.id) == 5 and export(other, tmp_path / "all.parquet") == 6
    (found,) = merge(table, [path])
    assert (found.new, found.refused) == (5, 0)
    assert table.lookup([t.key for t in rows]) == {t.key: t for t in rows} and table.devices() == {HERE.id: HERE}
    beside = TimingTable.open(tmp_path / "beside.duckdb", extra=[str(path)])
    assert beside.known_peaks(HERE) == other.peaks(HERE), "ceilings were left out, and measured by everybody"
    with pytest.raises(TableError, match="no folder"):
        export(other, tmp_path / "none" / "x.parquet")
    assert not list(tmp_path.glob(".*.part"))


# -- comparing


def test_what_is_in_both_is_compared_and_the_rest_counted(table: TimingTable, other: TimingTable, timing: Make) -> None:
    steady = tuple(1e-5 * (1 + 0.001 * n) for n in range(12))
    table.record([timing(n, samples=steady) for n in (1, 2, 3)] + [timing(1, when=1.0, samples=(9.0,))])
    twice = tuple(2 * s for s in steady)
    other.record([timing(2, samples=steady, when=5.0), timing(3, samples=twice), timing(4, kernel="numpy.copy")])
    found = diff(table.path, other.path)
    assert [(p.key["text"], round(p.ratio, 6)) for p in found.pairs] == [("(Map f 3)", 2.0), ("(Map f 2)", 1.0)]
    assert found.pairs[0].low < 2 < found.pairs[0].high and not found.pairs[0].same and found.pairs[0].sure
    assert found.pairs[1].same and (found.only_a, found.only_b) == ({"numpy.gemm": 1}, {"numpy.copy": 1})


def test_a_parquet_file_is_compared_as_the_table_it_was_written_from(
    table: TimingTable, other: TimingTable, timing: Make, tmp_path: Path
) -> None:
    """Tables that ship are such files; one was called no database."""
    table.record([timing(1), timing(2)])
    other.record([timing(2), timing(3, kernel="numpy.copy")])
    export(table, tmp_path / "a.parquet")
    found = diff(tmp_path / "a.parquet", other.path)
    assert found == diff(table.path, other.path) and len(found.pairs) == 1
    assert (found.only_a, found.only_b) == ({"numpy.gemm": 1}, {"numpy.copy": 1})


def test_other_devices_are_compared_when_asked(
    table: TimingTable, other: TimingTable, timing: Make, monkeypatch
) -> None:
    there = replace(HERE, numpy="9.9")
    monkeypatch.setattr("waxeq.cost.table.measure_peaks", lambda threads: Peaks({"float32": 1e11}, 1e10, 1e11, 1e-6))
    table.peaks(there)
    table.record([timing(1, device=there.id)])
    other.record([timing(1, device=HERE.id)])
    assert diff(table.path, other.path).pairs == ()
    found = diff(table.path, other.path, across=True)
    assert len(found.pairs) == 1 and found.fingerprint == ("numpy 9.9 -> 2.5.0",)


@given(st.lists(st.floats(1e-9, 1.0), min_size=1, max_size=40), st.lists(st.floats(1e-9, 1.0), min_size=1, max_size=40))
def test_an_interval_holds_the_ratio_and_turns_around(a: list[float], b: list[float]) -> None:
    there, back = pair({}, a, b), pair({}, b, a)
    assert there is not None and back is not None and there.low <= there.ratio <= there.high
    assert math.isclose(there.ratio * back.ratio, 1.0) and math.isclose(there.low * back.high, 1.0)


@pytest.mark.parametrize("n", [9, 20, 40])
def test_the_interval_of_a_median_holds_it_as_often_as_it_says(n: int) -> None:
    rng = np.random.default_rng(n)
    held = 0
    for x in np.sort(rng.lognormal(0, 1, (2000, n)), axis=1):
        low, high, sure = around_median(x.tolist())
        held += low <= 1.0 <= high
        assert sure and low <= median(x.tolist()) <= high
    assert held >= 0.97 * 2000


def test_the_interval_of_a_median_is_known_of_many_samples() -> None:
    """The number of ways to choose from 1,100 is none that a float can be."""
    for n in (1_100, 5_000):
        low, high, sure = around_median([float(i) for i in range(n)])
        assert sure and low + high == n - 1 and high - low == pytest.approx(2.24 * math.sqrt(n), rel=0.05)


def test_few_samples_are_said_to_be_few() -> None:
    assert around_median([1.0, 2.0, 3.0]) == (1.0, 3.0, False)
    assert pair({}, [], [1.0]) is None and pair({}, [float("nan")], [1.0]) is None
