"""The timing table: what goes in comes out, and what comes out is for whom it was measured."""

from __future__ import annotations

import _thread
import math
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

from waxeq.cost.device import Device, Peaks
from waxeq.cost.exchange import merge
from waxeq.cost.key import Timing
from waxeq.cost.table import TimingTable
from waxeq.errors import TableError

Make = Callable[..., Timing]


@pytest.fixture
def device() -> Device:
    return Device("A CPU's name", 2, 1 << 15, 1 << 20, 1 << 25, 4 << 30, "Linux x86_64", "3.11", "2.5.0", "openblas", 1)


def test_a_timing_comes_back_whole(table: TimingTable, timing: Make) -> None:
    t = timing(1, samples=(1e-6, 3.5e-6, 2e-6), max_relative_error=math.nan, features={"flops": 2.0})
    table.record([t])
    (found,) = table.lookup([t.key]).values()
    assert (found.key, found.samples, found.features, found.when) == (t.key, t.samples, t.features, t.when)
    assert math.isnan(found.max_relative_error) and found.rms_relative_error == t.rms_relative_error
    assert found.seconds == 1e-6


def test_what_is_not_known_is_not_found(table: TimingTable, timing: Make) -> None:
    table.record([timing(1)])
    assert table.lookup([]) == {}
    assert table.lookup([timing(2).key]) == {}


@pytest.mark.parametrize(
    "other",
    [{"device": "there"}, {"threads": 2}, {"code": "0ther"}, {"method": 98}, {"layout": "float32:i0*2"}],
)
def test_another_device_thread_count_code_or_method_is_another_call(
    table: TimingTable, timing: Make, other: dict
) -> None:
    table.record([timing(1), timing(1, **other, samples=(9.0,))])
    found = table.lookup([timing(1).key])
    assert [t.samples for t in found.values()] == [timing(1).samples]


def test_fitting_sees_one_device_and_one_method(table: TimingTable, timing: Make) -> None:
    table.record([timing(1), timing(2), timing(3, device="there"), timing(4, method=99)])
    assert {t.key for t in table.families("here")} == {timing(1).key, timing(2).key}


def test_the_newest_timing_of_a_call_counts_and_older_ones_stay(table: TimingTable, timing: Make) -> None:
    new, old = timing(1, when=2000.0, samples=(2.0,)), timing(1, when=1000.0, samples=(1.0,))
    table.record([new])
    table.record([old])
    assert table.lookup([new.key])[new.key].samples == (2.0,)
    assert [t.samples for t in table.families("here")] == [(2.0,)]
    assert table.status()["timings"][0]["rows"] == 2


def test_the_same_measurement_twice_is_one_row(table: TimingTable, timing: Make) -> None:
    table.record([timing(1), timing(1)])
    table.record([timing(1)])
    assert table.status()["timings"] == [{"device": "here", "kernel": "numpy.gemm", "rows": 1, "newest": 1001.0}]


def test_two_thousand_keys_at_once(table: TimingTable, timing: Make) -> None:
    rows = [timing(n) for n in range(2000)]
    table.record(rows[:1500])
    found = table.lookup([t.key for t in rows])
    assert {k: t.samples for k, t in found.items()} == {t.key: t.samples for t in rows[:1500]}


def test_memos_the_last_one_counts(table: TimingTable) -> None:
    assert table.memo_get("plan", "a") is None
    for payload in ("one", "two", 'it\'s "quoted"\n; DROP TABLE memos'):
        table.memo_put("plan", "a", payload)
        assert table.memo_get("plan", "a") == payload
    assert table.memo_get("plan", "b") is None and table.memo_get("trial", "a") is None


def test_whether_anything_of_a_kind_is_remembered(table: TimingTable) -> None:
    assert not table.remembers("block")
    table.memo_put("plan", "a", "one")
    assert table.remembers("plan") and not table.remembers("block")
    table.merge()
    assert table.remembers("plan") and not table.remembers("block"), "in the archive as in a shard"


def test_ceilings_are_measured_once(table: TimingTable, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    peaks = Peaks({"float32": 1e11}, 1e10, 1e11, 1e-6)
    asked: list[int] = []
    monkeypatch.setattr("waxeq.cost.table.measure_peaks", lambda threads: asked.append(threads) or peaks)
    assert table.peaks(device) == table.peaks(device) == peaks
    assert asked == [1]
    assert table.devices() == {device.id: device}
    assert table.peaks(replace(device, threads=2)) == peaks and asked == [1, 2]
    assert device.describe() in table.status()["devices"].values()


def test_a_row_says_what_it_is_of(table: TimingTable, timing: Make) -> None:
    t = timing(1)
    table.record([t])
    table.tidy()
    with duckdb.connect() as db:
        db.execute(f"ATTACH '{table.path}' AS t (READ_ONLY)")
        row = db.execute("SELECT text, text_hash, dims, layout, dtype, samples FROM t.timings").fetchone()
    assert row == (t.key.text, t.key.text_hash, t.key.dims, t.key.layout, t.key.dtype, list(t.samples))


LATER = """
import os, signal, sys
from pathlib import Path
from waxeq.cost.table import TimingTable
os.chdir(sys.argv[1])
table = TimingTable.open("t.duckdb")
table.memo_put("plan", "a", "one")
table.tidy_at_exit()
table.memo_put("plan", "b", "two")
print(len(table.shards.names()), table.path.exists(), "duckdb" in sys.modules)
os.chdir("/")
if sys.argv[2] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[2] == "damaged":
    Path(sys.argv[1], "t.duckdb").write_text("no archive")
"""


@pytest.mark.parametrize("ends", ["well", "killed", "damaged"])
def test_what_is_brought_in_when_the_process_ends_is_there_before_and_after(tmp_path: Path, ends: str) -> None:
    """Nobody waits for it, and nothing is lost or said where it cannot be."""
    done = subprocess.run([sys.executable, "-c", LATER, tmp_path, ends], capture_output=True, text=True, check=False)
    assert done.returncode == (-signal.SIGKILL if ends == "killed" else 0) and done.stderr == ""
    assert done.stdout.split() == ["2", "False", "False"] or ends == "killed"
    waiting = len(list((tmp_path / "t.duckdb.shards").glob("*.jsonl")))
    assert waiting == (0 if ends == "well" else 2) and (tmp_path / "t.duckdb.near").exists() == (ends == "well")
    if ends == "damaged":
        (tmp_path / "t.duckdb").unlink()
    assert TimingTable.open(tmp_path / "t.duckdb").memos("plan", ["a", "b"]) == {"a": "one", "b": "two"}


# -- Parquet


def test_what_is_exported_can_be_read_by_others(
    table: TimingTable, device: Device, timing: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peaks, asked = Peaks({"float32": 1e11}, 1e10, 1e11, 1e-6), list[int]()
    monkeypatch.setattr("waxeq.cost.table.measure_peaks", lambda threads: asked.append(threads) or peaks)
    table.peaks(device)
    rows = [timing(n, device=device.id, samples=(0.5**20, 0.5**20 * (n + 2))) for n in range(5)]  # exact in float32
    table.record([*rows, timing(1, device=device.id, when=1.0), timing(7, device="there")])
    path = tmp_path / "it's.parquet"
    assert table.export_parquet(path, device.id) == 5
    assert sorted(p.name for p in tmp_path.iterdir() if "parquet" in p.name) == [path.name]

    beside = TimingTable.open(tmp_path / "other.duckdb", extra=[str(path)])
    assert beside.lookup([t.key for t in rows]) == {t.key: t for t in rows}
    assert {t.key for t in beside.families(device.id)} == {t.key for t in rows}
    assert beside.status()["timings"] == [] and beside.status()["shipped"] == [path.name]
    assert beside.devices() == {} and beside.peaks(device) == peaks and beside.devices() == {device.id: device}

    own = TimingTable.open(tmp_path / "own.duckdb")
    assert [merge(own, [path])[0].new for _ in range(2)] == [5, 0]
    assert own.lookup([t.key for t in rows]) == {t.key: t for t in rows}
    assert own.devices() == {device.id: device}
    assert own.known_peaks(device) == peaks and asked == [1], "ceilings are brought along, not measured again"


def test_what_is_exported_has_what_shipped_tables_know_of_kernels_as_they_are(
    table: TimingTable, device: Device, timing: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A calibration times what nothing is known of, and once took the place of a file of which it had used the rest."""
    peaks = Peaks({"float32": 1e11}, 1e10, 1e11, 1e-6)
    monkeypatch.setattr("waxeq.cost.table.measure_peaks", lambda threads: peaks)
    table.peaks(device)
    table.record([timing(n, device=device.id) for n in range(3)] + [timing(9, device=device.id, code="stale")])
    path = tmp_path / "a.parquet"
    table.export_parquet(path, device.id)
    own = TimingTable.open(tmp_path / "own.duckdb", extra=[str(path)])
    newer = timing(1, device=device.id, when=9999.0, samples=(2.0,))
    own.record([newer, timing(5, device=device.id)])
    assert own.export_parquet(path, device.id, {"c0de"}) == 4, "the same file may be read and replaced"
    anew = TimingTable.open(tmp_path / "anew.duckdb", extra=[str(path)])
    found = anew.lookup([timing(n, device=device.id).key for n in (0, 1, 2, 5)])
    assert len(found) == 4 and found[newer.key].samples == (2.0,)
    assert anew.peaks(device) == peaks and anew.devices() == {device.id: device}


def test_an_own_timing_that_is_newer_beats_a_shipped_one(table: TimingTable, timing: Make, tmp_path: Path) -> None:
    shipped = timing(1, samples=(1.0,))
    table.record([shipped])
    table.export_parquet(tmp_path / "a.parquet", "here")
    own = TimingTable.open(tmp_path / "own.duckdb", extra=[str(tmp_path / "a.parquet")])
    own.record([timing(1, samples=(2.0,), when=9999.0)])
    assert own.lookup([shipped.key])[shipped.key].samples == (2.0,)


def test_a_damaged_parquet_table_is_named(tmp_path: Path) -> None:
    bad = tmp_path / "bad.parquet"
    bad.write_bytes(b"no parquet")
    with pytest.raises(TableError, match=r"bad\.parquet"):
        TimingTable.open(tmp_path / "t.duckdb", extra=[str(bad)])
    table = TimingTable.open(tmp_path / "t.duckdb")
    with pytest.raises(TableError, match=r"bad\.parquet"):
        merge(table, [bad])


def test_a_parquet_table_that_is_damaged_inside_is_named(table: TimingTable, timing: Make, tmp_path: Path) -> None:
    """What it says of itself at its end is whole, and one of several is broken."""
    table.record([timing(n, samples=(1e-6 * (n % 97 + 1), 1e-3 / (n + 1))) for n in range(400)])
    whole, bad = tmp_path / "whole.parquet", tmp_path / "bad.parquet"
    table.export_parquet(whole, "here")
    data = bytearray(whole.read_bytes())
    data[200 : len(data) // 2] = bytes(len(data) // 2 - 200)
    bad.write_bytes(data)
    with pytest.raises(TableError, match=r"bad\.parquet cannot be read"):
        TimingTable.open(tmp_path / "new.duckdb", extra=[str(whole), str(bad)])


def test_ctrl_c_in_the_midst_of_a_query_is_ctrl_c(table: TimingTable) -> None:
    """DuckDB notices it first, and raises an error of its own."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    later = threading.Timer(0.3, _thread.interrupt_main)
    try:
        with pytest.raises(KeyboardInterrupt), table.database() as db:
            later.start()
            db.execute("SELECT count(*) FROM range(10000000000000) a(i) WHERE hash(i) = 0")
    finally:
        later.join()
        signal.signal(signal.SIGINT, before)
    table.merge()


LOADING = """
import os, signal, sys

class Interrupts:
    def find_spec(self, name, *rest):
        if name == "duckdb":
            os.kill(os.getpid(), {})

from waxeq.cli.ending import cleared_away
from waxeq.cost.archive import connect
signal.signal(signal.SIGINT, signal.default_int_handler)  # which the background of a shell ignores
sys.meta_path.insert(0, Interrupts())
with cleared_away():
    try:
        connect()
    except KeyboardInterrupt:
        print(hasattr(sys.modules.get("duckdb"), "connect"), flush=True)
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, -signal.SIGTERM)])
def test_a_signal_while_duckdb_is_loaded_is_answered_after_that(number: signal.Signals, code: int) -> None:
    """Its extension ends the process with SIGABRT, or cannot be loaded again, where Ctrl-C comes in the midst of it."""
    done = subprocess.run([sys.executable, "-c", LOADING.format(int(number))], capture_output=True, text=True)
    assert (done.stdout, done.stderr, done.returncode) == ("True\n", "", code)


AT_EXIT = """
import os, signal, sys
from waxeq.cost.table import TimingTable

class Interrupts:
    def find_spec(self, name, *rest):
        if name == "duckdb":
            os.kill(os.getpid(), signal.SIGINT)

table = TimingTable.open(sys.argv[1])
table.memo_put("a kind", "key", "text")
sys.meta_path.insert(0, Interrupts())
for name in [n for n in sys.modules if n.partition(".")[0] == "duckdb"]:
    del sys.modules[name]
table.tidy_at_exit()
"""


def test_ctrl_c_at_the_end_of_a_process_is_no_traceback(tmp_path: Path) -> None:
    """All is done and said by then, and what was not brought into the archive waits as it did."""
    command = [sys.executable, "-c", AT_EXIT, str(tmp_path / "t.duckdb")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
    assert TimingTable.open(tmp_path / "t.duckdb").memo_get("a kind", "key") == "text"
