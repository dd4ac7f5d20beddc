"""Sweeps along a row in lockstep: all of them make a vector of each row of a step, every one a vector behind those that
it reads to the right. What one sweep makes is read by the next out of registers; only rows that the next step reads
again are kept in memory, at fixed places that are overwritten as they are read.

Source: loops skewed against each other (M. Wolfe, Loop skewing, 1986), along two axes here.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from waxeq.backend.call import View
from waxeq.ir.types import numpy_dtype
from waxeq_cfamily.lockstep_cut import cut, reached
from waxeq_cfamily.scalars import number
from waxeq_cfamily.sweeps import Jammed, Sweep, jammed, place
from waxeq_cfamily.values import Guard, Index, Row, Unsupported
from waxeq_cfamily.walks import Walk

VECTOR = 64
"""Bytes of a vector."""

_STEPS = (3, 2)
"""Rows of each sweep that a step makes, the most first: what two of them read is read once."""

_REGISTERS = 30
"""Vectors that are held between places of a row, of 32: the others are what is computed. Eight Jacobi sweeps of two
rows hold 42, and take 1.3 times as long in cache as one after another (Zen 4)."""

_RINGS = 1 << 18
"""Bytes of all rows that are kept: they lie in the second cache, and on the stack."""

FEWEST = 4
"""Vectors of a row that are inside at every edge; of fewer most time goes where edges are asked for."""

_ROWS = 512
"""Values of all rows of a step: a text of more takes a compiler long."""

FAR = 1 << 30
"""Further than any axis is long."""

APPLIED = {
    "Add": "({0} + {1})",
    "sub": "({0} - {1})",
    "Mul": "({0} * {1})",
    "square": "({0} * {0})",
    "neg": "(-{0})",
    "max": "wx_pick_{d}(({1} > {0}) | ({1} != {1}), {1}, {0})",
    "min": "wx_pick_{d}(({1} < {0}) | ({1} != {1}), {1}, {0})",
    "fmax": "wx_pick_{d}(({1} > {0}) | ({0} != {0}), {1}, {0})",
    "fmin": "wx_pick_{d}(({1} < {0}) | ({0} != {0}), {1}, {0})",
}
"""Functions of vectors, {d} being the dtype: those of `scalars`, without their conditions."""

Span = tuple[int, int]
"""The first place of some, and the one after the last."""


@dataclass(frozen=True)
class Edge:
    """Where guards hold: at these places of the last axis, at these rows, and where `others` hold all along a row."""

    columns: Span
    rows: Span
    others: tuple[Guard, ...] = ()


@dataclass(frozen=True)
class Held:
    """A vector of row `row` (counted from the first that a step reads) of sweep `sweep`, `back` vectors before the one
    that is made; `beside`: elements on from there."""

    sweep: int
    row: int
    beside: int
    back: int


Formula = Held | str | tuple[str, tuple["Formula", ...]]
"""What a value is made of: vectors of earlier sweeps, numbers, and functions of such."""


@dataclass(frozen=True)
class Partial:
    """A value that is made of vectors of sweep `sweep` which are there a place before it is used."""

    sweep: int
    formula: Formula


@dataclass(frozen=True)
class Lockstep:
    """How a walk goes along its rows in lockstep. `reads`: the views of operands, those of one buffer have equal
    names beside them. `partly`: values are held that are made of what would be held otherwise."""

    walk: Walk
    reads: Sequence[tuple[View, Hashable]]
    partly: bool = False

    @staticmethod
    def of(walk: Walk, reads: Sequence[tuple[View, Hashable]]) -> Lockstep:
        """Raises Unsupported."""
        if walk.rows is None or walk.results > 1 or len(walk.inner(0)) > 1:
            raise Unsupported("sweeps that go along no rows, or make several results")
        whole = replace(walk, width=walk.sizes[-1])
        for step in _STEPS:
            plain = Lockstep(replace(whole, step=step, height=-(-walk.height // step) * step), reads)
            plain.check()
            found = min(replace(plain, partly=True), plain, key=lambda p: p.registers)
            if found.registers <= _REGISTERS:
                return found
        raise Unsupported("more vectors than registers")

    def check(self) -> None:
        """Raises Unsupported."""
        dtypes = {r.dtype for s in self.walk.sweeps for r in s.values.rows}
        if len(dtypes) > 1 or numpy_dtype(self.dtype).itemsize not in (4, 8) or self.dtype == "bool":
            raise Unsupported("dtypes of several or of other sizes")
        for n, s in enumerate(self.walk.sweeps):
            for r in s.values.rows:
                self._check(n, r)
        rows = sum(len(self.whole(n).values.rows) for n in self.numbers)
        if self.inside[1] - self.inside[0] < FEWEST or rows > _ROWS:
            raise Unsupported("short rows, or a long text")
        kept = sum(map(self.old, self.numbers[:-1])) * self.room
        if kept * VECTOR > _RINGS or any(abs(h.beside) >= self.lanes for h in self.held):
            raise Unsupported("rows that fit no cache, or what is read further away than a vector")

    def _check(self, n: int, r: Row) -> None:
        if r.op not in ("load", "number", "apply", "within") or (r.op == "apply" and r.name not in APPLIED):
            raise Unsupported("a function that is none of vectors")
        if r.op == "load" and r.name[0] < len(self.reads):
            axes = self.walk.sweeps[n].axes
            where = r.name[1]
            if any(a not in axes for a, _ in where.terms) or where.stride(axes[-1]) not in (0, 1):
                raise Unsupported("an operand that does not lie along the rows")

    @property
    def dtype(self) -> str:
        return self.walk.dtype(0)

    @property
    def lanes(self) -> int:
        """Elements of a vector."""
        return VECTOR // numpy_dtype(self.dtype).itemsize

    @property
    def numbers(self) -> range:
        """Those of the sweeps."""
        return range(len(self.walk.sweeps))

    def axis(self, n: int) -> str:
        """The axis of a sweep that steps go along."""
        assert self.walk.rows is not None
        return self.walk.sweeps[n].axes[self.walk.rows]

    def ahead(self, n: int) -> int:
        """The first row of sweep n that a step makes, from the step's own one on."""
        return self.walk.along(n)[1]

    @cached_property
    def lags(self) -> Sequence[int]:
        """How many vectors each sweep is behind the first."""
        found = list[int]()
        for s in self.walk.sweeps:
            found.append(max((found[n] + (places[-1][1] > 0) for n, places in s.reads.items()), default=0))
        return found

    def old(self, n: int) -> int:
        """Rows of sweep n that a step reads and that the steps before it made."""
        assert self.walk.rows is not None
        reads = ((m, s.reads[n][self.walk.rows][0]) for m, s in enumerate(self.walk.sweeps) if n in s.reads)
        return self.ahead(n) - min(self.ahead(m) + low for m, low in reads)

    @cached_property
    def vectors(self) -> int:
        """Places of a row: as many as the last sweep has vectors, and as it is behind."""
        return -(-self.walk.sizes[-1] // self.lanes) + self.lags[-1]

    @property
    def room(self) -> int:
        """Vectors of a row in memory; rows are apart by other than whole pages."""
        return self.vectors + 6

    def sweep(self, n: int) -> Sweep:
        """A sweep whose loads of one buffer are of the first operand there, guarded as memory asks for."""
        s = self.walk.sweeps[n]
        rows = tuple(self._loaded(r, s) for r in s.values.rows)
        return replace(s, values=replace(s.values, rows=rows))

    def _loaded(self, r: Row, s: Sweep) -> Row:
        if r.op != "load" or r.name[0] >= len(self.reads):
            return replace(r, guards=())
        (view, shared), where = self.reads[r.name[0]], r.name[1]
        first = next(i for i, (v, name) in enumerate(self.reads) if name == shared and v.dtype == view.dtype)
        apart = view.offset - self.reads[first][0].offset
        return replace(r, name=(first, where.plus(Index((), apart))), guards=(*r.guards, *self._ends(s)))

    def _ends(self, s: Sweep) -> Iterator[Guard]:
        """That a place is one of a sweep's."""
        for i, (k, n) in enumerate(zip(s.axes, s.sizes(), strict=True)):
            if i not in self.walk.points:
                yield Index.of(k), 0, n

    def edge(self, n: int, guards: Iterable[Guard]) -> Edge:
        """Raises Unsupported."""
        axis, last = self.axis(n), self.walk.sweeps[n].axes[-1]
        columns, rows, others = (-FAR, FAR), (-FAR, FAR), list[Guard]()
        for guard in guards:
            atoms = [a for a, _ in guard[0].terms]
            if atoms == [last]:
                columns = _both(columns, _span(guard))
            elif atoms == [axis]:
                rows = _both(rows, _span(guard))
            elif {*atoms} <= {*self.walk.sweeps[n].axes} - {axis, last}:
                others.append(guard)
            else:
                raise Unsupported("an edge that is none of rows or columns")
        return Edge(columns, rows, tuple(others))

    @cached_property
    def edges(self) -> Sequence[Edge]:
        """Of each sweep where all guards hold."""
        found = list[Edge]()
        for n in self.numbers:
            s = self.sweep(n)
            guards = dict.fromkeys(g for r in s.values.rows for g in (*r.guards, *asked(r)))
            found.append(self.edge(n, (*guards, *self._ends(s))))
        return found

    @cached_property
    def inside(self) -> Span:
        """The places of a row where all sweeps are inside."""
        low = max(-(-e.columns[0] // self.lanes) + lag for e, lag in zip(self.edges, self.lags, strict=True))
        high = min(e.columns[1] // self.lanes + lag for e, lag in zip(self.edges, self.lags, strict=True))
        return low, high

    @cached_property
    def within(self) -> Span:
        """The rows where all sweeps are inside, as a step's own ones are counted."""
        low = max(e.rows[0] - self.ahead(n) for n, e in enumerate(self.edges))
        return low, min(e.rows[1] - self.ahead(n) for n, e in enumerate(self.edges))

    @cached_property
    def near(self) -> Span:
        """Those of them where there is memory before a row and after it for vectors that go beyond its ends."""
        low, high = self.within
        for n in self.numbers:
            s = self.sweep(n)
            for r in s.values.rows:
                if r.op != "load" or r.name[0] >= len(self.reads) or not r.name[1].stride(s.axes[-1]):
                    continue
                step, e, lag = r.name[1].stride(self.axis(n)) or 0, self.edge(n, r.guards), self.lags[n]
                if step <= 0:
                    return 0, 0
                before, after = e.columns[0] + lag * self.lanes, (self.vectors - lag) * self.lanes - e.columns[1]
                low = max(low, e.rows[0] - self.ahead(n) + -(-max(0, before) // step))
                high = min(high, e.rows[1] - self.ahead(n) - -(-max(0, after) // step))
        return low, high

    def whole(self, n: int) -> Jammed:
        """What a sweep makes of all rows of a step where every guard holds."""
        s = self.sweep(n)
        bare = replace(s.values, rows=tuple(replace(r, guards=()) for r in s.values.rows))
        return jammed(bare, self.axis(n), self.walk.step, s.axes[-1])

    def guarded(self, n: int) -> Jammed:
        """The same with all guards."""
        return jammed(self.sweep(n).values, self.axis(n), self.walk.step, None)

    def read(self, m: int, name: tuple[int, Index]) -> Held:
        """What a sweep reads of an earlier one."""
        n = name[0] - len(self.reads)
        axes = self.walk.sweeps[n].axes
        found = place(name[1], sorted(axes))
        assert found is not None and self.walk.rows is not None, "what is read otherwise is no sweep"
        if any(found[axes[i]][1] for i in self.walk.points):
            raise Unsupported("other places of outer axes")
        row = self.ahead(m) + found[axes[self.walk.rows]][1] - self.ahead(n) + self.old(n)
        return Held(n, row, found[axes[-1]][1], self.lags[m] - self.lags[n])

    @cached_property
    def held(self) -> Sequence[Held]:
        """All that is read of earlier sweeps."""
        found = dict[Held, None]()
        for m in self.numbers:
            rows = self.whole(m).values.rows
            found |= {self.read(m, r.name): None for r in rows if self._swept(r)}
        return tuple(found)

    def _swept(self, r: Row) -> bool:
        """Whether a row is read of an earlier sweep."""
        return r.op == "load" and r.name[0] >= len(self.reads)

    def formulas(self, m: int, rows: Sequence[Row]) -> Sequence[Formula | None]:
        """What rows of a sweep are made of, where it is no more than formulas have."""
        found = list[Formula | None]()
        for r in rows:
            args = [found[a] for a in r.args]
            known = tuple(a for a in args if a is not None)
            if self._swept(r):
                found.append(self.read(m, r.name))
            elif r.op == "number":
                found.append(number(r.name, self.dtype))
            else:
                found.append((r.name, known) if r.op == "apply" and len(known) == len(args) else None)
        return found

    @cached_property
    def partials(self) -> Sequence[Partial]:
        """What is made a place early; not where a sweep reads what is made at the same place, and a compiler may join
        both."""
        if not self.partly:
            return ()
        late = {h.sweep for h in self.held if not h.back}
        pairs = ((m, n) for m, s in enumerate(self.walk.sweeps) for n in s.reads if n not in late)
        return tuple(dict.fromkeys(Partial(n, formula) for m, n in pairs for formula in self._early(m, n)))

    def _early(self, m: int, n: int) -> Iterator[Formula]:
        """The formulas of sweep m that are made of sweep n alone, and are there a place before."""
        values = self.whole(m).values
        formulas = self.formulas(m, values.rows)

        def given(k: int) -> bool:
            f = formulas[k]
            return isinstance(f, str) or (isinstance(f, Held) and f.sweep == n and f.beside <= 0)

        for k in cut(values, range(len(values.rows)), given):
            formula = formulas[k]
            if isinstance(formula, tuple) and any(leaves(formula)):
                yield formula

    @cached_property
    def needed(self) -> Sequence[Held]:
        """What is read where it is used, and not for values that are made a place early."""
        found, early = dict[Held, None](), {p.formula for p in self.partials}
        for m in self.numbers:
            values = self.whole(m).values
            formulas = self.formulas(m, values.rows)
            links = [() if formulas[k] in early else r.args for k, r in enumerate(values.rows)]
            for k in reached([n for n, _ in values.results], links):
                if isinstance(h := formulas[k], Held):
                    found[h] = None
        return tuple(found)

    def before(self, n: int, row: int) -> int:
        """How many vectors of a row that were made before are held."""
        reads = [max(h.back, h.beside < 0) for h in self.needed if (h.sweep, h.row) == (n, row)]
        parts = (h for p in self.partials for h in leaves(p.formula) if (h.sweep, h.row) == (n, row))
        return max((*reads, *(h.back - (h.beside == 0) for h in parts)), default=0)

    def beside(self, n: int) -> Iterator[Held]:
        """What is read to the left: made where the vectors that it is of are, one place before it is read."""
        return (h for h in self.needed if h.sweep == n and h.beside < 0 and h.back)

    @cached_property
    def registers(self) -> int:
        rows = ((n, row) for n in self.numbers[:-1] for row in range(self.old(n) + self.walk.step))
        beside = sum(1 for n in self.numbers for _ in self.beside(n))
        return sum(self.before(n, row) for n, row in rows) + beside + len(self.partials)


def leaves(formula: Formula) -> Iterator[Held]:
    """The vectors that a formula is made of."""
    if isinstance(formula, Held):
        yield formula
    elif isinstance(formula, tuple):
        for f in formula[1]:
            yield from leaves(f)


def asked(r: Row) -> Iterator[Guard]:
    """What a value asks for."""
    if r.op == "within":
        yield r.name[1], *r.name[0]


def _both(a: Span, b: Span) -> Span:
    return max(a[0], b[0]), min(a[1], b[1])


def _span(guard: Guard) -> Span:
    """The places of the one axis of a guard where it holds. Raises Unsupported."""
    where, low, high = guard
    ((_, step),) = where.terms
    if step == 1:
        return low - where.const, high - where.const
    if step == -1:
        return where.const - high + 1, where.const - low + 1
    raise Unsupported("an edge of every so many places")
