"""Predicted seconds: measured where known, else fitted per kernel and dtype, else from the machine's ceilings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from waxeq.cost.device import Peaks
from waxeq.cost.features import roofline
from waxeq.cost.key import Family, Timing, TimingKey

_ENOUGH = 8


@dataclass(frozen=True, slots=True)
class Estimate:
    """Seconds with an interval, and where they come from: "measured", "fitted" or "roofline"."""

    seconds: float
    low: float
    high: float
    source: str


@dataclass(frozen=True, slots=True)
class Fit:
    """seconds = sum of coefficient * feature, coefficients >= 0; `spread` is the factor that holds 80 % of
    residuals.
    """

    coefficients: Mapping[str, float]
    spread: float
    points: int


@dataclass(frozen=True)
class CostModel:
    """Estimates for one device. Immutable; `with_measured` gives one that knows more."""

    peaks: Peaks
    fits: Mapping[Family, Fit] = field(default_factory=dict)
    measured: Mapping[TimingKey, Timing] = field(default_factory=dict)

    @staticmethod
    def fit(timings: Iterable[Timing], peaks: Peaks, *, roofline_only: bool = False) -> CostModel:
        """Fit every family that has enough timings."""
        groups: dict[Family, list[Timing]] = {}
        if not roofline_only:
            for t in timings:
                groups.setdefault(t.key.family, []).append(t)
        return CostModel(peaks, {f: _fit(rows) for f, rows in groups.items() if len(rows) >= _ENOUGH})

    def with_measured(self, rows: Mapping[TimingKey, Timing]) -> CostModel:
        return CostModel(self.peaks, self.fits, {**self.measured, **rows})

    def estimate(self, key: TimingKey, features: Mapping[str, float]) -> Estimate:
        """Seconds for a call; positive and finite."""
        known = self.measured.get(key)
        if known is not None:
            s = sorted(known.samples)
            return Estimate(known.seconds, s[len(s) // 10], s[-1 - len(s) // 10], "measured")
        fit = self.fits.get(key.family)
        bound = roofline(features, key.dtype, self.peaks)
        if fit is None:
            return Estimate(bound, bound / 3, bound * 3, "roofline")
        known_part = sum(c * features.get(f, 0.0) for f, c in fit.coefficients.items())
        unknown = {f: v for f, v in features.items() if f not in fit.coefficients}
        seconds = max(known_part + (roofline(unknown, key.dtype, self.peaks) if unknown else 0.0), 1e-7)
        return Estimate(seconds, seconds / fit.spread, seconds * fit.spread, "fitted")


def _fit(rows: list[Timing]) -> Fit:
    """Least squares on relative errors with coefficients >= 0."""
    import numpy as np
    from scipy.optimize import nnls

    names = sorted({f for t in rows for f in t.features})
    y = np.array([t.seconds for t in rows])
    a = np.array([[t.features.get(f, 0.0) for f in names] for t in rows])
    scale = np.maximum(np.abs(a).max(axis=0), 1e-300)
    found, _ = nnls(a / scale / y[:, None], np.ones(len(rows)), maxiter=50 * len(names))
    coefficients = dict(zip(names, (found / scale).tolist(), strict=True))
    predicted = np.maximum(a @ np.array(list(coefficients.values())), 1e-9)
    residual = np.abs(np.log(y / predicted))
    spread = math.exp(float(np.quantile(residual, 0.8))) if len(rows) else 3.0
    return Fit(coefficients, max(1.05, spread), len(rows))
