"""The whole way: a function goes in, a checked plan comes out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from waxeq.compile import optimize
from waxeq.errors import UsageError
from waxeq.options import Options
from waxeq.search.result import Result

pytestmark = pytest.mark.shipped


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("table") / "timings.duckdb"


def optimized(table: Path, fn, *arrays: np.ndarray, **named: np.ndarray) -> Result:
    return optimize(fn, *arrays, options=Options.of(table=table, trial=False), weights=tuple(named), **named)


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def test_chain_is_reassociated(table: Path) -> None:
    a, b, v = random(600, 500), random(500, 400), random(400)
    result = optimized(table, lambda a, b, v: a @ b @ v, a, b, v)
    assert [s.call.out.elements for b in result.blocks for s in b.plan.steps] == [500, 600]
    expected = a.astype(np.float64) @ b @ v
    np.testing.assert_allclose(result.program(a, b, v), expected, rtol=1e-4, atol=1e-3)


def test_program_takes_new_arrays(table: Path) -> None:
    def model(x, w1, b1, w2):
        return np.maximum(x @ w1 + b1, 0) @ w2

    w = {"w1": random(30, 40), "b1": random(40), "w2": random(40, 5)}
    result = optimized(table, model, random(7, 30), **w)
    for seed in range(3):
        x = np.random.default_rng(seed).standard_normal((7, 30)).astype(np.float32)
        np.testing.assert_allclose(result.program(x), model(x, **w), rtol=1e-4, atol=1e-4)


def test_examples_that_do_not_fit_are_refused() -> None:
    with pytest.raises(UsageError, match="do not fit"):
        optimize(lambda x: x + 1, random(2), random(2))
