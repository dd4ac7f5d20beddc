"""What kernels that are made alike have in common: prices of features that timings of all of them tell.

Kernels of a backend whose names begin alike, as `loops`, `loops_narrow` and `loops_fast`, run much the same code, and
one dtype's takes about what another's takes by the byte. A law fitted to all of them is what the law of each leans on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from waxeq.cost.device import Peaks
from waxeq.cost.features import is_function, roofline
from waxeq.cost.geometry import item_size
from waxeq.cost.key import Family, Timing
from waxeq.cost.law import Law

_NEWEST = 4096
"""Timings that are looked at, the newest."""
_OF_ELEMENTS = frozenset({"flops", "slow_flops", "operations", "packed", "padded"})
"""Features that count elements, of which a vector holds fewer the larger they are."""


def akin(family: Family) -> tuple[str, str]:
    """What the kernels have in common that are made like that of a family: backend, and how their names begin."""
    return family.backend, family.kernel.partition("_")[0]


@dataclass(frozen=True)
class Shared:
    """A law over features by the byte, and the ceilings of the device."""

    law: Law
    peaks: Peaks

    @staticmethod
    def of(timings: Sequence[Timing], peaks: Peaks) -> Shared:
        """A law for at least one timing."""
        import numpy as np

        rows = sorted(timings, key=lambda t: t.when)[-_NEWEST:]
        told = [(t.key.dtype, *t.work) for t in rows]  # few tell of other features than all others
        units = {of: [_unit(f, of[0]) for f in of[1:]] for of in dict.fromkeys(told)}
        names = sorted({n for found in units.values() for n, _ in found})
        number = {n: i for i, n in enumerate(names)}
        columns = {of: [number[n] for n, _ in found] for of, found in units.items()}
        at = np.repeat(np.arange(len(rows)) * len(names), [len(columns[of]) for of in told])
        at += np.array([c for of in told for c in columns[of]], np.int64)
        amounts = np.array([v for t in rows for v in t.work.values()])
        features = np.zeros((len(rows), len(names)))
        np.add.at(features.reshape(-1), at, amounts * np.array([size for of in told for _, size in units[of]], float))
        seconds = np.array([t.seconds for t in rows])
        of_float32 = {f: _unit(f, "float32") for of in units for f in of[1:]}
        ceilings = {n: _ceiling(f, "float32", peaks) / size for f, (n, size) in sorted(of_float32.items())}
        return Shared(Law.of(names, features, seconds, ceilings), peaks)

    def prices(self, names: Iterable[str], dtype: str) -> dict[str, float]:
        """Seconds for a unit of each feature of a family of a dtype; what no timing tells is what the ceilings say."""
        known = dict(zip(self.law.names, self.law.coefficients.tolist(), strict=True))
        found = {}
        for f in sorted(names):
            name, size = _unit(f, dtype)
            found[f] = known.get(name, 0.0) * size or _ceiling(f, dtype, self.peaks)
        return found


def _unit(feature: str, dtype: str) -> tuple[str, int]:
    """What a feature is called whatever the dtype, and how much of that one unit of it is."""
    if is_function(feature):
        name, _, of = feature.rpartition(":")
        return name, item_size(of)
    return feature, item_size(dtype) if feature in _OF_ELEMENTS else 1


def _ceiling(feature: str, dtype: str, peaks: Peaks) -> float:
    """Seconds that one unit of a feature takes at the machine's ceilings; 0 for those that say nothing."""
    return (roofline({feature: 1e9}, dtype, peaks) - roofline({}, dtype, peaks)) / 1e9
