"""Where calls lie among others of their family: what is near is likely to be mispriced alike."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from waxeq.cost.features import KINDS, part
from waxeq.cost.key import TimingKey

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

_AMOUNT, _THERE = 1.5, 0.4
"""How much (logarithms of) amounts of work, and the presence of a feature, set calls apart."""
_SIDES = 1.5
"""How much it sets calls apart along which axis they read."""
_AXES = 6
"""Sizes of so many axes are looked at."""


@dataclass(frozen=True)
class Calls:
    """Calls as arrays, one row each: features in the order of `names`, places, and numbers of their meanings."""

    keys: tuple[TimingKey, ...]
    names: tuple[str, ...]
    features: Array
    places: Array
    texts: Array

    @staticmethod
    def of(
        keys: Sequence[TimingKey], works: Sequence[Mapping[str, float]], names: Sequence[str] | None = None
    ) -> Calls:
        """`works`: what each call does (`TimingKey.work`), of which `names` are looked at; all unless given."""
        import numpy as np

        names = tuple(sorted({n for w in works for n in w})) if names is None else tuple(names)
        a = np.array([[w.get(n, 0.0) for n in names] for w in works]).reshape(len(keys), len(names))
        texts = np.array([hash_of(k.text) for k in keys], np.int64)
        return Calls(tuple(keys), names, a, _places(keys, names, a), texts)

    def __len__(self) -> int:
        return len(self.texts)

    def only(self, rows: Array) -> Calls:
        """Some of them."""
        return Calls(
            tuple(self.keys[i] for i in rows.tolist()),
            self.names,
            self.features[rows],
            self.places[rows],
            self.texts[rows],
        )

    def squares(self, others: Calls) -> Array:
        """Squared distances from each of these to each of the others."""
        import numpy as np

        a, b = self._points, others._points
        found = (a * a).sum(axis=1)[:, None] + (b * b).sum(axis=1)[None, :] - 2 * (a @ b.T)
        return np.maximum(found, 0.0)

    @cached_property
    def _points(self) -> Array:
        """Places, and which features there are at all, such as functions."""
        import numpy as np

        return np.hstack([self.places, _THERE * (self.features > 0)])

    def same(self, others: Calls) -> Array:
        """Whether each of these has the meaning of each of the others."""
        return self.texts[:, None] == others.texts[None, :]


def _places(keys: Sequence[TimingKey], names: Sequence[str], a: Array) -> Array:
    """Logarithms of how much there is to do of each kind (arithmetic, traffic, work on elements, starts) and of the
    sizes of axes; steps in memory."""
    import numpy as np

    parts = [part(n) for n in names]
    kinds = np.array([[(weight or 1.0) * (kind == k) for k in KINDS] for kind, weight in parts])
    others = np.array([(*_sizes(k.dims), *_steps(k.layout)) for k in keys]).reshape(len(keys), _AXES + 5)
    return np.hstack([_AMOUNT * np.log1p(a @ kinds.reshape(-1, len(KINDS))), others])


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
