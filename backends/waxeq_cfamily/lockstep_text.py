"""C text of sweeps along a row in lockstep (`lockstep`), in vectors that compilers know by themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from waxeq.ir.types import is_float
from waxeq_cfamily.lockstep import APPLIED, FAR, VECTOR, Formula, Held, Lockstep, Span, asked
from waxeq_cfamily.lockstep_cut import PRODUCTS, chosen, reached
from waxeq_cfamily.lockstep_early import AHEAD, CROWDED, STRIP, Early, early
from waxeq_cfamily.lockstep_vectors import helpers
from waxeq_cfamily.scalars import CTYPES, number
from waxeq_cfamily.sliding import sought, tile
from waxeq_cfamily.values import Guard, Index, Row
from waxeq_cfamily.walks import PAGE


@dataclass(frozen=True)
class Written:
    """The text of a walk in lockstep. `texts`: of the addresses of its operands; `result`: of that of what it makes,
    which goes `past` the cache or not; `asks`: for what the next step reads."""

    plan: Lockstep
    texts: Sequence[str]
    result: str
    past: bool
    asks: bool

    @cached_property
    def early(self) -> Early | None:
        return early(self.plan)

    def function(self, name: str) -> str:
        """The whole function: a task is a tile of the result."""
        p, t = self.plan, CTYPES[self.plan.dtype]
        lines = [f"void {name}(char *const *args, int64_t begin, int64_t end, int64_t thread) {{", "  (void)thread;"]
        lines += [f"  const {t} *x{i} = (const {t} *)({text});" for i, text in enumerate(self.texts)]
        lines.append(f"  {t} *out = ({t} *)({self.result});")
        if self.past:  # elsewhere through the cache, in parts
            lines.append(f"  const int begins = (uintptr_t)out % {VECTOR} == 0;")
        if self.early:
            lines.append(f"  const int crowded = {_crowded(self.early)};")
        lines += ["  for (int64_t t = begin; t < end; t++) {"]
        lines += ["    " + x for x in tile(p.walk)]
        if self.early:
            lines.append(f"    WX_ALIGNED {t} strip[{len(self.early.values) * STRIP * p.lanes}];")
        for n in p.numbers[:-1]:
            if room := p.old(n) * p.room * p.lanes:
                lines.append(f"    WX_ALIGNED {t} ring{n}[{room}] = {{0}};")
        step = p.walk.step
        before = max(high - low for low, high in map(p.walk.along, p.numbers))
        lines.append(f"    for (int64_t now = low - {-(-before // step) * step}; now < high; now += {step}) {{")
        lines += ["      " + x for x in self._row()]
        return "\n".join([helpers(p.dtype), *lines, "    }", "  }", *["  wx_streamed();"] * self.past, "}"])

    def _row(self) -> Iterator[str]:
        """All places of the rows of a step."""
        p, zero = self.plan, f"wx_step_{self.plan.dtype}"
        yield from (f"{zero} {name} = {{0}};" for name in self._states())
        low, high = p.inside
        yield f"const int near = {self._between(p.near)};"
        ends = "begins && " * self.past + f"now >= low && now + {p.walk.step} <= high"
        yield f"const int whole = {ends} && {self._between(p.within)};"
        yield f"for (int64_t c = 0; c < {p.vectors};) {{"
        yield f"  const int64_t stop = whole && c <= {low} ? {low} : {p.vectors};"
        yield from ("  " + x for x in self._places(Place(p, True, False, self.past), "if (near) ", "stop"))
        yield from ("  " + x for x in self._places(Place(p, False, False, self.past), "else ", "stop"))
        inside, which = Place(p, True, True, self.past), ""
        if self.early:
            ahead = replace(inside, early=self.early)
            yield "  if (crowded) {"
            yield from ("    " + x for x in ahead.begun(str(high)))
            yield from ("    " + x for x in self._places(ahead, "", str(high)))
            yield "  }"
            which = "else "
        yield from ("  " + x for x in self._places(inside, which, str(high)))
        yield "}"

    def _places(self, place: Place, which: str, end: str) -> Iterator[str]:
        yield f"{which}for (; c < {end}; c++) {{"
        yield from ("  " + x for x in (*self._asked(), *place.ahead(end), *place.text()))
        yield "}"

    def _states(self) -> Iterator[str]:
        """The vectors that are held from one place to the next."""
        p = self.plan
        for n in p.numbers[:-1]:
            for row in range(p.old(n) + p.walk.step):
                yield from (_vector(n, row, back + 1) for back in range(p.before(n, row)))
            yield from map(_left, p.beside(n))
        yield from map(_partial, range(len(p.partials)))

    def _between(self, rows: Span) -> str:
        """Whether a step lies between some rows, and what else is asked for holds."""
        p = self.plan
        holds = dict.fromkeys(_holds(p, n, g) for n, e in enumerate(p.edges) for g in e.others)
        return " && ".join([f"now >= {rows[0]}", f"now + {p.walk.step} <= {rows[1]}", *holds])

    def _asked(self) -> Iterator[str]:
        """What the next step reads first, into the second cache: its rows would push those in use out of the first."""
        p = self.plan
        views, shared = zip(*p.reads, strict=True)
        for row in sought(p.walk, views, shared, [self.result]) if self.asks else ():
            if not (row.write and self.past):
                kind = "1" if row.write else "0, 2"
                yield from (f"__builtin_prefetch({text} + c * {p.lanes}, {kind});" for text in row.texts)


@dataclass(frozen=True)
class Place:
    """The text of one place of a row: a vector of each row of each sweep. `rows`: every guard of rows holds, and no
    vector leaves what memory there is; `columns`: those of the last axis hold too. `early`: what places before this one
    made for it; `at`: its number in a row."""

    plan: Lockstep
    rows: bool
    columns: bool
    past: bool
    early: Early | None = None
    at: str = "c"

    def begun(self, end: str) -> Iterator[str]:
        """What is made early for the first places."""
        yield f"for (int64_t a = c; a < c + {AHEAD} && a < {end}; a++) {{"
        yield from ("  " + x for x in self._made_early())
        yield "}"

    def ahead(self, end: str) -> Iterator[str]:
        """What this place makes for one further on, or for the last one again."""
        if self.early:
            yield "{"
            yield f"  const int64_t a = c + {AHEAD} < {end} ? c + {AHEAD} : {end} - 1;"
            yield from ("  " + x for x in self._made_early())
            yield "}"

    def _made_early(self) -> Iterator[str]:
        assert self.early is not None
        there, d, rows = replace(self, at="a"), self.plan.dtype, self.plan.whole(0).values.rows
        for k in reached(self.early.values, [r.args for r in rows]):
            args = [f"v0_{a}" for a in rows[k].args]
            yield f"const wx_step_{d} v0_{k} = {there._expression(0, rows[k], args)};"
        yield from (f"wx_put_{d}({self._strip(k, 'a')}, v0_{k});" for k in self.early.values)

    def _strip_read(self, k: int) -> str:
        return f"wx_read_{self.plan.dtype}({self._strip(k, 'c')})"

    def _joined(self, m: int, r: Row) -> bool:
        """Whether a compiler may join what a sweep makes with a sum that is made of it at the same place."""
        product = r.op == "apply" and r.name in PRODUCTS
        return product and is_float(r.dtype) and any(p.sweep == m for p in self.plan.partials)

    def _strip(self, k: int, at: str) -> str:
        """Where a value that is made early lies."""
        assert self.early is not None
        lanes = self.plan.lanes
        return f"strip + {self.early.values.index(k) * STRIP * lanes} + ({at} & {STRIP - 1}) * {lanes}"

    def text(self) -> Iterator[str]:
        p = self.plan
        for m in p.numbers:
            yield from self._made(m)
            if m < p.numbers[-1]:
                yield from self._kept(m)
            for n in p.numbers[:-1]:
                if max(k for k, s in enumerate(p.walk.sweeps) if n in s.reads) == m:
                    yield from self._moved(n)

    def _made(self, m: int) -> Iterator[str]:
        """The rows of a sweep."""
        p = self.plan
        found = p.whole(m) if self.rows else p.guarded(m)
        rows = found.values.rows
        taken = chosen(rows, lambda r: self._holds(m, r))
        there = {k: self._strip_read(k) for k in (self.early.values if self.early and m == 0 else ())}
        early = {p.formula: _partial(i) for i, p in enumerate(p.partials)}
        there |= {k: early[f] for k, f in enumerate(p.formulas(m, rows)) if f in early}
        links = [[] if k in there else [taken[a] for a in r.args] for k, r in enumerate(rows)]
        for k in reached([taken[n] for n, _ in found.values.results], links):
            args = [f"v{m}_{a}" for a in links[k]]
            value = there[k] if k in there else self._expression(m, rows[k], args)
            yield f"const wx_step_{p.dtype} v{m}_{k} = {value};"
        for (n, where), (_, row) in zip(found.values.results, found.results, strict=True):
            if m < p.numbers[-1]:
                rounded = f"wx_rounded_{p.dtype}" if self._joined(m, rows[taken[n]]) else ""
                yield f"const wx_step_{p.dtype} {_vector(m, p.old(m) + row, 0)} = {rounded}(v{m}_{taken[n]});"
            else:
                yield self._written(f"v{m}_{taken[n]}", where, row)

    def _holds(self, m: int, r: Row) -> bool:
        """Whether what a row asks for is known to hold."""
        return self.columns or (self.rows and self.plan.edge(m, asked(r)).columns[1] == FAR)

    def _expression(self, m: int, r: Row, args: Sequence[str]) -> str:
        p, d = self.plan, self.plan.dtype
        if r.op == "number":
            return f"wx_all_{d}({number(r.name, d)})"
        if r.op == "apply":
            return APPLIED[r.name].format(*args, d=d)
        if r.op == "within":
            return f"wx_pick_{d}(wx_lanes_{d}({self._bits(m, [*asked(r)])}), {args[0]}, {args[1]})"
        if r.name[0] >= len(p.reads):
            return self._read(p.read(m, r.name))
        at = f"x{r.name[0]} + {self._place(m, r.name[1])}"
        if r.name[1].stride(p.walk.sweeps[m].axes[-1]) == 0:
            return f"wx_all_{d}({'' if self.rows else f'!({self._bits(m, r.guards)}) ? 0 : '}*({at}))"
        return f"wx_read_{d}({at})" if self.rows else f"wx_part_{d}({at}, {self._bits(m, r.guards)})"

    def _bits(self, m: int, guards: Sequence[Guard]) -> str:
        """The elements of a vector where guards hold."""
        p = self.plan
        e, lanes = p.edge(m, guards), self.plan.lanes
        (low, high), (first, last) = e.columns, e.rows
        if low >= high or first >= last:
            return "0"
        holds = [_holds(p, m, g) for g in e.others]
        if last < FAR:
            holds.append(f"(uint64_t)(now + {p.ahead(m) - first}) < {last - first}u")
        columns = f"wx_between_{p.dtype}(c * {lanes}, {low + p.lags[m] * lanes}, {high + p.lags[m] * lanes})"
        return f"({' && '.join(holds)} ? {columns} : 0)" if holds else columns

    def _place(self, m: int, where: Index) -> str:
        """How far an element of a row's vector is, of sweep m."""
        p = self.plan
        axes = p.walk.sweeps[m].axes
        row, column = where.stride(p.axis(m)) or 0, where.stride(axes[-1]) or 0
        parts = [f"now * {row}", f"{self.at} * {column * p.lanes}"]
        parts += [f"at{i} * {where.stride(axes[i])}" for i in p.walk.points if where.stride(axes[i])]
        return " + ".join([*parts, str(where.const + row * p.ahead(m) - column * p.lanes * p.lags[m])])

    def _written(self, value: str, where: Index, row: int) -> str:
        p, m = self.plan, self.plan.numbers[-1]
        at, lanes = f"out + {self._place(m, where)}", p.lanes
        if self.columns:
            return f"wx_past_{p.dtype}({at}, {value});" if self.past else f"wx_put_{p.dtype}({at}, {value});"
        ends = f"{p.lags[m] * lanes}, {p.walk.sizes[-1] + p.lags[m] * lanes}"
        bits = f"now >= low && now + {row} < high ? wx_between_{p.dtype}(c * {lanes}, {ends}) : 0"
        return f"wx_put_part_{p.dtype}({at}, {value}, {bits});"

    def _read(self, h: Held) -> str:
        """What an earlier sweep made."""
        if h.beside == 0:
            return _vector(h.sweep, h.row, h.back)
        if h.beside > 0:
            return self._across(h.sweep, h.row, h.back, h.beside)
        return _left(h) if h.back else self._across(h.sweep, h.row, 1, self.plan.lanes + h.beside)

    def _across(self, n: int, row: int, back: int, first: int) -> str:
        """The elements of two vectors side by side from one of them on."""
        lanes = ", ".join(str(first + i) for i in range(self.plan.lanes))
        return f"WX_BESIDE_{self.plan.dtype}({_vector(n, row, back)}, {_vector(n, row, back - 1)}, {lanes})"

    def _kept(self, n: int) -> Iterator[str]:
        """Rows that the steps before made, each overwritten by one that the next step reads."""
        p, d = self.plan, self.plan.dtype
        old, at = p.old(n), [f"ring{n} + {i * p.room * p.lanes} + c * {p.lanes}" for i in range(p.old(n))]
        yield from (f"const wx_step_{d} {_vector(n, i, 0)} = wx_read_{d}({at[i]});" for i in range(old))
        yield from (f"wx_put_{d}({at[i]}, {_vector(n, i + p.walk.step, 0)});" for i in range(old))

    def _moved(self, n: int) -> Iterator[str]:
        """The vectors that are held for the next place."""
        p = self.plan
        for h in p.beside(n):
            yield f"{_left(h)} = {self._across(n, h.row, h.back, p.lanes + h.beside)};"
        for i, partial in enumerate(p.partials):
            if partial.sweep == n:
                yield f"{_partial(i)} = {self._formula(partial.formula)};"
        for row in range(p.old(n) + p.walk.step):
            yield from (f"{_vector(n, row, b)} = {_vector(n, row, b - 1)};" for b in range(p.before(n, row), 0, -1))

    def _formula(self, f: Formula) -> str:
        """What the next place has of a formula."""
        d = self.plan.dtype
        if isinstance(f, str):
            return f"wx_all_{d}({f})"
        if isinstance(f, Held):
            if f.beside == 0:
                return _vector(f.sweep, f.row, f.back - 1)
            return self._across(f.sweep, f.row, f.back, self.plan.lanes + f.beside)
        name, args = f
        return APPLIED[name].format(*map(self._formula, args), d=d)


def _partial(i: int) -> str:
    """The name of what is made a place before it is used."""
    return f"partial{i}"


def _crowded(early: Early) -> str:
    """Whether rows of other operands have the places in the first cache of those that something is made of early."""
    low, high = CROWDED
    apart = (f"(uintptr_t)x{i} - (uintptr_t)x{early.operand} + {by + PAGE - low}u" for i, by in early.others)
    return " || ".join(f"({x}) % {PAGE} < {high - low}" for x in apart)


def _vector(n: int, row: int, back: int) -> str:
    """The name of a vector that sweep n made so many places ago."""
    return f"was{n}_{row}_{back}" if back else f"made{n}_{row}"


def _left(h: Held) -> str:
    """The name of what is read to the left, as it is held."""
    return f"left{h.sweep}_{h.row}_{h.back}_{-h.beside}"


def _holds(p: Lockstep, n: int, guard: Guard) -> str:
    """Whether a guard holds that asks for places of outer axes only."""
    where, low, high = guard
    axes = p.walk.sweeps[n].axes
    terms = [f"at{axes.index(a)} * {c}" for a, c in where.terms if isinstance(a, str)]
    return f"(uint64_t)({' + '.join([*terms, str(where.const - low)])}) < {high - low}u"
