"""Costs: measured where known, fitted where there is enough to fit, else what the machine's ceilings allow."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waxeq.backend.discover import Found
from waxeq.backend.storage import CPU
from waxeq.cost.device import Device, Peaks, current_device, described, measure_peaks
from waxeq.cost.estimate import ENOUGH, CostModel
from waxeq.cost.features import Features, roofline, soonest
from waxeq.cost.key import Timing
from waxeq.cost.known import Group, Known
from waxeq.cost.survey import runs_on_cpu

pytestmark = pytest.mark.quick

Make = Callable[..., Timing]
PEAKS = Peaks({"float32": 1e11, "float64": 5e10}, 1e10, 8e10, 1e-6)
TRUE = {"flops": 2e-11, "launches": 3e-6, "bytes": 1e-10}


def grid(timing: Make, count: int = 40, noise: float = 0.0, **given: object) -> list[Timing]:
    rng = random.Random(0)
    rows = []
    for n in range(count):
        f = {
            "flops": 10.0 ** rng.uniform(3, 9),
            "launches": float(rng.randint(1, 9)),
            "bytes": 10.0 ** rng.uniform(3, 7),
        }
        seconds = sum(TRUE[k] * v for k, v in f.items()) * math.exp(rng.gauss(0, noise))
        rows.append(timing(n, features=f, samples=(seconds,), **given))
    return rows


def test_what_was_measured_counts(timing: Make) -> None:
    t = timing(1, samples=tuple(1e-6 * k for k in range(1, 11)))
    found = CostModel(PEAKS, [t]).estimate(t.key, t.features)
    assert (found.seconds, found.source) == (t.seconds, "measured")
    assert (found.low, found.high) == t.interval == (2e-6, 9e-6)


def test_what_starting_takes_is_the_kernels_where_nothing_was_timed(timing: Make) -> None:
    t, f = timing(1), {"launches": 2.0, "bytes": 1e5}
    usual = CostModel(PEAKS).estimate(t.key, f)
    quick = CostModel(PEAKS, launches={t.key.kernel: 4e-8}).estimate(t.key, f)
    assert usual.source == quick.source == "roofline"
    assert usual.seconds - quick.seconds == pytest.approx(2 * (PEAKS.launch - 4e-8))


def test_a_fit_finds_the_law_behind_the_timings(timing: Make) -> None:
    model = CostModel(PEAKS, grid(timing))
    asked = timing(1000).key
    for f in ({"flops": 1e8, "launches": 1.0, "bytes": 1e5}, {"flops": 0.0, "launches": 5.0, "bytes": 0.0}):
        found = model.estimate(asked, f)
        assert found.source == "fitted"
        assert found.seconds == pytest.approx(sum(TRUE[k] * v for k, v in f.items()), rel=0.01)
        assert found.low <= found.seconds <= found.high


def test_no_fit_says_that_more_is_computed_than_the_machine_can(timing: Make) -> None:
    """A loop of two sums, one in the other, was estimated from smaller ones at a 37th of what it took."""
    rows = [timing(n, features={"operations": 1e3 * n, "launches": 1.0}, samples=(1e-6,)) for n in range(1, 40)]
    asked, model = timing(1000).key, CostModel(PEAKS, rows)
    assert model.estimate(asked, {"operations": 1e4, "launches": 1.0}).seconds == pytest.approx(1e-6, rel=0.1)
    found = model.estimate(asked, {"operations": 1e9, "launches": 1.0})
    assert found.seconds >= 1e9 / (2 * PEAKS.flops["float32"])
    assert found.source == "fitted" and found.low <= found.seconds <= found.high


@given(st.sampled_from(["float32", "float64", "int8"]), st.floats(0, 1e12), st.floats(0, 1e12))
def test_the_least_that_operations_take_is_never_less_for_more(dtype: str, a: float, b: float) -> None:
    few, many = (soonest({"operations": x}, dtype, PEAKS) for x in sorted((a, b)))
    assert 0 <= few <= many and soonest({"bytes": a}, dtype, PEAKS) == 0


def test_the_interval_of_a_fit_grows_with_the_noise(timing: Make) -> None:
    spreads = []
    for noise in (0.0, 0.2, 0.6):
        found = CostModel(PEAKS, grid(timing, noise=noise)).estimate(timing(1000).key, {"flops": 1e7})
        spreads.append(found.high / found.low)
    assert spreads[0] < spreads[1] < spreads[2]


def test_a_fit_through_as_many_timings_as_coefficients_is_not_trusted(timing: Make) -> None:
    rows = [timing(n, features={f"map:f{n}:float32": 10.0}, samples=(1e-6 * (n + 1),)) for n in range(10)]
    found = CostModel(PEAKS, rows).estimate(timing(1000).key, {"map:f3:float32": 10.0})
    assert found.source == "fitted" and found.high >= 2 * found.seconds


def test_nothing_to_fit_is_the_roofline(timing: Make) -> None:
    found = CostModel(PEAKS, []).estimate(timing(1000).key, {"flops": 1e9})
    assert found.source == "roofline" and found.seconds == pytest.approx(1e-2, rel=0.01)


def test_too_little_to_fit_corrects_the_roofline(timing: Make) -> None:
    """Rows of 500 were said to be sorted in 1 ms for 9, with timings of two other sizes at hand."""
    sizes = {n: {"flops": n} for n in (1e6, 1e7, 1e9)}
    times = {1e6: 20.0, 1e7: 20.0, 1e9: 2.0}
    rows = [timing(int(n), features=f, samples=(times[n] * n * 1e-11,)) for n, f in sizes.items()]
    model = CostModel(PEAKS, rows)
    near, far = model.estimates([timing(1).key, timing(2).key], [{"flops": 3e6}, {"flops": 1e9}])
    assert near.source == far.source == "fitted"
    assert near.seconds == pytest.approx(20.0 * 3e6 * 1e-11, rel=0.2) and near.low < near.seconds < near.high
    assert 2.0 * 1e-2 < far.seconds < 3.0 * 1e-2, "those that take about as long count most"


@pytest.mark.parametrize(
    "other", [{"device": "there"}, {"kernel": "numpy.loops"}, {"dtype": "float64"}, {"code": "0ld"}]
)
def test_timings_of_other_machines_kernels_dtypes_and_texts_do_not_count(timing: Make, other: dict) -> None:
    model = CostModel(PEAKS, grid(timing, **other))
    assert model.estimate(timing(1000).key, {"flops": 1e6}).source == "roofline"
    assert model.estimate(timing(1000, **other).key, {"flops": 1e6}).source == "fitted"


def test_a_kernel_with_too_few_timings_is_estimated_as_one_that_is_made_like_it(timing: Make) -> None:
    """Rows of 64 MiB are softmaxed in 2.9 ms by loops that write past the cache; with five timings of such they were
    estimated by a ceiling at 13 ms, and were timed only when the usual loops had a slow moment."""
    few = grid(timing, count=ENOUGH - 1, kernel="native.loops_fast_stream")
    slow = [replace(t, samples=tuple(100 * s for s in t.samples)) for t in grid(timing, kernel="native.loops")]
    model = CostModel(PEAKS, [*few, *slow, *grid(timing, kernel="native.loops_fast")])
    asked = [timing(1000, kernel=f"native.loops{n}").key for n in ("_fast_stream", "_fast", "")]
    found, like, unlike = model.estimates(asked, [{"flops": 1e6}] * 3)
    assert found.source == "fitted" and found.seconds == pytest.approx(like.seconds, rel=0.3)
    assert like.seconds < 0.1 * unlike.seconds
    assert found.low < like.low and found.high > like.high
    model.learn(grid(timing, kernel="native.loops_fast_stream"))
    own = model.estimate(asked[0], {"flops": 1e6})
    assert own.high / own.low < found.high / found.low


def test_few_timings_of_a_kernel_count_more_than_those_of_one_that_is_made_like_it(timing: Make) -> None:
    """Sums along rows that write past the cache were estimated as those that do not, and were not taken."""
    few = [replace(t, samples=(0.5 * t.seconds,)) for t in grid(timing, count=3, kernel="native.loops_stream")]
    model = CostModel(PEAKS, [*few, *grid(timing, kernel="native.loops")])
    asked = [timing(1000, kernel=f"native.loops{n}").key for n in ("_stream", "")]
    found, like = model.estimates(asked, [{"flops": 1e6}] * 2)
    assert found.seconds == pytest.approx(0.5 * like.seconds, rel=0.1)


def test_a_feature_that_was_never_seen_costs_what_the_roofline_says(timing: Make) -> None:
    model = CostModel(PEAKS, grid(timing))
    plain = model.estimate(timing(1000).key, {"flops": 1e6}).seconds
    more = model.estimate(timing(1000).key, {"flops": 1e6, "strided_bytes": 1e7}).seconds
    assert more == pytest.approx(plain + roofline({"strided_bytes": 1e7}, "float32", PEAKS), rel=5e-3)


def test_learning_changes_estimates_and_says_of_what(timing: Make) -> None:
    model = CostModel(PEAKS, [])
    asked = timing(1000).key
    assert model.estimate(asked, {"flops": 1e6}).source == "roofline"
    rows = grid(timing)
    assert model.learn(rows) == {asked.family}
    assert model.estimate(asked, {"flops": 1e6}).source == "fitted"
    assert model.learn(rows) == frozenset(), "nothing new"
    exact = timing(1000, samples=(0.5,))
    model.learn([exact])
    assert model.estimate(asked, {}).seconds == 0.5


def test_roofline_only_ignores_timings(timing: Make) -> None:
    t = timing(1)
    assert CostModel(PEAKS, [t, *grid(timing)], roofline_only=True).estimate(t.key, {}).source == "roofline"


def test_what_runs_on_another_device_tells_nothing_of_the_cpu(timing: Make) -> None:
    """Where no kernel of the GPU was allowed, what they once reached was taken for what the CPU can do."""
    gpu = timing(1, backend="cupy", kernel="cupy.gemm", features={"flops": 1e9}, samples=(1e-5,))
    own = timing(2, features={"flops": 1e9}, samples=(5e-3,))
    known = Known({t.key.family: Group.of({t.key.digest: t}) for t in (gpu, own)})
    for rows in ([gpu, own], known):
        model = CostModel(PEAKS, rows, on_cpu=lambda kernel: kernel == own.key.kernel)
        assert model.peaks.flops["float32"] == own.rate
        here = CostModel(PEAKS, rows, others={"cupy.gemm": PEAKS}, on_cpu=lambda kernel: kernel == own.key.kernel)
        assert here.peaks_of("cupy.gemm").flops["float32"] == gpu.rate and here.peaks == model.peaks


def test_what_runs_on_the_cpu_is_told_of_kernels_that_can_run() -> None:
    def backend(device: str, why: str | None = None) -> Any:
        kernels = {f"{n}.a": SimpleNamespace(device=device) for n in ("one", "gpu", "off")}
        return cast(Any, SimpleNamespace(kernels=kernels, unusable=lambda: why))

    installed = [
        Found("one", "?", backend(CPU)), Found("gpu", "?", backend("gpu")), Found("off", "?", backend(CPU, "no")),
        Found("bad", "?", None, "no"),
    ]  # fmt: skip
    on_cpu = runs_on_cpu(installed)
    assert [n for n in ("one.a", "one.b", "gpu.a", "off.a", "bad.a", "none.a") if on_cpu(n)] == ["one.a"]


features = st.dictionaries(
    st.sampled_from(["flops", "bytes", "launches", "map:exp:float64", "map:add:float32", "strided_bytes", "unheard"]),
    st.floats(0, 1e12),
)


@given(features, features, st.sampled_from(["float32", "float64", "bfloat16", "int64"]))
def test_the_roofline_is_positive_finite_and_never_less_for_more(a: dict, b: dict, dtype: str) -> None:
    one, both = roofline(a, dtype, PEAKS), roofline(Features(a) + b, dtype, PEAKS)
    assert 0 < one <= both * (1 + 1e-12) and math.isfinite(both)


@given(features, features)
def test_features_add_and_print(a: dict, b: dict) -> None:
    total = Features(a) + Features(b)
    assert total == {k: a.get(k, 0.0) + b.get(k, 0.0) for k in {**a, **b}}
    assert Features.from_json(total.json()) == total and hash(Features(dict(reversed(a.items())))) == hash(Features(a))


@pytest.mark.parametrize("wrong", [-1.0, math.inf, math.nan])
def test_features_are_non_negative_numbers(wrong: float) -> None:
    with pytest.raises(ValueError, match="flops"):
        Features({"flops": wrong})


@pytest.mark.parametrize("samples", [(), (0.0,), (1.0, -1.0), (math.nan,), (math.inf,)])
def test_a_timing_has_samples(timing: Make, samples: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="positive seconds"):
        timing(1, samples=samples)


def test_a_key_has_one_name_in_every_process(timing: Make) -> None:
    assert timing(0, method=1).key.digest == "be9911c3831c52624efd51d500c69ea6"
    digests = {timing(1, **{k: "other"}).key.digest for k in ("backend", "kernel", "code", "text", "dims", "layout")}
    assert len(digests | {timing(1).key.digest}) == 7
    assert timing(1).id == timing(1).id != timing(1, when=2.0).id
    assert 0 <= timing(1).id < 1 << 64


# -- devices


def test_this_machine() -> None:
    one, two = current_device(1), current_device(2)
    assert one == current_device(1) and one.id != two.id and len(one.id) == 12
    assert one.differences(two) == ("threads 1 -> 2",) and one.differences(one) == ()
    assert Device.from_json(one.json()) == one
    assert one.model in one.describe() and "1 thread," in one.describe() and "2 threads," in two.describe()
    assert replace(one, numpy="0.0").id != one.id


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"model": "a"}', "more", "type"])
def test_what_describes_no_device_is_told_apart(text: str) -> None:
    one = current_device(1)
    more = {"more": one.json().replace("{", '{"more": 1, ', 1), "type": replace(one, cores=cast(Any, "two")).json()}
    assert described([("a", more.get(text, text)), ("b", cast(Any, None)), ("c", one.json())]) == {"c": one}


@pytest.mark.slow
def test_ceilings_of_this_machine() -> None:
    found = measure_peaks(1)
    assert Peaks.from_json(found.json()) == found
    assert 2 * found.flops["float32"] > found.flops["float64"] > 1e8  # each is timed by itself, on a machine in use
    assert found.cache_bandwidth > 1e8 and found.bandwidth > 1e7
    assert 1e-9 < found.launch < 1e-3
