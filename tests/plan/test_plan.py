"""Plans: they survive being written, and they notice when they are wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from waxeq.backend.call import Call, View, operand
from waxeq.backend.kernel import BESIDE, Kernel
from waxeq.compile import optimize
from waxeq.cost.estimate import SOURCES
from waxeq.errors import PlanError
from waxeq.inspect.report import kernels
from waxeq.memory.plan import assign_plan
from waxeq.options import Options
from waxeq.plan import compose
from waxeq.plan.compose import in_place, lifetimes, side_by_side
from waxeq.plan.encode import decode, decode_rules, encode
from waxeq.plan.plan import Buffer, Plan, Step
from waxeq.runtime.program import Program
from waxeq.search.result import Result


def model(x, w, b, g):
    h = np.maximum(x @ w + b, 0)
    s = np.sqrt(np.mean(h * h, axis=-1, keepdims=True) + 1e-5)
    return {"y": h / s * g, "parts": (h[:, ::2], np.argmax(h, axis=1))}


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


ARRAYS = {"w": random(12, 10), "b": random(10), "g": random(10)}


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    table = tmp_path_factory.mktemp("table") / "t.duckdb"
    options = Options.of(table=table, trial=False, measure=False)
    return optimize(model, random(6, 12), weights=tuple(ARRAYS), options=options, **ARRAYS)


def test_a_plan_survives_being_written(result: Result) -> None:
    text = json.dumps(encode(result.plan), sort_keys=True)
    back = decode(json.loads(text), result.plan.graph.constants)
    assert json.dumps(encode(back), sort_keys=True) == text
    x = random(6, 12)
    again = Program(back.check(), result.kernels, result.tensors)(x)
    first = result.program(x)
    np.testing.assert_array_equal(again["y"], first["y"])
    assert [type(v) for v in again["parts"]] == [np.ndarray, np.ndarray]


def test_what_lies_outside_the_arena_is_found_once(result: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was for each buffer, which took seconds for hundreds of results."""
    asked, real = list[Plan](), compose.direct
    monkeypatch.setattr(compose, "direct", lambda plan: asked.append(plan) or real(plan))
    assert len(lifetimes(result.plan)) > 1 and len(asked) == 1


def test_a_runner_up_keeps_what_its_price_rests_on(result: Result) -> None:
    named = [s.runner_up for s in result.plan.steps if s.runner_up is not None]
    assert named and all(r.basis in SOURCES and r.seconds > 0 for r in named)
    back = decode(json.loads(json.dumps(encode(result.plan))), result.plan.graph.constants)
    assert [s.runner_up for s in back.steps] == [s.runner_up for s in result.plan.steps]


def test_a_plan_from_before_runner_ups_said_so_is_read(result: Result) -> None:
    data = json.loads(json.dumps(encode(result.plan)))
    for s in data["steps"]:
        s["runner_up"] = s["runner_up"] and s["runner_up"][:2]
    del data["about"]["search"]["rules"]
    back = decode(data, result.plan.graph.constants).check()
    assert [s.runner_up and s.runner_up.basis for s in back.steps] == [s.runner_up and "" for s in result.plan.steps]
    assert decode_rules(back.about) == ()
    assert {"not recorded"} == {k["runner_up"]["basis"] for k in kernels(back, {}) if k["runner_up"]}


def test_results_have_the_structure_of_the_model(result: Result) -> None:
    x = random(6, 12)
    got, want = result.program(x), model(x, **ARRAYS)
    np.testing.assert_allclose(got["y"], want["y"], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(got["parts"][0], want["parts"][0], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(got["parts"][1], want["parts"][1])
    assert got["parts"][1].dtype == want["parts"][1].dtype


def test_a_step_that_reads_too_early_is_noticed(tmp_path: Path) -> None:
    options = Options.of(table=tmp_path / "t.duckdb", trial=False, measure=False)
    plan = optimize(lambda x: np.cumsum(np.sort(x), axis=0), random(6, 12), options=options).plan  # no kernel does both
    with pytest.raises(PlanError, match="which nothing wrote before it"):
        replace(plan, steps=plan.steps[::-1]).check()


def test_a_result_that_nothing_writes_is_noticed(result: Result) -> None:
    with pytest.raises(PlanError, match=r"nothing writes output|nothing wrote before"):
        replace(result.plan, steps=result.plan.steps[:-1]).check()


def test_a_view_outside_its_buffer_is_noticed(result: Result) -> None:
    step = result.plan.steps[0]
    name = step.writes
    small = {**result.plan.buffers, name: replace(result.plan.buffers[name], elements=1)}
    with pytest.raises(PlanError, match="outside buffer"):
        replace(result.plan, buffers=small).check()


def test_memory_is_assigned_the_same_each_time(result: Result) -> None:
    bare = {n: replace(b, offset=None) for n, b in result.plan.buffers.items()}
    plans: list[Plan] = [assign_plan(replace(result.plan, buffers=bare), result.kernels) for _ in range(2)]
    assert plans[0] == plans[1] and plans[0].arena_bytes == result.plan.arena_bytes


def test_every_step_says_where_it_comes_from(result: Result) -> None:
    here = Path(__file__).name
    assert all(s.predicted > 0 and s.basis in ("measured", "fitted", "roofline") for s in result.plan.steps if s.basis)
    assert any(place.startswith(here) for s in result.plan.steps for place in s.sources)


def test_readers_of_a_large_buffer_follow_each_other() -> None:
    """Only neighbours are one loop: what reads a result of the first would stand between them."""

    def step(writes: str, *reads: str) -> Any:
        return SimpleNamespace(writes=writes, reads=reads)

    def order(*steps: Any) -> list[str]:
        return [s.writes for s in side_by_side(steps, buffers)]

    sizes = {"x": BESIDE, "w": BESIDE, "s": 8, "a": 8, "b": 8, "c": 8, "d": 8}
    buffers: Any = {n: SimpleNamespace(bytes=size) for n, size in sizes.items()}
    a, b, c = step("a", "x", "s"), step("b", "a"), step("c", "x", "s")
    assert order(a, b, c) == ["a", "c", "b"]
    assert order(a, b, step("c", "b", "x")) == ["a", "b", "c"], "it needs what stands between"
    assert order(a, b, step("c", "w"), step("d", "x")) == ["a", "d", "b", "c"]
    assert order(step("a", "s"), step("b", "a"), step("c", "s")) == ["a", "b", "c"], "small ones stay as they are"


def test_what_a_neighbour_in_a_shared_walk_reads_is_not_written_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("waxeq.plan.compose.BESIDE", 64)
    view = View.dense("i", {"i": 100}, "float32")
    call = Call("k", operand(0, "i", "float32"), {"i": 100}, (view,), view)
    kernels: Any = {"k": SimpleNamespace(in_place=lambda call: (0,), together=Kernel.together)}

    def pairs(*steps: tuple[str, str], beside: bool = True) -> list[tuple[str, str]]:
        buffers = {n: Buffer(n, "float32", 100, "input" if n == "x" else "temporary") for s in steps for n in s}
        ends: Any = [SimpleNamespace(buffer=n) for n in "uv" if n in buffers]
        rows = tuple(Step(call, (reads,), writes) for reads, writes in steps)
        plan: Any = SimpleNamespace(steps=rows, buffers=buffers, outputs=ends, states=())
        return in_place(plan, kernels, beside=beside)

    made, other, last = ("x", "t"), ("t", "u"), ("t", "v")
    assert pairs(made, last) == [("v", "t")]
    assert pairs(made, other, last) == []
    assert pairs(made, other, last, beside=False) == [("v", "t")], "one after another, nobody reads it any more"
