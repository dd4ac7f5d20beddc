"""How well calls are estimated that nobody timed: fits are made without some timings, and asked for those."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from waxeq.cost.device import Peaks
from waxeq.cost.estimate import ENOUGH, CostModel
from waxeq.cost.fit import Fit, hash_of
from waxeq.cost.key import Family, Timing

FOLDS = 5
"""Parts that the timings of a family are cut into; each is predicted from the others."""


@dataclass(frozen=True, slots=True)
class Held:
    """Relative errors of estimates of one family, a tenth of them above `ninth`; `inside`: the part of the timings that
    lay in the interval that was to hold eight tenths of them."""

    family: Family
    timings: int
    median: float
    ninth: float
    inside: float


def held_out(peaks: Peaks, timings: Iterable[Timing], folds: int = FOLDS) -> list[Held]:
    """Errors by family, that with most timings first. A group that is left out is all calls of one meaning on one set
    of sizes: other layouts of them would give it away. Families with too few timings or groups are left out."""
    by_family: dict[Family, list[Timing]] = {}
    for t in timings:
        by_family.setdefault(t.key.family, []).append(t)
    rows = []
    for family, known in by_family.items():
        found = predictions(peaks, known, folds)
        if found:
            errors = sorted(abs(guess / t.seconds - 1) for t, guess, _ in found)
            inside = sum(guess / spread <= t.seconds <= guess * spread for t, guess, spread in found)
            rows.append(Held(family, len(found), *_quantiles(errors), inside / len(found)))
    return sorted(rows, key=lambda r: (-r.timings, r.family))


def predictions(peaks: Peaks, timings: Sequence[Timing], folds: int = FOLDS) -> list[tuple[Timing, float, float]]:
    """For each timing of a family what is estimated without its group, and the factor around that; empty when there are
    too few."""
    groups: dict[int, list[Timing]] = {}
    for t in timings:
        groups.setdefault(hash_of(f"{t.key.text}|{t.key.dims}") % folds, []).append(t)
    if len(groups) < 2 or len(timings) - max(map(len, groups.values())) < ENOUGH:
        return []
    rows = []
    whole = Fit.of(timings, CostModel(peaks).ceilings(timings[0].key.family, timings))  # how far residuals reach
    for number, group in groups.items():
        others = [t for n, rest in groups.items() if n != number for t in rest]
        fit = Fit.of(others, CostModel(peaks).ceilings(others[0].key.family, others), whole)
        guesses, spreads = fit.predict([t.key for t in group], [t.features for t in group])
        rows += zip(group, guesses.tolist(), spreads.tolist(), strict=True)
    return rows


def overall(rows: Sequence[Held]) -> Mapping[str, float]:
    """The median of all families' medians and nine-tenths quantiles, weighted by their timings."""
    return {n: _weighted([(getattr(r, n), r.timings) for r in rows]) for n in ("median", "ninth", "inside")}


def _weighted(rows: Sequence[tuple[float, int]]) -> float:
    half = sum(w for _, w in rows) / 2
    for value, weight in sorted(rows):
        half -= weight
        if half <= 0:
            return value
    return float("nan")


def _quantiles(errors: Sequence[float]) -> tuple[float, float]:
    return errors[(len(errors) - 1) // 2], errors[min(len(errors) - 1, int(0.9 * len(errors)))]
