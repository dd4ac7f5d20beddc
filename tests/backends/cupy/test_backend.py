"""The backend where there is no GPU: a sentence, and nothing that others lose by it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import waxeq as wx
from waxeq.backend.discover import backends, found, lacking
from waxeq.cost.key import METHOD
from waxeq.cost.survey import Present
from waxeq.errors import UsageError
from waxeq_cupy import device as devices
from waxeq_cupy.device import VARIABLE


def test_without_a_gpu_it_says_why_and_is_not_picked(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE)
    (row,) = {f.name: f for f in found() if f.name == "cupy"}.values()
    assert row.backend is not None and row.backend.device == "cuda" and row.why is not None
    assert "WAXEQ_CUDA=" in row.why and ". " not in row.why, "one sentence, and what can be done"
    assert "cupy" not in {b.name for b in backends()}
    with pytest.raises(UsageError, match="cupy cannot be used here"):
        backends(["cupy"])
    with pytest.raises(UsageError, match=r"device 'cuda': .*WAXEQ_CUDA="):
        options = wx.Options(table=installed / "t.duckdb", device="cuda")
        wx.optimize(lambda x: np.tanh(x), np.ones(4, np.float32), options=options)
    assert lacking("cupy.loops") == row.why and "'tpu'" in lacking("tpu.loops") and "of that name" in lacking("numpy.x")


def test_timings_of_a_gpu_that_is_not_here_are_not_stale(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`waxeq db gc` drops what is stale."""
    monkeypatch.delenv(VARIABLE)
    state, why = Present.here().kernel_state("cupy", "cupy.loops", "c0de", METHOD)
    assert state == "unknown" and "cannot be used" in why


def test_without_a_driver_no_kernel_is_imported() -> None:
    """Every first search on a machine without a GPU would wait for that."""
    program = (
        "import ctypes, sys; from waxeq_cupy import backend; ctypes.CDLL = lambda name: open('/nowhere/' + name); "
        "assert backend().unusable(); sys.exit('waxeq_cupy.kernels' in sys.modules)"
    )
    environment = {n: value for n, value in os.environ.items() if n != VARIABLE}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_with_cupy_and_no_gpu_it_says_so(installed: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "cupy.py").write_text("raise ImportError('nobody imports it to find that out')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv(VARIABLE)
    devices._gpu.cache_clear()
    (row,) = {f.name: f for f in found() if f.name == "cupy"}.values()
    assert row.why is not None and row.why.startswith("CuPy is installed, but no NVIDIA driver is here")


def test_simulated_it_is_on_the_cpu_and_says_so(installed: Path) -> None:
    (cupy,) = backends(["cupy"])
    assert cupy.device == "cpu" and "simulated" in cupy.about()


def test_another_value_is_refused(monkeypatch: pytest.MonkeyPatch, installed: Path) -> None:
    monkeypatch.setenv(VARIABLE, "yes")
    (row,) = {f.name: f for f in found() if f.name == "cupy"}.values()
    with pytest.raises(UsageError, match="'yes'"):
        assert row.why is None


def test_that_there_is_no_gpu_is_no_fallback(installed: Path, tmp_path: Path) -> None:
    """A model that is optimized for the CPU loses nothing: no note, and nothing for --strict to refuse."""
    script = (
        "import numpy as np, waxeq as wx\n"
        "def f(x): return np.tanh(x) * 2 + 1\n"
        "from waxeq.cost import device, table\n"
        "table.measure_peaks = lambda n: device.Peaks({'float32': 1e11}, 1e10, 1e11, 1e-6)\n"
        f"o = wx.Options(table={str(tmp_path / 't.duckdb')!r}, trial=False, strict=True, measure=False)\n"
        "r = wx.optimize(f, np.ones((8, 8), np.float32), options=o)\n"
        "print([n for n in r.report.notes if 'cupy' in n], len(r.plan.steps))\n"
    )
    environment = {n: v for n, v in os.environ.items() if n != VARIABLE}
    path = os.pathsep.join([str(installed), *filter(None, [environment.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**environment, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("[] "), done.stdout
