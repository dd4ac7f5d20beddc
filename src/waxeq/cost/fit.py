"""Fits: from the timings of one family to seconds of calls that nobody timed, in the space of logarithms.

Two parts. A law (`cost.law`), and what the law gets wrong nearby: its residuals are a Gaussian process over features,
sizes and strides, so that a call takes after the nearest ones that were timed, those of the same meaning before others,
and the interval widens with the distance to them.

Source: Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, chapters 2 and 5 (leave-one-out).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from waxeq.cost.key import Timing
from waxeq.cost.law import Law
from waxeq.cost.places import Calls

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

_DOUBT = 0.25
"""How fast a fit is trusted less beyond what was measured: the exponent of how many times."""
NEIGHBOURS = 256
"""Timings that stand for a family, the newest: more of them change little, and inverting takes their cube."""
_REACHES, _NOISES, _KIN = (1.5, 4.0), (0.05, 0.25), (0.3, 0.8)
"""What is tried: distance (of logarithms) over which residuals are alike; noise as part of their variance; how much
residuals of different meanings have in common."""
_TRIED = 96
"""Timings that this is tried on."""
_EIGHT_TENTHS = 1.2816
"""Standard deviations on both sides of a normal distribution that hold eight tenths of it."""
_LEAST = 1.1
"""The narrowest interval: timings taken again differ by as much."""


@dataclass(frozen=True)
class Alike:
    """How much the residuals of two calls have in common: 1 for the same place and meaning, less further away.

    `reach`: the distance at which it is exp(-1/2); `noise`: part of the variance that is of a timing alone; `kin`:
    factor where meanings differ.
    """

    reach: float
    noise: float
    kin: float

    def of(self, squares: Array, same: Array) -> Array:
        """From squared distances, and whether meanings are the same."""
        import numpy as np

        return np.exp(-0.5 * squares / self.reach**2) * np.where(same, 1.0, self.kin)

    def inverse(self, calls: Calls) -> Array:
        """The inverse of the covariance of timings of these calls with each other."""
        import numpy as np

        return np.linalg.inv(
            self.of(calls.squares(calls), calls.same(calls)) + (self.noise + 1e-6) * np.eye(len(calls))
        )


_ALIKE = [Alike(*row) for row in product(_REACHES, _NOISES, _KIN)]


def _fitting(calls: Calls, residual: Array) -> Alike:
    """With which residuals are best predicted, each from the others."""
    import numpy as np

    def off(alike: Alike) -> float:
        inverse = alike.inverse(calls)
        return float(np.mean(np.minimum(np.abs(inverse @ residual / np.diag(inverse)), 1.0)))

    return min(_ALIKE, key=off)


@dataclass(frozen=True)
class Fit:
    """The law of a family and its residuals nearby. `calls` took `seconds`; `law` is a fit to all of them, `inverse` of
    the last NEIGHBOURS, which are the newest."""

    ceilings: Mapping[str, float]
    calls: Calls
    seconds: Array
    law: Law
    alike: Alike
    inverse: Array

    @staticmethod
    def of(rows: Sequence[Timing], ceilings: Mapping[str, float], before: Fit | None = None) -> Fit:
        """A fit to at least one timing. `before`: one to fewer timings of the same family, which tells how far
        residuals reach until there are twice as many."""
        import numpy as np

        rows = sorted(rows, key=lambda t: t.when)
        calls = Calls.of([t.key for t in rows], [t.work for t in rows])
        seconds = np.array([t.seconds for t in rows])
        law = Law.of(calls.names, calls.features, seconds, ceilings, before and before.law)
        alike = before.alike if before is not None and len(rows) < 2 * len(before.calls) else None
        near = np.arange(len(calls))[-NEIGHBOURS:]
        if alike is None:
            some = np.linspace(near[0], near[-1], min(_TRIED, len(near))).round().astype(int)
            alike = _fitting(calls.only(some), np.log(seconds / law.seconds(calls.features))[some])
        return Fit(ceilings, calls, seconds, law, alike, alike.inverse(calls.only(near)))

    @cached_property
    def near(self) -> Calls:
        """The calls whose residuals are looked at."""
        import numpy as np

        return self.calls.only(np.arange(len(self.calls))[-len(self.inverse) :])

    @cached_property
    def residual(self) -> Array:
        """Logarithms of what timings nearby take over what the law says."""
        import numpy as np

        return np.log(self.seconds[-len(self.inverse) :] / self.law.seconds(self.near.features))

    @cached_property
    def weights(self) -> Array:
        return self.inverse @ self.residual

    @cached_property
    def variance(self) -> float:
        """Of residuals."""
        return _variance(self.residual)

    @cached_property
    def widen(self) -> float:
        """Factor on standard deviations with which eight of ten timings lie inside when each is predicted from the
        others."""
        import numpy as np

        return _widen(self.weights, np.diag(self.inverse), self.variance, len(self.calls), self.law)

    def predict(self, asked: Calls) -> tuple[Array, Array]:
        """Seconds of calls with the features of the law, and the factor around them that should hold eight of ten
        timings."""
        import numpy as np

        alike = self.alike.of(asked.squares(self.near), asked.same(self.near))
        seconds = self.law.seconds(asked.features) * np.exp(alike @ self.weights)
        unsure = 1.0 + self.alike.noise - np.einsum("ij,ij->i", alike @ self.inverse, alike)
        return seconds, self._spread(seconds, unsure, self.seconds, self.variance, self.widen)

    def _spread(self, seconds: Array, unsure: Array, timed: Array, variance: float, widen: float) -> Array:
        """The factor around predictions, from how `unsure` each is (a part of the variance) and what was `timed`."""
        import numpy as np

        spread = np.exp(_EIGHT_TENTHS * widen * np.sqrt(variance * np.maximum(unsure, self.alike.noise)))
        beyond = np.maximum(1.0, np.maximum(seconds / timed.max(), timed.min() / np.maximum(seconds, 1e-12)))
        return np.maximum(spread, _LEAST) * beyond**_DOUBT

    def left_out(self, gone: Array) -> LeftOut:
        """What would be predicted of these timings (positions, of no more than NEIGHBOURS) had they not been taken: the
        law is fitted anew, residuals reach as far as here, and the rest is read off the inverse, which for a part of
        the covariance is that of the whole less what goes through the others.
        """
        import numpy as np

        kept = np.setdiff1d(np.arange(len(self.calls)), gone)
        features, timed = self.calls.features[kept], self.seconds[kept]
        seen = features.any(axis=0)
        names = tuple(self.calls.names[i] for i in np.flatnonzero(seen))
        law = Law.of(names, features[:, seen], timed, self.ceilings, self.law)
        lawful = law.seconds(self.calls.features[:, seen])
        residual = np.log(self.seconds / lawful)
        own = np.linalg.inv(self.inverse[np.ix_(gone, gone)])
        through = self.inverse[np.ix_(kept, gone)] @ own
        weights = self.inverse @ residual
        nearby = residual[gone] - own @ weights[gone]
        diagonal = np.diag(self.inverse)[kept] - np.einsum("ij,ij->i", through, self.inverse[np.ix_(kept, gone)])
        variance = _variance(residual[kept])
        widen = _widen(weights[kept] - through @ weights[gone], diagonal, variance, len(kept), law)
        seconds = lawful[gone] * np.exp(nearby)
        return LeftOut(seconds, self._spread(seconds, np.diag(own), timed, variance, widen), frozenset(names))


class LeftOut(NamedTuple):
    """Seconds that are predicted of timings from others, the factor around them, and the features that these have."""

    seconds: Array
    spread: Array
    names: frozenset[str]


def _variance(residual: Array) -> float:
    import numpy as np

    return max(float(np.mean(np.minimum(residual**2, 4.0))), 1e-4)


def _widen(weights: Array, diagonal: Array, variance: float, count: int, law: Law) -> float:
    """From weights of residuals and the diagonal of the inverse. A law with hardly more timings than coefficients goes
    through all of them and proves nothing."""
    import numpy as np

    off = np.abs(weights / diagonal)  # of each timing, predicted from the others
    share = float(np.quantile(off / np.sqrt(variance / diagonal), 0.8)) / _EIGHT_TENTHS
    free = count - int(np.count_nonzero(law.coefficients))
    floor = 0.0 if free >= 4 else math.log(2.0)
    return max(max(0.3, share) * math.sqrt(count / max(1, free)), floor / math.sqrt(variance))
