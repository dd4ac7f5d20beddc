"""The timing table under attack: processes that die, several writers, damaged files, disks that are full."""

from __future__ import annotations

import errno
import json
import math
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from waxeq.cost.archive import touch
from waxeq.cost.device import current_device
from waxeq.cost.key import Timing
from waxeq.cost.near import Near
from waxeq.cost.shards import Shards
from waxeq.cost.table import TimingTable
from waxeq.cost.unsaved import look
from waxeq.errors import TableError, TableLockedError, TableWriteError

Make = Callable[..., Timing]

WRITER = """
import itertools, resource, signal, sys, time
from waxeq.cost.key import Timing, TimingKey
from waxeq.cost.table import TimingTable
from waxeq.errors import TableError

def timing(n, who):
    key = TimingKey("numpy", "numpy.gemm", "c0de", f"{who}:{n}", "", "", "float32", "here", 1)
    return Timing(key, (1e-6,), 0.0, 0.0, {"launches": 1.0}, float(n))
"""
FOREVER = """
table, who = TimingTable.open(sys.argv[1]), sys.argv[2]
for n in itertools.count():
    table.record([timing(n, who)])
    print(n, flush=True)
"""
SOME = """
table, who = TimingTable.open(sys.argv[1]), sys.argv[2]
for n in range(8):
    table.record([timing(n, who)])
    assert len(table.lookup([timing(n, who).key])) == 1
    table.memo_put("who", who, str(n))
"""
HOLD = """
from filelock import FileLock
with FileLock(sys.argv[1] + ".lock"):
    print("held", flush=True)
    time.sleep(60)
"""
FULL = """
table = TimingTable.open(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
try:
    table.record([timing(n, "full") for n in range(400)])
    table.tidy()
except TableError as e:
    print(e)
"""


def run(script: str, *args: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER + script, *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def texts(table: TimingTable) -> set[str]:
    with table.database() as db:
        return {text for (text,) in db.execute("SELECT text FROM timings WHERE device = 'here'").fetchall()}


def test_a_writer_that_is_killed_loses_nothing_it_was_told_is_stored(tmp_path: Path) -> None:
    path = tmp_path / "t.duckdb"
    acknowledged: set[str] = set()
    for round_ in range(3):
        child = run(FOREVER, path, round_)
        assert child.stdout is not None
        child.stdout.readline()  # it is under way; wherever it is now, in a shard or in a merge, it dies
        time.sleep(0.15 + 0.07 * round_)
        os.kill(child.pid, signal.SIGKILL)
        out, err = child.communicate()
        assert child.returncode == -signal.SIGKILL, err
        acknowledged |= {f"{round_}:0", *(f"{round_}:{n}" for n in out.split())}
    table = TimingTable.open(path)
    assert len(acknowledged) > 3
    assert acknowledged <= texts(table)
    assert table.status()["damaged"] == []


def test_many_writers_at_once(tmp_path: Path) -> None:
    path = tmp_path / "t.duckdb"
    children = [run(SOME, path, who) for who in range(3)]
    for child in children:
        _, err = child.communicate()
        assert child.returncode == 0, err
    table = TimingTable.open(path)
    assert texts(table) == {f"{who}:{n}" for who in range(3) for n in range(8)}
    assert [table.memo_get("who", str(who)) for who in range(3)] == ["7"] * 3
    assert list(table.shards.folder.iterdir()) == []


def test_a_table_that_is_held_too_long(tmp_path: Path, timing: Make) -> None:
    path = tmp_path / "t.duckdb"
    table = TimingTable.open(path, wait=0.2)
    child = run(HOLD, path)
    try:
        assert child.stdout is not None and child.stdout.readline() == "held\n"
        with pytest.raises(TableLockedError, match="locked by another process") as e:
            table.lookup([timing(1).key])
        assert e.value.exit_code == 8
        table.record([timing(1)])  # a writer need not wait: its shard is committed
    finally:
        child.kill()
        child.communicate()
    assert table.lookup([timing(1).key]) == {timing(1).key: timing(1)}


@pytest.mark.parametrize("content", [b"", b"not a database " * 1000])
def test_a_file_that_is_no_database(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "t.duckdb"
    path.write_bytes(content)
    with pytest.raises(TableError, match="move it aside") as e:
        TimingTable.open(path)
    assert str(path) in str(e.value) and "\n" not in str(e.value)
    path.rename(tmp_path / "aside")
    assert TimingTable.open(path).status()["timings"] == []


@pytest.mark.parametrize("content", [b"", b"not a database " * 1000])
def test_nothing_is_left_beside_a_file_that_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "t.duckdb"
    path.write_bytes(content)
    with pytest.raises(TableError):
        TimingTable.open(path)
    assert [p.name for p in tmp_path.iterdir()] == ["t.duckdb"] and path.read_bytes() == content


def test_what_lies_beside_a_file_that_is_refused_stays(tmp_path: Path, timing: Make) -> None:
    """Shards of a table that was damaged later are in the table that is made anew."""
    path = tmp_path / "t.duckdb"
    TimingTable.open(path).record([timing(1)])
    path.write_bytes(b"not a database")
    before = {p for p in tmp_path.rglob("*") if p.suffix != ".near"}
    with pytest.raises(TableError):
        TimingTable.open(path)
    assert {p for p in tmp_path.rglob("*") if p.suffix != ".near"} == before
    path.unlink()
    assert texts(TimingTable.open(path)) == {timing(1).key.text}


def test_a_lock_that_another_process_has_by_now_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.duckdb"
    path.write_bytes(b"not a database")
    children = []

    def locked(self: TimingTable) -> None:
        children.append(child := run(HOLD, path))
        assert child.stdout is not None and child.stdout.readline() == "held\n"

    monkeypatch.setattr(TimingTable, "_make_room", locked)
    try:
        with pytest.raises(TableLockedError):
            TimingTable.open(path, wait=0.2)
        assert sorted(p.name for p in tmp_path.iterdir()) == ["t.duckdb", "t.duckdb.lock"]
    finally:
        for child in children:
            child.kill()
            child.communicate()


def test_a_database_damaged_in_the_middle_or_cut_short(tmp_path: Path, timing: Make) -> None:
    path = tmp_path / "t.duckdb"
    table = TimingTable.open(path)
    table.record([timing(n) for n in range(3000)])
    table.tidy()
    whole = path.read_bytes()
    damages = [whole[: len(whole) // 3], *(_scratched(whole, at) for at in range(4096, len(whole), len(whole) // 12))]
    refused = 0
    for damaged in damages:
        path.write_bytes(damaged)
        try:  # what a damaged byte means is the database's business: an answer or a sentence, never anything else
            assert len(texts(table)) == 3000 and len(table.lookup([timing(n).key for n in range(3000)])) == 3000
        except TableError as e:
            refused += 1
            assert str(path) in str(e) and "move it aside" in str(e)
    assert refused > 1


def _scratched(whole: bytes, at: int) -> bytes:
    return whole[:at] + bytes(b ^ 0xA5 for b in whole[at : at + 512]) + whole[at + 512 :]


def test_a_table_of_another_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.duckdb"
    TimingTable.open(path).merge()
    monkeypatch.setattr("waxeq.cost.archive.SCHEMA", 77)
    with pytest.raises(TableError, match="this waxeq reads version 77"):
        TimingTable.open(path)


@pytest.mark.parametrize("cut", [False, True])
def test_a_damaged_shard_is_named_and_poisons_nothing(tmp_path: Path, timing: Make, cut: bool) -> None:
    table = TimingTable.open(tmp_path / "t.duckdb")
    table.shards.write([{"kind": "timing", **_row(timing(1))}, {"kind": "timing", **_row(timing(2))}])
    (shard,) = table.shards.folder.glob("*.jsonl")
    text = shard.read_text()
    foreign = [
        '{"kind": "timing"}',
        '{"kind": "new"}',
        "[1]",
        "null",
        '{"kind": "timing", "samples": "abc"}',
        "\x00\xff",
        *(json.dumps(row) for row in _unfit(timing)),
    ]
    shard.write_text(text[:-40] if cut else "\n".join([*foreign, text]))
    table.record([timing(3)])
    wanted = {timing(1).key, timing(3).key} | (set() if cut else {timing(2).key})
    assert set(table.lookup([timing(n).key for n in range(4)])) == wanted
    assert table.merge() == (f"{shard.stem}.damaged",) == tuple(table.status()["damaged"])
    assert not list(table.shards.folder.glob("*.jsonl"))


def _unfit(timing: Make) -> Iterator[dict]:
    """Lines that parse, and hold what has no room in the archive."""
    row = {"kind": "timing", **_row(timing(9))}
    yield from ({**row, "threads": n} for n in (3_000_000_000, -(1 << 40), math.inf, 10**400))
    yield from ({**row, "written": when} for when in (math.inf, math.nan, 10**400))
    yield from ({**row, "text": "half \ud800"}, {**row, "samples": [10**400]})
    memo = {"kind": "memo", "memo": "plan", "key": "a", "payload": "x", "written": 1.0}
    yield from ({**memo, "payload": "half \udfff"}, {**memo, "written": math.nan}, {**memo, "written": 10**400})
    device = {"kind": "device", "id": "a", "description": current_device(1).json()}
    yield from ({**device, "id": "half \ud800"}, {**device, "description": "{}"}, {**device, "description": None})


def test_a_shard_that_cannot_be_read_now_is_brought_in_later(
    tmp_path: Path, timing: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was called damaged and set aside, and what it held was lost to every run after."""
    table = TimingTable.open(tmp_path / "t.duckdb")
    table.record([timing(1)])
    (shard,) = table.shards.names()

    def refused(path: Path) -> bytes:
        raise OSError(errno.EIO, "Input/output error", str(path))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", refused)
        assert table.lookup([timing(1).key]) == {} and table.merge() == ()
    assert table.shards.names() == [shard]
    assert table.lookup([timing(1).key]) == {timing(1).key: timing(1)}
    assert table.merge() == () and texts(table) == {timing(1).key.text}


def _row(t: Timing) -> dict:
    from waxeq.cost.rows import written

    return written(t)


def test_what_a_killed_writer_left_half_written_is_never_read(tmp_path: Path, timing: Make) -> None:
    table = TimingTable.open(tmp_path / "t.duckdb")
    half, old = table.shards.folder / ".half", table.shards.folder / ".old"
    half.write_text('{"kind": "timing", "dig')
    old.write_text("{")
    os.utime(old, (0, 0))
    table.record([timing(1)])
    assert table.status()["damaged"] == [] and texts(table) == {timing(1).key.text}
    assert half.exists() and not old.exists()


def test_a_folder_that_cannot_be_written(tmp_path: Path, timing: Make) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TableError, match="cannot be made"):
        TimingTable.open(tmp_path / "file" / "t.duckdb")
    table = TimingTable.open(tmp_path / "t.duckdb")
    table.shards.folder.rmdir()
    table.shards.folder.write_text("")  # as good as read-only, and holds for root too
    with pytest.raises(TableError, match="cannot be written"):
        table.record([timing(1)])


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    try:
        with pytest.raises(TableError, match="cannot be made"):
            TimingTable.open(tmp_path / "t.duckdb")
    finally:
        tmp_path.chmod(0o755)


@pytest.mark.parametrize(("limit", "stored"), [(4096, False), (300_000, True)])
def test_a_full_disk(tmp_path: Path, timing: Make, limit: int, stored: bool) -> None:
    """With no room for the shard the writer is told and nothing of it is stored; with room for the shard, but not for
    the database to grow, all of it is."""
    path = tmp_path / "t.duckdb"
    table = TimingTable.open(path)
    before = {timing(n).key.text for n in range(3000)}
    table.record([timing(n) for n in range(3000)])
    table.tidy()
    assert path.stat().st_size > limit
    child = run(FULL, path, limit)
    out, err = child.communicate()
    assert child.returncode == 0, err
    assert stored or "cannot be written" in out
    assert texts(table) == before | {f"full:{n}" for n in range(400 * stored)}
    assert not list(table.shards.folder.glob(".*"))


@pytest.mark.parametrize("step", ["say", "follow", "made"])
def test_a_near_copy_without_room_is_done_without(
    tmp_path: Path, timing: Make, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """A table on a full disk could not even be read, and the copy was blamed."""
    table = TimingTable.open(tmp_path / "t.duckdb")
    rows = [timing(n) for n in range(5)]
    table.record(rows[:4])
    table.merge()
    table.record(rows[4:])

    def full(*given: object, **more: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(Near, step, full)
    if step == "made":
        Near.remove(Near.beside(table.path))
    assert sum(r["rows"] for r in look(table.path).status()["timings"]) == 5 and table.shards.names() == []
    again = TimingTable.open(table.path)
    assert again.lookup([t.key for t in rows]) == {t.key: t for t in rows} and len(again.families("here")) == 5
    with again.database(changes=True) as db:
        touch(db)
    assert len(again.families("here")) == 5
    monkeypatch.undo()
    assert len(again.families("here")) == 5 and Near.beside(table.path).exists()


def test_a_near_copy_makes_room_for_the_archive(tmp_path: Path, timing: Make) -> None:
    table, near = TimingTable.open(tmp_path / "t.duckdb"), Near.beside(tmp_path / "t.duckdb")
    table.record([timing(1)])
    table.merge()
    tries: list[bool] = []

    def make(db: Any, new: Path) -> None:
        tries.append(near.exists())
        if tries[-1]:
            raise duckdb.IOException(f'IO Error: Could not write file "{new}": No space left on device')
        new.write_bytes(table.path.read_bytes())

    table.rewrite(make)
    assert tries == [True, False] and texts(table) == {timing(1).key.text}


def test_a_full_disk_is_told_with_what_to_do(table: TimingTable, timing: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(shards: Shards, lines: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Shards, "write", full)
    with pytest.raises(TableWriteError, match=r"No space left on device; make room, or name another table"):
        table.record([timing(1)])


def test_a_file_that_cannot_be_written_is_named_and_not_the_table(tmp_path: Path, timing: Make) -> None:
    table = TimingTable.open(tmp_path / "t.duckdb")
    table.record([timing(1)])
    (tmp_path / ".out.parquet.part").symlink_to("/dev/full")
    with pytest.raises(TableWriteError, match=r"out\.parquet cannot be written: No space left on device; name"):
        table.export_parquet(tmp_path / "out.parquet", timing(1).key.device)


def test_a_table_that_is_no_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DuckDB takes this name for memory: what was merged into it was lost."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TableError, match=":memory: is no place for a table"):
        TimingTable.open(":memory:")
    assert not list(tmp_path.iterdir())
