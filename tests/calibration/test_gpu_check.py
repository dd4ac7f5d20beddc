"""The check of a GPU, on one that is not there: from the kit to the table, cut off and gone on with."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from calibration.gpu import run as running
from calibration.gpu.check import Check
from calibration.gpu.clocked import cold, copy_bandwidth
from calibration.gpu.journal import DIED, LEFT_OUT, RIGHT, WRONG, Journal, append
from calibration.gpu.kit import Kit
from calibration.gpu.report import write_summary
from calibration.gpu.run import Task, watch
from calibration.gpu.sections import SECTIONS
from calibration.gpu.targets import targets

from waxeq.backend.kernel import Kernel
from waxeq.cli import main
from waxeq.cost.table import TimingTable
from waxeq.errors import PlanError, UsageError
from waxeq_cupy.device import VARIABLE, MissingDevice
from waxeq_cupy.driver import Driver

PROGRAM = Path(__file__).resolve().parents[2] / "calibration" / "gpu_check.py"


def started(environment: dict[str, str], *arguments: str | Path) -> subprocess.Popen[str]:
    line = [sys.executable, str(PROGRAM), *map(str, arguments)]
    return subprocess.Popen(
        line, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=200)
    return process.returncode, out, err


def test_cut_off_and_gone_on_with_where_only_numpy_is(
    kit: Path, bare: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    results = out / "results.jsonl"
    process = started(bare, "--kit", kit, "--out", out)
    while process.poll() is None and (not results.exists() or results.read_bytes().count(b"\n") < 5):
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    before = results.read_bytes()
    assert Journal(results).done, "the outcome of what was done is on disk"
    code, said, err = ended(started(bare, "--kit", kit, "--out", out))
    assert code == 0, err
    assert results.read_bytes().startswith(before)
    rows = [json.loads(line) for line in results.read_text().splitlines()]
    times = Counter((r["section"], r["case"]) for r in rows if r["outcome"] != "begun")
    assert set(times.values()) == {1} and {r["outcome"] for r in rows} == {"begun", RIGHT, LEFT_OUT}
    assert {s for s, _ in times} == set(SECTIONS)
    correct = [r for r in rows if r["section"] == "correct" and r["outcome"] == RIGHT]
    assert correct and all(r["simulated"] == "same bits" for r in correct)
    assert said == (out / "summary.md").read_text() + "\n" and "| softmax float16 | cupy.loops |" in said
    _timings_come_into_a_table(out / "timings.jsonl", tmp_path, [r for r in rows if r["section"] in ("target", "grid")])
    capsys.readouterr()


def _timings_come_into_a_table(timings: Path, tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    """The two commands that make the file of a device in calibration/."""
    table, parquet = tmp_path / "t.duckdb", tmp_path / "device.parquet"
    first = json.loads(timings.read_text().splitlines()[0])
    assert main(["db", "merge", str(timings), "--table", str(table), "--json"]) == 0
    assert main(["db", "export", str(parquet), "--device", first["id"], "--table", str(table), "--json"]) == 0
    own = TimingTable.open(tmp_path / "other.duckdb", extra=[str(parquet)])
    found = own.families(first["id"])
    assert len(found) == sum(r["outcome"] == RIGHT for r in rows) > 3
    assert {t.key.kernel for t in found} == {"cupy.loops", "cupy.gemv"}
    with duckdb.connect() as db:
        described = db.execute(f"SELECT DISTINCT description FROM '{parquet}'").fetchall()
    assert described == [(first["description"],)]


def test_a_machine_without_a_gpu_is_a_sentence(kit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        Driver.found()
        pytest.skip("there is a GPU")
    except MissingDevice:
        monkeypatch.delenv(VARIABLE, raising=False)
    code, out, err = ended(started(dict(os.environ), "--kit", kit, "--out", tmp_path / "out"))
    assert code == MissingDevice.exit_code == 5 and not out.strip()
    assert "gpu_check: " in err and "NVIDIA driver" in err and "Traceback" not in err


@pytest.fixture
def check(kit: Path, virtual: None, tmp_path: Path) -> Check:
    return Check.of(Kit.read(kit), tmp_path)


class Idle(Kernel):
    """Leaves the result as it was."""

    def __init__(self, real: Kernel) -> None:
        self._real = real

    @property
    def device(self) -> str:
        return self._real.device

    def __getattribute__(self, name: str) -> Any:
        if name in ("bind", "_real", "__class__"):
            return object.__getattribute__(self, name)
        return getattr(object.__getattribute__(self, "_real"), name)

    def accepts(self, call: Any) -> bool: ...

    def features(self, call: Any) -> Any: ...

    def bind(self, call: Any, operands: Any, out: Any, workspace: Any) -> Any:
        return ()


def test_what_is_not_computed_is_told(check: Check, tmp_path: Path) -> None:
    check.kernels = {n: Idle(k) for n, k in check.kernels.items()}
    for section in ("correct", "target"):
        case, tried = next(SECTIONS[section](check))
        outcome, found = tried()
        assert outcome == WRONG and found["why"]
        check.journal.add(section, case, outcome, **found)
    assert not check.timings.taken(), "a wrong kernel's time is not kept"
    write_summary(check.journal, tmp_path)
    assert "## What is not right" in (tmp_path / "summary.md").read_text()


def test_other_bits_than_the_simulated_gpu_had_are_told(check: Check) -> None:
    first = next(i for i in check.items("correct") if i.shown)
    off = replace(first, shown=tuple(x * 1.001 for x in first.shown))
    for item, said in ((off, "other bits"), (replace(first, drawn="others"), "not compared")):
        check.kit = replace(check.kit, items=[item])
        outcome, found = next(SECTIONS["correct"](check))[1]()
        assert outcome == RIGHT and found["simulated"].startswith(said)


DYING = """
import os, sys, time
sys.path[:0] = {path!r}
from pathlib import Path
from calibration.gpu.journal import Journal
j = Journal(Path({out!r}) / "results.jsonl")
for case in ("a", "b", "c"):
    if ("correct", case) not in j.done:
        j.begin("correct", case)
        if case == "b":
            {end}
        j.add("correct", case, "right")
"""


@pytest.mark.parametrize("end", ["os._exit(9)", "os.kill(os.getpid(), 11)", "time.sleep(60)"])
def test_a_case_that_ends_the_process_is_noted_and_passed_by(
    end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "_PATIENCE", 1.0)
    script = DYING.format(path=sys.path, out=str(tmp_path), end=end)
    task = Task(tmp_path, tmp_path, ("correct",), time.time() + 100)
    assert watch(task, [sys.executable, "-c", script], lambda text: None) == 6
    assert {r["case"]: r["outcome"] for r in Journal(tmp_path / "results.jsonl").of("correct")} == {
        "a": RIGHT, "b": DIED, "c": RIGHT,
    }  # fmt: skip


def test_when_the_time_is_up_the_rest_is_left(kit: Path, virtual: None, tmp_path: Path) -> None:
    task = Task(kit, tmp_path, ("machine",), time.time() - 1)
    assert running.work(task, lambda text: None) == 7 and not Journal(tmp_path / "results.jsonl").rows
    with pytest.raises(UsageError, match="no section 'none'"):
        replace(task, only=("none",)).check()


def test_a_line_that_was_cut_off_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    journal = Journal(path)
    journal.begin("correct", "a")
    journal.add("correct", "a", RIGHT, error=float("nan"))
    path.write_bytes(path.read_bytes() + b'{"section": "corr')
    append(path, {"section": "correct", "case": "b", "outcome": "begun"})
    again = Journal(path)
    assert again.done == {("correct", "a")} and again.open == ("correct", "b") and len(again.rows) == 3


@pytest.mark.parametrize("damage", [b"", b"PK", None])
def test_a_damaged_kit_is_a_sentence(damage: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "k.kit"
    if damage is not None:
        path.write_bytes(damage)
    with pytest.raises(PlanError, match=r"no such file|--prepare"):
        Kit.read(path)


def test_kernels_that_were_not_where_the_kit_was_made_are_checked_too(kit: Path, virtual: None, tmp_path: Path) -> None:
    made = Kit.read(kit)
    others = [n for n in made.about["kernels"] if n != "cupy.gemv"]
    made = replace(made, items=[], about={**made.about, "kernels": others})
    found = {(i.section, i.case) for i in Check.of(made, tmp_path).kit.items}
    assert {(s, "1 rows float16, cupy.gemv") for s in ("correct", "target")} <= found
    assert all(case.endswith("cupy.gemv") for _, case in found)


def test_clocks(check: Check) -> None:
    assert copy_bandwidth(check.storage, 1 << 12) > 0
    flush = check.storage.uploaded(np.zeros(1 << 12, np.uint8))
    ran: list[int] = []
    assert cold(check.storage, [lambda: ran.append(1)], flush) > 0 and len(ran) > 10


def test_every_target_has_a_call_and_a_peer(check: Check) -> None:
    from calibration.gpu.peers import PEERS
    from calibration.gpu.targets import calls

    for t in targets():
        assert t.peer in PEERS and calls(t, check.kernels, small=True) and calls(t, check.kernels, small=False)
