"""Predicted seconds: measured where known, else fitted per kernel and dtype, else from the machine's ceilings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from waxeq.cost.device import Peaks
from waxeq.cost.features import roofline
from waxeq.cost.key import Family, Timing, TimingKey

_ENOUGH = 8
_PRIOR = 0.05
"""Weight of a ceiling among the timings of a fit."""
_DOUBT = 0.25
"""How fast a fit is trusted less beyond what was measured: the exponent of how many times."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Seconds with an interval, and where they come from: "measured", "fitted" or "roofline"."""

    seconds: float
    low: float
    high: float
    source: str


SOURCES = ("measured", "fitted", "roofline")
"""Where estimates come from, the surest first."""


def least_sure(sources: Iterable[str]) -> str:
    """What a sum of estimates rests on."""
    return max(sources, key=SOURCES.index)


@dataclass(frozen=True, slots=True)
class Fit:
    """seconds = sum of coefficient * feature, coefficients >= 0; `spread` is the factor that holds 80 % of
    residuals, between the `least` and the `most` seconds that were measured.
    """

    coefficients: Mapping[str, float]
    spread: float
    points: int
    least: float
    most: float


class CostModel:
    """Estimates for one device: a timing where there is one, else the fit of the call's family, else the roofline.

    Fits are made when they are first asked for, and again when `learn` brings timings of their family.
    """

    def __init__(self, peaks: Peaks, timings: Iterable[Timing] = (), *, roofline_only: bool = False) -> None:
        self.peaks, self.roofline_only = peaks, roofline_only
        self.measured: dict[TimingKey, Timing] = {}
        self._rows: dict[Family, dict[TimingKey, Timing]] = {}
        self._fits: dict[Family, Fit | None] = {}
        self.learn(timings)

    def learn(self, timings: Iterable[Timing]) -> frozenset[Family]:
        """Take in timings; the families whose estimates may have changed."""
        changed: set[Family] = set()
        if self.roofline_only:
            return frozenset()
        for t in timings:
            if self.measured.get(t.key) is not t:
                self.measured[t.key] = t
                self._rows.setdefault(t.key.family, {})[t.key] = t
                changed.add(t.key.family)
                self._raise_ceiling(t)
        for f in changed:
            self._fits.pop(f, None)
        return frozenset(changed)

    def _raise_ceiling(self, t: Timing) -> None:
        """What a kernel was seen to reach is a ceiling that was measured too low, as on a machine that was busy then;
        kernels that nobody timed would otherwise look too dear to be tried."""
        rate, known = t.features.get("flops", 0.0) / t.seconds, self.peaks.flops.get(t.key.dtype, 0.0)
        if rate > known:
            self.peaks = replace(self.peaks, flops={**self.peaks.flops, t.key.dtype: rate})

    def fit(self, family: Family) -> Fit | None:
        """The fit of a family; None while it has too few timings."""
        if family not in self._fits:
            rows = list(self._rows.get(family, {}).values())
            self._fits[family] = _fit(rows, self._ceilings(family, rows)) if len(rows) >= _ENOUGH else None
        return self._fits[family]

    def _ceilings(self, family: Family, rows: Iterable[Timing]) -> dict[str, float]:
        """Seconds that one unit of each feature takes at the machine's ceilings; 0 for those that say nothing."""
        names = {f for t in rows for f in t.features}
        none = roofline({}, family.dtype, self.peaks)
        return {f: roofline({f: 1e9}, family.dtype, self.peaks) / 1e9 - none / 1e9 for f in sorted(names)}

    def estimate(self, key: TimingKey, features: Mapping[str, float]) -> Estimate:
        """Seconds for a call; positive and finite."""
        known = self.measured.get(key)
        if known is not None:
            return Estimate(known.seconds, *known.interval, "measured")
        fit = self.fit(key.family)
        if fit is None:
            bound = roofline(features, key.dtype, self.peaks)
            return Estimate(bound, bound / 3, bound * 3, "roofline")
        known_part = sum(c * features.get(f, 0.0) for f, c in fit.coefficients.items())
        unknown = {f: v for f, v in features.items() if f not in fit.coefficients}
        seconds = max(known_part + (roofline(unknown, key.dtype, self.peaks) if unknown else 0.0), 1e-7)
        spread = fit.spread * max(1.0, seconds / fit.most, fit.least / seconds) ** _DOUBT
        return Estimate(seconds, seconds / spread, seconds * spread, "fitted")


def _fit(rows: list[Timing], ceilings: Mapping[str, float]) -> Fit:
    """Least squares on relative errors with coefficients >= 0.

    What the timings do not tell is what the machine's ceilings say: each counts as a weak observation, or large calls
    alone would leave the price of starting one open, and small ones would be priced at anything.
    """
    import numpy as np
    from scipy.optimize import nnls

    names = sorted({f for t in rows for f in t.features})
    y = np.array([t.seconds for t in rows])
    a = np.array([[t.features.get(f, 0.0) for f in names] for t in rows])
    scale = np.maximum(np.abs(a).max(axis=0), 1e-300)
    prior = np.array([ceilings[f] for f in names])
    said = np.flatnonzero(prior > 0)
    weak = np.zeros((len(said), len(names)))
    weak[np.arange(len(said)), said] = _PRIOR / prior[said] / scale[said]
    system = np.vstack([a / scale / y[:, None], weak])
    wanted = np.concatenate([np.ones(len(rows)), np.full(len(said), _PRIOR)])
    found, _ = nnls(system, wanted, maxiter=50 * len(names))
    coefficients = dict(zip(names, (found / scale).tolist(), strict=True))
    predicted = np.maximum(a @ np.array(list(coefficients.values())), 1e-9)
    residual = np.abs(np.log(y / predicted))
    free = len(rows) - sum(c > 0 for c in coefficients.values())
    # a fit with hardly more timings than coefficients goes through all of them and proves nothing
    spread = math.exp(float(np.quantile(residual, 0.8)) * math.sqrt(len(rows) / max(1, free)))
    return Fit(coefficients, max(1.2 if free >= 4 else 2.0, spread), len(rows), float(y.min()), float(y.max()))
