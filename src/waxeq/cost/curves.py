"""Latency curves: what was measured of one meaning over its sizes, and what is estimated between."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from waxeq.cost.device import Peaks
from waxeq.cost.estimate import ENOUGH, CostModel
from waxeq.cost.features import roofline
from waxeq.cost.key import Family, Timing, TimingKey
from waxeq.cost.places import Calls

_BETWEEN = 8
"""Estimates between two measured sizes."""


@dataclass(frozen=True, slots=True)
class Point:
    """Seconds at `work`, which is what the machine's ceilings would take (seconds too), with an interval."""

    work: float
    seconds: float
    low: float
    high: float


@dataclass(frozen=True)
class Curve:
    """One meaning: `measured` points, and `estimated` ones from the smallest to the largest, as for calls that were not
    measured themselves."""

    family: Family
    text: str
    measured: tuple[Point, ...]
    estimated: tuple[Point, ...]


def curves(peaks: Peaks, timings: Sequence[Timing], each: int = 3, fewest: int = 4) -> Iterator[Curve]:
    """Of every family that is fitted the `each` meanings with most sizes, at least `fewest`; families with most timings
    first."""
    by_family: dict[Family, list[Timing]] = {}
    for t in timings:
        by_family.setdefault(t.key.family, []).append(t)
    for family, rows in sorted(by_family.items(), key=lambda r: (-len(r[1]), r[0])):
        if len(rows) < ENOUGH:
            continue
        model = CostModel(peaks, rows)
        groups: dict[str, list[Timing]] = {}
        for t in rows:
            groups.setdefault(t.key.text, []).append(t)
        ranked = sorted(groups.items(), key=lambda g: (-len({t.key.dims for t in g[1]}), g[0]))
        for text, group in ranked[:each]:
            if len({t.key.dims for t in group}) >= fewest:
                yield _curve(model, family, text, group)


def _curve(model: CostModel, family: Family, text: str, group: Sequence[Timing]) -> Curve:
    peaks = model.peaks
    points = sorted((_work(t.features, family, peaks), i) for i, t in enumerate(group))
    ordered = [group[i] for _, i in points]
    fit = model.fit(family)
    assert fit is not None, "there are enough timings"
    steps = list(_steps(ordered))
    seconds, spreads = fit.predict(Calls.of([k for k, _ in steps], [k.work(f) for k, f in steps], fit.law.names))
    line = sorted(
        (Point(_work(f, family, peaks), s, s / w, s * w)
         for (_, f), s, w in zip(steps, seconds.tolist(), spreads.tolist(), strict=True)),
        key=lambda p: p.work,
    )  # fmt: skip
    measured = tuple(Point(w, t.seconds, *t.interval) for (w, _), t in zip(points, ordered, strict=True))
    return Curve(family, text, measured, tuple(line))


def _work(features: Mapping[str, float], family: Family, peaks: Peaks) -> float:
    return roofline(features, family.dtype, peaks)


def _steps(rows: Sequence[Timing]) -> Iterator[tuple[TimingKey, Mapping[str, float]]]:
    """Calls from each of these to the next, sizes and features growing by equal factors."""
    for a, b in pairwise(rows):
        for n in range(_BETWEEN):
            yield _between(a, b, n / _BETWEEN)
    yield rows[-1].key, rows[-1].features


def _between(a: Timing, b: Timing, part: float) -> tuple[TimingKey, Mapping[str, float]]:
    names = {**a.features, **b.features}
    features = {n: _mean(a.features.get(n, 0.0), b.features.get(n, 0.0), part) for n in names}
    pairs = zip(a.key.dims.split(","), b.key.dims.split(","), strict=True)
    sizes = ((x.partition("="), y.partition("=")) for x, y in pairs)
    dims = ",".join(f"{k}={round(_mean(float(n), float(m), part))}" if k else "" for (k, _, n), (_, _, m) in sizes)
    return replace(a.key, dims=dims), features


def _mean(a: float, b: float, part: float) -> float:
    """Geometric; arithmetic where one is nothing."""
    return a ** (1 - part) * b**part if a > 0 and b > 0 else a * (1 - part) + b * part
