"""A plan in one file, run where nothing but NumPy is installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest

import waxeq as wx
from waxeq.backend.call import Call, View, operand
from waxeq.backend.discover import backends
from waxeq.errors import PlanError, UsageError
from waxeq.ir.term import Term
from waxeq.plan.plan import Plan
from waxeq.runtime.bundle import contents, read_bundle, write_bundle
from waxeq_cupy import cubins, nvrtc
from waxeq_cupy import device as devices
from waxeq_cupy.cubins import Cubins

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
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begin_cache: Callable[[Path], None]
) -> None:
    monkeypatch.setenv(devices.VARIABLE, devices.VIRTUAL)
    begin_cache(tmp_path / "cache")
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
    _elsewhere(path.with_name("other.waxeq"), r.plan, monkeypatch)
    program, inputs = read_bundle(path)
    assert np.array_equal(inputs["x"], x) and np.array_equal(program(x)[0], r.program(x)[0])
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(PlanError, match="no bundle"):
        read_bundle(path)


def _elsewhere(path: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """No GPU has to be here: kernels are compiled for those that are named."""
    with monkeypatch.context() as m:
        m.setattr(devices, "current", _no_gpu)
        made = write_bundle(path, plan, {}, architectures=["sm_90a"])
        assert made.built == {"cupy": ("sm_90",)} and not made.later, "the letter is of instructions that it has not"
        assert {"code/cupy/sm_90.cubin", "code/cupy/kernels.json"} <= contents(path).keys()
        assert write_bundle(path, plan, {}).built == {"cupy": ("sm_80", "sm_90")}
        for wrong, said in {
            "sm_75": "sm_80 or newer",
            "gpu": "no architecture",
            "sm_99": r"not know sm_99: .*sm_90",
        }.items():
            with pytest.raises(UsageError, match=said):
                write_bundle(path, plan, {}, architectures=["sm_90", wrong])
        m.setattr(nvrtc, "libraries", lambda *names: [])
        assert "no NVRTC" in write_bundle(path, plan, {}).later["cupy"]
        with pytest.raises(UsageError, match=r"compiled for sm_90: .* no NVRTC .*waxeq\[cuda-check\]"):
            write_bundle(path, plan, {}, architectures=["sm_90"])


def _no_gpu() -> NoReturn:
    raise devices.MissingDevice("no GPU is here")


def test_a_gpu_runs_machine_code_of_older_ones_of_its_generation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not of other generations, nor that with one GPU's own instructions, nor a small board's."""
    monkeypatch.setattr(cubins, "_brought", {})
    for a in ("sm_80", "sm_90", "sm_90a"):
        cubins.bring(a, "before", {"one": a.encode()})
    taken = {"sm_80": "sm_80", "sm_86": "sm_80", "sm_89": "sm_80", "sm_90": "sm_90"}
    for here, image in taken.items():
        assert Cubins(tmp_path, None, here).images({"one": ""}, "before") == {"one": image.encode()}
    assert Cubins(tmp_path, None, "sm_90").images({"one": ""}, "before", "sm_90a") == {"one": b"sm_90a"}
    for here in ("sm_75", "sm_87", "sm_100", "sm_120"):
        with pytest.raises(nvrtc.MissingCompiler, match=here):
            Cubins(tmp_path, None, here).images({"one": ""}, "before")


def test_without_the_compiler_a_bundle_has_no_code(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no file that would have it taken for one with code."""
    v = View.dense("i", {"i": 8}, "float32")
    call = Call("cupy.loops", Term("Map", "tanh", operand(0, "i", "float32")), {"i": 8}, (v,), v)
    monkeypatch.setattr(nvrtc, "libraries", lambda *names: [])
    assert backends(["cupy"])[0].packed([call]) == {}
