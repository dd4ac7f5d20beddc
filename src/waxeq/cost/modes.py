"""Whether samples come from two moods of the machine rather than one: a test on the raw samples of one timing.

A mean or a quartile of two moods says nothing about either. Three things must hold: no distribution with one mode fits
(the dip test), the two clusters that fit best lie apart (Ashman's D), and by a factor that matters for choosing.

Sources: J. A. Hartigan and P. M. Hartigan, "The dip test of unimodality", Annals of Statistics 13 (1), 1985; P. M.
Hartigan, "Computation of the dip statistic", algorithm AS 217, Applied Statistics 34 (3), 1985; K. A. Ashman, C. M.
Bird and S. E. Zepf, "Detecting bimodality in astronomical datasets", Astronomical Journal 108, 1994 (D > 2 is a clean
separation); W. D. Fisher, "On grouping for maximum homogeneity", JASA 53, 1958 (the best clusters in one dimension are
intervals).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

FEWEST = 8
"""Samples below which two modes cannot be told from chance."""
ALIKE = 1.25
"""Factor below which samples are of one mood, however they lie."""
_APART, _PART = 2.0, 0.2
_LOOSE = 1.0 - 1e-9
"""What is told of many rows at once is told with this much to spare: sums are rounded in another order there."""
_TRIED = 20
"""Histograms that are tried for sets of samples of one length."""
_CRITICAL = {8: 0.5477, 10: 0.5718, 12: 0.5862, 15: 0.6008, 20: 0.6201, 30: 0.6424, 40: 0.6572, 80: 0.6768}
"""By number of samples n: sqrt(n) times the dip that one set of uniform samples in a thousand exceeds, of 200,000."""


@dataclass(frozen=True, slots=True)
class Modes:
    """Two moods: the mean seconds (geometric) of each, the part of the samples in the upper one, dip, Ashman's D."""

    low: float
    high: float
    upper: float
    dip: float
    separation: float


def modes(samples: Sequence[float]) -> Modes | None:
    """The two moods that positive samples come from; None where one is enough to explain them (at a level of 0.001), or
    where they differ by less than a factor of 1.25."""
    if len(samples) < FEWEST:
        return None
    x = sorted(math.log(s) for s in samples)
    if x[-1] - x[0] < math.log(ALIKE):
        return None
    value = dip(x)
    if value * math.sqrt(len(x)) <= _critical(len(x)):
        return None
    at, means, spread = _clusters(x)
    separation = math.sqrt(2) * (means[1] - means[0]) / spread if spread > 0 else math.inf
    if separation <= _APART or means[1] - means[0] < math.log(ALIKE):
        return None
    return Modes(math.exp(means[0]), math.exp(means[1]), 1 - at / len(x), value, separation)


def doubtful(rows: Sequence[Sequence[float]]) -> list[int]:
    """The places of those sets of positive samples in which `modes` may find two moods; it finds none in the others.
    Told of all rows of a length together, some fifty times as fast as one by one."""
    lengths: dict[int, list[int]] = {}
    for place, samples in enumerate(rows):
        lengths.setdefault(len(samples), []).append(place)
    found: list[int] = []
    for n, places in lengths.items():
        if n >= FEWEST:
            x = np.log(np.sort(np.array([rows[p] for p in places]), axis=1)).T
            left = np.flatnonzero(_parted(x))
            found += [places[p] for p in left[_unfitted(np.ascontiguousarray(x[:, left]))]]
    return sorted(found)


def _parted(x: np.ndarray) -> np.ndarray:
    """Which columns of sorted values (samples x sets) may be cut into two clusters that lie apart."""
    n, found = len(x), np.zeros(x.shape[1], bool)
    sums, squares = np.cumsum(x, axis=0), np.cumsum(x * x, axis=0)
    for k in range(math.ceil(_PART * n), n - math.ceil(_PART * n) + 1):
        low, high = sums[k - 1] / k, (sums[-1] - sums[k - 1]) / (n - k)
        parts = (squares[k - 1] / k - low**2) + ((squares[-1] - squares[k - 1]) / (n - k) - high**2)
        gap = high - low
        found |= (gap >= math.log(ALIKE) * _LOOSE) & (2.0 * gap**2 >= _APART**2 * _LOOSE * parts)
    return found


def _unfitted(x: np.ndarray) -> np.ndarray:
    """The columns of sorted values (samples x sets) that no histogram of up to three bars between samples comes near
    that has one mode. The dip is the distance from the nearest such distribution, so the others' is no larger."""
    n = len(x)
    at, near = (np.arange(n) + 0.5) / n, _critical(n) / math.sqrt(n) * _LOOSE - 0.5 / n
    left = np.arange(x.shape[1])
    for i, k in _knees(n):
        far = ~_near(x, at, i, k, near)
        left, x = left[far], x[:, far]
    return left


def _knees(n: int) -> list[tuple[int, int]]:
    """Where the middle bar of three begins and ends, most likely places first: a bar of a third to a half of the
    samples near the middle fits nine timings in ten."""
    pairs = ((i, k) for i in range(1, n - 2) for k in range(i + max(2, n // 5), n - 1))
    return sorted(pairs, key=lambda p: (abs(p[0] - 0.37 * n) + abs(p[1] - 0.68 * n), p))[:_TRIED]


def _near(x: np.ndarray, at: np.ndarray, i: int, k: int, most: float) -> np.ndarray:
    """Which columns the histogram with these knees has one mode for, and comes as near as that."""
    last = len(x) - 1
    with np.errstate(all="ignore"):
        bars = [(at[e] - at[b]) / (x[e] - x[b]) for b, e in ((0, i), (i, k), (k, last))]
        fits = (bars[1] >= bars[0]) | (bars[1] >= bars[2])
        for (b, e), density in zip(((0, i), (i, k), (k, last + 1)), bars, strict=True):
            fits &= np.abs((x[b:e] - x[b]) * density - (at[b:e] - at[b])[:, None]).max(axis=0) <= most
        return fits  # not where a bar is of no width: that is no number


def _critical(n: int) -> float:
    """Between sizes that were simulated, by interpolation."""
    sizes = sorted(_CRITICAL)
    above = next((m for m in sizes if m >= n), sizes[-1])
    below = max((m for m in sizes if m <= n), default=sizes[0])
    if above == below or n > sizes[-1]:
        return _CRITICAL[above]
    part = (n - below) / (above - below)
    return _CRITICAL[below] + part * (_CRITICAL[above] - _CRITICAL[below])


def _clusters(x: Sequence[float]) -> tuple[int, tuple[float, float], float]:
    """Sorted values in two intervals with least squares, neither of them a few outliers: where the upper begins, both
    means, and the square root of the sum of both variances."""
    n, total, squares = len(x), sum(x), sum(v * v for v in x)
    best, found, fewest = math.inf, (1, (x[0], x[-1]), 0.0), math.ceil(_PART * n)
    left = left_squares = 0.0
    for k in range(1, n):
        left += x[k - 1]
        left_squares += x[k - 1] ** 2
        means = left / k, (total - left) / (n - k)
        parts = left_squares - k * means[0] ** 2, squares - left_squares - (n - k) * means[1] ** 2
        if fewest <= k <= n - fewest and sum(parts) < best:
            best = sum(parts)
            found = k, means, math.sqrt(max(0.0, parts[0] / k + parts[1] / (n - k)))
    return found


def dip(x: Sequence[float]) -> float:
    """Hartigan's dip of sorted values: the largest distance between their distribution and the nearest one with a
    single mode. Algorithm AS 217."""
    n = len(x)
    if n < 2 or x[0] == x[-1]:
        return 0.5 / max(1, n)
    minorant, majorant = _hull(x, range(1, n), 0), _hull(x, range(n - 2, -1, -1), n - 1)
    low, high, best = 0, n - 1, 1.0
    while True:
        gcm, lcm = _chain(minorant, high, low), _chain(majorant, low, high)
        distance, ig, ih = _distance(x, gcm, lcm)
        if distance < best:
            break
        left = [_below(x, b, e) for e, b in zip(gcm[ig:], gcm[ig + 1 :], strict=False)]
        right = [_above(x, b, e) for b, e in zip(lcm[ih:], lcm[ih + 1 :], strict=False)]
        best = max([best, *left, *right])
        if (low, high) == (gcm[ig], lcm[ih]):
            break
        low, high = gcm[ig], lcm[ih]
    return best / (2 * n)


def _hull(x: Sequence[float], order: Sequence[int], end: int) -> list[int]:
    """For each point the next one towards `end` on the convex minorant (or concave majorant) of the distribution."""
    to = [end] * len(x)
    step = order[0] - end
    for j in order:
        to[j] = j - step
        while (at := to[j]) != end and (x[j] - x[at]) * (at - to[at]) >= (x[at] - x[to[at]]) * (j - at):
            to[j] = to[at]
    return to


def _chain(to: Sequence[int], start: int, end: int) -> list[int]:
    """From one end of the modal interval along the hull to the other."""
    found = [start]
    while found[-1] != end:
        found.append(to[found[-1]])
    return found


def _distance(x: Sequence[float], gcm: Sequence[int], lcm: Sequence[int]) -> tuple[float, int, int]:
    """The largest distance between minorant and majorant, and the places in both where it is reached."""
    last_g, last_l = len(gcm) - 1, len(lcm) - 1
    if last_g == last_l == 1:
        return 1.0, 1, 1
    best, ig, ih, ix, iv = 0.0, last_g, last_l, last_g - 1, 1
    while True:
        g, h = gcm[ix], lcm[iv]
        if g > h:
            b = gcm[ix + 1]
            d = (h - b + 1) - (x[h] - x[b]) * (g - b) / (x[g] - x[b])
            iv += 1
            if d >= best:
                best, ig, ih = d, ix + 1, iv - 1
        else:
            b = lcm[iv - 1]
            d = (x[g] - x[b]) * (h - b) / (x[h] - x[b]) - (g - b - 1)
            ix -= 1
            if d >= best:
                best, ig, ih = d, ix + 1, iv
        ix, iv = max(ix, 0), min(iv, last_l)
        if gcm[ix] == lcm[iv]:
            return best, ig, ih


def _below(x: Sequence[float], b: int, e: int) -> float:
    """The largest distance of the distribution above a segment of the minorant."""
    if e - b <= 1 or x[e] == x[b]:
        return 1.0
    slope = (e - b) / (x[e] - x[b])
    return max(1.0, *((j - b + 1) - (x[j] - x[b]) * slope for j in range(b, e + 1)))


def _above(x: Sequence[float], b: int, e: int) -> float:
    """The largest distance of the distribution below a segment of the majorant."""
    if e - b <= 1 or x[e] == x[b]:
        return 1.0
    slope = (e - b) / (x[e] - x[b])
    return max(1.0, *((x[j] - x[b]) * slope - (j - b - 1) for j in range(b, e + 1)))
