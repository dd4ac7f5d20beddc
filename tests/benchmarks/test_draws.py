"""The error of a result that is one number: over several draws of the arguments."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from benchmarks.draws import error_of_draws
from benchmarks.workload import Arguments, Workload

pytestmark = pytest.mark.quick

WORKLOAD = Workload("sum", lambda x, w: x.sum(), dict, weights=frozenset({"w"}), draws=5)


def arguments() -> dict[str, Any]:
    return {"x": np.arange(12.0).reshape(3, 4), "w": {"a": np.arange(3.0)}}


def test_it_is_the_root_mean_square_over_other_orders_of_the_same_numbers() -> None:
    given, seen = arguments(), []
    before = given["x"].copy()
    errors = iter((3.0, 0.0, 0.0, 0.0, 4.0))

    def error(result: Any, now: Arguments) -> float:
        assert result == now["x"][0, 0]
        seen.append((now["x"].copy(), now["w"]["a"].copy()))
        return next(errors)

    assert error_of_draws(WORKLOAD, given, lambda: given["x"][0, 0], error) == pytest.approx(math.sqrt(25 / 5))
    np.testing.assert_array_equal(given["x"], before)
    np.testing.assert_array_equal(seen[0][0], before)
    assert len({x.tobytes() for x, _ in seen}) == 5
    for x, w in seen:
        np.testing.assert_array_equal(np.sort(x, axis=None), np.sort(before, axis=None))
        np.testing.assert_array_equal(w, np.arange(3.0))


def test_arguments_are_as_before_whatever_a_call_raises() -> None:
    given, calls = arguments(), iter((1, 1))
    with pytest.raises(StopIteration):
        error_of_draws(WORKLOAD, given, lambda: next(calls), lambda result, now: 0.0)
    np.testing.assert_array_equal(given["x"], arguments()["x"])
