"""When a contest of whole plans may end early."""

from __future__ import annotations

import pytest

from waxeq.runtime.measure import Samples
from waxeq.search.contest import decided

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
    assert decided(len(plans), times) == ends


def test_a_plan_that_may_yet_be_faster_keeps_the_contest_going() -> None:
    shaky = samples(1.0, (0.7, 1.2, 0.9, 1.1) * 4)
    assert not decided(2, {"plan 0": samples(1.0), "plan 1": shaky, "written": samples(3.0)})


def test_after_many_rounds_a_small_gain_is_beyond_doubt() -> None:
    many = NOISE * 2
    assert decided(1, {"plan 0": samples(1.0, many), "written": samples(1.1, many)})
    assert not decided(1, {"plan 0": samples(1.0, many), "written": samples(1.02, many)})
