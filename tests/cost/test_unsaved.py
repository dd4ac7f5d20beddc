"""Tables in memory: as good as any while the process lives, and nothing is left of them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from waxeq.cost.device import Peaks, current_device
from waxeq.cost.exchange import merge
from waxeq.cost.key import Timing
from waxeq.cost.shards import timing_rows
from waxeq.cost.table import TimingTable
from waxeq.cost.unsaved import UnsavedTable, look
from waxeq.errors import TableError, TableLockedError

Make = Callable[..., Timing]


@pytest.fixture
def read_only(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Files that are there may not be written, as root's are for others; it holds for root too."""
    may = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK and may(path, mode))
    yield


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_it_does_what_a_table_does(tmp_path: Path, timing: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    peaks = Peaks({"float32": 1e11}, 1e10, 1e11, 1e-6)
    monkeypatch.setattr("waxeq.cost.table.measure_peaks", lambda threads: peaks)
    device = current_device(1)
    tables = TimingTable.open(tmp_path / "t.duckdb"), UnsavedTable.at(tmp_path / "none" / "t.duckdb")
    rows = [timing(1), timing(1, when=9000.0, samples=(3.0,)), timing(2, device="there"), timing(3, samples=(1 / 3,))]
    answers = []
    for t in tables:
        t.record(rows)
        t.record([])
        for payload in ("one", "two"):
            t.memo_put("plan", "a", payload)
        assert t.peaks(device) == t.peaks(device) == peaks
        aside = ("path", "bytes", "near_bytes", "exists", "writable")
        status = {k: v for k, v in t.status().items() if k not in aside}
        found = t.lookup([timing(n).key for n in range(5)])
        answers.append((found, t.families("here"), t.memo_get("plan", "a"), t.devices(), status))
        assert t.merge() == () and t.export_parquet(tmp_path / "out.parquet", "here") == 2
        assert merge(t, [tmp_path / "out.parquet"])[0].new == 0
    assert answers[0] == answers[1]
    assert not (tmp_path / "none").exists()


def test_it_begins_with_what_is_there_and_changes_none_of_it(tmp_path: Path, timing: Make) -> None:
    saved = TimingTable.open(tmp_path / "t.duckdb")
    saved.record([timing(1)])
    saved.memo_put("plan", "a", "one")
    saved.shards.write(timing_rows([timing(2)]))  # not brought in yet
    before = content(tmp_path)
    table = UnsavedTable.at(saved.path)
    assert {t.key for t in table.families("here")} == {timing(1).key, timing(2).key}
    table.record([timing(3)])
    table.memo_put("plan", "a", "two")
    assert len(table.families("here")) == 3 and table.memo_get("plan", "a") == "two"
    assert content(tmp_path) == before
    assert len(saved.families("here")) == 2 and saved.memo_get("plan", "a") == "one"


def test_looking_makes_nothing(tmp_path: Path) -> None:
    status = look(tmp_path / "deep" / "t.duckdb").status()
    assert not status["exists"] and status["writable"] and status["timings"] == [] and status["bytes"] == 0
    assert list(tmp_path.iterdir()) == []


def test_looking_at_what_is_there_is_the_table_itself(tmp_path: Path, timing: Make) -> None:
    TimingTable.open(tmp_path / "t.duckdb").record([timing(1)])
    status = look(tmp_path / "t.duckdb").status()
    assert status["exists"] and status["writable"] and status["bytes"] > 0 and len(status["timings"]) == 1


def test_a_read_only_table_is_said_to_be_and_can_be_looked_at(tmp_path: Path, timing: Make, request) -> None:
    path = tmp_path / "it's.duckdb"
    TimingTable.open(path).record([timing(1)])
    request.getfixturevalue("read_only")
    with pytest.raises(TableError, match="is read-only") as e:
        TimingTable.open(path)
    assert str(path) in str(e.value) and "table=" in str(e.value) and e.value.exit_code == 1
    status = look(path).status()
    assert status["exists"] and not status["writable"] and len(status["timings"]) == 1


@pytest.mark.usefixtures("read_only")
def test_a_read_only_file_in_a_folder_that_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.duckdb"
    path.write_bytes(b"")
    may = os.access
    monkeypatch.setattr(os, "access", lambda p, mode: Path(p) != path or may(p, mode))
    with pytest.raises(TableError, match=r"t\.duckdb is read-only; make it writable, or name another"):
        TimingTable.open(path)


def test_a_table_that_nobody_may_read_is_not_called_read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.duckdb"
    path.write_bytes(b"")
    may = os.access
    monkeypatch.setattr(os, "access", lambda p, mode: Path(p) != path and may(p, mode))
    with pytest.raises(TableError, match=r"t\.duckdb cannot be read: .*; make it readable, or name another"):
        TimingTable.open(path)


@pytest.mark.parametrize("content", [b"", b"not a database " * 1000])
def test_what_is_no_table_is_not_taken_for_an_empty_one(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "t.duckdb"
    path.write_bytes(content)
    for way in (look, UnsavedTable.at):
        with pytest.raises(TableError, match="move it aside"):
            way(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("way", [TimingTable.open, look, UnsavedTable.at])
def test_a_table_of_a_newer_waxeq_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: Callable) -> None:
    path = tmp_path / "t.duckdb"
    TimingTable.open(path).merge()
    monkeypatch.setattr("waxeq.cost.archive.SCHEMA", 1)
    before = path.read_bytes()
    with pytest.raises(TableError, match="version 3, this waxeq reads version 1; upgrade waxeq") as e:
        way(path)
    assert e.value.exit_code == 1 and path.read_bytes() == before


WRITING = """
import sys, time
import duckdb
db = duckdb.connect(sys.argv[1])
print("open", flush=True)
time.sleep(60)
"""


def test_a_copy_of_a_table_that_another_process_writes(tmp_path: Path) -> None:
    path = tmp_path / "t.duckdb"
    TimingTable.open(path)
    child = subprocess.Popen([sys.executable, "-c", WRITING, str(path)], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None and child.stdout.readline() == "open\n"
        with pytest.raises(TableLockedError, match="held by another process"):
            UnsavedTable.at(path)
    finally:
        child.kill()
        child.communicate()


# -- a small disk of our own, seen by the child alone

FILL = """
import json, subprocess, sys
from pathlib import Path
from waxeq.cost.key import Timing, TimingKey
from waxeq.cost.exchange import merge
from waxeq.cost.table import TimingTable
from waxeq.cost.unsaved import look
from waxeq.errors import TableWriteError

def timing(n):
    key = TimingKey("numpy", "numpy.gemm", "c0de", str(n), "", "", "float32", "here", 1)
    return Timing(key, (1e-6,) * 20, 0.0, 0.0, {"launches": 1.0}, float(n))

def remount(how):
    subprocess.run(["mount", "-o", f"remount,{how}", folder], check=True)

def held(table):
    with table.database() as db:
        rows = db.execute("SELECT text FROM timings WHERE device = 'here'").fetchall()
    known = table.lookup([timing(n).key for n in range(told)])
    return len({int(text) for (text,) in rows} & {int(k.text) for k in known})

folder, batch = sys.argv[1], int(sys.argv[2])
path, told, found = Path(folder) / "t.duckdb", 0, {}
table = TimingTable.open(path)
try:
    while told < 100_000:
        table.record([timing(n) for n in range(told, told + batch)])
        told += batch
except TableWriteError as e:
    found["full"] = str(e)
found["told"], found["copy of a full disk"] = told, held(look(path))
remount("ro")
try:
    TimingTable.open(path)
except TableWriteError as e:
    found["read-only"] = str(e)
found["copy of a read-only disk"] = held(look(path))
remount("rw,size=40m")
found["with room again"] = held(TimingTable.open(path))
print(json.dumps(found))
"""


@pytest.mark.slow
@pytest.mark.parametrize("batch", [250, 700])
def test_a_full_and_a_read_only_disk_lose_nothing(tmp_path: Path, batch: int) -> None:
    """Small batches fill the disk with the database, large ones with a shard that is not brought in any more."""
    apart = ["unshare", "--map-root-user", "--mount"]
    disk = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(tmp_path)]
    if shutil.which("unshare") is None or subprocess.run([*apart, *disk], capture_output=True, check=False).returncode:
        pytest.skip("no disk can be mounted here")
    script = f'"$@" && exec {sys.executable} -c "$SCRIPT" {tmp_path} {batch}'
    done = subprocess.run(
        [*apart, "sh", "-c", script, "sh", *disk],
        capture_output=True, text=True, check=False, env={**os.environ, "SCRIPT": FILL},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for said in (found["full"], found["read-only"]):
        assert str(tmp_path) in said and "name another table with table=" in said and "\n" not in said
    assert "No space left on device" in found["full"] and "is read-only" in found["read-only"]
    assert 0 < found["told"] < 100_000
    assert {found[k] for k in found if k.startswith(("copy", "with"))} == {found["told"]}
