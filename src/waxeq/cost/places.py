"""Where calls lie among others of their family: what is near is likely to be mispriced alike."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from waxeq.cost.geometry import geometry
from waxeq.cost.key import TimingKey

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

_AMOUNT, _TURNED = 0.1, 0.45
"""How much (logarithms of) amounts and lengths set calls apart, and along which axis they read."""
_FEW_BYTES = 64
"""Bytes that are added to each amount, so that amounts of nothing are not infinitely far from all others."""


@dataclass(frozen=True)
class Calls:
    """Calls as arrays, one row each: features in the order of `names`, places, and numbers of their meanings and of how
    what is large in them lies."""

    names: tuple[str, ...]
    features: Array
    places: Array
    texts: Array
    lies: Array

    @staticmethod
    def of(
        keys: Sequence[TimingKey], works: Sequence[Mapping[str, float]], names: Sequence[str] | None = None
    ) -> Calls:
        """`works`: what each call does (`TimingKey.work`), of which `names` are looked at; all unless given."""
        import numpy as np

        names = tuple(sorted({n for w in works for n in w})) if names is None else tuple(names)
        a = np.array([[w.get(n, 0.0) for n in names] for w in works]).reshape(len(keys), len(names))
        places = np.array([_place(k.dims, k.layout) for k in keys]).reshape(len(keys), -1)
        texts, lies = [hash_of(k.text) for k in keys], [lie_of(k.dims, k.layout) for k in keys]
        return Calls(names, a, places, np.array(texts, np.int64), np.array(lies, np.int64))

    def __len__(self) -> int:
        return len(self.texts)

    def only(self, rows: Array) -> Calls:
        """Some of them."""
        return Calls(self.names, self.features[rows], self.places[rows], self.texts[rows], self.lies[rows])

    def same(self, others: Calls) -> Array:
        """Whether each of these has the meaning of each of the others."""
        return self.texts[:, None] == others.texts[None, :]

    def lie_alike(self, others: Calls) -> Array:
        """Whether each of these has the sizes of each of the others, and its result and largest operand lie as there:
        a product goes through a window of an image in one way at so many times the speed of another, whatever is done
        with its sums."""
        return self.lies[:, None] == others.lies[None, :]


@lru_cache(maxsize=1 << 16)
def _place(dims: str, layout: str) -> tuple[float, ...]:
    """Logarithms of how many points there are, of bytes (all, the result's, the largest operand's), and of how many
    elements lie side by side (result, two operands) or are folded; how operands are turned; whether some stay the
    same."""
    g = geometry(dims, layout)
    sides = (*g.operands, None, None)[:2]
    sizes = [s.bytes for s in g.operands]
    amounts = (g.points, sum(sizes) + g.out.bytes, g.out.bytes, max(sizes, default=0))
    lengths = (g.along(g.out), *(g.along(s) for s in sides), g.folded)
    turns = (*(g.turned(s) for s in sides), float(g.fixed))
    return (
        *(_AMOUNT * math.log(n + _FEW_BYTES) for n in amounts),
        *(_AMOUNT * math.log(n + 1) for n in lengths),
        *(_TURNED * t for t in turns),
    )


@lru_cache(maxsize=1 << 16)
def lie_of(dims: str, layout: str) -> int:
    """A number for sizes, and for how the result and the operand of most elements lie; the same in every process."""
    views = [v for v in layout.split(";") if ":" in v]
    sides = geometry(dims, layout).operands
    largest = max(range(len(sides)), key=lambda i: sides[i].elements, default=len(views))
    return hash_of("|".join((dims, *views[:1], *views[largest + 1 : largest + 2])))


@lru_cache(maxsize=1 << 16)
def hash_of(text: str) -> int:
    """A number for a text, the same in every process."""
    import hashlib

    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest(), "big")
