"""Copies of parts go where those who read them can read the part itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import waxeq as wx
from waxeq.backend.call import sharing


@pytest.fixture
def options(tmp_path: Path) -> wx.Options:
    return wx.Options.of(table=tmp_path / "t.duckdb", trial=False, measure=False, threads=1, budget="10s")


def filtered(x: np.ndarray) -> np.ndarray:
    y = np.zeros_like(x)
    for i in range(2, len(x)):
        y[i] = 0.2 * x[i] + 0.3 * x[i - 1] + 0.2 * x[i - 2] + 0.4 * y[i - 1] - 0.3 * y[i - 2]
    return y


def test_elements_of_an_input_are_read_where_they_are(options: wx.Options) -> None:
    """Each was copied by NumPy first, between steps of C: a filter of a thousand steps took 100 times as long."""
    x = np.random.default_rng(0).standard_normal(300)
    result = wx.optimize(filtered, x, options=options)
    assert not [s for s in result.plan.steps if s.call.meaning.head == "In"]
    assert {o.offset for s in result.plan.steps for n, o in zip(s.reads, s.call.operands, strict=True) if n == "x"} == {
        *range(300)
    }
    several = [s for s in result.plan.steps if len({*s.reads}) < len(s.reads)]
    assert several and all(s.call.shared == sharing(s.reads) for s in result.plan.steps), (
        "as when the plan is read back"
    )
    assert not result.explain().notes, "every kernel is traced back to rules, of blocks that have the copies"
    np.testing.assert_allclose(result.program(x), filtered(x), rtol=1e-12)


def test_a_part_that_is_a_result_is_copied(options: wx.Options) -> None:
    x = np.random.default_rng(1).standard_normal(300)

    def model(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return filtered(x), x[7:11]

    result = wx.optimize(model, x, options=options)
    made, part = result.program(x)
    np.testing.assert_allclose(made, filtered(x), rtol=1e-12)
    np.testing.assert_array_equal(part, x[7:11])
