"""How well calls are estimated that nobody timed: fits are made without some timings, and asked for those."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from waxeq.cost.device import Peaks
from waxeq.cost.estimate import CostModel
from waxeq.cost.fit import hash_of
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
    found: dict[Family, list[tuple[Timing, float, float]]] = {}
    for row in predictions(peaks, timings, folds):
        found.setdefault(row[0].key.family, []).append(row)
    rows = []
    for family, guesses in found.items():
        errors = sorted(abs(guess / t.seconds - 1) for t, guess, _ in guesses)
        inside = sum(guess / spread <= t.seconds <= guess * spread for t, guess, spread in guesses)
        rows.append(Held(family, len(guesses), *_quantiles(errors), inside / len(guesses)))
    return sorted(rows, key=lambda r: (-r.timings, r.family))


def predictions(peaks: Peaks, timings: Iterable[Timing], folds: int = FOLDS) -> list[tuple[Timing, float, float]]:
    """For each timing what is estimated without its group, and the factor around that; none for families that have too
    few. A group is left out of all families at once: another kernel for the same would give it away too."""
    parts: dict[int, list[Timing]] = {n: [] for n in range(folds)}
    for t in timings:
        parts[hash_of(f"{t.key.text}|{t.key.dims}") % folds].append(t)
    whole = CostModel(peaks, [t for part in parts.values() for t in part])
    fits = whole.fits()  # how far residuals reach
    rows = []
    for number, part in parts.items():
        model = CostModel(peaks, [t for n, rest in parts.items() if n != number for t in rest], before=fits)
        asked = [t for t in part if model.fit(t.key.family) is not None]
        found = model.estimates([t.key for t in asked], [t.features for t in asked])
        rows += [(t, e.seconds, e.high / e.seconds) for t, e in zip(asked, found, strict=True)]
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
