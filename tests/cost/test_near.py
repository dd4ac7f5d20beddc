"""The near copy says what the archive says, follows it through anything, and is never needed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from waxeq.cost.key import Timing
from waxeq.cost.near import Near, pack
from waxeq.cost.table import TimingTable
from waxeq.cost.unsaved import look

Make = Callable[..., Timing]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What DuckDB opens from now on."""
    places: list[str] = []
    connect = duckdb.connect
    monkeypatch.setattr(duckdb, "connect", lambda **how: places.append("open") or connect(**how))
    return places


def answers(table: TimingTable, keys: list) -> tuple:
    return table.lookup(keys), table.families("here"), table.memos("plan", "abc"), table.devices()


def test_reading_does_not_open_the_archive(table: TimingTable, timing: Make, opened: list[str]) -> None:
    rows = [timing(n) for n in range(4)]
    table.record(rows)
    table.memo_put("plan", "a", "one")
    again = TimingTable.open(table.path)
    for t in (table, again):
        assert t.lookup([r.key for r in rows]) == {r.key: r for r in rows}
        assert t.memos("plan", ["a", "b"]) == {"a": "one"} and len(t.families("here")) == 4
    assert opened == []
    table.tidy()
    assert opened == ["open"] and not table.shards.names()
    assert again.lookup([r.key for r in rows]) == {r.key: r for r in rows}
    again.tidy()
    assert opened == ["open"]


def test_answers_are_the_same_waiting_merged_and_copied_anew(table: TimingTable, timing: Make) -> None:
    rows = [timing(n) for n in range(6)]
    table.record([*rows[:3], timing(1, when=1.0, samples=(9.0,)), timing(4, device="there"), timing(5, method=99)])
    table.memo_put("plan", "a", "one")
    table.memo_put("plan", "b", "two")
    keys = [r.key for r in rows]
    waiting = answers(table, keys)
    table.merge()
    assert answers(table, keys) == waiting
    Near.beside(table.path).unlink()
    assert answers(table, keys) == waiting
    assert set(waiting[0]) == set(keys[:3]) and waiting[0][keys[1]] == rows[1]


def test_of_each_family_the_newest(table: TimingTable, timing: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("near", "copying", "copies"):
        monkeypatch.setattr(f"waxeq.cost.{module}.RECENT", 5)
    rows = [timing(n, kernel=kernel) for n in range(9) for kernel in ("numpy.gemm", "numpy.copy")]
    wanted = {r.key for r in rows if r.when >= 1004.0}
    for part in (rows[4:], rows[:4]):
        table.record(part)
        assert {t.key for t in table.families("here")} <= {r.key for r in rows}
    for change in (lambda: None, table.merge, lambda: Near.beside(table.path).unlink()):
        change()
        assert {t.key for t in table.families("here")} == wanted
    assert set(table.lookup([r.key for r in rows])) == {r.key for r in rows}


@pytest.mark.parametrize("content", [b"", b"no database" * 500, None])
def test_a_near_copy_that_is_damaged_is_made_anew(table: TimingTable, timing: Make, content: bytes | None) -> None:
    rows = [timing(n) for n in range(300)]
    table.record(rows)
    table.merge()
    path = Near.beside(table.path)
    whole = path.read_bytes()
    path.write_bytes(content if content is not None else whole[:4096] + b"\xa5" * (len(whole) - 4096))
    assert table.lookup([r.key for r in rows]) == {r.key: r for r in rows}
    assert len(table.families("here")) == 300


def test_another_archive_in_the_place_of_the_one_copied(table: TimingTable, timing: Make, tmp_path: Path) -> None:
    table.record([timing(1)])
    table.merge()
    other = TimingTable.open(tmp_path / "o.duckdb")
    other.record([timing(2)])
    other.merge()
    os.replace(other.path, table.path)
    assert {t.key for t in table.families("here")} == {timing(2).key}


def test_calls_whose_digests_begin_alike_are_told_apart(timing: Make) -> None:
    near, t = Near.in_memory(), timing(1)
    for digest, found in ((t.key.digest[:16] + "0" * 16, {}), (t.key.digest, {t.key.digest: t})):
        near.put([(digest, t.when, pack(digest, t.samples, (1e-7, 1e-8), '{"launches":1.0,"bytes":1.0}', t.when))])
        assert near.lookup({t.key.digest: t.key}) == found


def test_a_table_of_the_version_before_is_brought_up_to_this_one(tmp_path: Path, timing: Make) -> None:
    now = TimingTable.open(tmp_path / "now.duckdb")
    now.record([timing(1), timing(2)])
    now.memo_put("plan", "a", "one")
    now.merge()
    path = tmp_path / "old.duckdb"
    with duckdb.connect(str(path)) as db:
        db.execute(f"ATTACH '{now.path}' AS n (READ_ONLY)")
        for name in ("timings", "memos", "devices"):
            db.execute(f"CREATE TABLE {name} AS SELECT * FROM n.{name}")
        db.execute("CREATE UNIQUE INDEX key ON memos (kind, key)")
        db.execute("CREATE UNIQUE INDEX id ON devices (id)")
        db.execute("CREATE TABLE about AS SELECT 2 AS schema")
    old = TimingTable.open(path)
    assert old.families("here") == now.families("here") and old.memo_get("plan", "a") == "one"
    old.record([timing(2), timing(3)])
    old.memo_put("plan", "a", "two")
    assert old.status()["timings"][0]["rows"] == 3 and old.memo_get("plan", "a") == "two"


def test_many_shards_are_brought_in_by_who_reads(table: TimingTable, timing: Make) -> None:
    for n in range(260):
        table.shards.write([{"kind": "memo", "memo": "plan", "key": str(n), "payload": "x", "written": 1.0}])
    assert table.memo_get("plan", "7") == "x" and not table.shards.names()


KILLED = """
import sys
from waxeq.cost.key import Timing, TimingKey
from waxeq.cost.table import TimingTable
from waxeq.cost.unsaved import look

def timing(n):
    key = TimingKey("numpy", "numpy.gemm", "c0de", str(n), "", "", "float32", "here", 1)
    return Timing(key, (1e-6,), 0.0, 0.0, {"launches": 1.0}, float(n + 1))

table, begin = TimingTable.open(sys.argv[1]), int(sys.argv[2])
for n in range(begin, begin + 100_000):
    table.record([timing(n)])
    print(n, flush=True)
    table.merge()
"""


def test_a_merge_that_is_killed_anywhere_leaves_copy_and_archive_agreeing(tmp_path: Path) -> None:
    path, told = tmp_path / "t.duckdb", set()
    for round_ in range(6):
        child = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(path), str(1000 * round_)], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        told.add(int(child.stdout.readline()))
        time.sleep(0.013 * round_ + 0.005)
        os.kill(child.pid, signal.SIGKILL)
        told |= {int(n) for n in child.communicate()[0].split()}
        table = TimingTable.open(path)
        read = {int(t.key.text) for t in table.families("here")}
        with table.database() as db:
            stored = {int(t) for (t,) in db.execute("SELECT text FROM timings").fetchall()}
            assert db.execute("SELECT count(*) = count(DISTINCT id) FROM timings").fetchone()[0]
        assert told <= stored == read
        assert {int(t.key.text) for t in table.families("here")} == stored
    assert len(told) >= 6


def test_looking_at_an_archive_whole_makes_no_near_copy_and_is_bounded(table: TimingTable, timing: Make) -> None:
    """Either takes minutes or gigabytes where there are millions of rows."""
    table.record([timing(1)])
    Near.remove(Near.beside(table.path))
    left = table.path.with_name("t.duckdb.spill")
    left.mkdir()
    (left / "duckdb_temp_block-1.block").write_bytes(b"of a process that was killed")
    with look(table.path).database() as db:
        assert db.execute("SELECT count(*) FROM timings").fetchone() == (1,)
        said = db.execute("SELECT current_setting('memory_limit'), current_setting('temp_directory')").fetchone()
        assert said == ("1.0 GiB", str(left))
    assert not Near.beside(table.path).exists() and not left.exists()


def test_what_a_killed_writer_left_is_not_played_back_into_a_new_copy(tmp_path: Path) -> None:
    path, journal = tmp_path / "t.near", tmp_path / "t.near-journal"
    old = Near.made(path, [("memo", "plan", str(n), "old" * 500, 1.0) for n in range(200)])
    old.db.execute("PRAGMA cache_size=5")  # what has no room in it is written, and the journal before it
    old.db.execute("BEGIN IMMEDIATE")
    old.db.execute("DELETE FROM memos WHERE key <> ''")
    left = journal.read_bytes()
    old.db.execute("ROLLBACK")
    old.close()
    journal.write_bytes(left)
    Near.made(path, [("memo", "plan", "a", "new", 1.0)]).say({"of": "it"})
    near = Near.open(path)
    assert near is not None and near.remembered() == {("plan", "a"): 1.0} and not journal.exists()
    near.close()


def test_the_file_is_not_mapped(tmp_path: Path) -> None:
    """A page of a map brings its neighbours along: on a cold disk look-ups took five times as long."""
    Near.made(tmp_path / "t.near", []).say({})
    near = Near.open(tmp_path / "t.near")
    assert near is not None and near.db.execute("PRAGMA mmap_size").fetchone() == (0,)
    near.close()
