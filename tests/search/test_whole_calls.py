"""Python around a plan that is not of one kind takes as long as small kernels: that is reckoned with, once a call."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from waxeq.backend.call import Call
from waxeq.backend.discover import backends, kernels
from waxeq.backend.kernel import Kernel
from waxeq.compile import optimize
from waxeq.cost.key import Timing, TimingKey
from waxeq.options import Options
from waxeq.plan.around import around
from waxeq.plan.encode import decode, encode, running
from waxeq.search import whole_calls
from waxeq.search.result import Result
from waxeq.search.trial import as_written

X = np.random.default_rng(0).standard_normal(300).astype(np.float32)


def model(x: np.ndarray) -> np.ndarray:
    return np.cumsum(np.sort(np.tanh(x) * x))


def long(x: np.ndarray) -> np.ndarray:
    """More blocks than one."""
    for _ in range(16):
        x = np.sort(np.cumsum(np.sort(np.tanh(x) * x)[::-1]) / 3)
    return x


@pytest.fixture(autouse=True)
def _compiles() -> None:
    if "native.sort" not in kernels(backends()):
        pytest.skip("no C compiler is installed")


def planned(
    folder: Path, monkeypatch: pytest.MonkeyPatch, sort: float, unit: float = 1e-6, fn: Any = model, **more: Any
) -> Result:
    """The plan where sorts by NumPy take a unit, those in C so many, and all else one in C, ten in NumPy."""

    def time_(self: object, kernel: Kernel, call: Call, key: TimingKey, seconds: float) -> Timing:
        quick = call.kernel.startswith("native.") or call.kernel == "numpy.sort"
        takes = unit * (sort if call.kernel == "native.sort" else 1.0 if quick else 10.0)
        return Timing(key, (takes,) * 8, 0.0, 0.0, dict(kernel.features(call)), time.time())

    monkeypatch.setattr("waxeq.runtime.timing.Bench.time", time_)
    monkeypatch.setattr("waxeq.search.whole_calls._around", _around)
    given = {"table": folder / "t.duckdb", "threads": 1, "trial": False, "backends": ("native", "numpy"), **more}
    return optimize(fn, X, options=Options.of(**given))


def _around(session: Any, steps: Any, passed: int, states: bool) -> float:
    return around([session.kernels[s.call.kernel] for s in steps], passed, 2.5e-7, states=states)


def used(result: Result) -> set[str]:
    return {s.call.kernel for s in result.plan.steps}


def test_steps_that_one_call_does_are_preferred_where_others_are_hardly_faster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: a sort that NumPy does 0.4 us faster cost 3 us more of a plan, and was chosen."""
    found = planned(tmp_path, monkeypatch, 2.0)
    assert "native.sort" in used(found) and all(k.startswith("native.") for k in used(found))
    assert found.plan.around == 0.0 and found.report.predicted == sum(s.predicted for s in found.plan.steps)
    (block,) = found.blocks
    beaten = [{p.candidate.call.kernel for p in c.in_order()} for c in block.beaten]
    assert any("numpy.sort" in names for names in beaten), "a contest may still decide"
    np.testing.assert_allclose(found.program(X), model(X), rtol=1e-4, atol=1e-4)
    again = planned(tmp_path, monkeypatch, 2.0)
    assert again.blocks[0].remembered and again.runs == found.runs


def test_what_is_around_a_mixed_plan_is_predicted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = planned(tmp_path, monkeypatch, 20.0)
    assert "numpy.sort" in used(found) and any(k.startswith("native.") for k in used(found))
    runs = sum(s.call.kernel == "numpy.sort" for s in found.plan.steps) + 1
    assert found.plan.around == pytest.approx(2.5e-7 * (3 + 2 + 3 * runs))
    assert found.report.predicted == pytest.approx(sum(s.predicted for s in found.plan.steps) + found.plan.around)
    assert decode(encode(found.plan), found.plan.graph.constants) == found.plan
    assert "around" not in running(found.plan), "what is predicted does not decide what runs"
    assert as_written(found.plan).predicted == 0.0


def test_a_plan_that_takes_long_is_not_looked_at_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_calls, "_all_by", lambda *given: pytest.fail("nobody would notice"))
    found = planned(tmp_path, monkeypatch, 1.01, unit=1e-4)
    assert "numpy.sort" in used(found) and found.plan.around > 0.0


@pytest.mark.parametrize(("sort", "taken"), [(1.02, "native.sort"), (1.9, "numpy.sort")])
def test_a_model_of_several_blocks_pays_once(
    sort: float, taken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of the blocks alone would rather be one call."""
    monkeypatch.setattr("waxeq.plan.around._RUN", 0)
    found = planned(tmp_path, monkeypatch, sort, fn=long, budget=60)
    assert found.report.blocks > 1 and taken in used(found)
    assert (found.plan.around > 0.0) == (taken == "numpy.sort")
    assert found.plan.around in (0.0, pytest.approx(2.5e-7 * 5))


def filtered(x: np.ndarray) -> np.ndarray:
    y = np.zeros_like(x)
    for i in range(2, len(x)):
        y[i] = 0.2 * x[i] + 0.3 * x[i - 1] + 0.2 * x[i - 2] + 0.4 * y[i - 1] - 0.3 * y[i - 2]
    return np.sort(y)


def test_copies_that_go_count_as_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: elements of an array that are read in their place were copied by NumPy until then, so that no plan
    could be one call."""
    monkeypatch.setattr("waxeq.search.session._said", lambda found: {})  # copies in C start as late as NumPy's
    found = planned(tmp_path, monkeypatch, 8.0, unit=1e-7, fn=filtered, budget=60)
    assert any(all(s.call.kernel == "numpy.copy" for s in b.plan.steps) for b in found.blocks)
    assert "native.sort" in used(found) and found.plan.around == 0.0
    np.testing.assert_allclose(found.program(X), filtered(X), rtol=1e-4, atol=1e-5)


def test_runs_of_one_kind_are_started_together() -> None:
    def of(names: str, **more: Any) -> float:
        ways = {"n": "native"}
        rows: Any = [SimpleNamespace(direct=ways.get(n), device="cpu", origin="cpu", blas=n == "b") for n in names]
        return around(rows, 2, 1.0, **more)

    assert [of(names) for names in ("nn", "p", "pp", "npn", "nnp", "npnpn", "bpb")] == [0, 5, 5, 11, 8, 14, 13]
    assert of("nn", states=True) == 8
    elsewhere: Any = [SimpleNamespace(direct=None, device="gpu", origin="cpu")]
    assert around(elsewhere, 2, 1.0) == 0
