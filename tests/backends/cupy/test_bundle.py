"""A plan in one file, run where nothing but NumPy is installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import waxeq as wx
from waxeq.backend.call import Call, View, operand
from waxeq.backend.discover import backends
from waxeq.errors import PlanError
from waxeq.ir.term import Term
from waxeq.runtime.bundle import read_bundle, write_bundle
from waxeq_cupy import device as devices
from waxeq_cupy import nvrtc

BLOCKED = (
    *("egglog", "duckdb", "pydantic", "safetensors", "psutil", "scipy", "sympy", "highspy"),
    *("rustworkx", "opt_einsum", "ml_dtypes", "platformdirs", "filelock", "threadpoolctl", "cyclopts", "rich"),
)
SCRIPT = """
import sys
for name in {blocked}:
    sys.modules[name] = None
import subprocess
import numpy as np
from waxeq.runtime.bundle import read_bundle
program, inputs = read_bundle({path!r})
def refused(*a, **k): raise AssertionError("something is compiled")
from waxeq_native.library import Library
Library.functions = refused
for _ in range(3):
    y = program.flat_results(inputs)
np.savez({out!r}, **y)
print(sorted(program.plan.devices), len(program.plan.steps))
from waxeq.cli import main
assert main(["optimize", "model.py"]) == 2 and main(["run", "model.plan.json"]) == 2 and main(["run", "no.waxeq"]) == 3
assert main(["run", {path!r}, "--json"]) == 0
"""


def _model(x: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    e = np.exp(x * w - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True), np.sort(np.tanh(x), axis=-1)


def test_a_bundle_runs_where_nothing_but_numpy_is(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(devices.VARIABLE, devices.VIRTUAL)
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((300, 256), dtype=np.float32), rng.standard_normal(256, dtype=np.float32)
    options = wx.Options(table=tmp_path / "t.duckdb", backends=("cupy", "numpy"), trial=False, cost="roofline")
    r = wx.optimize(_model, x, w, weights=["w"], options=options)
    path, out = tmp_path / "model.waxeq", tmp_path / "y.npz"
    write_bundle(path, r.plan, r.tensors, {"x": x}, backends(("cupy", "numpy")))
    script = SCRIPT.format(blocked=BLOCKED, path=str(path), out=str(out))
    paths = [str(installed), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "WAXEQ_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    first, _, ran = done.stdout.partition("\n")
    assert first.startswith("['cuda']") and json.loads(ran)["model"] == r.plan.name, done.stdout
    said = done.stderr.splitlines()
    assert len(said) == 3 and all(line.startswith("waxeq: ") for line in said), said
    with np.load(out) as found:
        for got, want in zip(found.values(), r.program(x), strict=True):
            assert np.array_equal(got, want)
    program, inputs = read_bundle(path)
    assert np.array_equal(inputs["x"], x) and np.array_equal(program(x)[0], r.program(x)[0])
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(PlanError, match="no bundle"):
        read_bundle(path)


def test_without_the_compiler_a_bundle_has_no_code(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no file that would have it taken for one with code."""
    v = View.dense("i", {"i": 8}, "float32")
    call = Call("cupy.loops", Term("Map", "tanh", operand(0, "i", "float32")), {"i": 8}, (v,), v)
    monkeypatch.setattr(nvrtc, "libraries", lambda *names: [])
    assert backends(["cupy"])[0].packed([call]) == {}
