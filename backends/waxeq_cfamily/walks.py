"""How loops that read each other at places around their own are walked together: in tiles, row by row, each so many
rows ahead of those that read it. Of what one makes, the rows that a later one still reads lie in cache, each in the
place of one that is read no more.

Sources: tiles that overlap, with windows that slide through them (J. Ragan-Kelley et al., Halide, PLDI 2013); loops one
row behind the other (M. Wolfe, Loop skewing, 1986).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from waxeq.ir.types import numpy_dtype
from waxeq_cfamily.asked import LINE
from waxeq_cfamily.joint import STREAMS
from waxeq_cfamily.stages import Space
from waxeq_cfamily.sweeps import Jammed, Places, Sweep, jammed, merged, place, reach, shifted
from waxeq_cfamily.values import Index, Unsupported, Values

_RINGS = 1 << 17
"""Bytes of all rows that are kept at a time: they lie in the second cache with what is read."""

_PLANES = 1 << 18
"""Bytes of them where rows are planes, which are not cut: a quarter to a half of a second cache. Two sweeps of a cube
of 96^3 keep 144 KiB, and take 0.93 of the time of one after the other."""

_ROWS = 64
"""Rows that a tile has at least: its first ones are made by the tile before as well."""

_TILES = 4
"""Tiles of rows that each thread takes, so that one can help another."""

_COLUMNS = 256
"""Elements of a row from which it is worth the beginnings of its loops."""

LANES = 16
"""Elements that rows in cache begin at multiples of, and most vectors of a loop too: what lies across two lines is read
and written twice (four sweeps of Jacobi 2048^2 took 1.15 times as long)."""

_JAMMED = 2
"""Rows of a sweep that are made at once, where that saves reads: a row that is read from above, from its own place and
from below comes out of the second cache for each of them (four sweeps of Jacobi 2048^2 took 1.24 times as long)."""

_SAVED = 0.8
"""The part of those reads from which it is worth the text. Waves of three fields, of which most is read on one side,
need 0.8 to 0.9 of them and take as long."""

_HELD = 64
"""Values of several rows up to which these are made at once."""

_TWICE = 0.25
"""The part of a tile that may be made by its neighbours as well."""

PAGE = 4096
"""Bytes from one place of memory to the next that has the same place in the first cache, of 64 lines a way."""


@dataclass(frozen=True)
class Walk:
    """How sweeps are walked: along axis number `rows` row by row (None: there is one), tiles of `height` rows and
    `width` elements of the last axis; the axes numbered `points` are apart. The last sweeps make the `results`, which
    no other one reads. A step of the walk is `step` rows of each sweep."""

    sweeps: tuple[Sweep, ...]
    rows: int | None
    points: tuple[int, ...]
    height: int
    width: int
    results: int = 1
    step: int = 1

    @staticmethod
    def of(found: tuple[Sweep, ...], threads: int, results: int = 1) -> Walk:
        """Raises Unsupported where rows that must be kept fit no cache."""
        last, sizes = len(found[-1].axes) - 1, _sizes(found[-results:])
        moved = [*shifted(found)]
        if last < 0 or any(i.stride(s.axes[last]) != 1 for s in found[-results:] for _, i in s.values.results):
            raise Unsupported("no axis along which the result lies side by side")
        rows = next((i for i in moved if i != last), None)
        points = tuple(i for i in range(last) if i not in moved)
        height = 1 if rows is None else min(sizes[rows], max(_ROWS, -(-sizes[rows] // (_TILES * threads))))
        walk = Walk(found, rows, points, height, sizes[last], results)._narrowed()
        if max(walk.twice(n) for n in range(len(found))) > _TWICE:
            raise Unsupported("tiles of which most is made by others too")
        more = replace(walk, height=-(-height // _JAMMED) * _JAMMED, step=_JAMMED)
        return more if more._saves() and more.bytes <= _RINGS else walk

    def _narrowed(self) -> Walk:
        """The walk in tiles whose rows fit a cache. Raises Unsupported where none is wide enough."""
        walk = self
        while walk.bytes > _RINGS:
            walk = replace(walk, width=-(-walk.width // (2 * LANES)) * LANES)
            if walk.width < _COLUMNS:
                if self.bytes <= _PLANES:
                    return self
                raise Unsupported("rows that fit no cache")
        return walk

    @cached_property
    def reach(self) -> tuple[tuple[Places, ...], ...]:
        return reach(self.sweeps, self.results)

    @property
    def first(self) -> int:
        """The number of the first sweep that makes a result; what those before it make is read by others."""
        return len(self.sweeps) - self.results

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Elements along each axis that tiles cover."""
        return _sizes(self.sweeps[self.first :])

    @cached_property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The sweeps by number, those side by side that are one loop."""
        found: list[tuple[int, ...]] = []
        for n in range(len(self.sweeps)):
            if found and n < self.first and self._together(found[-1], n):
                found[-1] = (*found[-1], n)
            else:
                found.append((n,))
        return tuple(found)

    def _together(self, group: tuple[int, ...], n: int) -> bool:
        """Whether a sweep is one loop with some before it: they make the same rows, under the same guards, of no more
        arrays than a core looks ahead for."""
        s, first = self.sweeps[n], self.sweeps[group[0]]
        if (s.axes, s.sizes(), self.reach[n]) != (first.axes, first.sizes(), self.reach[group[0]]):
            return False
        if _guards(s) != _guards(first) or not s.reads.keys().isdisjoint(group):
            return False
        read = {r.name[0] for m in (*group, n) for r in self.sweeps[m].values.rows if r.op == "load"}
        return len(read) + len(group) + 1 <= STREAMS

    def along(self, n: int) -> Places:
        """At which rows around one of the result sweep n is needed."""
        return (0, 0) if self.rows is None else self.reach[n][self.rows]

    def beside(self, n: int) -> Places:
        """At which elements of the last axis around one of the result sweep n is needed."""
        return self.reach[n][-1]

    def twice(self, n: int) -> float:
        """What part of a tile of sweep n its neighbours make as well, in addition to the tile."""
        high, wide = self.tiles()
        rows, columns = (b - a for a, b in (self.along(n), self.beside(n)))
        return (1 + (high > 1) * rows / self.height) * (1 + (wide > 1) * columns / self.width) - 1

    def kept(self, n: int) -> int:
        """Rows of sweep n that are kept at a time: a power of two, so that a place is found by a mask."""
        if self.rows is None:
            return 1
        reads = ((m, s.reads[n][self.rows][0]) for m, s in enumerate(self.sweeps) if n in s.reads)
        oldest = min(self.along(m)[1] + low for m, low in reads)
        return 1 << (self.along(n)[1] + self.step - 1 - oldest).bit_length()

    def begin(self, n: int) -> int:
        """The element of the last axis, counted from a tile's first, that rows of sweep n begin with in cache."""
        return 0 if self.tiles()[1] == 1 else self.beside(n)[0] // LANES * LANES

    def spans(self, n: int) -> Mapping[str, int]:
        """Elements of sweep n that a row has room for in cache, along its inner axes: of the last one all that a tile
        may need, those before its beginning too, in whole lines."""
        s, inner = self.sweeps[n], self.inner(n)
        lines = -(-(min(self.width + self.beside(n)[1], s.sizes()[-1]) - self.begin(n)) // LANES)
        return {**{k: s.values.sizes[k] for k in inner}, inner[-1]: lines * LANES}

    def inner(self, n: int) -> tuple[str, ...]:
        """Axes of the loops inside a row of sweep n, the last one innermost."""
        return tuple(k for i, k in enumerate(self.sweeps[n].axes) if i != self.rows and i not in self.points)

    def addresses(self, n: int, where: Index, base: str) -> tuple[str, ...]:
        """Where the elements of a tile's first column are, from a base on, that the rows of sweep n find there in the
        next step of the walk; none where rows do not lie side by side in one loop."""
        s, inner = self.sweeps[n], self.inner(n)
        if self.rows is None or len(inner) != 1 or where.stride(inner[0]) != 1:
            return ()
        at, rows = {inner[0]: "left", **{s.axes[i]: f"at{i}" for i in self.points}}, s.axes[self.rows]
        if not all(a in at or a == rows for a, _ in where.terms):
            return ()
        found = list[str]()
        for row in range(self.step):
            at[rows] = f"(now + {self.along(n)[1] + self.step + row})"
            parts = [*(f"{at[a]} * {c}" for a, c in where.terms if isinstance(a, str)), str(where.const)]
            found.append(" + ".join([base, *parts]))
        return tuple(found)

    def row(self, n: int) -> int:
        """Elements from one row of sweep n to the next in cache: a line more where some of those that are kept would
        lie whole pages apart, as the first cache has the same few places for these."""
        own, item = math.prod(self.spans(n).values()), self._item(n)
        return own + LINE // item if PAGE // math.gcd(own * item, PAGE) < self.kept(n) else own

    def room(self, n: int) -> int:
        """Elements of all rows of sweep n in cache, wherever in a page the first of them begins."""
        return self.kept(n) * self.row(n) + PAGE // self._item(n)

    def places(self) -> Sequence[int]:
        """Of each sweep that others read, how many bytes of a page after the result its first row begins in cache. A
        core that reads what has the place in a page of something it wrote past the cache just before takes the one for
        the other and waits (four sweeps of Jacobi 2048^2 took 2 to 3 times as long where rows began 64 to 320 bytes
        before it): the rows that the last sweep reads are the first ones after it."""
        after = [sum(map(self.kept, range(n + 1, self.first))) for n in range(self.first)]
        return [(2 + rows) * LINE % PAGE for rows in after]

    def _item(self, n: int) -> int:
        return numpy_dtype(self.dtype(n)).itemsize

    @cached_property
    def bytes(self) -> int:
        return sum(self.kept(n) * math.prod(self.spans(n).values()) * self._item(n) for n in range(self.first))

    def dtype(self, n: int) -> str:
        values = self.sweeps[n].values
        return values.rows[values.root].dtype

    def tiles(self) -> tuple[int, int]:
        """Tiles along the rows, and along the last axis."""
        sizes = self.sizes
        high = 1 if self.rows is None else -(-sizes[self.rows] // self.height)
        return high, -(-sizes[-1] // self.width)

    def tasks(self) -> int:
        return math.prod((*self.tiles(), *(self.sizes[i] for i in self.points)))

    def one(self, group: tuple[int, ...]) -> tuple[Values, tuple[int, ...]]:
        """What the loop of a group computes, and the sweeps whose its results are, in order."""
        if group[0] >= self.first:
            return self.sweeps[group[0]].values, group
        s, order = merged([replace(self.sweeps[n], values=self._kept_at(n)) for n in group])
        return s.values, tuple(group[i] for i in order)

    def jammed(self, group: tuple[int, ...]) -> Jammed | None:
        """What the loop of a group computes for all rows of a step at once. None where that is one row, or too much for
        the registers."""
        n = group[0]
        if self.rows is None or self.step == 1 or len(self.inner(n)) > 1:
            return None
        values = self.one(group)[0]
        s = self.sweeps[n]
        found = jammed(values, s.axes[self.rows], self.step, s.axes[-1])
        if len(found.values.rows) > _HELD or any(r.costly for r in values.rows):
            return None
        return found

    def _saves(self) -> bool:
        """Whether rows of a step that are made at once read far fewer rows of earlier sweeps than one after another."""
        at_once, singly = 0, 0
        for group in self.groups:
            axes, one = self.sweeps[group[0]].axes, self.one(group)[0]
            found = self.jammed(group)
            rows = self.step * len({*_lines(one, axes)})
            at_once += rows if found is None else len({*_lines(found.values, axes)})
            singly += rows
        return at_once < _SAVED * singly

    def space(self, group: tuple[int, ...], values: Values | None = None) -> Space:
        """The walk of one row of a group, or of `values` for several. Raises Unsupported where it is not one loop
        nest."""
        n = group[0]
        s, inner = self.sweeps[n], self.inner(n)
        values = self.one(group)[0] if values is None else values
        low, high = self.beside(n)
        outer = tuple(k for k in s.axes if k not in inner)
        made = Space(values, outer, {inner[-1]: self.width + high - low}, (inner[-1],))
        if len(made.stages) != 1 or made.buffered:
            raise Unsupported("a sweep of several loops")
        return made

    def _kept_at(self, n: int) -> Values:
        """The values of a sweep, written to a row in cache."""
        s, where = self.sweeps[n], Index()
        step = 1
        for k, span in reversed([*self.spans(n).items()]):
            where = where.plus(Index.of(k).scaled(step))
            step *= span
        return Values(s.values.rows, s.values.sizes, where.plus(Index.of(origin(n)).scaled(-1)))


def _sizes(results: Sequence[Sweep]) -> tuple[int, ...]:
    """The largest of each axis among some sweeps."""
    return tuple(map(max, zip(*(s.sizes() for s in results), strict=True)))


def _guards(s: Sweep) -> frozenset[object]:
    """What is asked at each place of a sweep."""
    rows = s.values.rows
    return frozenset(g for r in rows for g in (*r.guards, *((r.name,) if r.op == "within" else ())))


def _lines(values: Values, axes: Sequence[str]) -> Iterator[Hashable]:
    """Of each load of what an earlier sweep made the row that it reads."""
    for k, where in (r.name for r in values.rows if r.op == "load"):
        if (found := place(where, sorted(axes))) is not None:
            yield k, tuple((axis, beside) for axis, beside in found.values() if axis != axes[-1])


def origin(n: int) -> str:
    """The C name of the element of the last axis that rows of sweep n begin with in cache."""
    return f"origin{n}"
