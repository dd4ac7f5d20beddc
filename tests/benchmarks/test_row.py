"""One row of the comparison: nothing that fails is dropped in silence, whatever way it fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks import row
from benchmarks.contestants import CONTESTANTS, Contestant, NoForm
from benchmarks.roofline import EVALUATED, copying, evaluating
from benchmarks.row import (
    ALONE,
    COPY,
    PACED,
    WAXEQ,
    admit,
    contest,
    first_call,
    measure_row,
    optimize,
    own_cache,
    reference,
)
from benchmarks.workload import Workload

import waxeq as wx
from waxeq.errors import WaxeqError
from waxeq.runtime.measure import in_fresh_process
from waxeq.runtime.save import save_plan
from waxeq_native import NativeBackend


def double(x: np.ndarray) -> np.ndarray:
    return x + x


WORKLOAD = Workload("double", double, lambda: {"x": np.ones((3, 4), np.float32)})


def contestant(run: Callable[[np.ndarray], Any]) -> Contestant:
    def prepare(workload: Workload, arguments: Any, threads: int) -> Any:
        return lambda: lambda: run(arguments["x"])

    return Contestant("odd", (), prepare, "")


def admitted(monkeypatch: pytest.MonkeyPatch, odd: Contestant) -> tuple[Any, Any]:
    monkeypatch.setitem(CONTESTANTS, "odd", odd)  # pyright: ignore[reportArgumentType]
    arguments = WORKLOAD.make()
    return admit("odd", None, WORKLOAD, arguments, 1, reference(WORKLOAD, arguments))


def test_a_right_contestant_is_admitted_with_its_error_and_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    state, call = admitted(monkeypatch, contestant(lambda x: 2 * x))
    assert state["error"] == 0 and state["first_call"] > 0 and "failed" not in state
    assert np.array_equal(call(), np.full((3, 4), 2))


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (lambda x: 2.1 * x, "wrong: error 5.0e-02"),
        (lambda x: x * np.nan, "wrong: error inf"),
        (lambda x: np.ones(3), "wrong: error inf"),
        (lambda x: 1 // 0, "ZeroDivisionError"),
        (lambda x: (x, x), "wrong: error inf"),
    ],
    ids=["wrong", "nan", "shape", "raises", "number of results"],
)
def test_a_contestant_that_fails_is_not_timed_and_says_why(
    run: Callable[[np.ndarray], Any], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, call = admitted(monkeypatch, contestant(run))
    assert call is None and state["failed"].startswith(reason)


def test_a_contestant_without_a_form_is_absent_not_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare(workload: Workload, arguments: Any, threads: int) -> Any:
        raise NoForm

    assert admitted(monkeypatch, Contestant("odd", (), prepare, "")) == ({"absent": True}, None)


def test_a_missing_package_is_a_failure_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    state, _ = admitted(monkeypatch, Contestant("odd", ("no_such_peer",), contestant(double).prepare, ""))
    assert state == {"failed": "ModuleNotFoundError: No module named 'no_such_peer'"}


def measured(peers: tuple[str, ...]) -> row.Record:
    return measure_row("double", peers, threads=1, budget=0.1, search=1, table=None, caches="")


def test_who_takes_the_process_down_is_blamed_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.workloads.WORKLOADS", {"double": WORKLOAD})

    def process(fn: Any, job: Any, **limits: Any) -> Any:
        if fn is optimize:
            return {"first_call": 1.0, "written": False, "kernels": []}
        _, plan, peers, *_, progress = job
        if "bad" in peers:
            Path(progress).write_text("bad")
            raise WaxeqError("the timing process died: Segmentation fault")
        assert plan is not None
        rest = {n: {"error": 1e-7, "first_call": 0.5} for n in (WAXEQ, *peers)}
        return {WAXEQ: (1.0, 1.0, 1.0), **dict.fromkeys(peers, (2.0, 2.0, 2.0))}, rest

    monkeypatch.setattr(row, "in_fresh_process", process)
    found = measured(("good", "bad", "fine"))["contestants"]
    assert found["bad"] == {"failed": "the timing process died: Segmentation fault"}
    assert found["good"]["ratio"] == found["fine"]["ratio"] == 2.0
    assert found[WAXEQ]["seconds"] == 1.0 and found[WAXEQ]["first_call"] == 0.5


def test_when_nobody_can_be_blamed_all_have_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.workloads.WORKLOADS", {"double": WORKLOAD})

    def process(fn: Any, job: Any, **limits: Any) -> Any:
        raise WaxeqError("out of memory")

    monkeypatch.setattr(row, "in_fresh_process", process)
    found = measured(("one", "two"))["contestants"]
    assert {n: c["failed"] for n, c in found.items()} == dict.fromkeys((WAXEQ, "one", "two"), "out of memory")


def test_without_a_plan_the_peers_are_timed_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.workloads.WORKLOADS", {"double": WORKLOAD})

    def process(fn: Any, job: Any, **limits: Any) -> Any:
        if fn is optimize:
            raise WaxeqError("no plan")
        assert job[1] is None
        return {"one": (1.0, 1.0, 1.0)}, {"one": {"error": 0.0, "first_call": 0.1}}

    monkeypatch.setattr(row, "in_fresh_process", process)
    found = measured(("one",))["contestants"]
    assert found[WAXEQ] == {"failed": "no plan"} and "seconds" in found["one"] and "ratio" not in found["one"]


@pytest.mark.parametrize(("before", "asked"), [(None, True), (1.4, True), (11.0, True), (21.0, False)])
def test_a_search_has_no_more_time_than_the_peer_that_paces_it(
    monkeypatch: pytest.MonkeyPatch, before: float | None, asked: bool
) -> None:
    monkeypatch.setattr("benchmarks.workloads.WORKLOADS", {"double": WORKLOAD})
    given: list[float] = []

    def process(fn: Any, job: Any, **limits: Any) -> Any:
        if fn is first_call:
            return 1.5
        if fn is optimize:
            given.append(job[3])
            return {"first_call": 1.2, "written": False, "kernels": []}
        rest = {n: {"error": 1e-7, "first_call": 9.0} for n in (WAXEQ, PACED)}
        return {WAXEQ: (1.0, 1.0, 1.0), PACED: (2.0, 2.0, 2.0)}, rest

    monkeypatch.setattr(row, "in_fresh_process", process)
    known = None if before is None else {"contestants": {PACED: {"first_call": before}}}
    found = measure_row("double", (PACED,), threads=1, budget=0.1, search=10.0, table=None, caches="", before=known)
    assert given == [found["search"]] == [0.95 * 1.5 if asked else 10.0]
    assert found["contestants"][PACED]["first_call"] == (1.5 if asked else 9.0)


def test_a_parameter_may_be_called_weights(tmp_path: Path) -> None:
    """As in MiniLM: `optimize` has a keyword of that name."""

    def scaled(x: np.ndarray, weights: dict[str, np.ndarray]) -> np.ndarray:
        return x * weights["gain"]

    arguments = {"weights": {"gain": np.full(4, 3, np.float32)}, "x": np.ones((2, 4), np.float32)}
    workload = Workload("scaled", scaled, lambda: arguments, weights=frozenset({"weights"}))
    options = wx.Options(measure=False, trial=False, table=tmp_path / "timings.duckdb")
    result = wx.optimize(workload.fn, *workload.ordered(arguments), weights=workload.weights, options=options)
    assert [x.name for x in result.program.inputs] == ["x"]
    assert np.array_equal(result.program(arguments["x"]), np.full((2, 4), 3))


def test_a_plan_reads_the_arrays_that_peers_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of its own was in no cache when its turn came: a model as written lost a quarter to NumPy that way."""

    def both(x: np.ndarray, w: dict[str, np.ndarray]) -> np.ndarray:
        return x @ w["a"] + x @ w["b"]

    arguments = {"x": np.ones((2, 4), np.float32), "w": {n: np.full((4, 3), n == "a", np.float32) for n in "ab"}}
    workload = Workload("both", both, lambda: arguments, weights=frozenset({"w"}))
    options = wx.Options(measure=False, trial=False, table=tmp_path / "timings.duckdb", algebra=False)
    result = wx.optimize(both, *workload.ordered(arguments), weights=workload.weights, options=options)
    save_plan(tmp_path / "both.plan.json", result.plan, result.tensors, {"x": arguments["x"]})
    bound: list[dict[str, np.ndarray]] = []

    def program(plan: Any, kernels: Any, tensors: dict[str, np.ndarray]) -> Any:
        bound.append(tensors)
        return result.program

    monkeypatch.setattr("waxeq.runtime.program.Program", program)
    state, call = admit(WAXEQ, str(tmp_path / "both.plan.json"), workload, arguments, 1, reference(workload, arguments))
    assert call is not None and state["error"] == 0
    (tensors,) = bound
    assert tensors and all(any(t is x for x in arguments["w"].values()) for t in tensors.values())


@pytest.mark.slow
def test_a_real_row(tmp_path: Path, begin_cache: Callable[[Path], None]) -> None:
    threads = 1
    plan = str(tmp_path / "row.plan.json")
    begin_cache(own_cache(plan))
    found = in_fresh_process(optimize, ("gelu_128x768", plan, threads, 2.0, None), threads=threads)
    assert found["first_call"] > 0
    job = ("gelu_128x768", plan, ("numpy",), threads, 0.2, str(tmp_path), str(tmp_path / "running"))
    times, states = in_fresh_process(contest, job, threads=threads)
    assert times.keys() == {WAXEQ, "numpy", COPY, ALONE + "erf"} and all(t > 0 for row in times.values() for t in row)
    assert states[WAXEQ]["error"] < 1e-5 and states["numpy"]["first_call"] > 0


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("slow", ["copyto", "bitwise_or"])
def test_a_copy_copies_all(slow: str, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the one way or the other."""
    usual = getattr(np, slow)

    def slowly(*args: object, **named: object) -> object:
        time.sleep(0.002)
        return usual(*args, **named)

    monkeypatch.setattr(np, slow, slowly)
    source, target = np.arange(1001).astype(np.uint8), np.zeros(1001, np.uint8)
    copying(source, target, threads)()
    assert np.array_equal(source, target)


def test_functions_alone_are_evaluated_as_often_as_is_said() -> None:
    got = np.asarray(evaluating("exp", 1)())
    assert EVALUATED % got.size == 0
    x = np.linspace(0.25, 0.75, got.size)
    np.testing.assert_allclose(got, sum(np.exp(x + i / 64) for i in range(EVALUATED // got.size)), rtol=1e-5)


def test_rows_begin_with_what_backends_make_ready_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: the products of matrices were compiled in the seconds that a row has for its search."""
    made, ready = list[frozenset[str]](), NativeBackend.ready

    def noted(self: NativeBackend, dtypes: Collection[str]) -> None:
        made.append(frozenset(dtypes))
        ready(self, dtypes)

    monkeypatch.setattr(NativeBackend, "ready", noted)
    monkeypatch.setenv("WAXEQ_CACHE", "")
    row.install(str(tmp_path))
    assert made and {"float32", "float64"} <= made[0]
