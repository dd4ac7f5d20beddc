"""The numbers of a model that depend on no dim: a size that is one of them cannot be told from it in a plan."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from waxeq.ir.graph import Graph
from waxeq.symbolic.dims import Sizes
from waxeq.symbolic.size import Number, Size

_MOST, _FEW = 48, 64
"""Numbers of which all sums, differences, products and quotients are taken as well, as rules fold x * 1.5 * 2 into
x * 3; and elements of a constant that are looked at, as one that is the same throughout is a number to them."""
ROUNDED = 1e-15
"""Relative distance of floats that are one number, rounded once more or less."""


@dataclass(frozen=True)
class Literals:
    """Of the general graph of a model."""

    graph: Graph

    @cached_property
    def _amounts(self) -> tuple[Any, ...]:
        """Every number of the graph, those that depend on dims as functions of them."""
        g = self.graph
        shapes = [*(x.type.shape for x in g.leaves), *(n.type.shape for n in g.nodes)]
        attributes = [list(n.op.attributes.values()) for n in g.nodes]
        constants = [a.reshape(-1)[:_FEW].tolist() for a in g.constants.values()]
        return tuple(dict.fromkeys(_flat([shapes, attributes, constants])))

    @cached_property
    def _known(self) -> tuple[float, ...]:
        own = {0.0, 1.0, 2.0} | {abs(float(n)) for n in self._amounts if not isinstance(n, (Size, Number))}
        own = {n for n in own if math.isfinite(n)}
        some = sorted(own)[:_MOST]
        made = {x for a in some for b in some for x in (a + b, abs(a - b), a * b, a / b if b else 0.0)}
        return tuple(sorted(n for n in own | made if n))

    def has(self, value: float) -> bool:
        """Whether a number, its negative or its inverse may come from the model's own numbers."""
        x = abs(float(value))
        return x in (0.0, 1.0, 2.0) or any(math.isclose(n, y, rel_tol=ROUNDED) for y in (x, 1 / x) for n in self._known)

    def apart(self, sizes: Sizes) -> bool:
        """Whether what depends on dims is none of the model's own numbers at some sizes, and no two sizes are one."""
        found: dict[float, Size] = {}
        for n in self._amounts:
            if isinstance(n, (Size, Number)):
                value = abs(float(n.at(sizes)))
                if self.has(value) or (isinstance(n, Size) and found.setdefault(value, n) != n):
                    return False
        return True


def _flat(values: Iterable[Any]) -> Iterator[Any]:
    for v in values:
        if isinstance(v, (list, tuple)):
            yield from _flat(v)
        elif isinstance(v, (int, float, Size, Number)) and not isinstance(v, bool):
            yield v
