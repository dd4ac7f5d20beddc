"""Whole plans on the simulated device: from a function to a program, with everything that checks one on a CPU."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import waxeq as wx
from waxeq.backend.kernel import prepare
from waxeq.compile import optimize_traced
from waxeq.errors import WaxeqError
from waxeq.events import Events
from waxeq.frontend.trace import trace
from waxeq.plan.plan import Plan
from waxeq.search.session import Session
from waxeq.testing.planned import Planner, errors
from waxeq.testing.programs import random_program

LARGE = "minilm"
"""The example that would take too long here."""
EXAMPLES = sorted(p.stem for p in (Path(__file__).parents[3] / "examples").glob("*.py") if p.stem != LARGE)


def _model(x: np.ndarray, gain: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    centred = x - x.mean(-1, keepdims=True)
    y = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * gain
    e = np.exp(y - y.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True), y.T + 1


def _inputs() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape, dtype=np.float32) for shape in ((40, 96), (96,))]


def test_a_plan_of_nothing_else_is_timed_proved_saved_and_run(installed: Path, tmp_path: Path) -> None:
    inputs = _inputs()
    options = wx.Options(table=tmp_path / "t.duckdb", backends=("cupy",), trial=False, algebra=False)
    result = wx.optimize(_model, *inputs, options=options)
    assert {s.call.kernel for s in result.plan.steps} == {"cupy.loops"}
    want = _model(*(x.astype(np.float64) for x in inputs))
    result.save(tmp_path / "model.plan.json")
    for program in (result.program, wx.load(tmp_path / "model.plan.json")):
        for got, w in zip(program(*inputs), want, strict=True):
            assert np.abs(got - w).max() < 1e-5


@pytest.fixture
def session(installed: Path, tmp_path: Path) -> Iterator[Session]:
    """For many models: by roofline, as times on a simulated device mean nothing."""
    named = ("cupy", "numpy")
    options = wx.Options(table=tmp_path / "t.duckdb", backends=named, trial=False, cost="roofline", budget=None)
    with Session.open(options, Events()) as found:
        yield found


@pytest.mark.slow
def test_examples_run(session: Session, load_example: Callable[[str], ModuleType]) -> None:
    """At smaller and ragged sizes. Plans are proved against float64 as any other."""
    kernels: Counter[str] = Counter()
    for name in EXAMPLES:
        example = load_example(name)
        for constant, size in vars(example).items():
            if constant.isupper() and isinstance(size, int) and size > 64:
                setattr(example, constant, 33 + size // 32)
        result = optimize_traced(session, trace(example.model, example.example_inputs(), name=name))
        assert not result.report.notes, "the plan is not what was to be tested"
        assert all(a.plan[1] < 1e-5 for a in result.report.accuracy), name
        kernels.update(s.call.kernel for s in result.plan.steps)
    assert {"cupy.loops", "cupy.attention"} <= kernels.keys()
    assert kernels["cupy.gemm"] + kernels["cupy.gemv"] > 5, kernels


@pytest.mark.slow
def test_random_plans_of_all_backends_are_right(installed: Path) -> None:
    programs = [random_program(random.Random(7000 + i), (10, 40)) for i in range(18)]
    with Planner.open() as planner:
        plans: list[Plan] = []
        for i, part in enumerate(planner.saturated(programs)):
            plans.append(planner.plan(part, random.Random(i)))
        steps = [s for p in plans for s in p.steps]
        own = sum(s.call.kernel == "cupy.loops" for s in steps)
        assert own > 20, "few kernels prove little"
        with suppress(WaxeqError):  # whose fault that is shows when each is run
            prepare((planner.kernels[s.call.kernel], s.call) for s in steps)
        for i, (program, plan) in enumerate(zip(programs, plans, strict=True)):
            assert not errors(program, plan, planner.kernels), f"seed {7000 + i}"
