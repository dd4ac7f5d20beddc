"""How a nest is laid over the threads of a GPU.

A block has columns (places of the vector axis, side by side), ranks (threads that share the folds of one column) and
points (of the other outer axes): threadIdx.x = column + columns * (rank + ranks * point), all of them powers of two.
Where the vector axis is folded there is one column, and ranks take elements that lie side by side.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from waxeq.ir.types import numpy_dtype
from waxeq_cfamily.scalars import carried
from waxeq_cfamily.stages import Space
from waxeq_cfamily.values import Index, Row, Values, pointed
from waxeq_cupy.stages import Schedule

WARP = 32
_BLOCK = 256
_MOST = 1024
_BUSY = 132 * _MOST
"""Threads from which a large GPU has enough of them."""
_EACH = 16
"""Elements that a rank should take of a row that a block folds: several loads are then under way at once."""
_UNROLLED = 32
"""Elements that a rank may keep in registers."""
_WORDS = 96
"""Registers that kept elements may take."""


@dataclass(frozen=True, slots=True)
class Threads:
    """`width`: elements that a thread takes at once where it may."""

    columns: int = 1
    ranks: int = 1
    points: int = 1
    width: int = 1

    @property
    def team(self) -> int:
        """Threads that may have to wait for each other."""
        return self.columns * self.ranks

    @property
    def block(self) -> int:
        return self.team * self.points

    @property
    def scratch(self) -> int:
        """Elements of shared memory that a fold needs to go from warp to warp."""
        if self.ranks == 1 or self.team <= WARP:
            return 0
        return self.team if self.columns >= WARP else self.team // WARP * self.columns


@dataclass(frozen=True)
class Laid:
    """A nest on threads. `columned`: its vector axis is not folded, and columns are places of it."""

    schedule: Schedule
    threads: Threads

    @property
    def space(self) -> Space:
        return self.schedule.space

    @property
    def values(self) -> Values:
        return self.space.values

    @property
    def columned(self) -> bool:
        return self.threads.columns > 1

    @cached_property
    def around(self) -> tuple[str, ...]:
        """Outer axes of which a block has points: all but those that columns are places of."""
        return tuple(k for k in self.space.outer if not (self.columned and k == self.space.vector))

    @property
    def tiles(self) -> int:
        """How many blocks stand side by side along the vector axis."""
        v = self.space.vector
        return -(-self.values.sizes[v] // self.threads.columns) if self.columned and v is not None else 1

    @property
    def points(self) -> int:
        return math.prod(self.space.extent(k) for k in self.around)

    @property
    def blocks(self) -> int:
        return self.tiles * -(-self.points // self.threads.points)

    @cached_property
    def steps(self) -> int:
        """How many times a rank takes elements of the vector axis, if it keeps some between stages; else 0."""
        inner, v = self.space.inner, self.space.vector
        if self.columned or v is None or inner != (v,):
            return 0
        each = -(-self.space.width(v) // (self.threads.ranks * self.threads.width))
        return each if each * self.threads.width <= _UNROLLED else 0

    @cached_property
    def kept(self) -> tuple[int, ...]:
        """Rows whose elements a rank keeps in registers from the first stage that needs them: what several read from
        memory, and what is costly to compute."""
        stages = self.schedule.stages
        if not self.steps or len(stages) < 2:
            return ()
        rows = self.values.rows
        often = [
            n for n in range(len(rows)) if self.space.under(n) and sum(n in self.schedule.cone(s) for s in stages) > 1
        ]
        loads = [n for n in often if rows[n].op == "load"]
        found: list[int] = []
        left = min(_WORDS, 1 << 15 if self.threads.block < _BLOCK else (1 << 15) // self.threads.block)
        for n in (*loads, *(n for n in often if rows[n].costly)):
            words = self.steps * self.threads.width * max(1, numpy_dtype(carried(rows[n].dtype)).itemsize // 4)
            if words <= left:
                left -= words
                found.append(n)
        return tuple(sorted(found))


def laid(space: Space, *, aligned: bool) -> Laid:
    """A nest with folds on threads. `aligned`: all that is read and written begins at 16 bytes."""
    schedule = Schedule(space)
    v = space.vector
    outer = space.points()
    if v is not None and v in space.outer and v not in space.values.folded:
        return Laid(schedule, _columns(schedule, outer, space.values.sizes[v]))
    return Laid(schedule, _rows(schedule, outer, _width(space, v) if aligned and v is not None else 1))


def _volume(schedule: Schedule) -> int:
    """Elements of the longest loops."""
    return max((math.prod(schedule.space.width(k) for k in s.order) for s in schedule.stages), default=1)


def _columns(schedule: Schedule, outer: int, size: int) -> Threads:
    most = min(16, _up(max(1, _volume(schedule) // 8)))
    ranks = min(most, _up(-(-_BUSY // max(1, outer))))
    if ranks == 1:
        columns = max(2, min(_up(size), _BLOCK))
        return Threads(columns, 1, _BLOCK // columns)
    columns = max(2, min(_up(size), WARP))
    team = columns * ranks
    return Threads(columns, ranks, _BLOCK // team if team <= WARP else 1)


def _rows(schedule: Schedule, outer: int, width: int) -> Threads:
    space = schedule.space
    shared = [k for s in schedule.stages if (k := s.spread) is not None]
    spread = max(map(space.width, shared), default=1)
    taken = max((-(-space.width(k) // (width if k == space.vector else 1)) for k in shared), default=1)
    if spread <= WARP * _UNROLLED:
        ranks = min(WARP, _up(taken))
        while WARP <= ranks < min(_up(taken), _BLOCK) and outer * ranks < _BUSY // 4 and _many(taken, ranks):
            ranks *= 2
    else:
        ranks = min(_MOST, _up(-(-spread // _EACH)))
        while ranks < min(_up(taken), _MOST) and outer * ranks < _BUSY // 2:
            ranks *= 2
    return Threads(1, ranks, max(1, _BLOCK // ranks) if ranks <= WARP else 1, width)


def _many(taken: int, ranks: int) -> bool:
    """Whether so many ranks may be twice as many: beyond two warps each should still take several times."""
    return ranks == WARP or taken >= 4 * ranks


def _up(n: int) -> int:
    """The power of two that is not less."""
    return 1 << max(0, n - 1).bit_length()


def _width(space: Space, v: str) -> int:
    """How many elements along an axis can be moved at once: everything that lies side by side there begins at a
    multiple of as many; 1 where nothing does. All of the axis is in groups of so many."""
    sizes = [numpy_dtype(d).itemsize for _, d in side_by_side(space.values, v)]
    width = min(8, 16 // min(sizes)) if sizes else 1
    length = space.tiles.get(v, space.values.sizes[v])
    while width > 1 and not (
        space.values.sizes[v] % width == 0
        and (length % width == 0 or length >= space.values.sizes[v])
        and all(divides(i, v, width) for i, _ in side_by_side(space.values, v))
    ):
        width //= 2
    return width


def side_by_side(values: Values, v: str) -> list[tuple[Index, str]]:
    """What can be moved several elements of an axis at once, with its dtype: the result and what is read without
    conditions."""
    rows = [(r.name[1], r.dtype) for r in values.rows if movable(values, r, v)]
    if values.out.stride(v) == 1:
        rows.append((values.out, values.rows[values.root].dtype))
    return rows


def movable(values: Values, r: Row, v: str) -> bool:
    """Whether a row is a load whose elements lie side by side along an axis."""
    if r.op != "load" or r.guards or r.name[1].stride(v) != 1 or (v, 1) not in r.name[1].terms:
        return False
    return all(v not in values.rows[n].axes for n, _ in pointed(r.name[1]))


def divides(index: Index, v: str, width: int) -> bool:
    """Whether groups of an axis begin at multiples of their width."""
    return index.const % width == 0 and all(c % width == 0 or a == v for a, c in index.terms)
