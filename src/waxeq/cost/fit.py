"""Fits: from the timings of one family to seconds of calls that nobody timed, in the space of logarithms.

Two parts. A law (`cost.law`), and what the law gets wrong nearby: its residuals are a Gaussian process over sizes,
strides and what the time goes into. A call takes after those that are near and spend their time on the same features,
for it is prices that are wrong, and differ from size to size; timings that a machine took while it was slow count less
(`cost.moods`); and the interval widens with the distance to what was timed.

Source: Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, chapters 2, 4 (Matern covariances, sums
and products of them) and 5 (leave-one-out).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from waxeq.cost.features import part
from waxeq.cost.key import Timing
from waxeq.cost.law import Law
from waxeq.cost.moods import NOISE, Settled
from waxeq.cost.places import Calls

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

_DOUBT = 0.25
"""How fast a fit is trusted less beyond what was measured: the exponent of how many times."""
NEIGHBOURS = 384
"""Timings that stand for a family, the newest: more of them change little, and inverting takes their cube."""
_NEAR, _ALL, _PRICE, _PRICE_HERE, _MEANING = 0.3, 0.02, 0.3, 0.8, 0.01
"""Variance of residuals that calls have in common that lie near each other; all calls; of the price of a feature
wherever it is paid, and where it is paid; of a meaning."""
_EIGHT_TENTHS = 1.2816
"""Standard deviations on both sides of a normal distribution that hold eight tenths of it."""
_LEAST = 1.1
"""The narrowest interval: timings taken again differ by as much."""
_FARTHEST = 2.5
"""Logarithm of how many times the law may be off."""


def _alike(law: Law, a: Calls, b: Calls) -> Array:
    """How much the residuals of each of some calls have in common with those of each of others."""
    near = _near(a, b)
    same = _spent(law, a)[0] @ _spent(law, b)[0].T
    return _NEAR * near + _ALL + same * (_PRICE + _PRICE_HERE * near) + _of_meaning(law, a, b)


def _of_meaning(law: Law, a: Calls, b: Calls) -> Array:
    """What of that is because they mean the same."""
    import numpy as np

    return _MEANING * np.outer(_spent(law, a)[1], _spent(law, b)[1]) * _near(a, b) * a.same(b)


def _near(a: Calls, b: Calls) -> Array:
    """1 at the same place, less further away."""
    import numpy as np

    distance = np.sqrt(a.squares(b))
    return (1.0 + distance) * np.exp(-distance)


def _own(law: Law, calls: Calls) -> Array:
    """What residuals have in common with themselves: the diagonal of `_alike`."""
    shares, work = _spent(law, calls)
    return _NEAR + _ALL + (shares**2).sum(axis=1) * (_PRICE + _PRICE_HERE) + _MEANING * work**2


def _spent(law: Law, calls: Calls) -> tuple[Array, Array]:
    """What part of the time goes into each feature, and what part into anything but starts, which any meaning has."""
    import numpy as np

    shares = law.shares(calls.features)
    starts = np.array([part(n)[0] == "launches" for n in law.names], float)
    return shares, 1.0 - shares @ starts


@dataclass(frozen=True)
class Fit:
    """The law of a family and its residuals nearby. `calls` took `seconds`; `law` is a fit to all of them, `settled` is
    of the last NEIGHBOURS, which are the newest. `widen`: factor on standard deviations with which eight of ten timings
    lie inside when each is predicted from the others; `between`: variance of residuals from meaning to meaning, of
    which one that was never timed is unsure."""

    ceilings: Mapping[str, float]
    calls: Calls
    seconds: Array
    law: Law
    settled: Settled
    widen: float
    between: float

    @staticmethod
    def of(rows: Sequence[Timing], ceilings: Mapping[str, float], before: Fit | None = None) -> Fit:
        """A fit to at least one timing. `before`: one to fewer timings of the same family, from which it is found
        faster."""
        import numpy as np

        rows = sorted(rows, key=lambda t: t.when)
        calls = Calls.of([t.key for t in rows], [t.work for t in rows])
        return Fit.to(calls, np.array([t.seconds for t in rows]), ceilings, before and before.law)

    @staticmethod
    def to(calls: Calls, seconds: Array, ceilings: Mapping[str, float], near: Law | None = None) -> Fit:
        """A fit to calls that took so many seconds, the oldest first. `near`: a law that is close to theirs."""
        import numpy as np

        law = Law.of(calls.names, calls.features, seconds, ceilings, near)
        newest = calls.only(np.arange(len(calls))[-NEIGHBOURS:])
        residual = np.log(seconds[-NEIGHBOURS:] / law.seconds(newest.features)).clip(-_FARTHEST, _FARTHEST)
        settled = Settled.of(_alike(law, newest, newest), residual)
        between = float(np.mean((_of_meaning(law, newest, newest) @ settled.weights) ** 2))
        return Fit(ceilings, calls, seconds, law, settled, _widen(settled, len(calls), law), between)

    def predict(self, asked: Calls) -> tuple[Array, Array]:
        """Seconds of calls with the features of the law, and the factor around them that should hold eight of ten
        timings."""
        import numpy as np

        near = self.calls.only(np.arange(len(self.calls))[-NEIGHBOURS:])
        alike = _alike(self.law, asked, near)
        seconds = self.law.seconds(asked.features) * np.exp(alike @ self.settled.weights)
        known = np.einsum("ij,ij->i", alike @ self.settled.inverse, alike)
        unsure = np.maximum(_own(self.law, asked) - known, 0.0) + NOISE
        unsure += ~asked.same(near).any(axis=1) * self.between * _spent(self.law, asked)[1] ** 2
        spread = np.maximum(np.exp(_EIGHT_TENTHS * self.widen * np.sqrt(unsure)), _LEAST)
        least, most = self.seconds.min(), self.seconds.max()
        beyond = np.maximum(1.0, np.maximum(seconds / most, least / np.maximum(seconds, 1e-12)))
        return seconds, spread * beyond**_DOUBT

    def without(self, gone: Array) -> Fit:
        """The fit that there would be had these timings (positions) not been taken."""
        import numpy as np

        kept = np.setdiff1d(np.arange(len(self.calls)), gone)
        calls = self.calls.only(kept)
        calls = calls.naming(np.flatnonzero(calls.features.any(axis=0)))
        return Fit.to(calls, self.seconds[kept], self.ceilings, self.law)


def _widen(settled: Settled, count: int, law: Law) -> float:
    """A law with hardly more timings than coefficients goes through all of them and proves nothing."""
    import numpy as np

    share = float(np.quantile(np.abs(settled.off), 0.8)) / _EIGHT_TENTHS
    free = count - int(np.count_nonzero(law.coefficients))
    floor = 0.0 if free >= 4 else math.log(2.0) / (_EIGHT_TENTHS * math.sqrt(NOISE))
    return max(max(0.3, share) * math.sqrt(count / max(1, free)), floor)
