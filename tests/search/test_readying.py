"""One candidate that fails does not end a search: the others are timed, and a plan is made of what runs."""

from __future__ import annotations

import math
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from waxeq.backend.call import Call
from waxeq.backend.kernel import Kernel, patience
from waxeq.compile import optimize
from waxeq.cost.key import Timing
from waxeq.errors import BudgetError, FallbackError, PlanError, WaxeqError
from waxeq.options import Options
from waxeq.runtime.timing import Bench
from waxeq.search.result import Result
from waxeq.search.trial import Proofs
from waxeq_native.compiler import Compiler

X, W = (np.random.default_rng(i).standard_normal((40, 40)).astype(np.float32) for i in range(2))


def model(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    return np.tanh(x @ w) * 2.0 + x @ w


def found(folder: Path, **more: object) -> Result:
    given = {"table": folder / "t.duckdb", "trial": False, "threads": 1, "budget": "30s"}
    result = optimize(model, X, W, options=Options.of(**given | more))
    np.testing.assert_allclose(result.program(X, W), model(X, W), rtol=1e-3, atol=1e-3)
    return result


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[type[BaseException]], list[Call]]:
    """Has the timing of the calls of one kernel fail, the first that is timed; the calls that were tried."""

    def fail(why: type[BaseException]) -> list[Call]:
        tried, plain = list[Call](), Bench.time

        def time(bench: Bench, kernel: Kernel, call: Call, *rest: Any) -> Timing:
            tried.append(call)
            if call.kernel == tried[0].kernel:
                raise why("no room")
            return plain(bench, kernel, call, *rest)

        monkeypatch.setattr(Bench, "time", time)
        return tried

    return fail


@pytest.mark.parametrize("why", [MemoryError, BudgetError])
def test_what_there_is_no_memory_to_time_is_left_untimed(
    tmp_path: Path, failing: Callable, why: type[BaseException]
) -> None:
    """To time a call takes several copies of its memory, and ended the search where that was too much."""
    tried, result = failing(why), found(tmp_path)
    assert len(tried) > 1 and result.plan.steps
    assert any("could not be timed for want of memory" in n for n in result.report.notes)


def test_a_kernel_that_fails_when_it_is_timed_is_given_up(tmp_path: Path, failing: Callable) -> None:
    tried, result = failing(PlanError), found(tmp_path)
    assert len(tried) > 1 and tried[0].kernel not in {s.call.kernel for s in result.plan.steps}
    assert f"{tried[0].kernel} could not be used: no room" in result.report.notes
    with pytest.raises(FallbackError, match="could not be made ready: no room"):
        found(tmp_path, strict=True, fresh=True, table=tmp_path / "other.duckdb")


def test_one_source_that_does_not_compile_costs_its_kernel_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compiler that was killed, or fell over one source, took with it all that C can do."""
    with_native = found(tmp_path, measure=False)
    native = {n: k for n, k in with_native.kernels.items() if n.startswith("native.")}
    if not native:
        pytest.skip("no C compiler is installed")
    refused = next(s.call.kernel for s in with_native.plan.steps if s.call.kernel in native)
    plain = native[refused].prepare

    def prepare(rows: Sequence[tuple[Kernel, Call]]) -> None:
        if any(c.kernel == refused for _, c in rows):
            raise WaxeqError("the compiler was killed")
        plain(rows)

    for kind in {type(k) for k in native.values() if k.prepare is plain}:
        monkeypatch.setattr(kind, "prepare", staticmethod(prepare))
    result = found(tmp_path, fresh=True)
    (note,) = [n for n in result.report.notes if "the compiler was killed" in n]
    assert note.startswith(f"{refused} could not be used")
    assert any(s.call.kernel in native for s in result.plan.steps), "others of its kind run"


def test_a_compiler_that_hangs_ends_with_the_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was waited for two minutes, and again for each call by itself, whatever the budget; what the plan needs is
    compiled however long that takes."""
    libraries = pytest.importorskip("waxeq_native.library")
    if not any(n.startswith("native.") for n in found(tmp_path, measure=False).kernels):
        pytest.skip("no C compiler is installed")
    start = Compiler.start

    def hang(compiler: Compiler, *given: Any) -> subprocess.Popen:
        if patience() == math.inf:
            return start(compiler, *given)
        return subprocess.Popen(("sleep", "600"), process_group=0)

    (tmp_path / "cache").mkdir()
    fresh = libraries.Library(tmp_path / "cache", libraries.shared().compiler)
    monkeypatch.setattr(libraries, "functions", fresh.functions)
    monkeypatch.setattr(Compiler, "start", hang)
    begun = time.monotonic()
    result = found(tmp_path, fresh=True, budget="3s", table=tmp_path / "other.duckdb")
    assert time.monotonic() - begun < 60.0
    assert any("could not be timed: a compiler was ended after" in n for n in result.report.notes)
    assert any(s.call.kernel.startswith("native.") for s in result.plan.steps), "no kernel is given up for that"


def test_a_plan_that_cannot_be_run_is_dropped_for_one_that_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, asked = Proofs.accuracy, list[Result]()

    def accuracy(proofs: Proofs, r: Result) -> Any:
        asked.append(r)
        if len(asked) == 1:
            raise MemoryError
        return plain(proofs, r)

    monkeypatch.setattr(Proofs, "accuracy", accuracy)
    monkeypatch.setattr("waxeq.compile.rivals", lambda session, blocks, plans: [plans, plans])
    result = found(tmp_path)
    assert any("dropped, as it could not be run: MemoryError" in n for n in result.report.notes)
    asked.clear()
    monkeypatch.setattr("waxeq.compile.rivals", lambda session, blocks, plans: [plans])
    with pytest.raises(MemoryError):
        found(tmp_path)
