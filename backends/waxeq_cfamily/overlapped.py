"""C text of walks whose last stage goes side by side with the first one of the points that come next.

The first stage only reads and the last one mostly writes: apart, each waits for what the other one has to spare. What a
fold of the first stage comes to is being put together while the last elements are written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from waxeq_cfamily.batched import Batched
from waxeq_cfamily.fission import Fission
from waxeq_cfamily.lanes import LANES
from waxeq_cfamily.nest import Loop
from waxeq_cfamily.scalars import carried, var
from waxeq_cfamily.sections import asked
from waxeq_cfamily.stages import Space

_MANY = 2
"""Points that are taken at a time: registers hold the sums of no more."""
_SHORTEST, _LONGEST = 1 << 10, 1 << 13
"""Bytes of a row between which this is worth it, where two folds wait for each other (Zen 4)."""


@dataclass(frozen=True)
class Overlapped(Batched):
    """Text of such a walk where that is worth it, else as usual."""

    @cached_property
    def many(self) -> int:
        return _MANY if self.overlaps else super().many

    @cached_property
    def overlaps(self) -> bool:
        """Whether the last stage goes side by side with the next points' first one: rows of some length that are near,
        of which neither stage takes long itself."""
        row, s = self.row, self.space
        if row is None or not self.waiting or not _SHORTEST < row <= _LONGEST or not self.near(row):
            return False
        if s.points() < 4 * _MANY or any(map(s.under, self.slow)) or self.space.buffered:
            return False
        return self.plain() and not self.loop(s.stages[0]).blocked

    def plain(self) -> bool:
        """Whether the first stage is nothing but folds of a loop, and the last one nothing but a result's loop."""
        first, last = self.space.stages[0], self.space.stages[-1]
        if any(not s.order or not s.straight for s in (first, last)) or not first.folds or not last.result:
            return False
        if first.kept or first.results or last.folds or len(self.values.results) > 1:
            return False
        if any(r.guards or carried(r.dtype) != r.dtype for r in self.values.rows) or [*self._scalars(first, set())]:
            return False
        loops = (self.loop(first), self.loop(last))
        alike = all(type(x) is Loop and len(Fission(x).parts) == 1 for x in loops)
        return alike and len(loops[0].scalar) == len(first.folds) and loops[0].lanes.many > 0

    def batches(self) -> Iterator[str]:
        if not self.overlaps:
            yield from super().batches()
            return
        yield from self.room()
        yield f"if (first + {self.many} <= end) {{"
        yield from ("  " + x for x in self.batch(0))
        yield "}"
        yield f"for (; first + {self.many} <= end; first += {self.many}) {{"
        yield from ("  " + x for i in range(1, len(self.space.stages) - 1) for x in self.batch(i))
        yield from ("  " + x for x in self._side_by_side())
        yield "}"

    def _side_by_side(self) -> Iterator[str]:
        """The last stage of these points and the first one of the next; where there are none, these are read again."""
        first, points = self.loop(self.space.stages[0]), range(self.many)
        taken = {n: self.kind(n) for n in sorted(self.passes.taken[-1])}
        yield f"const int64_t next = first + {2 * self.many} <= end ? first + {self.many} : first;"
        yield from (f"const {kind} s{n}_of{j} = {self.state(n)}[{j}];" for n, kind in taken.items() for j in points)
        yield from (x for j in points for f in first.scalar for x in _own(first.begin(f), j))
        yield from self._elements(first, [f"const {kind} r{n} = s{n}_of{{j}};" for n, kind in taken.items()])
        scalars = self._scalars(self.space.stages[1], set())
        known = [*scalars, *(f"{self.state(n)}[{{j}}] = r{n};" for n in self.passes.kept if self.passes.made[n] == 0)]
        for j in points:
            ended = [x for f in first.scalar for x in _own(first.end(f), j)]
            yield from self._at(f"next + {j}", [*ended, *(x.replace("{j}", str(j)) for x in known)])

    def _elements(self, first: Loop, scalars: Sequence[str]) -> Iterator[str]:
        """The loop that reads the next points' elements and writes those of these, as many at a time as a fold has
        numbers, and what is left."""
        lanes, v = first.lanes, var(first.order[-1])
        size, many, read = self.values.sizes[first.order[-1]], lanes.many, first.nest(1)
        yield f"const int64_t {v}_whole = {size // many * many};"
        yield f"for (int64_t {v}_lane = 0; {v}_lane < {v}_whole; {v}_lane += {many}) {{"
        some = self._some(lanes.full(read), scalars, f"{v}_lane", f"{v}_lane + {many}")
        yield from ("  " + x for x in some)
        yield "}"
        if size % many:
            yield from self._some(lanes.left(read, str(size)), scalars, f"{v}_whole", str(size))

    def _some(self, read: Sequence[str], scalars: Sequence[str], low: str, high: str) -> Iterator[str]:
        """Elements of the next points, and of these from one place to another, all points in one loop: what is the same
        for each is read once."""
        last = self.loop(self.space.stages[-1])
        v = var(last.order[-1])
        yield from (x for j in range(self.many) for x in self._at(f"next + {j}", _own(read, j)))
        shared = [x for n in last.cone() if self.values.rows[n].axes <= {last.order[-1]} for x in last.row(n)]
        apart = [x for x in last.nest(1) if x not in shared]
        yield from ("#pragma omp simd", f"for (int64_t {v} = {low}; {v} < {high}; {v}++) {{")
        yield from ("  " + x for x in shared)
        for j in range(self.many):
            own = [*(x.replace("{j}", str(j)) for x in scalars), *apart]
            yield from ("  " + x for x in self._at(f"first + {j}", own))
        yield "}"

    def _at(self, point: str, lines: Iterable[str]) -> Iterator[str]:
        """Lines for a point."""
        yield from ("{", f"  const int64_t t = {point};", *("  " + x for x in (*self.place(), *lines)), "}")


def _own(lines: Iterable[str], j: int) -> Iterator[str]:
    """Lines with accumulators of their own for one of several points."""
    yield from (re.sub(r"\b([an]\d\w*)", rf"\1_of{j}", x) for x in lines)


@dataclass(frozen=True)
class Lined(Overlapped):
    """Text of a walk that only writes, in vectors that begin with lines of the result."""

    lined: ClassVar[int] = LANES


def off_lines(s: Space) -> bool:
    """Whether parts of the innermost axis that are loops of their own begin beside lines, as inside a border."""
    v = s.vector
    guards = (g for r in s.values.rows for g in asked(r) if g[0].terms == ((v, 1),))
    return any((g[1] - g[0].const) % LANES for g in guards)
