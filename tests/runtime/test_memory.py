"""What a program takes is what its plan says: counted by tracemalloc in NumPy's domain, while it is bound and runs."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from waxeq.compile import optimize
from waxeq.errors import BudgetError
from waxeq.memory.estimate import COPIED, plan_estimate
from waxeq.options import Options
from waxeq.runtime.arena import PAGE
from waxeq.runtime.program import Program
from waxeq.search.result import Result

SLACK = 64 << 10
"""Bytes of Python objects that a call makes and drops; every intermediate of the examples is many times larger."""


@pytest.fixture(scope="module", params=["mlp", "attention"])
def found(
    request: pytest.FixtureRequest, load_example: Callable[[str], ModuleType], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Result, Mapping[str, np.ndarray]]:
    """A plan for an example, and inputs for it."""
    example = load_example(request.param)
    inputs = example.example_inputs()
    options = Options.of(table=tmp_path_factory.mktemp("table") / "t.duckdb", threads=1, trial=False, measure=False)
    weights = getattr(example, "WEIGHTS", ())
    result = optimize(example.model, weights=weights, options=options, **inputs)
    assert not result.plan.written and result.plan.steps
    return result, {n: a for n, a in inputs.items() if n not in weights}


def in_numpy() -> int:
    """Bytes of array data that are traced and alive."""
    domain = tracemalloc.DomainFilter(True, np.lib.tracemalloc_domain)
    return sum(t.size for t in tracemalloc.take_snapshot().filter_traces([domain]).traces)


@pytest.fixture
def traced() -> Any:
    tracemalloc.start()
    yield
    tracemalloc.stop()


def test_a_program_takes_what_its_plan_says(found: tuple, traced: None) -> None:
    result, inputs = found
    stated = plan_estimate(result.plan)
    before = in_numpy()
    program = Program(result.plan, result.kernels, result.tensors)
    held = program(**inputs)
    taken = in_numpy() - before
    own = ("folded weights", "packed weights", "copies of inputs", "results")
    assert program.arena.bytes == stated.arena_bytes
    counted = sum(stated.resident.get(kind, 0) for kind in own)
    pages = PAGE * len(result.plan.outputs)
    assert counted <= taken <= counted + pages + 1024, "beyond that, a few constants of one element"
    assert held is not None
    outside = sum(a.nbytes for a in (*inputs.values(), *result.tensors.values()))
    given = sum(stated.resident.get(kind, 0) for kind in ("inputs", "weights", "constants", "states"))
    assert given == outside + sum(a.nbytes for a in result.plan.graph.constants.values())
    assert stated.peak_bytes == program.arena.bytes + counted + given


def test_a_call_allocates_its_results_and_nothing_else(found: tuple, traced: None) -> None:
    result, inputs = found
    program = Program(result.plan, result.kernels, result.tensors)
    results = plan_estimate(result.plan).resident["results"]
    program(**inputs)
    for held in ([], [program(**inputs)]):
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(3):
            held.append(program(**inputs))
            del held[:-1]
        peak = tracemalloc.get_traced_memory()[1] - before
        assert peak <= 3 * results + SLACK, f"{peak} bytes for results of {results}"
    larger = [b.bytes for b in result.plan.buffers.values() if b.role == "temporary" and b.bytes > results]
    assert min(larger, default=4 * SLACK) > 3 * SLACK, "a temporary would go unnoticed"


def test_the_peak_names_what_it_is_made_of(found: tuple) -> None:
    result, inputs = found
    stated = plan_estimate(result.plan)
    assert stated.least_bytes <= stated.arena_bytes
    places = {result.plan.buffers[n].offset: size for n, size in reversed(stated.live)}  # in place: one place for two
    assert 0 < sum(places.values()) <= stated.arena_bytes
    assert [size for _, size in stated.live] == sorted((size for _, size in stated.live), reverse=True)
    copies = sum(a.nbytes for a in inputs.values() if a.nbytes <= COPIED)
    assert stated.resident.get("copies of inputs", 0) == copies


def test_a_plan_over_the_limit_is_refused_before_it_is_bound(found: tuple) -> None:
    result, _ = found
    stated = plan_estimate(result.plan)
    stated.require(stated.peak_bytes)
    with pytest.raises(BudgetError, match=r"the plan needs .* of memory and this machine has") as e:
        stated.require(stated.peak_bytes - 1)
    assert stated.live[0][0] in str(e.value) and e.value.exit_code == 7


def test_optimize_refuses_a_model_that_does_not_fit(tmp_path: Path) -> None:
    x = np.ones((512, 1024), np.float32)
    options = Options.of(table=tmp_path / "t.duckdb", threads=1, trial=False, measure=False, max_memory="1MiB")
    with pytest.raises(BudgetError, match="max_memory="):
        optimize(lambda x: np.exp(x) @ x.T, x, options=options)
