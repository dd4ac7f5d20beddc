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

from waxeq.ir.types import is_float, numpy_dtype
from waxeq_cfamily.asked import LINE
from waxeq_cfamily.fission import Fission
from waxeq_cfamily.nest import Loop
from waxeq_cfamily.overlapped import Overlapped
from waxeq_cfamily.scalars import var
from waxeq_cfamily.values import Index

_STAGES = 3
_SHORTEST = 1 << 11
"""Bytes of a row from which this is worth it: of a shorter one the first and the last elements take too much (Zen 4: a
layer norm of 320 numbers took 1.18 of the time)."""
_WIDTH = 4
"""Bytes of a number: accumulators of longer ones fill half of all registers (a layer norm of float64 took 1.05 to 1.2
of the time)."""
_LINE = LINE // _WIDTH
"""Numbers in a line."""


@dataclass(frozen=True)
class Pipelined(Overlapped):
    """Text of such a walk where that is worth it, else as usual."""

    @cached_property
    def many(self) -> int:
        return 1 if self.pipelined else super().many

    @cached_property
    def pipelined(self) -> bool:
        """Whether the walk is two stages of sums and one that writes, over rows of whole accumulators."""
        s = self.space
        if not self.overlaps or (self.row or 0) < _SHORTEST or len(s.stages) != _STAGES:
            return False
        if not s.stages[1].folds or s.stages[1].result or not all(map(self._summed, self._sums)):
            return False
        many, other = (x.lanes.many for x in self._sums)
        numbers = (*self._beginnings, *self._gathered, *(f for x in self._sums for f in x.scalar), self.values.root)
        narrow = all(numpy_dtype(self.values.rows[n].dtype).itemsize == _WIDTH for n in numbers)
        return narrow and many == other and self._size % many == 0 and len(self._beginnings) == len(self._sums)

    @cached_property
    def _sums(self) -> tuple[Loop, Loop]:
        first, second, _ = self.space.stages
        return self.loop(first), self.loop(second)

    @cached_property
    def _last(self) -> Loop:
        return self.loop(self.space.stages[2])

    @property
    def _axis(self) -> str:
        return self.space.stages[0].order[-1]

    @property
    def _size(self) -> int:
        return self.values.sizes[self._axis]

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

    def walked(self) -> Iterator[str]:
        if not self.pipelined:
            yield from super().walked()
            return
        yield "  if (begin < end) {"
        yield from ("    " + x for x in (*self._copied(), *self._filled()))
        if self._even:
            yield "    int32_t apart = 0;"
            apart = (f"apart |= {self._after_line(n)};" for n in sorted({*self._beginnings, *self._gathered}))
            yield from ("    " + x for x in self._row("begin", apart))
            yield "    if (!apart) {"
            yield from ("      " + x for x in self._turns(self._lined()))
            yield "    } else {"
        else:
            yield "    {"
        yield from ("      " + x for x in self._turns(self._moved()))
        yield "    }"
        yield "  }"

    def _turns(self, turn: Iterable[str]) -> Iterator[str]:
        """The loop over rows. In a turn all elements of the row after the next one go to the first sums, of the next
        one to the second ones, and of this one are written. Where there are no such rows this one is read again."""
        yield "for (int64_t first = begin; first < end; first++) {"
        yield "  const int64_t next = first + 1 < end ? first + 1 : first;"
        yield "  const int64_t after = first + 2 < end ? first + 2 : first;"
        begun = (x for loop in self._sums for f in loop.scalar for x in loop.begin(f))
        yield from ("  " + x for x in (*begun, *turn, *self._ended()))
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
        return sorted(self.passes.taken[2])

    def _known(self, names: Iterable[int], end: str = "") -> list[str]:
        return [f"const {self.kind(n)} r{n} = s{n}{end};" for n in names]

    def _filled(self) -> Iterator[str]:
        """The first stages of the first rows."""
        first, second = self.passes.lines[0], self.passes.lines[1]
        yield from (f"{self.kind(n)} s{n};" for n in self._late)
        yield from (f"{self.kind(n)} s{n}_next;" for n in self._early)
        yield from self._row("begin", [*first, *second, *(f"s{n} = r{n};" for n in self._late)])
        made = [f"s{n}_next = r{n};" for n in self._early]
        yield from self._row("begin + 1 < end ? begin + 1 : begin", [*first, *made])

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
        return f"(int32_t)((uintptr_t)({self._begin(n)}) / {_WIDTH} % {_LINE})"

    def _head(self, loop: Loop, off: str) -> Iterator[str]:
        """The first elements of a row, to the end of the first line, and of as many lines as an accumulator has."""
        place, body = f"const int64_t {var(self._axis)} = lane - {off};", loop.nest(1)
        yield from _lanes(0, _LINE, [place, *self._masked(body, f"(int32_t)lane >= {off}")])
        yield from _lanes(_LINE, self._many, [place, *body])

    def _tail(self, loop: Loop, off: str) -> Iterator[str]:
        """The last elements of a row, which begin a line."""
        place = f"const int64_t {var(self._axis)} = {self._size} - {off} + lane;"
        yield from _lanes(0, _LINE, [place, *self._masked(loop.nest(1), f"(int32_t)lane < {off}")])

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
        found = {n: f"c{n}[{var(self._axis)}]" for n in self._shared} | {n: f"g{n}[lane]" for n in gathered}
        names = {f"const {self.kind(n)} r{n}": x for n, x in found.items()}
        lines = [x.split(" = ", 1) for x in self._last.nest(1)]
        body = [f"{x[0]} = {names[x[0]]};" if x[0] in names else " = ".join(x) for x in lines]
        read = [x for n in gathered for x in self._gather(n, at, last)]
        yield from self._row("first", [*self._known(self._late), *read, *_lanes(0, self._many, [place, *body])])

    def _opened(self, n: int) -> Iterator[str]:
        """The first line of a row, and which numbers of two lines are those of a vector."""
        kind, g, row = self.kind(n), f"g{n}", f"row{n}"
        yield f"const {kind} *{row};"
        yield from self._row("first", [f"{row} = {self._begin(n)};"])
        yield "#ifdef __AVX512F__"
        yield f"typedef {kind} {g}_line __attribute__((vector_size({LINE}), aligned({_WIDTH}), may_alias));"
        yield f"typedef int32_t {g}_turn __attribute__((vector_size({LINE}), may_alias));"
        yield f"int32_t {g}_off;"
        yield from self._row(self._alike("first"), [f"{g}_off = {self._after_line(n)};"])
        yield f"WX_ALIGNED int32_t {g}_places[{_LINE}];"
        yield f"WX_ALIGNED {kind} {g}_begin[{_LINE}];"
        yield from _lanes(0, _LINE, [f"{g}_places[lane] = (int32_t)lane + {g}_off;"])
        first = f"(int32_t)lane >= {g}_off ? {row}[lane - {g}_off] : 0"
        yield from _lanes(0, _LINE, [f"{g}_begin[lane] = {first};"])
        yield f"const {g}_turn {g}_by = *(const {g}_turn *){g}_places;"
        yield f"{g}_line {g}_from = *(const {g}_line *){g}_begin;"
        yield "#endif"

    def _gather(self, n: int, at: str, last: bool) -> Iterator[str]:
        """Elements of a row from one place on."""
        kind, g, row = self.kind(n), f"g{n}", f"row{n}"
        yield f"WX_ALIGNED {kind} {g}[{self._many}];"
        yield "#ifdef __AVX512F__"
        for i in range(0, self._many, _LINE):
            place = f"{row} + {at} + {i + _LINE} - {g}_off"
            if last and i + _LINE == self._many:
                yield f"WX_ALIGNED {kind} {g}_end[{_LINE}] = {{0}};"
                yield f"if ({g}_off) {{"  # a masked load that touches no memory takes hundreds of cycles
                yield from _lanes(0, _LINE, [f"{g}_end[lane] = (int32_t)lane < {g}_off ? ({place})[lane] : 0;"])
                yield "}"
                place = f"{g}_end"
            yield f"const {g}_line {g}_to{i} = *(const {g}_line *)({place});"
            yield f"*({g}_line *)({g} + {i}) = __builtin_shuffle({g}_from, {g}_to{i}, {g}_by);"
            yield f"{g}_from = {g}_to{i};"
        yield "#else"
        yield from _lanes(0, self._many, [f"{g}[lane] = {row}[{at} + lane];"])
        yield "#endif"

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


def _lanes(low: int, high: int, body: Iterable[str]) -> Iterator[str]:
    loop = f"for (int64_t lane = {low}; lane < {high}; lane++) {{"
    yield from ("#pragma omp simd", loop, *("  " + x for x in body), "}")
