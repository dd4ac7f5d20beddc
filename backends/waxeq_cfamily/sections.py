"""C text of a loop in sections, in each of which it is known where elements are read (index set splitting; M. Griebl,
P. Feautrier, C. Lengauer, Index set splitting, 2000).

What is padded or put side by side is read only where a guard holds. A guard in a loop is a mask for every vector of it,
which took longer than all of a stencil where masks are not registers of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from waxeq_cfamily.scalars import var
from waxeq_cfamily.values import Guard, Row

if TYPE_CHECKING:
    from waxeq_cfamily.nest import Loop

_SHORTEST = 32
"""Elements of a loop from which it is worth the beginnings of several."""

_MOST = 5
"""Sections that are written at most: each is the whole text of the loop."""


@dataclass(frozen=True)
class Sections:
    """Of a stage's innermost loop, where that folds nothing into numbers and is written as it comes."""

    loop: Loop

    @cached_property
    def guards(self) -> tuple[Guard, ...]:
        """All that the loop asks for each element."""
        rows = (self.loop.values.rows[n] for n in self.loop.cone() if not self.loop.loaded(n))
        return tuple(dict.fromkeys(g for r in rows for g in asked(r)))

    @cached_property
    def along(self) -> tuple[Guard, ...]:
        """Those that hold from one place of the loop to another, whatever else."""
        v = self.loop.order[-1]
        return tuple(g for g in self.guards if g[0].terms == ((v, 1),))

    @cached_property
    def before(self) -> tuple[Guard, ...]:
        """Those that hold in all of the loop or in none of it, and can be asked before it."""
        v = self.loop.order[-1]
        plain = (g for g in self.guards if all(isinstance(a, str) for a, _ in g[0].terms))
        return tuple(g for g in plain if g[0].stride(v) == 0)

    @cached_property
    def places(self) -> tuple[int, ...]:
        """Where guards begin to hold, or cease to, inside the loop."""
        size = self.loop.values.sizes[self.loop.order[-1]]
        found = {end - where.const for where, low, high in self.along for end in (low, high)}
        return tuple(sorted(p for p in found if 0 < p < size))

    @cached_property
    def worth(self) -> bool:
        loop = self.loop
        if not loop.e.sections or loop.scalar or loop.streamed or loop.space.width(loop.order[-1]) < _SHORTEST:
            return False
        return bool(self.along or self.before) and len(self.places) < _MOST

    def text(self, low: str, high: str) -> list[str]:
        """The loop from `low` to `high`."""
        if not self.worth:
            return self.loop.innermost(low, high)
        if not self.before:
            return self._each(low, high, {})
        alone = len(self.before) == 1
        return [
            f"if ({self.loop.e.holds(self.before)}) {{",
            *("  " + x for x in self._each(low, high, dict.fromkeys(self.before, True))),
            "} else {",
            *("  " + x for x in self._each(low, high, dict.fromkeys(self.before, False) if alone else {})),
            "}",
        ]

    def _each(self, low: str, high: str, known: Mapping[Guard, bool]) -> list[str]:
        """One section after another, where it is known of some guards whether they hold."""
        names = [f"{var(self.loop.order[-1])}_{i}" for i in range(1, len(self.places) + 1)]
        lines = [
            f"const int64_t {name} = {p} < {low} ? {low} : {p} < {high} ? {p} : {high};"
            for name, p in zip(names, self.places, strict=True)
        ]
        for at, first, last in zip((0, *self.places), (low, *names), (*names, high), strict=True):
            held = {g: g[1] <= at + g[0].const < g[2] for g in self.along}
            e = replace(self.loop.e, decided={**held, **known})
            lines += type(self.loop)(e, self.loop.stage).innermost(first, last)
        return ["{", *("  " + x for x in lines), "}"] if names else lines


def asked(row: Row) -> tuple[Guard, ...]:
    """The guards of a row."""
    if row.op != "within":
        return row.guards
    (low, high), where = row.name
    return (*row.guards, (where, low, high))
