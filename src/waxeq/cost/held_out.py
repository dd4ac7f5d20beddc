"""How well calls are estimated that nobody timed: fits are made without some timings, and asked for those."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from waxeq.cost.device import Peaks
from waxeq.cost.elements import Alone, alone, elements, unseen
from waxeq.cost.estimate import ENOUGH, CostModel
from waxeq.cost.fit import NEIGHBOURS, LeftOut
from waxeq.cost.key import Family, Timing, TimingKey
from waxeq.cost.places import hash_of

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
    """For each timing, of a family the newest NEIGHBOURS, what is estimated without its group, and the factor around
    that; none for families that have too few. A group is left out of all families at once: another kernel for the same
    would give it away too."""
    families: dict[Family, list[Timing]] = {}
    for t in sorted(timings, key=lambda t: -t.when):
        families.setdefault(t.key.family, []).append(t)
    model = CostModel(peaks, [t for rows in families.values() for t in reversed(rows[:NEIGHBOURS])])
    fits = model.fits()
    functions = _functions(model, folds)
    rows = []
    for family, fit in fits.items():
        part = np.array([_part(k, folds) for k in fit.calls.keys])
        for number in range(folds):
            gone = np.flatnonzero(part == number)
            if 0 < len(gone) <= len(part) - ENOUGH:
                known = functions.get((family.backend, number), {})
                rows += _predicted(model, family, fit.left_out(gone), [fit.calls.keys[i] for i in gone], known)
    return rows


def _predicted(
    model: CostModel, family: Family, found: LeftOut, keys: Sequence[TimingKey], known: Mapping[str, float]
) -> Iterator[tuple[Timing, float, float]]:
    for k, seconds, spread in zip(keys, found.seconds.tolist(), found.spread.tolist(), strict=True):
        t = model.measured[k]
        new = {n: v for n, v in t.work.items() if n not in found.names}
        more = unseen(new, known, family.dtype, model.peaks_of(family.kernel)) if new else 0.0
        yield t, seconds + more, spread


def _functions(model: CostModel, folds: int) -> Mapping[tuple[str, int], Mapping[str, float]]:
    """What functions cost, by backend and the part of the timings that was left out."""
    found: dict[str, list[tuple[int, Alone]]] = {}
    for a in alone(model.peaks, model.measured.values()):
        found.setdefault(a.of.key.backend, []).append((_part(a.of.key, folds), a))
    return {
        (backend, number): elements(a for part, a in rows if part != number)
        for backend, rows in found.items()
        for number in range(folds)
    }


def _part(key: TimingKey, folds: int) -> int:
    return hash_of(f"{key.text}|{key.dims}") % folds


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
