"""waxeq.lock: the same plan byte for byte wherever all is as it was, and a sentence wherever it is not."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import waxeq as wx
from waxeq.cost.device import Peaks
from waxeq.errors import AccuracyError, LockError, TableError
from waxeq.events import Events
from waxeq.inspect.report import verdict
from waxeq.plan.encode import encode
from waxeq.search import lock as lock_module
from waxeq.search.lock import Subject, read
from waxeq.search.session import Session

MODEL = """
import numpy as np

WEIGHTS = ("w",)

def model(x, w):
    return np.maximum(x @ w, 0) * 2 + 1

def example_inputs():
    rng = np.random.default_rng(0)
    return {
        "x": rng.standard_normal((16, 24), dtype=np.float32),
        "w": rng.standard_normal((24, 8), dtype=np.float32),
    }
"""


@pytest.fixture(autouse=True)
def ceilings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("waxeq.cost.table.measure_peaks", lambda n: Peaks({"float32": 1e11}, 1e10, 1e11, 1e-6))


def chain(a: Any, b: Any, v: Any) -> Any:
    return a @ b @ v + 1


@pytest.fixture
def inputs() -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [rng.standard_normal(s, dtype=np.float32) for s in ((30, 40), (40, 30), (30,))]


@pytest.fixture
def options(tmp_path: Path) -> Callable[..., wx.Options]:
    def make(**given: Any) -> wx.Options:
        return wx.Options(
            **{"table": tmp_path / "t.duckdb", "trial": False, "measure": False, "lock": tmp_path / "my.lock", **given}
        )

    return make


def damaged(path: Path, **changes: object) -> None:
    """Change entries of the only model in a lock, as another waxeq would have written them."""
    data = json.loads(path.read_text())
    (name,) = data["models"]
    for key, value in changes.items():
        known = data["models"][name][key]
        data["models"][name][key] = {**known, **value} if isinstance(value, dict) else value
    data["sha256"] = lock_module._digest(data["models"])
    path.write_text(json.dumps(data))


def test_the_locked_plan_is_the_plan(inputs, options, tmp_path: Path) -> None:
    first = wx.optimize(chain, *inputs, options=options(seed=3))
    again = wx.optimize(chain, *inputs, options=options(locked=True, table=tmp_path / "other.duckdb"))
    assert again.text == first.text and again.blocks == ()
    np.testing.assert_array_equal(again.program(*inputs), first.program(*inputs))
    assert any("nothing was searched" in n for n in again.report.notes)
    assert read(tmp_path / "my.lock").models["chain"].seed == 3


def test_a_plan_as_written_is_locked_too(inputs, options, tmp_path: Path) -> None:
    from dataclasses import replace

    from waxeq.frontend.trace import trace
    from waxeq.search.session import Session
    from waxeq.search.trial import as_written

    result = wx.optimize(chain, *inputs, options=options(lock=None))
    traced = trace(chain, dict(zip("abv", inputs, strict=True)))
    with Session.open(options(), wx.compile.Events()) as session:
        lock_module.write(session, traced, replace(result, plan=as_written(result.plan)))
    again = wx.optimize(chain, *inputs, options=options(locked=True))
    assert again.plan.written and verdict(again) == f"kept the model as written: {tmp_path / 'my.lock'} locks it"
    np.testing.assert_allclose(again.program(*inputs), chain(*inputs), rtol=1e-5)


def test_models_that_are_locked_at_once_are_all_there(
    inputs, options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What reads the file before another has written it must not write it after."""
    result = wx.optimize(chain, *inputs, options=options(lock=None))
    path, kept = tmp_path / "my.lock", lock_module.write_atomically

    def slow(*given: Any) -> None:
        time.sleep(0.05)
        kept(*given)

    monkeypatch.setattr(lock_module, "write_atomically", slow)
    with Session.open(options(), Events()) as session, ThreadPoolExecutor(4) as pool:
        data = encode(result.plan)
        what = [Subject(f"m{i}", "0", None) for i in range(4)]
        list(pool.map(lambda w: lock_module.lock(session, w, data), what))
    assert set(read(path).models) == {"m0", "m1", "m2", "m3"}


def test_files_of_rules_of_one_name_are_all_told_of(tmp_path: Path) -> None:
    def hashed(*texts: str) -> str:
        files = [SimpleNamespace(path=tmp_path / t / "my.egg", text=t) for t in texts]
        session: Any = SimpleNamespace(own_rules=files)
        return lock_module._rules(session)["my.egg"]

    assert len({hashed("a", "b"), hashed("c", "b"), hashed("b"), hashed("a", "c")}) == 4


def test_one_file_locks_several_models(inputs, options, tmp_path: Path) -> None:
    def other(a: Any, v: Any) -> Any:
        return a @ v

    wx.optimize(chain, *inputs, options=options())
    first = (tmp_path / "my.lock").read_bytes()
    wx.optimize(other, inputs[0], inputs[1][:, 0].copy(), options=options())
    assert set(read(tmp_path / "my.lock").models) == {"chain", "other"}
    wx.optimize(chain, *inputs, options=options(locked=True))
    (tmp_path / "my.lock").write_bytes(first)
    with pytest.raises(LockError, match=r"locks chain, and not other; lock it with lock="):
        wx.optimize(other, inputs[0], inputs[1][:, 0].copy(), options=options(locked=True))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model": "0" * 64}, "model chain is .*, locked 000000000000 .*computes something else"),
        ({"versions": {"waxeq": "0.0.1"}}, r"version of waxeq is .*, locked 0.0.1 \(pip install waxeq==0.0.1"),
        ({"device": {"numpy": "1.0", "model": "A CPU"}}, "device's model is .*, locked A CPU .*; device's numpy is"),
        ({"rules": {"linear.egg": "0" * 16}}, "rules linear.egg is [0-9a-f]{16}, locked 0000000000000000"),
        ({"rules": {"mine.egg": "0" * 16}}, "rules mine.egg is not there, .*rules="),
        ({"kernels": {"numpy.gemm": "0" * 16}}, "kernel numpy.gemm is [0-9a-f]{16}, locked 0000000000000000"),
    ],
)
def test_what_differs_is_named_with_both_values(inputs, options, tmp_path: Path, changes: dict, said: str) -> None:
    wx.optimize(chain, *inputs, options=options())
    damaged(tmp_path / "my.lock", **changes)
    with pytest.raises(LockError, match=said) as e:
        wx.optimize(chain, *inputs, options=options(locked=True))
    assert e.value.exit_code == 9 and "\n" not in str(e.value) and "does not fit" in str(e.value)


def test_another_model_of_the_same_name(inputs, options) -> None:
    wx.optimize(chain, *inputs, options=options())

    def changed(a: Any, b: Any, v: Any) -> Any:
        return a @ b @ v + 2

    changed.__name__ = "chain"
    with pytest.raises(LockError, match="model chain"):
        wx.optimize(changed, *inputs, options=options(locked=True))


def test_options_are_the_locked_ones_unless_given(inputs, options) -> None:
    wx.optimize(chain, *inputs, options=options(seed=5, tolerance=1e-4, threads=1))
    wx.optimize(chain, *inputs, options=options(locked=True))
    wx.optimize(chain, *inputs, options=options(locked=True, seed=5))
    with pytest.raises(LockError, match=r"option seed is 6, locked 5 \(leave out seed="):
        wx.optimize(chain, *inputs, options=options(locked=True, seed=6))


def test_a_locked_plan_that_is_wrong_is_not_returned(inputs, options, tmp_path: Path) -> None:
    """Whatever a lock says, the plan is checked on the model's own numbers."""
    wx.optimize(chain, *inputs, options=options(tolerance=1e-4))
    data = json.loads((tmp_path / "my.lock").read_text())
    plan = data["models"]["chain"]["plan"]
    text = json.dumps(plan["steps"])
    plan["steps"] = json.loads(text.replace("1.0", "3.0"))
    assert json.dumps(plan["steps"]) != text
    data["sha256"] = lock_module._digest(data["models"])
    (tmp_path / "my.lock").write_text(json.dumps(data))
    with pytest.raises((AccuracyError, LockError)):
        wx.optimize(chain, *inputs, options=options(locked=True))


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b'{"waxeq_lock": 1}', b"\xff\xfe", b"[" * 100_000])
@pytest.mark.parametrize("locked", [False, True])
def test_what_is_no_lock(inputs, options, tmp_path: Path, content: bytes, locked: bool) -> None:
    path = tmp_path / "my.lock"
    path.write_bytes(content)
    with pytest.raises(LockError, match=r"my\.lock") as e:
        wx.optimize(chain, *inputs, options=options(locked=locked))
    assert "\n" not in str(e.value) and path.read_bytes() == content
    assert not (tmp_path / "t.duckdb").exists(), "it is refused before the work"


def test_a_lock_that_was_edited_or_is_newer(inputs, options, tmp_path: Path) -> None:
    path = tmp_path / "my.lock"
    wx.optimize(chain, *inputs, options=options())
    whole = path.read_text()
    path.write_text(whole.replace('"seed": 0', '"seed": 1'))
    with pytest.raises(LockError, match="changed by hand or damaged"):
        wx.optimize(chain, *inputs, options=options(locked=True))
    path.write_text(whole.replace('"waxeq_lock": 1', '"waxeq_lock": 2'))
    with pytest.raises(LockError, match="version 2"):
        wx.optimize(chain, *inputs, options=options(locked=True))
    path.unlink()
    with pytest.raises(LockError, match="no such file"):
        wx.optimize(chain, *inputs, options=options(locked=True))


def test_a_lock_that_cannot_be_written_leaves_nothing(inputs, options, tmp_path: Path, monkeypatch) -> None:
    wx.optimize(chain, *inputs, options=options())
    before = (tmp_path / "my.lock").read_bytes()

    def full(*given: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("waxeq.runtime.files.os.replace", full)
    with pytest.raises((LockError, TableError), match="cannot be written"):
        wx.optimize(chain, *inputs, options=options(seed=1))
    assert (tmp_path / "my.lock").read_bytes() == before
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".my.lock")] == []


def test_a_lock_with_no_place_is_refused_before_the_work(inputs, options, tmp_path: Path) -> None:
    def traced(a: np.ndarray, b: np.ndarray, v: np.ndarray) -> np.ndarray:
        pytest.fail("it is traced")

    given = options(lock=tmp_path / "nowhere" / "my.lock")
    with pytest.raises(LockError, match="cannot be written: No such file or directory; name another place with lock="):
        wx.optimize(traced, *inputs, options=given)


@pytest.mark.slow
def test_the_same_bytes_in_other_processes(tmp_path: Path) -> None:
    """A search and a locked plan alike: whatever the order in which Python keeps its sets."""
    (tmp_path / "small.py").write_text(MODEL)

    def run(*more: object, seed: int, table: str) -> bytes:
        plan = tmp_path / f"{table}.plan.json"
        command = [sys.executable, "-m", "waxeq", "optimize", tmp_path / "small.py", "-o", plan, "--table",
                   tmp_path / f"{table}.duckdb", "--no-trial", "--quiet", *more]  # fmt: skip
        env = {**os.environ, "PYTHONHASHSEED": str(seed)}
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=env, check=False)
        assert done.returncode == 0, done.stderr
        return plan.read_bytes() + plan.with_suffix(".safetensors").read_bytes()

    run(seed=0, table="a")  # measures what there is to measure
    plans, locks = set(), set()
    for seed in (1, 12345):
        shutil.copyfile(tmp_path / "a.duckdb", tmp_path / f"s{seed}.duckdb")
        path = tmp_path / f"{seed}.lock"
        plans.add(run("--fresh", "--no-measure", "--lock", path, seed=seed, table=f"s{seed}"))
        locks.add(path.read_bytes())
    assert len(plans) == len(locks) == 1
    shutil.copyfile(tmp_path / "1.lock", tmp_path / "waxeq.lock")
    assert {run("--locked", seed=7, table="empty")} == plans


@pytest.mark.parametrize("text", ["def model(x):\n    return x\n", '{"name": "somebody\'s"}', "[]"])
def test_what_is_no_lock_is_neither_replaced_nor_to_be_removed(inputs, options, tmp_path: Path, text: str) -> None:
    """Who named the model itself was told to remove it."""
    path = tmp_path / "my.lock"
    path.write_text(text)
    with pytest.raises(LockError, match=r"no lock of waxeq.*name another file with lock="):
        wx.optimize(chain, *inputs, options=options())
    assert path.read_text() == text


def test_no_file_is_left_for_taking_turns_at_a_lock(inputs, options, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("WAXEQ_TIMING_LOCK", str(tmp_path / "turns" / "timing.lock"))
    (tmp_path / "turns").mkdir()
    wx.optimize(chain, *inputs, options=options())
    assert (tmp_path / "my.lock").exists()
    assert [p.name for p in (tmp_path / "turns").iterdir() if p.name != "timing.lock"] == []
