"""C text of a loop in sections, in each of which it is known where elements are read (index set splitting; M. Griebl,
P. Feautrier, C. Lengauer, Index set splitting, 2000).

What is padded or put side by side is read only where a guard holds. A guard in a loop is a mask for every vector of it,
which took longer than all of a stencil where masks are not registers of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

from waxeq.ir.types import numpy_dtype
from waxeq_cfamily.asked import LINE
from waxeq_cfamily.scalars import var
from waxeq_cfamily.values import Guard, Index, Row

if TYPE_CHECKING:
    from waxeq_cfamily.nest import Loop

_Part = tuple[Sequence[Guard], Mapping[Guard, bool]]
"""Guards that hold in a part of the axes around a loop, and of which others it is known there whether they do."""

_SHORTEST = 32
"""Elements of a loop from which it is worth the beginnings of several."""

_PARTS, _SHARE = 2, 8
"""Parts of an outer axis that are written at most, and what part of it each of them is at least, where the text is not
short anyway."""

_MOST = 5
"""Sections that are written at most: each is the whole text of the loop."""

_ROWS = 2048
"""Values of all sections together, up to which there may be more of them: of many arrays that are put side by side each
section has one only, and elsewhere each element would be looked for in all of them."""


@dataclass(frozen=True)
class Sections:
    """Of a stage's innermost loop, where that folds nothing into numbers and is written as it comes."""

    loop: Loop

    @cached_property
    def guards(self) -> tuple[Guard, ...]:
        """All that the loop asks for each element, and is not known already."""
        rows = (self.loop.values.rows[n] for n in self.loop.cone() if not self.loop.loaded(n))
        return tuple(dict.fromkeys(g for r in rows for g in asked(r) if g not in self.loop.e.decided))

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
        if not loop.e.sections or loop.scalar or (loop.streamed and self._in_lines):
            return False
        if loop.space.width(loop.order[-1]) < _SHORTEST:  # what is known of a whole row costs no loop of its own
            return len(self.before) > _MOST and not self.along
        return bool(self.along or self.before) and (len(self.places) < _MOST or self._short(self._held))

    @property
    def _in_lines(self) -> bool:
        """Whether a section ends within a line of the cache: past it, a line in two parts is slow twentyfold."""
        line = LINE // numpy_dtype(self.loop.values.rows[self.loop.values.root].dtype).itemsize
        return any(p % line for p in self.places)

    def _short(self, sections: Sequence[Mapping[Guard, bool]], times: int = 1) -> bool:
        """Whether there are more sections than usual, and their text is short, so many times."""
        if len(sections) * times <= _MOST:
            return False
        return times * sum(len(self._known(held).cone()) for held in sections) <= _ROWS

    def _known(self, held: Mapping[Guard, bool]) -> Loop:
        """The loop where it is known of some guards whether they hold."""
        decided = {**self.loop.e.decided, **held}
        return type(self.loop)(replace(self.loop.e, decided=decided), self.loop.stage)

    @cached_property
    def _held(self) -> Sequence[Mapping[Guard, bool]]:
        """Which guards along the loop hold in each section."""
        return [{g: g[1] <= at + g[0].const < g[2] for g in self.along} for at in (0, *self.places)]

    def text(self, low: str, high: str) -> list[str]:
        """The loop from `low` to `high`."""
        if not self.worth:
            return self.loop.innermost(low, high)
        if not self.before:
            return self._each(low, high, {})
        parts, rest = self._parts()
        lines = list[str]()
        for guards, known in parts:
            lines += [f"{'} else ' if lines else ''}if ({self.loop.e.holds(guards)}) {{"]
            lines += ["  " + x for x in self._each(low, high, known)]
        return [*lines, "} else {", *("  " + x for x in self._each(low, high, rest)), "}"]

    def _parts(self) -> tuple[Sequence[_Part], Mapping[Guard, bool]]:
        """Where it is known of the guards before the loop whether they hold, and what is known of them elsewhere. That
        is where all do; where those of one axis never do at the same place, as of arrays that are side by side, its
        longest parts."""
        nowhere = dict.fromkeys(self.before, False) if len(self.before) == 1 else {}
        all_hold: _Part = self.before, dict.fromkeys(self.before, True)
        everywhere = [all_hold], nowhere
        if (v := self._one_axis()) is None:
            return everywhere
        size = self.loop.values.sizes[v]
        found = {end - where.const for where, low, high in self.before for end in (low, high)}
        ends = sorted({0, size, *(e for e in found if 0 < e < size)})
        held = {(a, b): {g: g[1] <= a + g[0].const < g[2] for g in self.before} for a, b in pairwise(ends)}
        if any(all(known.values()) for known in held.values()):
            return everywhere
        longest = sorted(held, key=lambda p: p[0] - p[1])
        if not self._short([*held.values()], len(self.places) + 1):
            longest = [p for p in longest[:_PARTS] if (p[1] - p[0]) * _SHARE >= size]
        parts: list[_Part] = [([(Index.of(v).plus(Index((), -a)), 0, b - a)], held[a, b]) for a, b in longest]
        if len(longest) == len(held) > 1:
            return parts[:-1], parts[-1][1]
        return (parts, {}) if parts else everywhere

    def _one_axis(self) -> str | None:
        """The axis that all guards before the loop are places of, if there is one."""
        match tuple({g[0].terms for g in self.before}):
            case (((str(axis), 1),),):
                return axis
            case _:
                return None

    def _each(self, low: str, high: str, known: Mapping[Guard, bool]) -> list[str]:
        """One section after another, where it is known of some guards whether they hold."""
        names = [f"{var(self.loop.order[-1])}_{i}" for i in range(1, len(self.places) + 1)]
        lines = [
            f"const int64_t {name} = {p} < {low} ? {low} : {p} < {high} ? {p} : {high};"
            for name, p in zip(names, self.places, strict=True)
        ]
        size = self.loop.values.sizes[self.loop.order[-1]]
        lengths = (b - a for a, b in pairwise((0, *self.places, size)))
        for held, length, first, last in zip(self._held, lengths, (low, *names), (*names, high), strict=True):
            lines += self._known({**held, **known}).innermost(first, last, length)
        return ["{", *("  " + x for x in lines), "}"] if names else lines


def asked(row: Row) -> tuple[Guard, ...]:
    """The guards of a row."""
    if row.op != "within":
        return row.guards
    (low, high), where = row.name
    return (*row.guards, (where, low, high))
