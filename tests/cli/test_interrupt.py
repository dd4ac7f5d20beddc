"""Ctrl-C: the first ends the search and keeps the best plan, the second ends everything."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

import waxeq as wx
from waxeq.cli import main

MODEL = """
import numpy as np

def model(x, y):
    for i in range({layers}):
        x = {body}
    return x

def example_inputs():
    rng = np.random.default_rng(0)
    return {{k: rng.standard_normal((40, 40), dtype=np.float32) for k in "xy"}}
"""
HARD, EASY = "np.tanh(x @ y + i) + x", "np.maximum(x @ y, 0)"
PROGRAM = "import sys; from waxeq.cli import main; sys.exit(main())"


def start(tmp_path: Path, layers: int, body: str) -> tuple[subprocess.Popen, Path]:
    model, plan = tmp_path / "slow.py", tmp_path / "slow.plan.json"
    model.write_text(MODEL.format(layers=layers, body=body))
    table = tmp_path / "t.duckdb"
    command = ["optimize", str(model), "-o", str(plan), "--table", str(table), "--budget", "20s", "--verbose", "--json"]
    child = subprocess.Popen([sys.executable, "-c", PROGRAM, *command], stdout=-1, stderr=-1, bufsize=0)
    return child, plan


def wait_for(child: subprocess.Popen, word: bytes) -> None:
    assert child.stderr is not None
    for line in child.stderr:
        if line.startswith(word):
            return
    pytest.fail(f"the search ended before {word!r}")


@pytest.mark.slow
@pytest.mark.parametrize(("stage", "layers", "body"), [(b"saturate", 12, HARD), (b"measure", 3, EASY)])
def test_the_best_plan_is_kept(tmp_path: Path, stage: bytes, layers: int, body: str) -> None:
    child, plan = start(tmp_path, layers, body)
    wait_for(child, stage)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=120)
    assert child.returncode == 130, err.decode()
    assert b'"interrupted": true' in out
    x, y = (np.random.default_rng(i).standard_normal((40, 40), dtype=np.float32) for i in range(2))
    want = x.astype(np.float64)
    for i in range(layers):
        want = eval(body, {"np": np, "x": want, "y": y, "i": i})
    got = wx.load(plan)(x, y)
    assert np.sqrt(np.mean((got - want) ** 2) / np.mean(want**2)) < 1e-4


@pytest.mark.slow
def test_the_best_plan_is_kept_where_ctrl_c_ended_the_reader_too(tmp_path: Path) -> None:
    """As of `2>&1 | tee log`: the next line of progress ended the command with 0, and no plan was written."""
    child, plan = start(tmp_path, 12, HARD)
    wait_for(child, b"saturate")
    assert child.stdout is not None and child.stderr is not None
    child.stdout.close()
    child.stderr.close()
    child.send_signal(signal.SIGINT)
    assert child.wait(timeout=120) == 0
    assert wx.load(plan).plan.steps


def test_twice_ends_at_once_and_writes_nothing(tmp_path: Path) -> None:
    child, plan = start(tmp_path, 12, HARD)
    wait_for(child, b"saturate")
    child.send_signal(signal.SIGINT)
    time.sleep(0.3)  # two signals at once are one
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=120)
    assert child.returncode == 130 and not plan.exists()
    assert err.decode().strip().splitlines()[-1].startswith("waxeq: interrupted")
    assert b"press Ctrl-C again to stop at once" in err


def test_ctrl_c_while_the_command_is_loaded_is_no_traceback(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    def interrupted(name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("waxeq.cli.find_spec", interrupted)
    assert main(["--version"]) == 130
    assert capsys.readouterr().err == "waxeq: interrupted; nothing was written\n"


def test_ctrl_c_while_a_class_is_made_is_no_bug(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Python 3.11 makes a RuntimeError of it: of imports that it came in the midst of."""
    path = tmp_path / "m.py"
    field = "class Field:\n    def __set_name__(self, owner, name): raise KeyboardInterrupt\n"
    path.write_text(f"{field}\nclass Model:\n    x = Field()\n")
    assert main(["optimize", str(path), "--table", str(tmp_path / "t.duckdb")]) == 130
    assert capsys.readouterr().err == "waxeq: interrupted; nothing was written\n"


def test_an_error_that_is_its_own_cause_is_told(tmp_path: Path) -> None:
    """Regression: the command looked for Ctrl-C among the causes of `raise e from e` without end."""
    path = tmp_path / "m.py"
    path.write_text("try:\n    1 / 0\nexcept ArithmeticError as e:\n    raise e from e\n")
    command = [sys.executable, "-c", PROGRAM, "optimize", str(path), "--table", str(tmp_path / "t.duckdb")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr.count("\n")) == (3, 1) and "ZeroDivisionError" in done.stderr


FIRST = """
import os, signal
from waxeq.cli.ending import cleared_away
os.kill = lambda process, number: None
with cleared_away():
    signal.raise_signal(signal.SIGTERM)
"""


def test_the_first_process_of_a_container_ends_as_the_signal_says() -> None:
    """It dies of no signal that it sends itself, and ended with 130, as of Ctrl-C."""
    done = subprocess.run([sys.executable, "-c", FIRST], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (143, "")


@pytest.mark.slow
def test_bench_ends_soon(tmp_path: Path) -> None:
    """With times of what there is, and without the seconds that it was to take."""
    model = tmp_path / "slow.py"
    model.write_text(MODEL.format(layers=3, body=EASY))
    command = ["bench", str(model), "--table", str(tmp_path / "t.duckdb"), "--verbose", "--json", "--seconds", "300"]
    child = subprocess.Popen([sys.executable, "-c", PROGRAM, *command], stdout=-1, stderr=-1, bufsize=0)
    wait_for(child, b"measure")
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert child.returncode == 130, err.decode()
    assert b'"original function"' in out and b"the plan is timed once" in err


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_bench_that_is_ended_leaves_no_process_and_no_folder(tmp_path: Path, end: signal.Signals) -> None:
    """The process that times went on for as long as it was to take, and a copy of plan and weights lay in TMPDIR."""
    model, room = tmp_path / "slow.py", tmp_path / "room"
    model.write_text(MODEL.format(layers=1, body=EASY))
    room.mkdir()
    options = ("--table", str(tmp_path / "t.duckdb"), "--budget", "1s", "--seconds", "300")
    heard = "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL)"  # these tests may run under nohup
    command = [sys.executable, "-c", f"{heard}; {PROGRAM}", "bench", str(model), *options]
    with subprocess.Popen(command, stdout=-1, stderr=-1, env={**os.environ, "TMPDIR": str(room)}) as child:
        until = time.monotonic() + 100
        while not (started := psutil.Process(child.pid).children()) or not list(room.glob("*/bench.plan.json")):
            assert child.poll() is None and time.monotonic() < until
            time.sleep(0.05)
        child.send_signal(end)
        _, err = child.communicate(timeout=20)
    assert child.returncode == -end
    assert not psutil.wait_procs(started, timeout=5)[1]
    if end != signal.SIGKILL:
        assert list(room.iterdir()) == [] and err.decode() == "waxeq: interrupted; nothing was written\n"
