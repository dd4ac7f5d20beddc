"""Timings of a machine that others use too: most are what a call takes, some were taken while everything was slow.

A mixture of three: what is predicted from the other timings, give or take a little; so much longer; and anything. Each
timing counts as far as it is likely to be of the first kind.

Source: McLachlan and Peel, Finite Mixture Models, 2000, chapter 2, with predictions from the other timings as in
Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, section 5.4.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

NOISE = 0.005
"""Variance of the logarithm of a timing where nothing disturbs it."""
_SLOWER, _ABOUT = 0.45, 0.12**2
"""Logarithm of how much longer a call takes on a machine that is slow for a while: half as long again; its variance."""
_OFTEN, _STRANGE = 0.2, 0.03
"""How often that is so, and how often a timing is anything (of variance 1)."""
_ROUNDS = 2


@dataclass(frozen=True)
class Settled:
    """Of timings with a covariance: the inverse with their own noise on it, its product with what is left of them, and
    of each how far it is from what the others predict, in standard deviations of that."""

    inverse: Array
    weights: Array
    off: Array

    @staticmethod
    def of(covariance: Array, residual: Array) -> Settled:
        """Which timings were slow is found out in a few rounds, each from what the last one predicts of each."""
        import numpy as np

        noise, values = np.full(len(residual), NOISE), residual
        for more in range(_ROUNDS, -1, -1):
            inverse = np.linalg.inv(covariance + np.diag(noise + 1e-6))
            weights, diagonal = inverse @ values, np.diag(inverse)
            off = residual - (values - weights / diagonal)
            variance = np.maximum(1.0 / diagonal - noise, 1e-4) + NOISE
            if more:
                slow, strange = _kinds(off, variance)
                values = residual - _SLOWER * slow
                noise = NOISE + slow * _ABOUT + slow * (1.0 - slow) * _SLOWER**2 + strange
        return Settled(inverse, weights, off / np.sqrt(variance))


def _kinds(off: Array, variance: Array) -> tuple[Array, Array]:
    """How likely timings that are `off` by so much are slow ones, and how likely they are anything."""
    usual = (1.0 - _STRANGE) * (1.0 - _OFTEN) * _normal(off, variance)
    slow = (1.0 - _STRANGE) * _OFTEN * _normal(off - _SLOWER, variance + _ABOUT)
    strange = _STRANGE * _normal(off, variance + 1.0)
    total = usual + slow + strange
    return slow / total, strange / total


def _normal(x: Array, variance: Array) -> Array:
    import numpy as np

    return np.exp(-0.5 * x * x / variance) / np.sqrt(variance)
