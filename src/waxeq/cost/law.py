"""Laws: seconds as a sum of features times coefficients that are not negative, fitted to logarithms of timings, the
machine's ceilings standing in for what these leave open.

Source: Lawson and Hanson, Solving Least Squares Problems, 1974, chapter 23.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

PRIOR = 0.05
"""Weight of a price that is given among the timings of a law."""
_PART = 0.2
"""Part of a price that is given which a feature takes at least: where others explain the timings as well, a price of
nothing would be as good, and a call of that feature alone would take no time."""
_ROUNDS = 2
"""Times that the law is linearized: after that coefficients change by less than timings are worth."""
_FAR = 1.0
"""Residuals (of logarithms) beyond which a timing pulls at the law no harder."""
_TIE = 1e-6
"""Slopes that differ by less are the same: the first of them counts."""
_RIDGE = 1e-12
"""Part of the diagonal that is added to it: features that always come together leave it singular."""


@dataclass(frozen=True)
class Law:
    """seconds = sum of coefficient * feature, coefficients >= 0, by the names of features."""

    names: tuple[str, ...]
    coefficients: Array

    @staticmethod
    def of(names: Sequence[str], a: Array, seconds: Array, prices: Mapping[str, float], near: Law | None = None) -> Law:
        """Least squares on logarithms, of rows of features `a` in the order of `names`. What the timings do not tell is
        what `prices` say (seconds for one unit of a feature, 0 for nothing), such as the machine's ceilings: each
        counts as a weak observation, or large calls alone would leave the price of starting one open, and small ones
        would be priced at anything.

        `near`: a law that this one should be close to, from which it is found faster."""
        import numpy as np

        y = np.log(seconds)
        scale = np.abs(a).max(axis=0)
        scale = np.where(scale > 1e-300, scale, 1.0)  # what is nothing in every row stays that
        prior = np.array([prices.get(f, 0.0) for f in names]) * scale
        weak = np.where(prior > 0, PRIOR / np.where(prior > 0, prior, 1.0), 0.0)
        least = _PART * prior
        a = a / scale
        guess = {} if near is None else dict(zip(near.names, near.coefficients.tolist(), strict=True))
        found = np.array([guess.get(n, 0.0) for n in names]) * scale
        predicted, wanted = np.exp(y), np.ones(len(y))
        weight = np.ones(len(y))
        for _ in range(_ROUNDS):
            # log(p) is about log(p0) + p / p0 - 1 where p is near p0: least squares again
            system = a * (weight / predicted)[:, None]
            gram = system.T @ system + np.diag(weak**2)
            wish = system.T @ (wanted * weight) + PRIOR * weak
            found = least + nonnegative(gram, wish - gram @ least, np.maximum(found - least, 0.0))
            new = np.maximum(a @ found, 1e-9)
            residual = y - np.log(new)
            weight = np.sqrt(_FAR / np.maximum(np.abs(residual), _FAR))
            predicted = np.maximum(new, np.exp(y - 1.0))  # linear further out it would be a poor guide
            wanted = 1.0 + y - np.log(predicted)
        return Law(tuple(names), found / scale)

    def seconds(self, a: Array) -> Array:
        """Of rows of features in the order of `names`."""
        import numpy as np

        return np.maximum(a @ self.coefficients, 1e-9)

    def shares(self, a: Array) -> Array:
        """What part of the seconds of each row each feature takes."""
        return a * self.coefficients / self.seconds(a)[:, None]


def nonnegative(gram: Array, h: Array, start: Array | None = None) -> Array:
    """The x >= 0 with the least |a x - b|, of gram = a' a and h = a' b, by active sets; `start`: an x >= 0 to go from,
    whose zeros are likely zeros."""
    import numpy as np

    unit = np.sqrt(np.maximum(np.diag(gram), 1e-300))
    gram, h = gram / np.outer(unit, unit) + _RIDGE * np.eye(len(h)), h / unit
    x = np.zeros(len(h)) if start is None else start * unit
    free = x > 0
    enough = 1e-10 * max(1.0, float(np.abs(h).max(initial=0.0)))
    for _ in range(3 * len(h) + 1):
        while free.any():
            at = np.flatnonzero(free)
            z = np.linalg.solve(gram[np.ix_(at, at)], h[at])
            if (z > 0).all():
                x = np.zeros(len(h))
                x[at] = z
                break
            out = z <= 0
            step = float(np.min(x[at][out] / np.maximum(x[at][out] - z[out], 1e-300)))
            x[at] += step * (z - x[at])
            free[at[out & (x[at] <= 1e-14)]] = False
            x[~free] = 0.0
        slope = np.where(free, -np.inf, h - gram @ x)
        most = float(slope.max(initial=-np.inf))
        if most <= enough:
            break
        # where features go together in all rows, rounding would decide, which processors do differently
        free[int(np.argmax(slope >= most - enough - _TIE * abs(most)))] = True
    return x / unit
