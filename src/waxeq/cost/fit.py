"""Fits: from the timings of one family to seconds of calls that nobody timed, in the space of logarithms.

Two parts. A law: seconds are a sum of features times coefficients that are not negative, fitted to the logarithms of
timings, the machine's ceilings standing in for what they leave open. And what the law gets wrong nearby: its residuals
are a Gaussian process over features, sizes and strides, so that a call takes after the nearest ones that were timed,
those of the same meaning before others, and the interval widens with the distance to them.

Sources: Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, chapters 2 and 5 (leave-one-out);
Lawson and Hanson, Solving Least Squares Problems, 1974, chapter 23.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product
from typing import TYPE_CHECKING, Any

from waxeq.cost.elements import full
from waxeq.cost.features import KINDS, part
from waxeq.cost.key import Timing, TimingKey

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

PRIOR = 0.05
"""Weight of a ceiling among the timings of a law."""
_DOUBT = 0.25
"""How fast a fit is trusted less beyond what was measured: the exponent of how many times."""
_ROUNDS = 2
"""Times that the law is linearized: after that coefficients change by less than timings are worth."""
_FAR = 1.0
"""Residuals (of logarithms) beyond which a timing pulls at the law no harder."""
_NEIGHBOURS = 256
"""Timings that stand for a family, the newest: more of them change little, and inverting takes their cube."""
_REACHES, _NOISES, _KIN = (1.5, 4.0), (0.05, 0.25), (0.3, 0.8)
"""What is tried: distance (of logarithms) over which residuals are alike; noise as part of their variance; how much
residuals of different meanings have in common."""
_EIGHT_TENTHS = 1.2816
"""Standard deviations on both sides of a normal distribution that hold eight tenths of it."""
_LEAST = 1.1
"""The narrowest interval: timings taken again differ by as much."""
_AMOUNT, _THERE = 1.5, 0.4
"""How much (logarithms of) amounts of work, and the presence of a feature, set calls apart."""
_SIDES = 1.5
"""How much it sets calls apart along which axis they read."""
_AXES = 6
"""Sizes of so many axes are looked at."""


@dataclass(frozen=True)
class Law:
    """seconds = sum of coefficient * feature, coefficients >= 0, by the names of features."""

    names: tuple[str, ...]
    coefficients: Array

    @staticmethod
    def of(rows: Sequence[Timing], ceilings: Mapping[str, float]) -> Law:
        """Least squares on logarithms. What the timings do not tell is what the ceilings say (seconds for one unit of a
        feature, 0 for nothing): each counts as a weak observation, or large calls alone would leave the price of
        starting one open, and small ones would be priced at anything."""
        import numpy as np

        names = tuple(sorted({f for t in rows for f in full(t.key, t.features)}))
        a = table(rows, names)
        y = np.log([t.seconds for t in rows])
        scale = np.maximum(np.abs(a).max(axis=0), 1e-300)
        prior = np.array([ceilings.get(f, 0.0) for f in names]) * scale
        weak = np.diag(PRIOR / np.where(prior > 0, prior, np.inf))[prior > 0]
        a = a / scale
        predicted, wanted = np.exp(y), np.ones(len(rows))
        weight = np.ones(len(rows))
        found = np.zeros(len(names))
        for _ in range(_ROUNDS):
            # log(p) is about log(p0) + p / p0 - 1 where p is near p0: least squares again
            system = np.vstack([a * (weight / predicted)[:, None], weak])
            found = nonnegative(system, np.concatenate([wanted * weight, np.full(len(weak), PRIOR)]))
            new = np.maximum(a @ found, 1e-9)
            residual = y - np.log(new)
            weight = np.sqrt(_FAR / np.maximum(np.abs(residual), _FAR))
            predicted = np.maximum(new, np.exp(y - 1.0))  # linear further out it would be a poor guide
            wanted = 1.0 + y - np.log(predicted)
        return Law(names, found / scale)

    @cached_property
    def kinds(self) -> Array:
        """How much one unit of each feature is of each kind of work."""
        import numpy as np

        rows = [part(n) for n in self.names]
        return np.array([[(weight or 1.0) * (kind == k) for k in KINDS] for kind, weight in rows]).reshape(
            -1, len(KINDS)
        )

    def seconds(self, a: Array) -> Array:
        """Of rows of features in the order of `names`."""
        import numpy as np

        return np.maximum(a @ self.coefficients, 1e-9)


def nonnegative(a: Array, b: Array) -> Array:
    """The x >= 0 with the least |a x - b|, by active sets."""
    import numpy as np

    gram, h = a.T @ a, a.T @ b
    x, free = np.zeros(len(h)), np.zeros(len(h), bool)
    for _ in range(3 * len(h)):
        slope = np.where(free, -np.inf, h - gram @ x)
        j = int(np.argmax(slope)) if len(slope) else -1
        if j < 0 or slope[j] <= 1e-10 * max(1.0, float(np.abs(h).max())):
            break
        free[j] = True
        while free.any():
            at = np.flatnonzero(free)
            z = np.linalg.lstsq(gram[np.ix_(at, at)], h[at], rcond=None)[0]
            if (z > 0).all():
                x = np.zeros(len(h))
                x[at] = z
                break
            out = z <= 0
            step = float(np.min(x[at][out] / np.maximum(x[at][out] - z[out], 1e-300)))
            x[at] += step * (z - x[at])
            free[at[out & (x[at] <= 1e-14)]] = False
            x[~free] = 0.0
    return x


@dataclass(frozen=True)
class Fit:
    """The law of a family and its residuals nearby. `least` and `most`: seconds that were measured. `chosen`: reach,
    noise and kinship of the residuals, which a fit to a few more timings keeps."""

    law: Law
    places: Array
    texts: Array
    weights: Array
    inverse: Array
    variance: float
    widen: float
    least: float
    most: float
    points: int
    chosen: tuple[float, float, float]

    @staticmethod
    def of(rows: Sequence[Timing], ceilings: Mapping[str, float], before: Fit | None = None) -> Fit:
        """A fit to at least one timing. `before`: one to fewer timings of the same family."""
        import numpy as np

        law = Law.of(rows, ceilings)
        near = sorted(rows, key=lambda t: t.when)[-_NEIGHBOURS:]
        seconds = np.array([t.seconds for t in near])
        a = table(near, law.names)
        residual = np.log(seconds / law.seconds(a))
        z = places([t.key for t in near], a, law)
        texts = np.array([hash_of(t.key.text) for t in near], np.int64)
        variance = max(float(np.mean(np.minimum(residual**2, 4.0))), 1e-4)
        known = before is not None and len(rows) < 2 * before.points
        options = [before.chosen] if before is not None and known else list(product(_REACHES, _NOISES, _KIN))
        squares = _squares(z, z)
        best: tuple[float, Any] = (math.inf, None)
        for chosen in options:
            inverse = np.linalg.inv(_alike(squares, texts, texts, chosen) + (chosen[1] + 1e-6) * np.eye(len(near)))
            left_out = (inverse @ residual) / np.diag(inverse)
            score = float(np.mean(np.minimum(np.abs(left_out), 1.0)))
            if score < best[0]:
                best = (score, (chosen, inverse, left_out))
        chosen, inverse, left_out = best[1]
        deviation = np.sqrt(variance / np.diag(inverse))
        share = float(np.quantile(np.abs(left_out) / deviation, 0.8)) / _EIGHT_TENTHS
        # a law with hardly more timings than coefficients goes through all of them and proves nothing
        free = len(rows) - int(np.count_nonzero(law.coefficients))
        widen = max(0.3, share) * math.sqrt(len(rows) / max(1, free))
        floor = 0.0 if free >= 4 else math.log(2.0)
        return Fit(
            law, z, texts, inverse @ residual, inverse, variance, max(widen, floor / math.sqrt(variance)),
            float(seconds.min()), float(seconds.max()), len(rows), chosen,
        )  # fmt: skip

    def predict(self, keys: Sequence[TimingKey], features: Sequence[Mapping[str, float]]) -> tuple[Array, Array]:
        """Seconds of calls, and the factor around them that should hold eight of ten timings. Features that the law
        does not know are left out."""
        import numpy as np

        whole = [full(k, f) for k, f in zip(keys, features, strict=True)]
        a = np.array([[f.get(n, 0.0) for n in self.law.names] for f in whole]).reshape(len(keys), -1)
        texts = np.array([hash_of(k.text) for k in keys], np.int64)
        alike = _alike(_squares(places(keys, a, self.law), self.places), texts, self.texts, self.chosen)
        seconds = self.law.seconds(a) * np.exp(alike @ self.weights)
        unsure = np.maximum(1.0 + self.chosen[1] - np.einsum("ij,ij->i", alike @ self.inverse, alike), self.chosen[1])
        spread = np.exp(_EIGHT_TENTHS * self.widen * np.sqrt(self.variance * unsure))
        beyond = np.maximum(1.0, np.maximum(seconds / self.most, self.least / np.maximum(seconds, 1e-12)))
        return seconds, np.maximum(spread, _LEAST) * beyond**_DOUBT

    @cached_property
    def coefficients(self) -> Mapping[str, float]:
        """Of the law, by feature."""
        return dict(zip(self.law.names, self.law.coefficients.tolist(), strict=True))


def table(rows: Sequence[Timing], names: Sequence[str]) -> Array:
    """Features of timings, one row each."""
    import numpy as np

    whole = [full(t.key, t.features) for t in rows]
    return np.array([[features.get(n, 0.0) for n in names] for features in whole]).reshape(len(rows), len(names))


def places(keys: Sequence[TimingKey], a: Array, law: Law) -> Array:
    """Where calls lie: logarithms of how much there is to do of each kind (arithmetic, traffic, work on elements,
    starts) and of the sizes of axes; which features there are at all, such as functions; steps in memory."""
    import numpy as np

    others = np.array([(*_sizes(k.dims), *_steps(k.layout)) for k in keys]).reshape(len(keys), _AXES + 5)
    return np.hstack([_AMOUNT * np.log1p(a @ law.kinds), _THERE * (a > 0), others])


@lru_cache(maxsize=1 << 16)
def _sizes(dims: str) -> tuple[float, ...]:
    """Logarithms of the sizes in "i0=128,i1=384", weighted less than features, which are made from them."""
    found = [0.5 * math.log1p(int(part.partition("=")[2])) for part in dims.split(",") if part][:_AXES]
    return (*found, *[0.0] * (_AXES - len(found)))


@lru_cache(maxsize=1 << 16)
def _steps(layout: str) -> tuple[float, ...]:
    """Of a layout: operands whose last axis does not lie side by side, operands, whether some stay the same, and how
    the axis that lies side by side in each of the first two operands lies in the result."""
    views = [v.partition(":")[2] for v in layout.split(";") if ":" in v]
    last = [v.rpartition("*")[2] for v in views if v]
    out, *operands = views or [""]
    sides = [_SIDES * _side(v, out) for v in (*operands, "", "")[:2]]
    return float(sum(s != "1" for s in last)), 0.5 * len(views), float("fixed" in layout), *sides


def _side(view: str, out: str) -> float:
    """0 where the axis of a view that lies side by side does so in the result, 0.5 where it is another one of the
    result, 1 where the result has none such (it is folded)."""
    axis = next((a for a in map(_axis, view.split(",")) if a[1] == "1"), None)
    steps = dict(map(_axis, out.split(","))) if out else {}
    return 0.0 if axis is None or steps.get(axis[0]) == "1" else 0.5 if axis[0] in steps else 1.0


def _axis(text: str) -> tuple[str, str]:
    name, _, step = text.partition("*")
    return name, step


@lru_cache(maxsize=1 << 16)
def hash_of(text: str) -> int:
    """A number for a text, the same in every process."""
    import hashlib

    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest(), "big")


def _squares(a: Array, b: Array) -> Array:
    """Squared distances between the rows of two matrices."""
    import numpy as np

    found = (a * a).sum(axis=1)[:, None] + (b * b).sum(axis=1)[None, :] - 2 * (a @ b.T)
    return np.maximum(found, 0.0)


def _alike(squares: Array, texts: Array, others: Array, chosen: tuple[float, float, float]) -> Array:
    """How much the residuals of two calls have in common: 1 for the same place and meaning, less further away."""
    import numpy as np

    reach, _, kin = chosen
    same = texts[:, None] == others[None, :]
    return np.exp(-0.5 * squares / reach**2) * np.where(same, 1.0, kin)
