"""Where calls lie among others of their family: what is near is likely to be mispriced alike."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from waxeq.cost.features import item_size
from waxeq.cost.key import TimingKey

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

_AMOUNT, _SIZE, _SIDE, _STEP = 0.12, 0.1, 0.5, 0.15
"""How much it sets calls apart how many elements and bytes there are, how long single axes are (both in logarithms),
along which axes operands are read, and in what steps."""
_SIDES = 1.5
"""The same of the axis that lies side by side in each of the first two operands."""
_AXES = 4
"""Sizes of so many axes are looked at."""
_PAGE, _FAR = 4096, 512
"""Bytes: steps that are multiples of a page meet in the same sets of a cache; steps from which that counts."""


@dataclass(frozen=True)
class Calls:
    """Calls as arrays, one row each: features in the order of `names`, places, and numbers of their meanings."""

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
        places = np.array([_place(k.dims, k.layout) for k in keys]).reshape(len(keys), -1)
        return Calls(names, a, places, np.array([hash_of(k.text) for k in keys], np.int64))

    def __len__(self) -> int:
        return len(self.texts)

    def only(self, rows: Array) -> Calls:
        """Some of them."""
        return Calls(self.names, self.features[rows], self.places[rows], self.texts[rows])

    def naming(self, columns: Array) -> Calls:
        """The same with some of the features, by position."""
        names = tuple(self.names[i] for i in columns.tolist())
        return Calls(names, self.features[:, columns], self.places, self.texts)

    def squares(self, others: Calls) -> Array:
        """Squared distances from each of these to each of the others."""
        a, b = self.places, others.places
        return ((a * a).sum(axis=1)[:, None] + (b * b).sum(axis=1)[None, :] - 2 * (a @ b.T)).clip(0.0)

    def same(self, others: Calls) -> Array:
        """Whether each of these has the meaning of each of the others."""
        return self.texts[:, None] == others.texts[None, :]


@lru_cache(maxsize=1 << 16)
def _place(dims: str, layout: str) -> tuple[float, ...]:
    """Logarithms of elements and bytes (of all, the result, the largest operand), and of the sizes of axes: those that
    lie side by side, what is folded, and the first ones; along which axes operands are read, and in what steps."""
    sizes = {k: int(n) for k, _, n in (d.partition("=") for d in dims.split(",") if d)}
    views = [_View.of(v, sizes) for v in layout.split(";") if ":" in v]
    out, operands = views[0] if views else _View("", (), 0), views[1:]
    inner = [sizes.get(v.inner or "", 1) for v in (out, *operands[:2])]
    folded = [n for k, n in sizes.items() if k not in dict(out.axes)]
    along = out.inner or (operands[0].inner if operands else None)
    steps = [dict(v.axes).get(along or "", 0) * item_size(v.dtype) for v in operands]
    amounts = (
        math.prod(sizes.values()),
        64 + sum(v.bytes for v in views),
        64 + out.bytes,
        64 + max((v.bytes for v in operands), default=0),
    )
    lengths = (*(n + 1 for n in (*inner, *[1] * (3 - len(inner)))), max(1, math.prod(folded)))
    firsts = [*(n + 1 for n in sizes.values()), *[1] * _AXES][:_AXES]
    jumps = max((s for v, s in zip(operands, steps, strict=True) if s > item_size(v.dtype)), default=0)
    return (
        *(_AMOUNT * math.log(max(1, n)) for n in amounts),
        *(_SIZE * math.log(max(1, n)) for n in (*lengths, *firsts)),
        _SIDE * sum(v.axes[-1][1] != 1 for v in views if v.axes),
        _SIDE * ("fixed" in layout),
        *(_SIDE * _SIDES * (_side(v, out)) for v in (*operands, _View("", (), 0), _View("", (), 0))[:2]),
        _STEP * 0.5 * len(views),
        _STEP * math.log1p(jumps),
        _STEP * any(s >= _FAR and s % _PAGE == 0 for s in steps),
    )


class _View(NamedTuple):
    """An operand or the result: axes with their steps in elements, the last the fastest as it is written down."""

    dtype: str
    axes: tuple[tuple[str, int], ...]
    bytes: int

    @staticmethod
    def of(text: str, sizes: Mapping[str, int]) -> _View:
        """Of a part of a layout, such as "float32:i0*384,i1*1"."""
        dtype, _, rest = text.partition(":")
        axes = tuple((k, int(step)) for k, _, step in (a.partition("*") for a in rest.split(",") if a))
        return _View(dtype, axes, item_size(dtype) * math.prod(sizes.get(k, 1) for k, _ in axes))

    @property
    def inner(self) -> str | None:
        """The axis that lies side by side."""
        return next((k for k, step in self.axes if step == 1), None)


def _side(view: _View, out: _View) -> float:
    """0 where the axis of a view that lies side by side does so in the result, 0.5 where it is another one of the
    result, 1 where the result has none such (it is folded)."""
    steps = dict(out.axes)
    return 0.0 if view.inner is None or steps.get(view.inner) == 1 else 0.5 if view.inner in steps else 1.0


@lru_cache(maxsize=1 << 16)
def hash_of(text: str) -> int:
    """A number for a text, the same in every process."""
    import hashlib

    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest(), "big")
