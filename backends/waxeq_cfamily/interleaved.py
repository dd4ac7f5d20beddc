"""Neighbours that are read or written in groups, of as many as no vector has: each through a pointer of its own.

gcc takes groups of two, three, four, eight and so on apart in registers, and makes no vectors of a loop with others.
Where it does not know that they are one group, it reads and writes each as elements at a distance. Of a wide group it
takes all elements apart, those that nobody asks for as well: of a few columns of 4096 it wrote code without end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from waxeq_cfamily.scalars import CTYPES
from waxeq_cfamily.stages import Space
from waxeq_cfamily.values import Index

_WIDEST = 16
"""Elements of a group that is taken apart in registers at most: those of one vector of the widest machines."""


@dataclass(frozen=True)
class Interleaved:
    """Of a walk whose results are written to these `places`, some of them perhaps to one."""

    space: Space
    places: Sequence[str]

    @cached_property
    def _reads(self) -> dict[tuple[int, int], int]:
        """The number of a pointer, by operand and place in the group."""
        found: dict[tuple[int, object], dict[int, None]] = {}
        for r in self.space.values.rows:
            if r.op == "load" and self._grouped(r.name[1]):
                found.setdefault((r.name[0], r.name[1].terms), {})[r.name[1].const] = None
        places = {(n, c): None for (n, _), group in found.items() if len(group) > 1 for c in group}
        return {place: i for i, place in enumerate(places)}

    def pointers(self, dtypes: Sequence[str]) -> Iterator[str]:
        for (n, at), i in self._reads.items():
            yield f"  const {CTYPES[dtypes[n]]} *p{i} = wx_alone(x{n} + {at});"

    def read(self, operand: int, where: Index) -> tuple[str, Index]:
        """A pointer, and where an element lies from there."""
        own = self._reads.get((operand, where.const))
        return (f"x{operand}", where) if own is None else (f"p{own}", Index(where.terms))

    def begin(self, i: int) -> int:
        """Where the pointer of a result begins in its argument."""
        at = self.space.values.results[i][1]
        return at.const if self.places.index(self.places[i]) != i and self._grouped(at) else 0

    def _grouped(self, where: Index) -> bool:
        """Whether the vector steps over as many as no vector has."""
        step = abs(where.stride(self.space.vector) or 0) if self.space.vector is not None else 0
        return step > 1 and not whole(step)


def whole(step: int) -> bool:
    """Whether groups of so many neighbours are taken apart in registers."""
    return step == 3 or (step <= _WIDEST and step & (step - 1) == 0)
