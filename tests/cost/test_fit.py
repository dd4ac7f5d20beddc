"""Fits: a law, what is known nearby, how sure both are."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from waxeq.cost.curves import curves
from waxeq.cost.device import Peaks
from waxeq.cost.estimate import CostModel
from waxeq.cost.fit import Fit
from waxeq.cost.held_out import held_out, predictions
from waxeq.cost.key import Timing, TimingKey
from waxeq.cost.law import nonnegative
from waxeq.cost.places import Calls

pytestmark = pytest.mark.quick
Make = Callable[..., Timing]
PEAKS = Peaks({"float32": 1e11, "float64": 5e10}, 1e10, 8e10, 1e-6)


def rows_of(timing: Make, count: int, factor: Callable[[int, str], float], noise: float = 0.0) -> list[Timing]:
    """Timings of two meanings over sizes from 4 to 4096 that take 1 ns a byte times what `factor` says."""
    rng, rows = random.Random(0), []
    for n in range(count):
        text = ("(A)", "(B)")[n % 2]
        size = round(4 * 1024 ** ((n // 2) / (count / 2 - 1)))
        seconds = 1e-9 * 4.0 * size * factor(size, text) * math.exp(rng.gauss(0, noise))
        given_ = {"text": text, "dims": f"i0={size}", "features": {"bytes": 4.0 * size}}
        rows.append(timing(n, samples=(seconds,), **given_))
    return rows


def predict(fit: Fit, keys: list[TimingKey], features: list[dict[str, float]]) -> tuple[np.ndarray, np.ndarray]:
    works = [k.work(f) for k, f in zip(keys, features, strict=True)]
    return fit.predict(Calls.of(keys, works, fit.law.names))


@given(st.integers(1, 5), st.integers(0, 10**6))
def test_least_squares_without_negative_coefficients_is_the_best_there_is(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((n + 3, n)), rng.standard_normal(n + 3)
    start = np.maximum(rng.standard_normal(n), 0.0)
    x = nonnegative(a.T @ a, a.T @ b, start if seed % 2 else None)
    slope = a.T @ (a @ x - b)
    assert np.all(x >= 0)
    assert np.all(slope > -1e-6) and np.all(np.abs(slope[x > 0]) < 1e-6), "no coefficient is better any other way"


def test_a_call_takes_after_the_nearest_that_were_timed(timing: Make) -> None:
    rows = rows_of(timing, 60, lambda size, text: 3.0 if size > 256 else 1.0)
    fit = Fit.of(rows, {"bytes": 1e-10})
    for size, wanted in ((20, 1.0), (2000, 3.0)):
        asked = timing(1000, text="(A)", dims=f"i0={size}").key
        (seconds,), _ = predict(fit, [asked], [{"bytes": 4.0 * size}])
        assert seconds == pytest.approx(4e-9 * size * wanted, rel=0.15), size


def test_a_call_takes_after_those_of_its_meaning_before_others(timing: Make) -> None:
    fit = Fit.of(rows_of(timing, 60, lambda size, text: {"(A)": 1.0, "(B)": 4.0}[text]), {"bytes": 1e-10})
    keys = [timing(1000, text=t, dims="i0=300").key for t in ("(A)", "(B)", "(C)")]
    (a, b, other), (sure, _, unsure) = predict(fit, keys, [{"bytes": 1200.0}] * 3)
    assert a == pytest.approx(1.2e-6, rel=0.15) and b == pytest.approx(4.8e-6, rel=0.15)
    assert a < other < b and unsure > sure


def test_what_lies_far_from_all_timings_is_less_sure(timing: Make) -> None:
    fit = Fit.of(rows_of(timing, 40, lambda size, text: 1.0 + (size % 7) / 7), {"bytes": 1e-10})
    near, far = timing(1000, text="(A)", dims="i0=100").key, timing(1001, text="(A)", dims="i0=100000").key
    _, spreads = predict(fit, [near, far], [{"bytes": 400.0}, {"bytes": 4e6}])
    assert spreads[1] > 1.1 * spreads[0]


def test_some_that_went_wrong_do_not_bend_the_law(timing: Make) -> None:
    rows = rows_of(timing, 60, lambda size, text: 1.0, noise=0.05)
    rows[7] = timing(7, text="(A)", dims="i0=9", features={"bytes": 36.0}, samples=(1.0,))
    (seconds,), _ = predict(
        Fit.of(rows, {"bytes": 1e-10}), [timing(99, text="(A)", dims="i0=900").key], [{"bytes": 3600.0}]
    )
    assert seconds == pytest.approx(3.6e-6, rel=0.25)


def test_estimates_of_what_was_left_out_are_as_far_off_as_the_noise(timing: Make) -> None:
    for noise in (0.02, 0.2):
        rows = rows_of(timing, 120, lambda size, text: 1.0, noise)
        (found,) = held_out(PEAKS, rows)
        assert found.timings == len({t.key for t in rows}) and found.median <= found.ninth
        assert 0.3 * noise < found.median < 1.5 * noise + 0.01
        assert 0.6 < found.inside <= 1.0


def test_all_families_are_judged_together_too(timing: Make) -> None:
    """Of each timing of either, not of the families: the larger one counts for more."""
    rows = rows_of(timing, 120, lambda size, text: 1.0, 0.02)
    other = [replace(t, key=replace(t.key, kernel="k.other")) for t in rows_of(timing, 40, lambda size, text: 1.0, 0.3)]
    large, small, whole = held_out(PEAKS, [*rows, *other])
    assert whole.family is None and whole.timings == large.timings + small.timings
    assert large.timings > small.timings and large.median < whole.median < small.median
    errors = sorted(abs(e.seconds / t.seconds - 1) for t, e in predictions(PEAKS, [*rows, *other]))
    assert whole.median == errors[(len(errors) - 1) // 2]


def test_a_group_is_left_out_whole(timing: Make) -> None:
    """Twins in another layout take a hundred times what everything else does: who had seen one would know the other."""
    rows = rows_of(timing, 40, lambda size, text: 1.0)
    odd = [timing(900 + n, text="(A)", dims="i0=333", layout=f"float32:i0*{n}", features={"bytes": 1332.0},
                  samples=(1.332e-4,)) for n in (1, 2)]  # fmt: skip
    found = {t.key: e.seconds for t, e in predictions(PEAKS, [*rows, *odd])}
    assert len(found) == len({t.key for t in rows}) + 2 and all(found[t.key] < 1e-5 for t in odd)


def test_an_estimate_far_from_all_timings_stays_between_them_and_the_law(timing: Make) -> None:
    """A thousand times the size: a few times what the law says at most, and an interval of e^2 either way."""
    fit = Fit.of(rows_of(timing, 60, lambda size, text: 1.0 + (size % 5), noise=0.3), {"bytes": 1e-10})
    (seconds,), (spread,) = predict(fit, [timing(1000, text="(Z)", dims="i0=4000000").key], [{"bytes": 1.6e7}])
    assert 1e-2 < seconds < 1e-1 and spread < 7.4


def test_a_feature_that_others_explain_is_not_free(timing: Make) -> None:
    """Where two features always come together one of them has the whole price; a call of the other alone takes time."""
    rows = [timing(n, text="(A)", dims=f"i0={4 << n}", features={"bytes": 16.0 * 2**n, "operations": 4.0 * 2**n},
                   samples=(1e-8 * 2**n,)) for n in range(12)]  # fmt: skip
    fit = Fit.of(rows, {"bytes": 5e-10, "operations": 5e-10})
    asked = timing(99, text="(A)", dims="i0=4096").key
    for one in ({"bytes": 16384.0}, {"operations": 4096.0}):
        (seconds,), _ = predict(fit, [asked], [one])
        assert seconds > 1e-7, one


def test_slow_moments_do_not_bend_what_is_near_them(timing: Make) -> None:
    """One timing in six took twice as long, as on a machine that others use too."""
    rng = random.Random(1)
    rows = rows_of(timing, 90, lambda size, text: 2.0 if rng.random() < 1 / 6 else 1.0, noise=0.03)
    fit = Fit.of(rows, {"bytes": 1e-10})
    sizes = [30, 100, 300, 1000]
    keys = [timing(n, text="(A)", dims=f"i0={n}").key for n in sizes]
    seconds, _ = predict(fit, keys, [{"bytes": 4.0 * n} for n in sizes])
    assert np.median(np.abs(np.log(seconds / (4e-9 * np.array(sizes))))) < 0.12


def test_intervals_hold_nine_tenths(timing: Make) -> None:
    rows = rows_of(timing, 200, lambda size, text: 100.0 + 50.0 * math.sin(math.log(size + 64)), noise=0.1)
    (found,) = held_out(PEAKS, rows)
    assert 0.82 < found.inside < 0.97


def test_kernels_made_alike_lend_each_other_their_prices(timing: Make) -> None:
    """A family that has timed large calls only knows from its kin what starting one takes."""
    rows = [timing(n, kernel="k.loops", text="(A)", dims=f"i0={4 << n}", samples=(5e-6 + 4e-9 * 2**n,),
                   features={"launches": 1.0, "bytes": 16.0 * 2**n}) for n in range(20)]  # fmt: skip
    rows += [replace(t, key=replace(t.key, kernel="k.loops_narrow")) for t in rows[12:]]
    found = CostModel(PEAKS, rows).estimate(
        timing(0, kernel="k.loops_narrow", text="(A)", dims="i0=8").key, {"launches": 1.0, "bytes": 32.0}
    )
    assert found.source == "fitted" and found.seconds == pytest.approx(5e-6, rel=0.5)


def test_a_feature_that_is_nothing_in_every_timing_is_worth_its_price(timing: Make) -> None:
    """It was scaled by next to nothing, and all coefficients were no numbers."""
    rows = [replace(t, features={**t.features, "operations": 0.0}) for t in rows_of(timing, 10, lambda size, text: 1.0)]
    fit = Fit.of(rows, {"bytes": 1e-10, "operations": 1e-11})
    law = dict(zip(fit.law.names, fit.law.coefficients.tolist(), strict=True))
    assert law["operations"] == pytest.approx(1e-11) and law["bytes"] == pytest.approx(1e-9, rel=0.1)
    seconds, spreads = predict(fit, [rows[4].key], [rows[4].features])
    assert seconds[0] == pytest.approx(rows[4].seconds, rel=0.2) and math.isfinite(spreads[0])


def test_an_axis_of_nothing_has_features(timing: Make) -> None:
    key = timing(0, dims="i0=0,i1=4", layout="float32:i1*1;float32:i1*0,i0*1").key
    assert all(0.0 <= v < math.inf for v in key.work({"flops": 0.0}).values())


def test_too_little_is_not_judged(timing: Make) -> None:
    assert held_out(PEAKS, rows_of(timing, 8, lambda size, text: 1.0)[:1]) == []


def test_curves_pass_by_what_was_measured(timing: Make) -> None:
    rows = rows_of(timing, 40, lambda size, text: 1.0, noise=0.02)
    found = list(curves(PEAKS, rows))
    assert [c.text for c in found] == ["(A)", "(B)"]
    for c in found:
        assert [p.seconds for p in c.measured] == [t.seconds for t in rows if t.key.text == c.text]
        work = [p.work for p in c.estimated]
        assert work == sorted(work) and work[0] == c.measured[0].work and work[-1] == c.measured[-1].work
        assert all(p.low < p.seconds < p.high for p in c.estimated)
        inside = [m for m in c.measured for e in c.estimated if e.work == m.work and e.low <= m.seconds <= e.high]
        assert len(inside) >= 0.8 * len(c.measured)


def test_a_function_that_only_another_kernel_has_timed_costs_what_it_took_there(timing: Make) -> None:
    """`cosh` takes 20 ns an element in one kernel; another one has timed other functions only."""
    rows = rows_of(timing, 40, lambda size, text: 1.0)
    for n in (1000, 100_000):
        features = {"launches": 1.0, "map:cosh:float32": float(n)}
        rows.append(timing(n, kernel="numpy.other", text="(C)", dims=f"i0={n}", features=features, samples=(2e-8 * n,)))
    model = CostModel(PEAKS, rows)
    for dtype, wanted in (("float32", 2e-5), ("float64", 4e-5)):
        features = {"bytes": 4.0, f"map:cosh:{dtype}": 1000.0}
        found = model.estimate(timing(5, text="(D)", dims="i0=1000").key, features)
        assert found.source == "fitted" and found.seconds == pytest.approx(wanted, rel=0.3), dtype


def test_what_is_gathered_from_is_not_read_whole(timing: Make) -> None:
    layout = "float32:i0*1;int64:i0*1;float32:i1*1"
    t = timing(1, text='(Gather "i1" $0 $1)', dims="i0=8,i1=1000000", layout=layout, features={"bytes": 4_000_096.0})
    assert t.work["bytes"] == 8 * (4 + 8 + 4)
    other = timing(1, text="(A)", dims="i0=8,i1=1000000", layout=layout, features={"bytes": 4_000_096.0})
    assert other.work["bytes"] == 4_000_096.0


def test_which_axis_lies_side_by_side_sets_products_apart(timing: Make) -> None:
    """A matrix times a vector, read along its rows or across them, takes three times as long one way."""
    rows = []
    for n in range(60):
        size, across = 64 * (n // 2 + 1), n % 2
        view = f"i1*{size},i0*1" if across else f"i0*{size},i1*1"
        features = {"flops": 2.0 * size * size}
        layout = f"float32:i0*1;float32:{view};float32:i1*1"
        rows.append(timing(n, text="(P)", dims=f"i0={size},i1={size}", layout=layout,
                           features=features, samples=(1e-10 * (3.0 if across else 1.0) * size * size,)))  # fmt: skip
    fit = Fit.of(rows, {"flops": 1e-11})
    asked = [rows[30], rows[31]]
    seconds, _ = predict(fit, [t.key for t in asked], [dict(t.features) for t in asked])
    for t, s in zip(asked, seconds.tolist(), strict=True):
        assert s == pytest.approx(t.seconds, rel=0.3)
