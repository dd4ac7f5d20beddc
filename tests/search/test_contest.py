"""When a contest of whole plans may end early."""

from __future__ import annotations

import pytest

from waxeq.runtime.measure import Samples
from waxeq.search.contest import undecided

pytestmark = pytest.mark.quick
NOISE = (0.99, 1.0, 1.01, 1.0) * 4


def samples(seconds: float, noise: tuple[float, ...] = NOISE) -> Samples:
    return Samples(tuple(seconds * x for x in noise))


@pytest.mark.parametrize(
    ("plans", "written", "ends"),
    [
        ((1.0,), 3.0, True),  # far ahead
        ((3.0,), 1.0, True),  # far behind
        ((1.0,), 1.1, False),  # ahead, but noise may be to blame
        ((1.0, 1.0), 3.0, True),  # the plans are alike
        ((1.0, 2.0), 3.0, True),  # the other is slower
        ((1.0, 0.5), 3.0, True),  # the other is faster beyond doubt
    ],
)
def test_a_contest_ends_when_more_rounds_would_change_nothing(plans: tuple, written: float, ends: bool) -> None:
    times = {f"plan {i}": samples(t) for i, t in enumerate(plans)} | {"written": samples(written)}
    assert (not undecided(times)) == ends


def test_a_plan_that_may_yet_be_faster_keeps_the_contest_going() -> None:
    shaky = samples(1.0, (0.7, 1.2, 0.9, 1.1) * 4)
    times = {"plan 0": samples(1.0), "plan 1": shaky, "plan 2": samples(2.0), "written": samples(3.0)}
    assert set(undecided(times)) == {"plan 0", "plan 1"}, "who is far behind need not run on"


def test_two_rounds_are_enough_where_one_takes_twice_as_long_and_no_other_plan_is_near() -> None:
    two = (0.95, 1.05)
    assert not undecided({"plan 0": samples(1.0, two), "written": samples(2.0, two)})
    assert undecided({"plan 0": samples(1.0, two), "written": samples(1.5, two)})
    assert undecided({"plan 0": samples(1.0, two), "plan 1": samples(0.9, two), "written": samples(2.0, two)})


def test_one_round_that_was_disturbed_tells_nothing() -> None:
    assert undecided({"plan 0": samples(1.0, (1.0, 1.0)), "written": samples(1.0, (50.0, 1.1))})


def test_after_many_rounds_a_small_gain_is_beyond_doubt() -> None:
    many = NOISE * 2
    assert not undecided({"plan 0": samples(1.0, many), "written": samples(1.1, many)})
    assert undecided({"plan 0": samples(1.0, many), "written": samples(1.02, many)})
