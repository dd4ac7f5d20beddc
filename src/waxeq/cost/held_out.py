"""How well calls are estimated that nobody timed: estimates are made without some timings, and held against those.

Nothing of what is left out is known to what estimates it: not in another layout, not of another kernel. What is left is
what a search has that meets a size or a meaning for the first time; where it has timed calls nearby it knows more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from waxeq.cost.device import Peaks
from waxeq.cost.estimate import CostModel, Estimate
from waxeq.cost.fit import FOLDS, NEIGHBOURS, part_of
from waxeq.cost.key import Family, Timing


@dataclass(frozen=True, slots=True)
class Held:
    """Relative errors of estimates of one family, None for all of them together, a tenth of them above `ninth`;
    `inside`: the part of the timings that lay in the interval that was to hold nine tenths of them."""

    family: Family | None
    timings: int
    median: float
    ninth: float
    inside: float


def held_out(peaks: Peaks, timings: Iterable[Timing]) -> list[Held]:
    """Errors by family, that with most timings first, and last of all families where there are several. A group that is
    left out is all calls of one meaning on one set of sizes: other layouts of them, or other kernels for them, would
    give it away. Families of which nothing is left then are left out."""
    guesses = predictions(peaks, timings)
    found: dict[Family, list[tuple[Timing, Estimate]]] = {}
    for t, e in guesses:
        found.setdefault(t.key.family, []).append((t, e))
    rows = [_held(f, of) for f, of in sorted(found.items(), key=lambda row: (-len(row[1]), row[0]))]
    return [*rows, _held(None, guesses)] if len(rows) > 1 else rows


def _held(family: Family | None, guesses: Sequence[tuple[Timing, Estimate]]) -> Held:
    errors = sorted(abs(e.seconds / t.seconds - 1) for t, e in guesses)
    inside = sum(e.low <= t.seconds <= e.high for t, e in guesses)
    ninth = errors[min(len(errors) - 1, int(0.9 * len(errors)))]
    return Held(family, len(errors), errors[(len(errors) - 1) // 2], ninth, inside / len(errors))


def predictions(peaks: Peaks, timings: Iterable[Timing]) -> list[tuple[Timing, Estimate]]:
    """For each timing, of a family the newest NEIGHBOURS, what is estimated without the part of the timings that it is
    in; none for families of which nothing is left then."""
    newest = {t.key: t for t in sorted(timings, key=lambda t: t.when)}
    families: dict[Family, list[Timing]] = {}
    for t in sorted(newest.values(), key=lambda t: -t.when):
        families.setdefault(t.key.family, []).append(t)
    rows = [(part_of(t.key.text, t.key.dims), t) for of in families.values() for t in reversed(of[:NEIGHBOURS])]
    found: list[tuple[Timing, Estimate]] = []
    for part in range(FOLDS):
        model = CostModel(peaks, [t for p, t in rows if p != part])
        gone = [t for p, t in rows if p == part]
        estimates = model.estimates([t.key for t in gone], [t.features for t in gone])
        found += [(t, e) for t, e in zip(gone, estimates, strict=True) if e.source == "fitted"]
    return found
