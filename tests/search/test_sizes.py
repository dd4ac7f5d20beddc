"""Plans for ranges of sizes: right at every size, at edges of intervals above all, and nothing compiled on the way."""

from __future__ import annotations

import copy
import pickle
import subprocess
import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import waxeq as wx
from waxeq.backend.discover import backends, kernels
from waxeq.compile import optimize_family
from waxeq.errors import PlanError, TypeMismatch, UnsupportedError, UsageError, WaxeqError
from waxeq.events import Events
from waxeq.memory.estimate import plan_estimate
from waxeq.memory.liveness import ALIGN
from waxeq.runtime.arena import Arena
from waxeq.runtime.handover import handed
from waxeq.search import sized_trial
from waxeq.search.curves import Contender, grid_of, intervals
from waxeq.search.result import Trial
from waxeq.search.sizes import SizedResult
from waxeq.symbolic.dims import Dim, dims_of
from waxeq.symbolic.family import Family, examples_of
from waxeq.symbolic.file import encode_sized
from waxeq.symbolic.offsets import Place
from waxeq.symbolic.peak import peak_at, peaks
from waxeq.symbolic.plan import UNTIMED, Point, SizedPlan, compiles, of_ranges

Sizes = Mapping[str, int]
RNG = np.random.default_rng(3)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def softmax_mlp(x, w, b):
    h = np.maximum(x @ w + b, 0)
    e = np.exp(h - h.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attention(x, mask):
    s = np.einsum("bte,bse->bts", x, x) / np.sqrt(np.float32(x.shape[2])) + mask
    e = np.exp(s - s.max(-1, keepdims=True))
    y = (e / e.sum(-1, keepdims=True)) @ x
    return {"mean": y.mean(1), "last": y[:, -1], "flat": (2 * y).reshape(x.shape[0] * x.shape[1], x.shape[2])}


def causal(x):
    n = np.arange(x.shape[0])
    kept = np.where(n[:, None] >= n[None, :], x @ x.T, np.float32(0))
    return kept.sum(-1), np.concatenate([x[1:], x[:1] * 2], axis=0)


def heads(x, w):
    """One tensor is read twice by a product, along axes that are of a name each."""
    y = (x @ w).reshape(x.shape[0], x.shape[1], 2, 8).transpose(0, 2, 1, 3)
    s = y @ y.transpose(0, 1, 3, 2)
    e = np.exp(s - s.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True) @ y).transpose(0, 2, 1, 3).reshape(x.shape)


def bordered(x):
    """Three pieces beside each other: what lies between two of the joins is no value of the model."""
    y = np.pad(x, ((1, 1), (0, 0)), mode="edge")
    y = 0.25 * y[:-2] + 0.5 * y[1:-1] + 0.25 * y[2:]
    return np.concatenate([y[:1], y, y[-1:]]), np.pad(y, 2, mode="symmetric")


Model = tuple[Callable[..., Any], Callable[..., Mapping[str, Any]], dict[str, tuple[int, int]], tuple[str, ...]]
"""A function, examples of its arguments at any sizes, its dims, its weights."""
MODELS: dict[str, Model] = {
    "softmax_mlp": (
        softmax_mlp, lambda T: {"x": floats(T, 24), "w": floats(24, 16), "b": floats(16)}, {"T": (1, 200)}, ("w", "b")
    ),
    "attention": (
        attention, lambda T, B: {"x": floats(B, T, 8), "mask": np.zeros((T, T), "f")}, {"T": (1, 48), "B": (1, 5)}, ()
    ),
    "heads": (heads, lambda T: {"x": floats(2, T, 16), "w": floats(16, 16) / 4}, {"T": (1, 60)}, ("w",)),
    "causal": (causal, lambda T: {"x": floats(T, 6)}, {"T": (2, 70)}, ()),
    "bordered": (bordered, lambda T: {"x": floats(T, 6)}, {"T": (5, 40)}, ()),
}  # fmt: skip


@pytest.fixture(scope="module")
def optimized(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[SizedResult, Mapping[str, Any]]]:
    """Results by name of the model, with its weights; each is searched once."""
    known: dict[str, tuple[SizedResult, Mapping[str, Any]]] = {}
    table = tmp_path_factory.mktemp("sizes") / "t.duckdb"

    def get(name: str) -> tuple[SizedResult, Mapping[str, Any]]:
        if name not in known:
            fn, examples, dims, weights = MODELS[name]
            options = wx.Options(table=table, trial=False, measure=False, cost="roofline", polish=False)
            result = wx.optimize(fn, examples=examples, dims=dims, weights=weights, options=options)
            known[name] = (result, result.tensors)
        return known[name]

    return get


def call(name: str, result: SizedResult, weights: Mapping[str, Any], sizes: Sizes) -> None:
    """A call at some sizes, held against the function itself in float64."""
    fn, examples, _, _ = MODELS[name]
    given = {k: v for k, v in examples(**sizes).items() if k not in weights}
    got = result.program(**given)
    want = fn(**{k: np.asarray(v, np.float64) for k, v in {**given, **weights}.items()})
    for g, w in zip(flat(got), flat(want), strict=True):
        assert g.shape == w.shape and g.dtype == np.float32
        assert np.abs(g - w).max(initial=0) <= 2e-5 * max(1.0, float(np.abs(w).max(initial=0)))


def flat(x: Any) -> list[np.ndarray]:
    return list(x.values()) if isinstance(x, dict) else list(x) if isinstance(x, tuple) else [x]


models = pytest.mark.parametrize("name", MODELS, scope="module")
"""Tests of one model come one after another, so that one of several processes has most of them, and searches once."""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["heads"], scope="module")
def test_what_is_found_at_one_size_holds_at_all(name: str, optimized: Callable[[str], Any]) -> None:
    result, _ = optimized(name)
    assert result.report.contenders > 1  # the model as written, and plans that are found at three sizes
    assert not [n for n in result.report.notes if "holds there only" in n or "left out" in n]


@pytest.mark.slow
@models
def test_results_are_right_at_every_edge(name: str, optimized: Callable[[str], Any]) -> None:
    result, weights = optimized(name)
    assert any(not i.plan.as_written for i in result.intervals)
    for i in result.intervals:
        for sizes in i.box.corners():
            call(name, result, weights, sizes)


@pytest.mark.slow
@models
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_results_are_right_at_any_size(name: str, data: st.DataObject, optimized: Callable[[str], Any]) -> None:
    result, weights = optimized(name)
    sizes = {n: data.draw(st.integers(a, b), label=n) for n, (a, b) in MODELS[name][2].items()}
    call(name, result, weights, sizes)


@pytest.mark.slow
@models
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_plans_are_whole_at_any_size(name: str, data: st.DataObject, optimized: Callable[[str], Any]) -> None:
    """At every size of every interval, not of the program: buffers apart, views inside them, kernels that take them."""
    result, _ = optimized(name)
    i = data.draw(st.sampled_from(result.intervals))
    sizes = {n: data.draw(st.integers(a, b), label=n) for n, (a, b) in i.box.ranges.items()}
    plan = i.plan.at(sizes, result.kernels)
    assert plan.check() and plan.graph.check()


@pytest.mark.slow
@models
def test_peaks_are_functions_of_the_sizes(name: str, optimized: Callable[[str], Any]) -> None:
    """As much as the formulas say, but for what is rounded up and inputs that are small enough to be copied at these
    sizes: nowhere more, and at the greatest sizes not less."""
    result, _ = optimized(name)
    for i in result.intervals:
        formulas = peaks(i, result.plans.dims, result.kernels)
        rounded = 0 if i.plan.as_written else ALIGN * len(i.plan.order)
        corners = i.box.corners()
        for sizes in (*corners, {n: (a + b) // 2 for n, (a, b) in i.box.ranges.items()}):
            found = plan_estimate(i.plan.at(sizes, result.kernels))
            most, copied = found.peak_bytes, found.resident.get("copies of inputs", 0)
            assert most <= peak_at(formulas, sizes) + rounded + copied, sizes
            assert sizes != corners[-1] or peak_at(formulas, sizes) <= most


@pytest.mark.slow
@models
def test_intervals_cover_the_range_once(name: str, optimized: Callable[[str], Any]) -> None:
    result, _ = optimized(name)
    every: list[Sizes] = [{}]
    for n, (a, b) in MODELS[name][2].items():
        every = [{**s, n: i} for s in every for i in range(a, b + 1)]
    assert all(sum(s in i.box for i in result.intervals) == 1 for s in every)


@pytest.mark.slow
def test_nothing_is_compiled_or_searched_when_a_size_changes(
    optimized: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    result, weights = optimized("softmax_mlp")
    for i in result.intervals:
        call("softmax_mlp", result, weights, i.box.corners()[0])

    def never(*args: object, **more: object) -> None:
        raise AssertionError("something was started")

    monkeypatch.setattr(subprocess, "Popen", never)
    monkeypatch.setattr("waxeq.search.session.Session.open", never)
    for t in range(1, 201, 7):
        call("softmax_mlp", result, weights, {"T": t})


@pytest.mark.slow
def test_a_saved_plan_runs_at_any_size(optimized: Callable[[str], Any], tmp_path: Path) -> None:
    result, _weights = optimized("attention")
    path = tmp_path / "a.plan.json"
    result.save(path)
    program = wx.load(path)
    x, mask = floats(3, 17, 8), np.zeros((17, 17), np.float32)
    for a, b in zip(flat(program(x, mask)), flat(result.program(x, mask)), strict=True):
        assert np.array_equal(a, b)
    assert path.read_text() == (result.save(path), path.read_text())[1], "written alike each time"


@pytest.mark.slow
def test_a_trial_takes_plans_and_arrays_as_they_are_handed_over(optimized: Callable[[str], Any]) -> None:
    """Plan and model as written run at each of the sizes, in whatever process; constants of a model are among them."""
    result, _weights = optimized("causal")
    places = [{"T": 2}, {"T": 70}]
    given = {f"{n}:x": MODELS["causal"][1](**s)["x"] for n, s in enumerate(places)}
    groups = {"weight": result.tensors, "constant": result.plans.constants, "input": given}
    with handed(groups) as arrays:
        rows = sized_trial.contest(arrays, encode_sized(result.plans), places, 0.0)
    assert len(rows) == 2 and all(r.plan > 0 and r.written > 0 for r in rows)


@pytest.mark.slow
def test_what_does_not_fit_is_one_sentence(optimized: Callable[[str], Any]) -> None:
    program = optimized("attention")[0].program
    with pytest.raises(TypeMismatch, match="T is 49 in input 'x', the plan is for 1 to 48"):
        program(floats(2, 49, 8), floats(49, 49))
    with pytest.raises(TypeMismatch, match="T is 7 in input 'x' and 8 in axis 0 of input 'mask'"):
        program(floats(2, 7, 8), floats(8, 8))
    with pytest.raises(TypeMismatch, match="no array was given for input 'mask'"):
        program(floats(2, 7, 8))
    with pytest.raises(TypeMismatch, match="float64"):
        program(floats(2, 7, 8).astype(np.float64), floats(7, 7))


@pytest.mark.slow
def test_memory_is_used_again_from_size_to_size(optimized: Callable[[str], Any]) -> None:
    result, _weights = optimized("softmax_mlp")
    program = result.program
    big, small = floats(200, 24), floats(3, 24)
    first = program(big)
    kept = first.copy()
    program(small)
    assert np.array_equal(first, kept), "a result belongs to its caller"
    assert program.program([(200, 24)]).arena is program.program([(3, 24)]).arena


@pytest.mark.slow
def test_a_larger_arena_takes_the_place_of_the_smaller_one(
    optimized: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both were there for a moment: a size whose own arena fits into the machine was refused after a smaller one."""
    program, live, made = copy.copy(optimized("softmax_mlp")[0].program), weakref.WeakSet[Arena](), Arena.__init__
    most = copy.copy(program).program([(200, 24)]).plan.arena_bytes

    def noted(self: Arena, size: int, limit: int | None = None) -> None:
        made(self, size, limit)
        live.add(self)

    monkeypatch.setattr(Arena, "__init__", noted)
    monkeypatch.setattr("waxeq.runtime.arena.available", lambda: most - sum(a.bytes for a in live))
    for size in (100, 200, 100):
        assert program(floats(size, 24)).shape == (size, 16)
    assert sum(a.bytes for a in live) == most


@pytest.mark.slow
@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))])
def test_a_copy_has_memory_of_its_own(way: Callable[[Any], Any], optimized: Callable[[str], Any]) -> None:
    program = optimized("softmax_mlp")[0].program
    xs = [floats(40, 24), floats(7, 24)]
    want = [program(x) for x in xs]
    again = way(program)
    for x, y in zip(xs, want, strict=True):
        np.testing.assert_array_equal(again(x), y)
    assert again.program([(40, 24)]).arena is not program.program([(40, 24)]).arena


@pytest.mark.slow
def test_two_threads_in_one_program_are_told_so(optimized: Callable[[str], Any], monkeypatch: Any) -> None:
    """Programs of two sizes lie in one arena: neither knows of the other."""
    program = optimized("softmax_mlp")[0].program
    inside, leave, found = threading.Event(), threading.Event(), list[np.ndarray]()

    def slow(args: Any) -> None:
        inside.set()
        leave.wait(60)

    program(floats(5, 24))
    monkeypatch.setattr(program, "_met", slow)
    other = threading.Thread(target=lambda: found.append(program(floats(5, 24))))
    other.start()
    assert inside.wait(60)
    with pytest.raises(UsageError, match=r"copy\.copy\(program\)"):
        program(floats(9, 24))
    leave.set()
    other.join()
    assert found[0].shape[0] == 5


def chosen(x, last):
    return np.tanh(x)[last] + x.sum(0)


@pytest.mark.slow
def test_a_trial_has_the_inputs_of_each_size(tmp_path: Path) -> None:
    """An index that depends on the size is not that of another one."""
    options = wx.Options.of(table=tmp_path / "t.duckdb", budget="40s", threads=1)

    def examples(T: int) -> Mapping[str, Any]:
        return {"x": floats(T, 64), "last": np.array([T - 1])}

    dims = dims_of({"T": (1, 300)})
    family = Family(chosen, dims, examples_of(chosen, examples, dims), frozenset(), "chosen", None)
    result = optimize_family(options, Events(), family)
    for t in (1, 150, 300):
        given = examples(t)
        np.testing.assert_allclose(result.program(**given), chosen(**given), rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("strict", [False, True])
def test_a_trial_that_no_process_can_hold_costs_no_plan(
    strict: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that ended, or had no room for the arrays, ended the search, and what it had found was lost."""

    def died(*_: object, **__: object) -> None:
        raise WaxeqError("the timing process died: signal 9")

    monkeypatch.setattr(sized_trial, "in_fresh_process", died)
    options = wx.Options.of(table=tmp_path / "t.duckdb", budget="60s", threads=1, strict=strict)
    dims, x = {"T": (1, 300, {"x": 0})}, floats(300, 64)
    if strict:
        with pytest.raises(WaxeqError, match="signal 9"):
            wx.optimize(lambda x: np.tanh(x) * 2 + 1, x, options=options, dims=dims)
        return
    result = wx.optimize(lambda x: np.tanh(x) * 2 + 1, x, options=options, dims=dims)
    assert any("signal 9" in text for text in result.report.notes) and "speed" not in repr(result)
    tried = tuple(sized_trial.SizedTrial({"T": t}, Trial(1.0, r, r, r, r, "faster")) for t, r in ((1, 1.5), (300, 4.0)))
    told = repr(replace(result, report=replace(result.report, trials=tried)))
    many = f"{len(result.intervals)} interval{'s' * (len(result.intervals) > 1)}"  # as kernels happened to be timed
    assert f"{many}, 1.50x to 4.00x the speed of the model as written; .program" in told
    np.testing.assert_allclose(result.program(x[:7]), np.tanh(x[:7]) * 2 + 1, rtol=1e-4, atol=1e-4)


def both_sums(x):
    return x.sum(0), x.max(0)


def branched(x, w):
    a = np.tanh(x)
    return a @ w, x.max(1), (a * a).sum(1)


@pytest.mark.slow
@pytest.mark.parametrize(("fn", "more"), [(both_sums, ()), (branched, (floats(64, 8),))])
def test_plans_hold_where_steps_may_run_side_by_side(
    fn: Any, more: tuple[Any, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what is large is walked through once: the steps of a plan, and how long their memory is needed, are those
    of all sizes."""
    monkeypatch.setattr("waxeq.plan.compose.BESIDE", 1 << 16)
    options = wx.Options.of(table=tmp_path / "t.duckdb", trial=False, measure=False, threads=2)
    weights = ["w"] if more else []
    result = wx.optimize(fn, floats(2000, 64), *more, weights=weights, dims={"T": (1, 4096, {"x": 0})}, options=options)
    assert not any(i.plan.as_written for i in result.intervals), result.report.notes
    for t in (1, 100, 300, 4096):
        x = floats(t, 64)
        for got, want in zip(result.program(x), fn(x.astype(np.float64), *more), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_states_and_dims_nobody_has_are_refused(tmp_path: Path) -> None:
    def counted(x: wx.Input["f32", "T"], n: wx.State["f32", 1]):  # noqa: F821, UP037
        n += 1
        return x * n

    options = wx.Options(table=tmp_path / "t.duckdb", trial=False, measure=False)
    with pytest.raises(UnsupportedError, match="states"):
        wx.optimize(counted, dims={"T": (1, 8)}, options=options)
    with pytest.raises(UsageError, match="no input has an axis of size Q"):
        wx.optimize(counted, dims={"Q": (1, 8)}, options=options)
    with pytest.raises(WaxeqError, match="range"):
        wx.optimize(counted, dims={"T": (9, 8)}, options=options)


@pytest.mark.slow
def test_a_place_that_lies_in_another_part_at_some_sizes(tmp_path: Path) -> None:
    """The plan of other sizes has no such place at T = 1, and its IndexError was that of the search."""

    def second(x: wx.Input["f32", "T"]):  # noqa: F821, UP037
        return np.concatenate([x, x * 2])[1]

    found = wx.optimize(
        second, dims={"T": (1, 64)}, options=wx.Options(table=tmp_path / "t.duckdb", trial=False, budget=1)
    )
    for t in (1, 2, 64):
        x = floats(t)
        assert found.program(x) == second(x)


@pytest.mark.slow
@pytest.mark.parametrize("measure", [True, False])
def test_a_model_that_does_not_run_at_some_sizes_says_where_and_why(measure: bool, tmp_path: Path) -> None:
    """Where no point was left to choose plans by, there was an error of `min`."""

    def columns(t: np.ndarray, i: np.ndarray) -> np.ndarray:
        return t[:, i] * 2

    options = wx.Options(table=tmp_path / "t.duckdb", trial=measure, measure=measure, threads=1, budget=4)
    with pytest.raises(WaxeqError, match=r"where T = .* index -20 is out of bounds"):
        wx.optimize(columns, floats(100, 64), np.arange(-20, 20), dims={"T": (1, 64, {"t": 1})}, options=options)


def test_kernels_that_compile_for_one_size_take_no_part() -> None:
    installed = kernels(backends())
    kept = of_ranges(installed)
    assert all(k is (installed[n].sized if compiles(installed[n]) else installed[n]) for n, k in kept.items())
    assert all(installed[n].sized is None and compiles(installed[n]) for n in installed.keys() - kept.keys())
    assert of_ranges(kept) == kept
    assert any(map(compiles, kept.values())) and not all(map(compiles, kept.values()))


# -- curves


def contender(name: str, curve: Mapping[int, float]) -> Contender:
    plan = SizedPlan({"name": name, "written": False, "steps": []}, ())
    return Contender(plan, {(t,): Point({"T": t}, s, "measured") for t, s in curve.items()})


@given(st.integers(1, 50), st.integers(2, 40))
@settings(deadline=None)
def test_switch_points_are_where_curves_cross(base: int, ratio: int) -> None:
    """A plan that takes base + t against one that takes ratio * t."""
    d = Dim("T", 1, 4096)
    grid = grid_of(d, 25)
    slow = contender("slow", {t: base * 50.0 + t for t in grid})
    steep = contender("steep", {t: ratio * float(t) for t in grid})
    found = intervals([d], [grid], [slow, steep])
    cross = base * 50.0 / (ratio - 1)
    for i in found:
        (a, b), who = i.box.ranges["T"], i.plan.data["name"]
        for t in (a, b):
            if t < cross / 1.6 or t > cross * 1.6:
                assert who == ("steep" if t < cross else "slow")
    assert next(i.box.ranges["T"][0] for i in found) == 1 and found[-1].box.ranges["T"][1] == 4096


def test_a_plan_that_does_not_run_at_an_edge_has_an_interval_without_it() -> None:
    d = Dim("T", 1, 100)
    grid = [1, 2, 10, 100]
    quick = contender("quick", {2: 1.0, 10: 1.0, 100: 1.0})
    safe = contender("safe", dict.fromkeys(grid, 5.0))
    found = intervals([d], [grid], [quick, safe])
    assert [(i.box.ranges["T"], i.plan.data["name"]) for i in found] == [((1, 1), "safe"), ((2, 100), "quick")]


def test_the_model_as_written_that_was_not_timed_has_no_times_in_reports() -> None:
    """They said 1,000 s, estimated, which stands for slower than all that was timed."""
    d, grid = Dim("T", 1, 100), [1, 100]
    row = contender("written", {})
    row = replace(row, curve={(t,): Point({"T": t}, 1e3, UNTIMED) for t in grid})
    (found,) = intervals([d], [grid], [row])
    assert found.curve == () and found.predicted({"T": 1}) is None


def test_a_gain_that_is_noise_is_no_switch() -> None:
    d = Dim("T", 1, 100)
    grid = [1, 10, 50, 100]
    a = contender("a", {1: 1.0, 10: 1.0, 50: 1.01, 100: 1.0})
    b = contender("b", {1: 1.02, 10: 1.01, 50: 1.0, 100: 1.02})
    assert len(intervals([d], [grid], [a, b])) == 1


def test_boxes_of_two_dims() -> None:
    dims = [Dim("T", 1, 64), Dim("B", 1, 16)]
    grids = [[1, 8, 64], [1, 4, 16]]
    points = [(t, b) for t in grids[0] for b in grids[1]]

    def made(name: str, f: Callable[[int, int], float]) -> Contender:
        plan = SizedPlan({"name": name, "written": False, "steps": []}, ())
        return Contender(plan, {p: Point({"T": p[0], "B": p[1]}, f(*p), "measured") for p in points})

    found = intervals(dims, grids, [made("wide", lambda t, b: 20.0 + t), made("deep", lambda t, b: 3.0 * t)])
    assert len(found) == 2 and all(i.box.ranges["B"] == (1, 16) for i in found)
    assert [i.plan.data["name"] for i in found] == ["deep", "wide"]


@pytest.mark.slow
def test_a_plan_that_is_wrong_anywhere_is_used_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A number that is not found to be a dim (1/T, say) makes a plan that is right at one size only."""
    monkeypatch.setattr("waxeq.search.lifting._Numbers.number", lambda self, v: v)

    def centred(x):
        return x - x.sum(0) * np.float32(1 / x.shape[0])

    options = wx.Options(table=tmp_path / "t.duckdb", trial=False, measure=False, cost="roofline", polish=False)
    result = wx.optimize(centred, floats(4, 3), dims={"T": (2, 60, {"x": 0})}, options=options)
    assert all(i.plan.as_written for i in result.intervals)
    assert any("used at no size" in n and "relative RMS error" in n for n in result.report.notes)
    x = floats(11, 3)
    assert np.allclose(result.program(x), centred(x), atol=1e-6)


@pytest.mark.slow
def test_no_budget_still_gives_a_plan(tmp_path: Path) -> None:
    options = wx.Options(table=tmp_path / "t.duckdb", budget=0)
    result = wx.optimize(lambda x: np.tanh(x).sum(-1), floats(4, 3), dims={"T": (1, 60, {"x": 0})}, options=options)
    x = floats(60, 3)
    np.testing.assert_allclose(result.program(x), np.tanh(x).sum(-1), rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_another_kernel_takes_a_call_that_is_too_small_for_its_own(tmp_path: Path) -> None:
    options = wx.Options(table=tmp_path / "t.duckdb", trial=False, measure=False, cost="roofline", polish=False)
    result = wx.optimize(
        lambda x: np.tanh(x).sum(-1), examples=lambda T: {"x": floats(T, 6)}, dims={"T": (1, 60)}, options=options
    )
    sizes = {"T": 2}
    plan = next(i.plan for i in result.intervals if not i.plan.as_written)
    before = plan.at(sizes, result.kernels)
    small = next(s.call for s in before.steps if result.kernels[s.call.kernel].form == "loops")
    large = next(n for n, k in result.kernels.items() if k.form == "loops" and not k.accepts(replace(small, kernel=n)))
    steps = [{**s, "kernel": large if s["kernel"] == small.kernel else s["kernel"]} for s in plan.data["steps"]]
    apart = tuple(Place((n,), tuple(range(i))) for i, n in enumerate(n for p in plan.order for n in p.buffers))
    other = replace(plan, data={**plan.data, "steps": steps}, order=apart)
    taken = other.at(sizes, result.kernels).steps
    assert [s.call.meaning for s in taken] == [s.call.meaning for s in before.steps]
    assert all(result.kernels[s.call.kernel].accepts(s.call) for s in taken)
    without = {n: k for n, k in result.kernels.items() if k.form != "loops" or compiles(k) or n == large}
    with pytest.raises(PlanError, match=f"kernel {large} does not take its call where T = 2"):
        other.at(sizes, without)


def test_notes_of_the_trace_are_among_those_of_the_plans(tmp_path: Path) -> None:
    """None of them was told, of Python numbers or of what the model leaves behind."""
    kept: dict[str, Any] = {}

    def model(x: Any, k: float) -> Any:
        kept["x"] = x
        return x * k

    options = wx.Options(table=tmp_path / "t.duckdb", budget=0, trial=False, measure=False)
    result = wx.optimize(
        model, examples=lambda T: {"x": np.ones((T, 3), "f4"), "k": 2.0}, dims={"T": (1, 4)}, options=options
    )
    assert not kept
    for said in ("argument k = 2.0 is a Python number", "the model leaves what it computed in kept.x"):
        assert sum(n.startswith(said) for n in result.report.notes) == 1
