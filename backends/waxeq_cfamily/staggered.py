"""C text of walks that sum a row of points to come while a row is written that was summed before (software pipelining:
M. Lam, PLDI 1988).

A core looks ahead by some hundred instructions: neither what comes of the sums of a row, nor that row from the second
cache, is there when its own next stage begins. Rows that are two apart wait for nothing: one comes from the second
cache and the other one goes to it all the time. A stage between both has a loop of its own, as registers of vectors of
eight hold one row's accumulators.

Vectors of sixteen are read twice as slowly where rows begin within a line of the cache, and have twice the registers:
for machines that have them walks are written in other ways.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

from waxeq.ir.types import numpy_dtype
from waxeq_cfamily.nest import Loop
from waxeq_cfamily.overlapped import Overlapped
from waxeq_cfamily.scalars import var

WIDTH = 4
"""Bytes of a number: accumulators of longer ones fill half of all registers of sixteen numbers (a layer norm of float64
took 1.05 to 1.2 of the time), and all of those of eight."""
_STAGES = (2, 3)
_SHORTEST, _LONGEST = 1 << 11, 1 << 13
"""Bytes of a row between which this is worth it: of a shorter one the first and the last elements take too much where
they are taken apart (Zen 4: a layer norm of 320 numbers took 1.18 of the time)."""
_FEWEST = 8
"""Rows from which it is: the first two are summed apart."""


@dataclass(frozen=True)
class Staggered(Overlapped):
    """Text of such a walk where that is worth it, else as usual."""

    @cached_property
    def staggered(self) -> bool:
        """Whether the walk is a stage of folds and one that writes, with no more than one between."""
        row, s = self.row, self.space
        if row is None or not _SHORTEST <= row <= _LONGEST or not self.near(row) or len(s.stages) not in _STAGES:
            return False
        if s.points() < _FEWEST or any(map(s.under, self.slow)) or any(x.result for x in s.stages[:-1]):
            return False
        numbers = (r for n, r in enumerate(self.values.rows) if r.op in ("load", "fold") or n == self.values.root)
        return all(numpy_dtype(r.dtype).itemsize == WIDTH for r in numbers) and self._plain()

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

    def walked(self) -> Iterator[str]:
        if not self.staggered:
            yield from self.wide()
            return
        yield "#ifdef __AVX512F__"
        yield from self.wide()
        yield "#else"
        yield "  if (begin < end) {"
        yield from ("    " + x for x in (*self._copied(), *self._filled(), *self._turns(self._staggered())))
        yield "  }"
        yield "#endif"

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
        yield from ("{", f"  const int64_t t = {row};", *("  " + x for x in (*self.place(), *lines)), "}")

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
        yield from (f"{self.kind(n)} s{n};" for n in self._late)
        yield from (f"{self.kind(n)} s{n}_next;" for n in self._early)
        lines = [*first, *(x for some in between for x in some), *(f"s{n} = r{n};" for n in self._late)]
        yield from self._row("begin", lines)
        made = [f"s{n}_next = r{n};" for n in self._early]
        yield from self._row("begin + 1 < end ? begin + 1 : begin", [*first, *made])

    # -- a turn

    def _staggered(self) -> Iterator[str]:
        """All stages but the first and the last of the next row, and then these two of the row after that and of this
        one, as many elements at a time as an accumulator has numbers."""
        first, v, many = self._first, var(self._axis), self._first.lanes.many
        read, whole = first.nest(1), self._size // many * many
        yield from (f"const {self.kind(n)} s{n}_now = s{n};" for n in self._late)
        between = [x for some in self.passes.lines[1:-1] for x in some]
        late = (f"s{n} = r{n};" for n in self._late)
        yield from self._row("next", [*self._known(self._early, "_next"), *between, *late])
        yield from (x for f in first.scalar for x in first.begin(f))
        yield f"const int64_t {v}_whole = {whole};"
        yield f"for (int64_t {v}_lane = 0; {v}_lane < {v}_whole; {v}_lane += {many}) {{"
        yield from ("  " + x for x in self._row("after", first.lanes.full(read)))
        yield from ("  " + x for x in self._row("first", self._wrote_now(f"{v}_lane", many)))
        yield "}"
        if left := self._size - whole:
            yield from self._row("after", first.lanes.left(read, str(self._size)))
            yield from self._row("first", self._wrote_now(f"{v}_whole", left))
        ended = [x for f in first.scalar for x in first.end(f)]
        scalars = [*self._scalars(self.space.stages[1], set())]
        yield from self._row("after", [*ended, *scalars, *(f"s{n}_next = r{n};" for n in self._early)])

    def _wrote_now(self, at: str, many: int) -> list[str]:
        """So many elements of the row that is written, from one place on."""
        place = f"const int64_t {var(self._axis)} = {at} + lane;"
        return [*self._known(self._late, "_now"), *each_lane(0, many, [place, *self._last_body()])]

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


def each_lane(low: int, high: int, body: Iterable[str]) -> Iterator[str]:
    """A loop over numbers side by side."""
    loop = f"for (int64_t lane = {low}; lane < {high}; lane++) {{"
    yield from ("#pragma omp simd", loop, *("  " + x for x in body), "}")
