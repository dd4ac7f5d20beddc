"""Fits: a law, what is known nearby, how sure both are."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

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
    assert a < other < b and unsure > 1.1 * sure


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


def test_a_group_is_left_out_whole(timing: Make) -> None:
    """Twins in another layout take a hundred times what everything else does: who had seen one would know the other."""
    rows = rows_of(timing, 40, lambda size, text: 1.0)
    odd = [timing(900 + n, text="(A)", dims="i0=333", layout=f"float32:i0*{n}", features={"bytes": 1332.0},
                  samples=(1.332e-4,)) for n in (1, 2)]  # fmt: skip
    found = {t.key: guess for t, guess, _ in predictions(PEAKS, [*rows, *odd])}
    assert len(found) == 42 and all(found[t.key] < 1e-5 for t in odd)


def test_what_is_left_out_is_predicted_as_if_it_had_never_been_timed(timing: Make) -> None:
    """The short way, through the inverse for all timings, against a fit to the others alone."""
    rows = rows_of(timing, 60, lambda size, text: 1.0 + (text == "(B)") + (size > 99), noise=0.1)
    fit = Fit.of(rows, {"bytes": 1e-10})
    gone = np.arange(3, 60, 7)
    found = fit.left_out(gone)
    kept = [t for i, t in enumerate(rows) if i not in gone]
    alone = Fit.of(kept, {"bytes": 1e-10}, fit)
    asked = [rows[i] for i in gone]
    seconds, spread = predict(alone, [t.key for t in asked], [dict(t.features) for t in asked])
    assert found.seconds == pytest.approx(seconds, rel=1e-6) and found.spread == pytest.approx(spread, rel=1e-6)
    assert found.names == set(alone.law.names)


def test_too_little_is_not_judged(timing: Make) -> None:
    assert held_out(PEAKS, rows_of(timing, 8, lambda size, text: 1.0)) == []


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
