"""C text of walks that sum a row of points to come while a row is written that was summed before (software pipelining:
M. Lam, PLDI 1988).

A core looks ahead by some hundred instructions: neither what comes of the sums of a row, nor that row from the second
cache, is there when its own next stage begins. Rows that are two apart wait for nothing: one comes from the second
cache and the other one goes to it all the time. A stage between both has a loop of its own, as registers of vectors of
eight hold one row's accumulators. What it keeps for the last one, such as the exponentials of a softmax, lies where the
result will, or in two buffers that rows take by turns.

Vectors of sixteen are read twice as slowly where rows begin within a line of the cache, and have twice the registers:
for machines that have them walks are written in other ways.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType

from waxeq.ir.types import numpy_dtype
from waxeq_cfamily.lanes import LANES
from waxeq_cfamily.nest import Loop
from waxeq_cfamily.overlapped import Overlapped
from waxeq_cfamily.scalars import var

WIDTH = 4
"""Bytes of a number: accumulators of longer ones fill half of all registers of sixteen numbers (a layer norm of float64
took 1.05 to 1.2 of the time), and all of those of eight."""
_STAGES = (2, 3)
_SHORTEST, _LONGEST = 1 << 11, 1 << 14
"""Bytes of a row between which this is worth it: of a shorter one the first and the last elements take too much where
they are taken apart (Zen 4: a layer norm of 320 numbers took 1.18 of the time)."""
_FEWEST = 8
"""Rows from which it is: the first two are summed apart."""
_CACHED = 4 << 20
"""Bytes up to which what is read may lie in a cache."""


@dataclass(frozen=True)
class Staggered(Overlapped):
    """Text of such a walk where that is worth it, else as usual."""

    @cached_property
    def staggered(self) -> bool:
        """Whether the walk is a stage of folds and one that writes, with no more than one between."""
        row, s = self.row, self.space
        if row is None or not _SHORTEST <= row <= _LONGEST or len(s.stages) not in _STAGES or s.points() < _FEWEST:
            return False
        if s.points() * row * self._read > _CACHED or any(x.result for x in s.stages[:-1]) or not self.plain():
            return False
        numbers = (r for n, r in enumerate(self.values.rows) if r.op in ("load", "fold") or n == self.values.root)
        if any(numpy_dtype(r.dtype).itemsize != WIDTH for r in numbers):
            return False
        made = {*self._first.cone(), *self._last.cone()} - self.space.buffered.keys()
        return not any(n in made and s.under(n) for n in self.slow) and not (self._first.blocked and self._left)

    @property
    def _read(self) -> int:
        """How many arrays of rows are read."""
        return len([r for r in self.values.rows if r.op == "load" and r.axes - {self._axis}])

    @property
    def _first(self) -> Loop:
        return self.loop(self.space.stages[0])

    @cached_property
    def _last(self) -> Loop:
        return self.loop(self.space.stages[-1])

    @property
    def _axis(self) -> str:
        return self.space.stages[0].order[-1]

    @property
    def _size(self) -> int:
        return self.values.sizes[self._axis]

    @property
    def _left(self) -> int:
        """Elements of a row that are fewer than an accumulator has numbers."""
        return self._size % self._first.lanes.many

    def walked(self) -> Iterator[str]:
        if not self.staggered:
            yield from self.wide()
            return
        narrow = replace(self, halved=True)
        yield "#ifdef __AVX512F__"
        yield from self.wide()
        yield "#else"
        yield "  if (begin < end) {"
        yield from ("    " + x for x in narrow.in_turns())
        yield "  }"
        yield "#endif"

    def in_turns(self) -> Iterator[str]:
        """The walk where vectors are of eight numbers."""
        for n in self._buffered:
            yield f"WX_ALIGNED {self.kind(n)} b{n}_all[2][{self.room_of(n)}];"
        yield from (*self._copied(), *self._filled(), *self._turns(self._staggered()))

    def wide(self) -> Iterator[str]:
        """The walk where vectors are of sixteen numbers."""
        yield from super().walked()

    def _turns(self, turn: Iterable[str]) -> Iterator[str]:
        """The loop over rows, with those after each. Where there are no such rows this one is read again."""
        yield "for (int64_t first = begin; first < end; first++) {"
        yield "  const int64_t next = first + 1 < end ? first + 1 : first;"
        yield "  const int64_t after = first + 2 < end ? first + 2 : first;"
        yield from ("  " + x for x in turn)
        yield "}"

    def _row(self, row: str, lines: Iterable[str]) -> Iterator[str]:
        """Lines for a row."""
        text = [*lines]
        buffers = [f"{self.kind(n)} *const b{n} = b{n}_all[t & 1];" for n in self._buffered if _named(f"b{n}", text)]
        yield from ("{", f"  const int64_t t = {row};", *("  " + x for x in (*self.place(), *buffers, *text)), "}")

    # -- what stages make for later ones: s of the row that is written, s_next of the one after it

    @cached_property
    def _early(self) -> list[int]:
        """What the first stage makes."""
        return [n for n in self.passes.kept if self.passes.made[n] == 0]

    @cached_property
    def _late(self) -> list[int]:
        """What the last stage takes."""
        return sorted(self.passes.taken[-1])

    def _known(self, names: Iterable[int], end: str = "") -> list[str]:
        return [f"const {self.kind(n)} r{n} = s{n}{end};" for n in names]

    def _filled(self) -> Iterator[str]:
        """All stages but the last of the first row, and the first one of the second row."""
        first, *between = self.passes.lines[:-1]
        yield from (f"{self.kind(n)} {self.state(n)};" for n in self._late)
        yield from (f"{self.kind(n)} s{n}_next;" for n in self._early)
        lines = [*first, *(x for some in between for x in some), *(f"{self.state(n)} = r{n};" for n in self._late)]
        yield from self._row("begin", lines)
        made = [f"s{n}_next = r{n};" for n in self._early]
        yield from self._row("begin + 1 < end ? begin + 1 : begin", [*first, *made])

    # -- a turn

    @property
    def _sums_between(self) -> tuple[int, ...]:
        """The folds of a stage between the first and the last."""
        stages = self.space.stages
        return () if len(stages) == min(_STAGES) else tuple(f for f in stages[1].folds if not self.space.under(f))

    @cached_property
    def _between(self) -> tuple[Sequence[str], Sequence[str]]:
        """Such a stage, and what is computed of what its folds come to: a root takes as long as dozens of vectors, of
        which those go on meanwhile that come before it (EPYC Milan: a layer norm took 0.95 of the time)."""
        stages = self.space.stages
        if len(stages) == min(_STAGES):
            return (), ()
        done: set[int] = set()
        *_, last = ([*self._scalars(s, done)] for s in stages)
        lines = self.passes.lines[1]
        return lines[: len(lines) - len(last)], last

    def _staggered(self) -> Iterator[str]:
        """A stage between both of the next row, and then these two of the row after that and of this one, as many
        elements at a time as an accumulator has numbers."""
        first, v = self._first, var(self._axis)
        yield from (f"const {self.kind(n)} s{n}_now = {self.state(n)};" for n in self._late)
        yield from (f"{self.kind(n)} s{n}_sum = 0;" for n in self._sums_between)
        if between := self._between[0]:
            sums = (f"s{n}_sum = r{n};" for n in self._sums_between)
            yield "if (next > first)"  # what it keeps is not to be made twice
            yield from self._row("next", [*self._known(self._early, "_next"), *between, *sums])
        yield from (x for f in first.scalar for x in first.begin(f))
        yield f"const int64_t {v}_whole = {self._size - self._left};"
        if first.blocked:
            begin, added = first.lanes.around_block
            yield f"for (int64_t {v}_at = 0; {v}_at < {v}_whole; {v}_at += {first.block}) {{"
            to = f"{v}_at + {first.block}"
            yield f"  const int64_t {v}_to = {to} < {v}_whole ? {to} : {v}_whole;"
            yield from ("  " + x for x in (*begin, *self._both(f"{v}_at", f"{v}_to"), *added))
            yield "}"
        else:
            yield from self._both("0", f"{v}_whole")
        if self._left:
            yield from self._row("after", first.lanes.left(first.nest(1), str(self._size)))
            yield from self._row("first", self._wrote_now(f"{v}_whole", 0, self._left))
        ended = [x for f in first.scalar for x in first.end(f)]
        scalars = [*self._scalars(self.space.stages[1], set())]
        known = [*self._known(self._early, "_next"), *self._known(self._sums_between, "_sum")]
        yield from self._row("next", [*known, *self._between[1], *(f"{self.state(n)} = r{n};" for n in self._late)])
        yield from self._row("after", [*ended, *scalars, *(f"s{n}_next = r{n};" for n in self._early)])

    def _both(self, low: str, high: str) -> Iterator[str]:
        """The first and the last stage from one place to another, a vector of each by turns."""
        first, v, many = self._first, var(self._axis), self._first.lanes.many
        yield f"for (int64_t {v}_lane = {low}; {v}_lane < {high}; {v}_lane += {many}) {{"
        for n in range(0, many, LANES):
            yield from ("  " + x for x in self._row("after", first.lanes.full(first.nest(1), n, n + LANES)))
            yield from ("  " + x for x in self._row("first", self._wrote_now(f"{v}_lane", n, n + LANES)))
        yield "}"

    def _wrote_now(self, at: str, low: int, high: int) -> list[str]:
        """Elements of the row that is written, so many and so many after one place."""
        place = f"const int64_t {var(self._axis)} = {at} + lane;"
        return [*self._known(self._late, "_now"), *each_lane(low, high, [place, *self._last_body()])]

    def _last_body(self, found: Mapping[int, str] = MappingProxyType({})) -> list[str]:
        """The last stage of an element. What is `found` elsewhere, or is the same for each row, is not read anew."""
        found = {**{n: f"c{n}[{var(self._axis)}]" for n in self._shared}, **found}
        names = {f"const {self.kind(n)} r{n}": x for n, x in found.items()}
        lines = [x.split(" = ", 1) for x in self._last.nest(1)]
        return [f"{x[0]} = {names[x[0]]};" if x[0] in names else " = ".join(x) for x in lines]

    # -- what all rows have: c, copied to where a line begins

    @cached_property
    def _shared(self) -> tuple[int, ...]:
        """What the last stage reads that is the same for each row."""
        rows, v = self.values.rows, {self._axis}
        return tuple(n for n in self._last.cone() if rows[n].op == "load" and rows[n].axes == v)

    def _copied(self) -> Iterator[str]:
        """Through pointers that nothing else points at, or gcc has accumulators lie in memory."""
        v = var(self._axis)
        for n in self._shared:
            yield f"WX_ALIGNED {self.kind(n)} c{n}_all[{self._size}];"
            yield from ("#pragma omp simd", f"for (int64_t {v} = 0; {v} < {self._size}; {v}++) {{")
            yield from ("  " + x for x in (*self.declared(n), f"c{n}_all[{v}] = r{n};"))
            yield "}"
            yield f"const {self.kind(n)} *restrict c{n} = c{n}_all;"


def _named(name: str, lines: Sequence[str]) -> bool:
    """Whether lines have a variable."""
    return any(re.search(rf"\b{name}\b", x) for x in lines)


def each_lane(low: int, high: int, body: Iterable[str]) -> Iterator[str]:
    """A loop over numbers side by side."""
    loop = f"for (int64_t lane = {low}; lane < {high}; lane++) {{"
    yield from ("#pragma omp simd", loop, *("  " + x for x in body), "}")
