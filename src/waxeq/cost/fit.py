"""Fits: from the timings of one family to seconds of calls that nobody timed, in the space of logarithms.

Two parts. A law (`cost.law`), and what the law gets wrong nearby: its residuals are a Gaussian process over sizes, the
way operands lie, and what the time goes into. A call takes after those that are near and spend their time on the same
things, those of the same meaning, or whose operands lie the same way, before others; timings that are off from what all
others say count less; and the interval widens with the distance to what was timed.

Source: Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, chapters 2, 4 (Matern covariances, sums
and products of them) and 5 (predicting a part from the others).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from waxeq.cost.features import KINDS, is_function, part
from waxeq.cost.key import Timing
from waxeq.cost.law import Law
from waxeq.cost.places import Calls, hash_of

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

FOLDS = 5
"""Parts that timings are cut into; how sure a fit is, it learns from predicting each from the others."""
NEIGHBOURS = 384
"""Timings whose residuals are looked at, the newest: more of them change little, and inverting takes their cube."""
_NEAR, _MEANING, _LIE, _PRICE = 1.0, 0.03, 0.03, 0.125
"""Variance of residuals that calls have in common that lie near each other; of those of one meaning; of those whose
largest parts lie the same way; and of the price of a feature."""
_NOISE = 0.015
"""Variance of the logarithm of a timing: two of one call on a shared machine."""
_SPENT = 1.5
"""How much it sets calls apart what part of the time goes into features of one kind."""
_OFF, _USELESS = 2.0, 1.0
"""Standard deviations from which on a timing counts less; variance of one that says nothing."""
_FARTHEST = 2.0
"""Logarithm of how many times a law may be off, and of the widest interval."""
_DOUBT = 0.25
"""How fast a fit is trusted less beyond what was measured: the exponent of how many times."""
INSIDE = 0.9
"""The part of timings that intervals are to hold."""
_LEAST = 1.1
"""The narrowest interval: timings taken again differ by as much."""
_TWICE = math.log(2.0)


def part_of(text: str, dims: str) -> int:
    """The part that a timing is in: that of all timings of one meaning on one set of sizes, of whatever kernel."""
    return hash_of(f"{text}|{dims}") % FOLDS


@dataclass(frozen=True)
class Points:
    """Calls with what a law says of them: places with parts of the time by kind, and parts of the time by feature."""

    calls: Calls
    places: Array
    spent: Array

    @staticmethod
    def of(law: Law, calls: Calls) -> Points:
        """`calls` have the features of the law."""
        import numpy as np

        spent = law.shares(calls.features)
        return Points(calls, np.hstack([calls.places, _SPENT * (spent @ _kinds(law.names))]), spent)

    def alike(self, others: Points) -> Array:
        """What the residuals of each of these have in common with those of each of the others."""
        import numpy as np

        a, b = self.places, others.places
        squares = (a * a).sum(axis=1)[:, None] + (b * b).sum(axis=1)[None, :] - 2 * (a @ b.T)
        far = np.sqrt(np.maximum(squares, 0.0))
        near = (1.0 + far) * np.exp(-far)
        alike = _NEAR + _MEANING * self.calls.same(others.calls) + _LIE * self.calls.lie_alike(others.calls)
        return near * alike + _PRICE * (self.spent @ others.spent.T)

    def own(self) -> Array:
        """The same of each with itself."""
        return _NEAR + _MEANING + _LIE + _PRICE * (self.spent * self.spent).sum(axis=1)


def _kinds(names: Sequence[str]) -> Array:
    """Of what kind each feature is: those of the roofline, functions, and bytes beyond caches."""
    import numpy as np

    kinds = (*KINDS, "functions", "farther")
    found = np.zeros((len(names), len(kinds)))
    for i, n in enumerate(names):
        kind = "functions" if is_function(n) else "farther" if n.startswith("bytes beyond") else part(n)[0]
        found[i, kinds.index(kind)] = 1.0
    return found


@dataclass(frozen=True)
class Fit:
    """The law of a family and its residuals nearby: `inverse` of the covariance of the last NEIGHBOURS of its timings,
    which are the newest, and its product with their residuals. `widen`: factor on standard deviations with which nine
    tenths of the timings lie inside when each part of them is predicted from the others; `range`: the least and the
    most seconds that were timed."""

    law: Law
    near: Points
    inverse: Array
    weights: Array
    widen: float
    range: tuple[float, float]

    @staticmethod
    def of(rows: Sequence[Timing], prices: Mapping[str, float], before: Fit | None = None) -> Fit:
        """A fit to at least one timing. `prices`: seconds for a unit of each feature, where timings do not tell them;
        `before`: a fit to fewer timings of the same family, from which this one is found faster."""
        import numpy as np

        rows = sorted(rows, key=lambda t: t.when)
        calls = Calls.of([t.key for t in rows], [t.work for t in rows])
        seconds = np.array([t.seconds for t in rows])
        law = Law.of(calls.names, calls.features, seconds, prices, before and before.law)
        newest = np.arange(len(rows))[-NEIGHBOURS:]
        near = Points.of(law, calls.only(newest))
        residual = np.log(seconds[newest] / law.seconds(near.calls.features))
        residual = np.clip(residual, -_FARTHEST, _FARTHEST)
        inverse, weights, noise = _settled(near.alike(near), residual)
        parts = np.array([part_of(rows[i].key.text, rows[i].key.dims) for i in newest])
        found = _off(inverse, weights, noise, parts)
        widen = _widen(found, len(rows), int(np.count_nonzero(law.coefficients)))
        return Fit(law, near, inverse, weights, widen, (float(seconds.min()), float(seconds.max())))

    def predict(self, asked: Calls) -> tuple[Array, Array]:
        """Seconds of calls with the features of the law, and the factor around them that should hold INSIDE of the
        timings."""
        import numpy as np

        points = Points.of(self.law, asked)
        alike = points.alike(self.near)
        off = np.clip(alike @ self.weights, -_FARTHEST, _FARTHEST)
        seconds = self.law.seconds(asked.features) * np.exp(off)
        unsure = points.own() - np.einsum("ij,ij->i", alike @ self.inverse, alike)
        spread = np.exp(np.minimum(self.widen * np.sqrt(np.maximum(unsure, 0.0) + _NOISE), _FARTHEST))
        least, most = self.range
        beyond = np.maximum(1.0, np.maximum(seconds / most, least / np.maximum(seconds, 1e-12)))
        return seconds, np.minimum(np.maximum(spread, _LEAST) * beyond**_DOUBT, math.exp(_FARTHEST))

    @cached_property
    def names(self) -> frozenset[str]:
        """The features that its timings have."""
        return frozenset(self.law.names)


def _settled(alike: Array, residual: Array) -> tuple[Array, Array, Array]:
    """The inverse of the covariance of timings, its product with residuals, and the noise of each. Timings that are far
    from what all others say of them were taken at a slow moment, or are of what the law knows nothing of: they have
    more noise."""
    import numpy as np

    noise = np.full(len(residual), _NOISE)
    inverse = np.linalg.inv(alike + np.diag(noise))
    off = np.abs(inverse @ residual) / np.sqrt(np.diag(inverse))  # in standard deviations of what the others say
    if (off > _OFF).any():
        noise = np.minimum(_NOISE * np.maximum(1.0, off / _OFF) ** 2, _USELESS)
        inverse = np.linalg.inv(alike + np.diag(noise))
    return inverse, inverse @ residual, noise


def _off(inverse: Array, weights: Array, noise: Array, parts: Array) -> Array:
    """How many standard deviations timings are off, each part of them predicted from the others: what goes through the
    others is read off the inverse."""
    import numpy as np

    found = [np.ones(1)]
    for p in range(FOLDS):
        gone = np.flatnonzero(parts == p)
        if 0 < len(gone) < len(parts):
            own = np.linalg.inv(inverse[np.ix_(gone, gone)])
            found.append(np.abs(own @ weights[gone]) / np.sqrt(np.diag(own) - noise[gone] + _NOISE))
    return np.concatenate(found)


def _widen(off: Array, count: int, coefficients: int) -> float:
    """How many standard deviations hold INSIDE of the timings. A law with hardly more timings than coefficients goes
    through all of them and proves nothing."""
    import numpy as np

    free = count - coefficients
    at = INSIDE * (len(off) - 1)  # not np.quantile, which imports numpy.ma: as long as all the rest of a fit
    below, above = np.sort(off)[[math.floor(at), math.ceil(at)]].tolist()
    beyond = above - (above - below) * (1.0 - at % 1.0) if at % 1.0 >= 0.5 else below + (above - below) * (at % 1.0)
    wide = max(0.5, beyond) * math.sqrt(count / max(1, free))
    return wide if free >= 4 else max(wide, _TWICE / math.sqrt(_NOISE))
