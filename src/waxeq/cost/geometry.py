"""What the sizes and strides of a call tell of it, beyond what its kernel says: lengths of loops, sides of operands."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

_ITEM_SIZE = {"bool": 1, "int8": 1, "uint8": 1, "float16": 2, "bfloat16": 2, "int16": 2, "uint16": 2, "float64": 8,
              "int64": 8, "uint64": 8}  # fmt: skip
_LANES, _ROWS = 64, 6
"""Bytes of a row, and rows, of the tiles that products of matrices are made of on most machines."""
_PRODUCTS = ("flops", "slow_flops")


def item_size(dtype: str) -> int:
    """Bytes of an element."""
    return _ITEM_SIZE.get(dtype, 4)


@dataclass(frozen=True, slots=True)
class Side:
    """A result or operand in memory: dtype, elements, and the axis whose elements lie side by side, if one does."""

    dtype: str
    axes: frozenset[str]
    elements: int
    inner: str | None

    @property
    def bytes(self) -> int:
        return self.elements * item_size(self.dtype)


@dataclass(frozen=True, slots=True)
class Geometry:
    """A call's axes with their sizes, its result, its operands, and whether some of them stay the same."""

    sizes: Mapping[str, int]
    out: Side
    operands: tuple[Side, ...]
    fixed: bool

    @property
    def points(self) -> int:
        """Elements of the iteration space."""
        return math.prod(self.sizes.values())

    @property
    def folded(self) -> int:
        """Elements that are folded into each of the result's."""
        return math.prod(n for k, n in self.sizes.items() if k not in self.out.axes)

    def along(self, side: Side | None) -> int:
        """Elements that lie side by side in an operand."""
        return 1 if side is None or side.inner is None else self.sizes.get(side.inner, 1)

    def turned(self, side: Side | None) -> float:
        """0 where what lies side by side in an operand does so in the result, 0.5 where it is another axis of the
        result, 1 where the result has none such: it is folded."""
        if side is None or side.inner is None or side.inner == self.out.inner:
            return 0.0
        return 0.5 if side.inner in self.out.axes else 1.0


_NOWHERE = Side("float32", frozenset(), 1, None)


@lru_cache(maxsize=1 << 16)
def geometry(dims: str, layout: str) -> Geometry:
    """Of "i0=128,i1=384" and "float32:i0*384,i1*1;float32:i1*1": the result comes first, then the operands."""
    sizes = {k: int(n) for k, _, n in (d.partition("=") for d in dims.split(",") if d)}
    sides = list(_sides(sizes, layout))
    return Geometry(sizes, sides[0] if sides else _NOWHERE, tuple(sides[1:]), "fixed" in layout)


def _sides(sizes: Mapping[str, int], layout: str) -> Iterator[Side]:
    for view in layout.split(";"):
        dtype, colon, axes = view.partition(":")
        if colon:
            steps = dict(a.split("*") for a in axes.split(",") if a)
            inner = next((k for k, step in steps.items() if step == "1"), None)
            yield Side(dtype, frozenset(steps), math.prod(sizes.get(k, 1) for k in steps), inner)


def counted(features: Mapping[str, float], dims: str, layout: str, dtype: str) -> dict[str, float]:
    """Features that sizes and strides tell of: loops that begin (`rows`, and `folds` where something is folded), bytes
    of operands that lie another way than the result (`aside`) or in the way of the fold (`along`); of products of
    matrices how many operations whole tiles have (`padded`), and how many tiles there are (`strips`)."""
    inner, elements, found = _lengths(dims, layout)
    work = sum(features.get(n, 0.0) for n in _PRODUCTS)
    if not work:
        return dict(found)
    lanes = _LANES // item_size(dtype)
    strips = math.ceil(inner / lanes)
    tiled = {"padded": work * strips * lanes / inner, "strips": strips * max(1.0, elements / inner / _ROWS)}
    return {**found, **tiled}


@lru_cache(maxsize=1 << 16)
def _lengths(dims: str, layout: str) -> tuple[int, int, Mapping[str, float]]:
    """How many elements of the result lie side by side, how many it has, and what tells of loops and operands: kernels
    that do the same are told apart by none of it."""
    g = geometry(dims, layout)
    inner = max(1, g.along(g.out))
    found = {"rows": g.points / inner}
    if g.folded > 1:
        found["folds"] = float(g.out.elements)
    for side in g.operands:
        if turned := g.turned(side):
            name = "aside" if turned < 1.0 else "along"
            found[name] = found.get(name, 0.0) + side.bytes
    return inner, g.out.elements, found
