"""C text of walks of three stages, each at another row: sums of one, sums that need those of the row before it, and
what is written of the row before that, in one loop (software pipelining: M. Lam, PLDI 1988).

What a fold comes to is put together while other rows are worked on, and rows come from the second cache and go to it
all the time, where nothing did while a row that lay in the first one was summed again.

NumPy's arrays begin within a line of the cache, and every vector of their rows would lie in two, which is read twice as
slowly. Sums begin with a line instead: an accumulator's numbers take in what others would, all moved alike, and as they
are put together in halves, the pairs are the same wherever they begin. A sum is the same to the last bit wherever a row
lies. What is written is put together of lines, each of which is read once.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from waxeq.ir.types import is_float
from waxeq_cfamily.asked import LINE
from waxeq_cfamily.fission import Fission
from waxeq_cfamily.nest import Loop
from waxeq_cfamily.scalars import var
from waxeq_cfamily.staggered import WIDTH, Staggered, each_lane
from waxeq_cfamily.values import Index

_STAGES = 3
_LINE = LINE // WIDTH
"""Numbers in a line."""


@dataclass(frozen=True)
class Pipelined(Staggered):
    """Text of such a walk where that is worth it, else as usual."""

    @cached_property
    def many(self) -> int:
        return 1 if self.pipelined else super().many

    @cached_property
    def pipelined(self) -> bool:
        """Whether the walk is two stages of sums and one that writes, over rows of whole accumulators."""
        s = self.space
        if not self.staggered or not self.waiting or len(s.stages) != _STAGES or not s.stages[1].folds:
            return False
        if any(map(s.under, self.slow)):
            return False
        many, other = (x.lanes.many for x in self._sums)
        whole = many == other and self._size % many == 0
        return whole and all(map(self._summed, self._sums)) and len(self._beginnings) == len(self._sums)

    @cached_property
    def _sums(self) -> tuple[Loop, Loop]:
        first, second, _ = self.space.stages
        return self.loop(first), self.loop(second)

    @property
    def _many(self) -> int:
        """How many numbers an accumulator has: elements that are taken at a time."""
        return self._sums[0].lanes.many

    def _summed(self, x: Loop) -> bool:
        """Whether a loop is nothing but sums of floats, of numbers side by side."""
        s, rows = x.stage, self.values.rows
        if type(x) is not Loop or not s.straight or s.order != (self._axis,) or s.kept or s.results:
            return False
        if x.blocked or len(Fission(x).parts) > 1 or len(x.scalar) != len(s.folds) or x.lanes.many < _LINE:
            return False
        return all(rows[f].name == "sum" and is_float(rows[f].dtype) for f in s.folds)

    def _by_rows(self, n: int) -> bool:
        """Whether something is read row by row, side by side along a row."""
        r, v = self.values.rows[n], self._axis
        if r.op != "load" or not r.axes - {v} or r.name[1].stride(v) != 1:
            return False
        return all(isinstance(a, str) for a, _ in r.name[1].terms)

    @cached_property
    def _beginnings(self) -> tuple[int, ...]:
        """What each loop of sums reads so first: a loop begins where the line begins that a row of it begins in."""
        found = (next((n for n in x.cone() if self._by_rows(n)), None) for x in self._sums)
        return tuple(n for n in found if n is not None)

    @cached_property
    def _gathered(self) -> tuple[int, ...]:
        """What the last stage reads so."""
        return tuple(n for n in self._last.cone() if self._by_rows(n))

    @cached_property
    def _even(self) -> bool:
        """Whether all rows begin alike within a line."""
        read = {*self._beginnings, *self._gathered}
        steps = (c for n in read for a, c in self.values.rows[n].name[1].terms if a != self._axis)
        return all(c % _LINE == 0 for c in steps)

    # -- the walk

    def wide(self) -> Iterator[str]:
        if not self.pipelined:
            yield from super().wide()
            return
        yield "  if (begin < end) {"
        yield from ("    " + x for x in (*self._copied(), *self._filled()))
        if self._even:
            yield "    int32_t apart = 0;"
            apart = (f"apart |= {self._after_line(n)};" for n in sorted({*self._beginnings, *self._gathered}))
            yield from ("    " + x for x in self._row("begin", apart))
            yield "    if (!apart) {"
            yield from ("      " + x for x in self._summed_and_wrote(self._lined()))
            yield "    } else {"
        else:
            yield "    {"
        yield from ("      " + x for x in self._summed_and_wrote(self._moved()))
        yield "    }"
        yield "  }"

    def _summed_and_wrote(self, turn: Iterable[str]) -> Iterator[str]:
        """In a turn all elements of the row after the next one go to the first sums, of the next one to the second ones
        and of this one to the result."""
        begun = (x for loop in self._sums for f in loop.scalar for x in loop.begin(f))
        yield from self._turns((*begun, *turn, *self._ended()))

    def _ended(self) -> Iterator[str]:
        """What both sums come to, and what is computed of it."""
        done: set[int] = set()
        of_first, of_second = ([*self._scalars(s, done)] for s in self.space.stages[1:])
        first, second = ([x for f in loop.scalar for x in loop.end(f)] for loop in self._sums)
        known, late = self._known(self._early, "_next"), [f"s{n} = r{n};" for n in self._late]
        yield from self._row("next", [*known, *second, *of_second, *late])
        yield from self._row("after", [*first, *of_first, *(f"s{n}_next = r{n};" for n in self._early)])

    # -- a turn

    @property
    def _parts(self) -> list[tuple[int, str, Loop, list[str]]]:
        """What is summed: its number, the row, the loop, and what it needs to know."""
        known = ([], self._known(self._early, "_next"))
        return [*zip((0, 1), ("after", "next"), self._sums, known, strict=True)]

    def _summing(self, begin: str) -> Iterator[str]:
        """As many elements of each loop of sums as an accumulator has numbers."""
        for i, row, loop, known in self._parts:
            lane = f"const int64_t {var(self._axis)}_lane = {begin.format(i)};"
            yield from self._row(row, [*known, lane, *loop.lanes.full(loop.nest(1))])

    def _lined(self) -> Iterator[str]:
        """Where rows begin with a line."""
        yield f"for (int64_t at = 0; at < {self._size}; at += {self._many}) {{"
        yield from ("  " + x for x in (*self._summing("at"), *self._wrote("at", ())))
        yield "}"

    def _moved(self) -> Iterator[str]:
        """Where they begin anywhere: what is written is as far behind what is summed as an accumulator has numbers."""
        many = self._many
        for (i, row, _, _), n in zip(self._parts, self._beginnings, strict=True):
            yield f"int32_t off{i};"
            yield from self._row(self._alike(row), [f"off{i} = {self._after_line(n)};"])
        yield from (x for n in self._gathered for x in self._opened(n))
        for i, row, loop, known in self._parts:
            yield from self._row(row, [*known, *self._head(loop, f"off{i}")])
        yield f"for (int64_t at = {many}; at < {self._size}; at += {many}) {{"
        wrote = self._wrote(f"at - {many}", self._gathered)
        yield from ("  " + x for x in (*self._summing("at - off{}"), *wrote))
        yield "}"
        for i, row, loop, known in self._parts:
            yield f"if (off{i})"
            yield from self._row(row, [*known, *self._tail(loop, f"off{i}")])
        yield from self._wrote(f"{self._size - many}", self._gathered, last=True)

    def _alike(self, row: str) -> str:
        """A row that begins as this one does within a line: where all do, what follows from it is computed once."""
        return "begin" if self._even else row

    def _begin(self, n: int) -> str:
        """Where a row begins."""
        base, where = self.read_from(n)
        begin = Index(tuple((a, c) for a, c in where.terms if a != self._axis), where.const)
        return f"{base} + {self.index(begin)}"

    def _after_line(self, n: int) -> str:
        """How many numbers after a line begins a row begins."""
        return f"(int32_t)((uintptr_t)({self._begin(n)}) / {WIDTH} % {_LINE})"

    def _head(self, loop: Loop, off: str) -> Iterator[str]:
        """The first elements of a row, to the end of the first line, and of as many lines as an accumulator has."""
        place, body = f"const int64_t {var(self._axis)} = lane - {off};", loop.nest(1)
        yield from each_lane(0, _LINE, [place, *self._masked(body, f"(int32_t)lane >= {off}")])
        yield from each_lane(_LINE, self._many, [place, *body])

    def _tail(self, loop: Loop, off: str) -> Iterator[str]:
        """The last elements of a row, which begin a line."""
        place = f"const int64_t {var(self._axis)} = {self._size} - {off} + lane;"
        yield from each_lane(0, _LINE, [place, *self._masked(loop.nest(1), f"(int32_t)lane < {off}")])

    def _masked(self, body: Sequence[str], where: str) -> Iterator[str]:
        """Lines that read nothing elsewhere, and leave accumulators as they are there."""
        for x in body:
            if (read := re.fullmatch(r"(const \w+ r(\d+) = )(.*);", x)) and self.values.rows[int(read[2])].op == "load":
                yield f"{read[1]}{where} ? {read[3]} : 0;"
            elif taken := re.fullmatch(r"(a\d+\[lane\]) = (.*);", x):
                yield f"{taken[1]} = {where} ? {taken[2]} : {taken[1]};"
            else:
                yield x

    # -- what is written: g, gathered from lines, of which some compilers make vectors

    def _wrote(self, at: str, gathered: Collection[int], last: bool = False) -> Iterator[str]:
        """As many elements of a row are written as an accumulator has numbers."""
        place = f"const int64_t {var(self._axis)} = {at} + lane;"
        body = self._last_body({n: f"g{n}[lane]" for n in gathered})
        read = [x for n in gathered for x in self._gather(n, at, last)]
        yield from self._row("first", [*self._known(self._late), *read, *each_lane(0, self._many, [place, *body])])

    def _opened(self, n: int) -> Iterator[str]:
        """The first line of a row, and which numbers of two lines are those of a vector."""
        kind, g, row = self.kind(n), f"g{n}", f"row{n}"
        yield f"const {kind} *{row};"
        yield from self._row("first", [f"{row} = {self._begin(n)};"])
        yield f"typedef {kind} {g}_line __attribute__((vector_size({LINE}), aligned({WIDTH}), may_alias));"
        yield f"typedef int32_t {g}_turn __attribute__((vector_size({LINE}), may_alias));"
        yield f"int32_t {g}_off;"
        yield from self._row(self._alike("first"), [f"{g}_off = {self._after_line(n)};"])
        yield f"WX_ALIGNED int32_t {g}_places[{_LINE}];"
        yield f"WX_ALIGNED {kind} {g}_begin[{_LINE}];"
        yield from each_lane(0, _LINE, [f"{g}_places[lane] = (int32_t)lane + {g}_off;"])
        first = f"(int32_t)lane >= {g}_off ? {row}[lane - {g}_off] : 0"
        yield from each_lane(0, _LINE, [f"{g}_begin[lane] = {first};"])
        yield f"const {g}_turn {g}_by = *(const {g}_turn *){g}_places;"
        yield f"{g}_line {g}_from = *(const {g}_line *){g}_begin;"

    def _gather(self, n: int, at: str, last: bool) -> Iterator[str]:
        """Elements of a row from one place on."""
        kind, g, row = self.kind(n), f"g{n}", f"row{n}"
        yield f"WX_ALIGNED {kind} {g}[{self._many}];"
        for i in range(0, self._many, _LINE):
            place = f"{row} + {at} + {i + _LINE} - {g}_off"
            if last and i + _LINE == self._many:
                yield f"WX_ALIGNED {kind} {g}_end[{_LINE}] = {{0}};"
                yield f"if ({g}_off) {{"  # a masked load that touches no memory takes hundreds of cycles
                yield from each_lane(0, _LINE, [f"{g}_end[lane] = (int32_t)lane < {g}_off ? ({place})[lane] : 0;"])
                yield "}"
                place = f"{g}_end"
            yield f"const {g}_line {g}_to{i} = *(const {g}_line *)({place});"
            yield f"*({g}_line *)({g} + {i}) = __builtin_shuffle({g}_from, {g}_to{i}, {g}_by);"
            yield f"{g}_from = {g}_to{i};"
