"""Prices of calls: what is measured is known at once, what is fitted is worked out again when enough is new."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from waxeq.cost.device import Peaks
from waxeq.cost.estimate import CostModel
from waxeq.cost.key import METHOD, Timing, TimingKey
from waxeq.extract.price import Prices

pytestmark = pytest.mark.quick


class Call:
    """A call that moves `size` bytes, with all that Prices asks of one."""

    def __init__(self, size: int, text: str = "(Map f)", layout: str = "") -> None:
        self.key = TimingKey("numpy", "numpy.f", "c0de", text, f"i0={size}", layout, "float32", "here", 1, METHOD)
        self.features = {"launches": 1.0, "bytes": float(size)}

    def remember(self, name: str, make: Callable[[], object]) -> Any:
        return self.key if name == "key" else self.features

    def timed(self, seconds: float) -> dict[TimingKey, Timing]:
        return {self.key: Timing(self.key, (seconds,) * 3, 0.0, 0.0, self.features, 0.0)}


def prices_of_many(known: int) -> tuple[Prices, list[Call]]:
    """Prices that were told of so many calls, and one that they were not told of, priced once."""
    prices = Prices(CostModel(Peaks({"float32": 1e11}, 1e9, 1e9, 1e-6)), {}, "here", 1)
    calls = [Call(1000 * (n + 1)) for n in range(known + 40)]
    prices.learn({k: t for c in calls[:known] for k, t in c.timed(1e-9 * c.features["bytes"]).items()})
    prices.of(cast(Any, calls))
    return prices, calls


def test_what_is_measured_is_known_at_once() -> None:
    prices, calls = prices_of_many(100)
    call = calls[100]
    assert prices.of(cast(Any, [call]))[0].source == "fitted"
    prices.learn(call.timed(0.5))
    (found,) = prices.of(cast(Any, [call]))
    assert found.source == "measured" and found.seconds == 0.5


def test_what_is_fitted_waits_for_a_tenth_of_new_timings() -> None:
    prices, calls = prices_of_many(100)
    last = cast(Any, [calls[-1]])
    (before,) = prices.of(last)
    for c in calls[100:110]:
        prices.learn(c.timed(1.2e-9 * c.features["bytes"]))
        assert prices.of(last)[0] is before
    prices.learn(calls[110].timed(1.2e-9 * calls[110].features["bytes"]))
    (after,) = prices.of(last)
    assert after is not before and after.seconds != before.seconds


def test_a_surprise_is_heard_at_once() -> None:
    """A loop over the windows of an image was thought to take a millisecond and took seventy; five more like it were
    timed in the hope of a millisecond."""
    prices, calls = prices_of_many(100)
    call, last = cast(Any, [calls[100]]), cast(Any, [calls[-1]])
    (thought,), (before,) = prices.of(call), prices.of(last)
    prices.learn(calls[100].timed(70 * thought.seconds))
    (after,) = prices.of(last)
    assert after is not before and after.seconds > before.seconds


def test_calls_that_lie_as_one_that_was_timed_hear_of_it_at_once() -> None:
    """The second convolution of a residual block was timed in an order twice as fast as was thought; the first, whose
    images lie the same way, was never tried in it."""
    prices, _ = prices_of_many(100)
    dense, few, across = "float32:i0*1", "float32:", "float32:i0*500"

    def of(text: str, *views: str) -> Call:
        return Call(4_000_000, text, ";".join(views))

    along, turned = (of("(Map f $1) (Mul $0 $2)", dense, few, of_image) for of_image in (dense, across))
    told = [prices.of(cast(Any, [c]))[0] for c in (along, turned)]
    prices.learn(of("(Map f $0)", dense, dense).timed(2e-3))
    heard, other = prices.of(cast(Any, [along, turned]))
    assert other is told[1]
    assert heard.seconds == pytest.approx(2e-3, rel=0.1) and heard.high < told[0].seconds


def test_the_first_timings_of_a_family_are_heard_at_once() -> None:
    prices, calls = prices_of_many(0)
    last = cast(Any, [calls[-1]])
    assert prices.of(last)[0].source == "roofline"
    for c in calls[:9]:
        prices.learn(c.timed(1e-9 * c.features["bytes"]))
    assert prices.of(last)[0].source == "fitted"


def test_nobody_hopes_for_miracles() -> None:
    """Calls of half a second were timed again and again, as their intervals began at microseconds."""
    from waxeq.cost.estimate import Estimate
    from waxeq.extract.choice import Priced

    wide = Estimate(0.5, 5e-5, 5e3, "fitted")
    assert Priced(cast(Any, None), wide, "hopeful").cost == 0.5 / 8
    assert Priced(cast(Any, None), Estimate(0.5, 0.2, 1.0, "fitted"), "hopeful").cost == 0.2
