"""Two moods in the samples of one timing: seen where there are two, and not where there is one with a tail."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from waxeq.cost.modes import FEWEST, dip, doubtful, modes

pytestmark = pytest.mark.quick
STATFACULTY = [
    30, 33, 35, 36, 37, 37, 39, 39, 39, 39, 39, 40, 40, 40, 40, 41, 42, 43, 43, 43, 44, 44, 45, 45, 46, 46, 47, 47, 48,
    48, 48, 49, 50, 50, 51, 52, 52, 53, 53, 53, 53, 53, 54, 54, 57, 57, 59, 60, 60, 60, 61, 61, 61, 61, 62, 62, 62, 62,
    63, 66, 70, 72, 72,
]  # fmt: skip
"""Quality of 63 statistics faculties, as in the manual of R's package diptest."""


def test_the_dip_of_a_known_sample() -> None:
    assert dip(sorted(map(float, STATFACULTY))) == pytest.approx(0.05952381, abs=1e-8)


def test_the_dip_of_two_points_is_the_largest() -> None:
    assert dip([0.0] * 20 + [1.0] * 20) == pytest.approx(0.25)


@given(st.lists(st.floats(-1e3, 1e3), min_size=4, max_size=60))
def test_the_dip_is_within_its_bounds_and_forgets_scale_and_place(x: list[float]) -> None:
    x = sorted(x)
    value = dip(x)
    assert 0.5 / len(x) - 1e-12 <= value <= 0.25 + 1e-12
    assert dip([2.0 * v for v in x]) == pytest.approx(value, abs=1e-9)


@pytest.mark.parametrize("n", [FEWEST, 12, 20, 40, 100])
def test_two_moods_are_found(n: int) -> None:
    rng = np.random.default_rng(n)
    upper = n // 2
    x = np.concatenate([1e-5 * rng.normal(1, 0.02, n - upper), 2e-5 * rng.normal(1, 0.02, upper)])
    rng.shuffle(x)
    found = modes(x.tolist())
    assert found is not None and found.upper == pytest.approx(upper / n)
    assert found.low == pytest.approx(1e-5, rel=0.05) and found.high == pytest.approx(2e-5, rel=0.05)
    assert found.separation > 2


@pytest.mark.parametrize("n", [10, 20, 40])
def test_one_mood_with_a_tail_is_one(n: int) -> None:
    """Noise only ever adds; not one timing in a hundred such is taken for two moods."""
    rng = np.random.default_rng(n)
    tails = 1e-5 * (1 + rng.lognormal(-2, 1, (400, n)))
    assert sum(modes(x.tolist()) is not None for x in tails) <= 4


def test_one_outlier_is_no_mood() -> None:
    assert modes([1e-5 * (1 + 0.01 * n) for n in range(19)] + [1e-3]) is None


def test_moods_that_hardly_differ_do_not_matter() -> None:
    assert modes([1e-5] * 20 + [1.1e-5] * 20) is None
    assert modes([1e-5] * 20 + [1.4e-5] * 20) is not None


def test_few_samples_say_nothing() -> None:
    assert modes([1e-5, 1e-5, 1e-5, 9e-5, 9e-5, 9e-5]) is None and modes([]) is None
    assert math.isfinite(dip([1.0]))


def test_many_timings_at_once_leave_out_none_with_two_moods() -> None:
    rng = np.random.default_rng(7)
    rows: list[list[float]] = []
    for n in (FEWEST - 1, FEWEST, 11, 17, 40, 90):
        tails = 1 + rng.lognormal(-2, 1, (30, n))
        moods = np.where(rng.random((30, n)) < rng.uniform(0.1, 0.9, (30, 1)), 1.0, rng.uniform(1.1, 3.0, (30, 1)))
        steps = np.round(tails, 1)  # many that are equal
        rows += [*tails.tolist(), *(moods * rng.normal(1, 0.03, (30, n))).tolist(), *steps.tolist(), [1.0] * n]
    left = doubtful(rows)
    two = {i for i, row in enumerate(rows) if modes(row) is not None}
    assert len(two) > 20 and two <= set(left)
    assert len(left) < len(rows) / 2, "most are told apart without a look at each"
