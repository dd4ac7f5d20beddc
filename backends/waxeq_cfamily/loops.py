"""C text of a nest: one function that computes a range of points of the outer axes.

The inner loops are scalar code without branches, one `#pragma omp simd` over the vector axis: the compiler makes
vectors of them, a GPU makes threads of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import ClassVar

from waxeq.ir.types import is_float
from waxeq_cfamily.casts import NONE, back, cast, masked
from waxeq_cfamily.divided import divided
from waxeq_cfamily.excess import excess
from waxeq_cfamily.extremes import bare
from waxeq_cfamily.functions import BELOW, DTYPES, symbol
from waxeq_cfamily.interleaved import Interleaved
from waxeq_cfamily.lookups import Use, looked_at, lookups, within
from waxeq_cfamily.nest import Loop
from waxeq_cfamily.paired import Paired
from waxeq_cfamily.past import Past
from waxeq_cfamily.products import Product
from waxeq_cfamily.scalars import CTYPES, carried, expression, nth, number, rounded, rounds, var, variable, widened
from waxeq_cfamily.signs import at_least_zero, at_most_zero
from waxeq_cfamily.stages import Space, Stage
from waxeq_cfamily.values import Atom, Guard, Index, Row, Unsupported, Values, chain

_WHOLE = 1 << 24
"""Up to here every whole number is one of every float that is computed with."""

_BOUNDS: Mapping[str, str] = MappingProxyType({"max": ">", "fmax": ">", "min": "<", "fmin": "<"})


@dataclass(frozen=True)
class Emitter:
    """Text for one space. `functions`: C names of functions by (name, dtype). `operands`: the arguments that are
    operands, in order, of these `dtypes`; `result`: the one that is written. `outside`: where it is noted that a
    position lies outside its axis. `aliased`: operands that the result may replace. `limits`: of functions that end at
    some size of their argument that size, and the C name of one that goes on. `streams`: the result is written past the
    cache. `others`: the arguments that other results of the values are written to. `decided`: guards of which it is
    known whether they hold. `excess`: values of narrow floats are rounded only where it matters. `hides`: constant
    bounds are variables and extremes functions, of which gcc 12 makes an instruction each. `converts`: float16 is
    converted in pieces. `ahead`: asks for what is read later. `careful`: what is computed once for a whole row has
    fewer roundings than what is computed for each element. `sections`: where guards begin to hold is a number.
    `lined`: loops that only write go through multiples of so many places, where not 0, from the first one on.
    `grouped`: neighbours in groups have pointers of their own. `halved`: blocks are vectors before they are added."""

    space: Space
    functions: Mapping[tuple[str, str], str]
    operands: Sequence[str]
    result: str
    dtypes: Sequence[str]
    aliased: frozenset[int] = frozenset()
    limits: Mapping[tuple[str, str], tuple[float, str]] = field(default_factory=dict)
    streams: bool = False
    others: Sequence[str] = ()
    decided: Mapping[Guard, bool] = field(default_factory=dict)
    excess: bool = False
    halved: bool = False
    hides: ClassVar[bool] = True
    converts: ClassVar[bool] = True
    ahead: ClassVar[str | None] = "__builtin_prefetch"
    careful: ClassVar[bool] = True
    sections: ClassVar[bool] = True
    lined: ClassVar[int] = 0
    grouped: ClassVar[bool] = True
    outside: str = "((wx_context *)args[0])->outside"

    @property
    def values(self) -> Values:
        return self.space.values

    @cached_property
    def _lookups(self) -> Mapping[int, tuple[Use, ...]]:
        return lookups(self.values) if self.values.positions else {}

    def check(self) -> None:
        """Raises Unsupported where there is no text for some value."""
        for r in self.values.rows:
            if r.op == "apply" and not bare(r) and expression(r.name, self._taken(r), r.dtype, self.functions) is None:
                raise Unsupported(f"{r.name} of {self._taken(r)}")

    def function(self, name: str) -> str:
        """The whole function, of what passed the check."""
        lines = [f"void {name}(char *const *args, int64_t begin, int64_t end, int64_t thread) {{", "  (void)thread;"]
        lines += [*self._pointers(), *self._hidden()]
        watched = bool(self.values.positions)
        lines += ["  int32_t bad = 0;"] * watched
        lines += self.walked()
        lines += [f"  if (bad) {self.outside} = 1;"] * watched + ["  wx_streamed();"] * self.streams
        return "\n".join([*lines, "}"])

    def walked(self) -> Iterator[str]:
        """The loop over points."""
        yield "  for (int64_t t = begin; t < end; t++) {"
        yield from ("    " + x for x in self.point())
        yield "  }"

    def point(self) -> list[str]:
        """What is done for one point of the outer axes: again, where an argument was beyond the limit of a function."""
        body = [*self.place(), *self._buffers()]
        done: set[int] = set()
        for s in self.space.stages:
            if s.product is not None:
                body += self.multiplied(s.product)
            else:
                loop = self.loop(s)
                ending = () if loop.finishing is None else self._scalars(loop.finishing.stage, done)
                body += [*self._scalars(s, done), *ending, *loop.text()]
        if not self.limited:
            return body
        beyond = {pair: name for pair, (_, name) in self.limits.items()}
        again = replace(self, functions={**self.functions, **beyond}, limits={}).point()
        return ["int32_t far = 0;", "{", *("  " + x for x in body), "}", "if (far) {", *("  " + x for x in again), "}"]

    def loop(self, stage: Stage) -> Loop:
        """The text of a stage."""
        loop = Loop(self, stage)
        if self.streams and Past.takes(loop):
            return Past(self, stage)
        return Paired(self, stage) if Paired.takes(loop) else loop

    @cached_property
    def limited(self) -> bool:
        """Whether some function is used that ends at some argument."""
        return any(self._limit(n) is not None for n in range(len(self.values.rows)))

    def _limit(self, n: int) -> float | None:
        """Beyond which size of its argument, or of the quotient of both, a row's function ends."""
        r = self.values.rows[n]
        pair = (str(r.name), carried(r.dtype))
        return self.limits[pair][0] if r.op == "apply" and pair in self.limits else None

    def soon(self, v: str, many: int) -> Iterator[str]:
        """What asks for what is read after the innermost loop, over `v`, at each piece of so many elements of it."""
        yield from ()

    def multiplied(self, p: Product) -> Iterator[str]:
        """The text of a product: one for each member of the C family."""
        raise NotImplementedError("the walks of loops have no products of matrices")

    def _pointers(self) -> Iterator[str]:
        for n, (text, dtype) in enumerate(zip(self.operands, self.dtypes, strict=True)):
            alone = "" if n in self.aliased else " restrict"
            yield f"  const {CTYPES[dtype]} *{alone} x{n} = (const {CTYPES[dtype]} *)({text});"
        yield from self._apart.pointers(self.dtypes) if self._apart is not None else ()
        texts = (self.result, *self.others)
        for i, ((n, _), text) in enumerate(zip(self.values.results, texts, strict=True)):
            t, first = CTYPES[self.values.rows[n].dtype], texts.index(text)
            if i != first:
                begin = 0 if self._apart is None else self._apart.begin(i)
                place = f"wx_alone(out{nth(first)} + {begin})" if begin else f"out{nth(first)}"
                yield f"  {t} *out{i} = {place};"
                continue
            yield f"  {t} *{'' if self.aliased else ' restrict'} out{nth(i)} = ({t} *)({text});"

    def _hidden(self) -> Iterator[str]:
        """Constant bounds as variables: of a comparison with a constant gcc 12 makes no maximum."""
        for n in sorted({b for m in range(len(self.values.rows)) if (b := self._bound(m)) is not None}):
            r = self.values.rows[n]
            yield f"  const {variable(r.dtype)} q{n} = wx_hidden_{DTYPES[carried(r.dtype)]}({number(r.name, r.dtype)});"
        if self.hides and any(back(self.values, r) for r in self.values.rows):
            yield f"  const int32_t {NONE} = wx_hidden_i32(0);"

    def _bound(self, n: int) -> int | None:
        """The row of the constant that a row keeps its other argument above or below."""
        r = self.values.rows[n]
        if not self.hides or r.op != "apply" or r.name not in _BOUNDS or not is_float(r.dtype):
            return None
        found = [a for a in r.args if self.values.rows[a].op == "number"]
        return found[0] if len(found) == 1 and not math.isnan(float(self.values.rows[found[0]].name)) else None

    def _bounded(self, n: int, bound: int) -> str:
        """What is one instruction where the machine has vectors: its second argument if either is NaN."""
        r = self.values.rows[n]
        (other,) = (self.name(a) for a in r.args if a != bound)
        first, second = (f"q{bound}", other) if r.name in ("max", "min") else (other, f"q{bound}")
        return f"({first} {_BOUNDS[r.name]} {second} ? {first} : {second})"

    def place(self) -> Iterator[str]:
        """The outer axes from the number of the point."""
        rest, first = "t", True
        for k in reversed(self.space.outer):
            n = self.space.extent(k)
            last = k == self.space.outer[0]
            text = rest if last else f"{rest} % {n}"
            width = self.space.tiles.get(k)
            if width is None:
                yield f"const int64_t {var(k)} = {text};"
            else:
                size = self.values.sizes[k]
                yield f"const int64_t {var(k)}_t = {text};"
                yield f"const int64_t {var(k)}_lo = {var(k)}_t * {width};"
                high = f"{var(k)}_lo + {width}"
                yield f"const int64_t {var(k)}_hi = " + (
                    f"{high};" if size % width == 0 else f"{high} < {size} ? {high} : {size};"
                )
            if not last:
                name = f"{var(k)}_rest"
                yield f"const int64_t {name} = {rest} / {n};"
                rest = name
            first = False
        if first:
            yield "(void)t;"

    def _buffers(self) -> Iterator[str]:
        for n, axes in self.space.buffered.items():
            if n == self.space.rewritten:
                continue
            size = math.prod(self.space.width(k) for k in axes)
            yield f"WX_ALIGNED {variable(self.values.rows[n].dtype)} b{n}[{max(1, size)}];"

    def _scalars(self, stage: Stage, done: set[int]) -> Iterator[str]:
        """Values without inner axes that a stage needs and that were not made before."""
        need: set[int] = set()
        stack = [*(chain(self.values, f)[1] for f in stage.folds), *stage.kept]
        stack += [self.values.results[i][0] for i in stage.results]
        while stack:
            n = stack.pop()
            if n in need:
                continue
            need.add(n)
            r = self.values.rows[n]
            if r.op != "fold":
                stack += self.values.reads(r)
        for n in sorted(need - done):
            r = self.values.rows[n]
            if r.op not in ("fold", "number") and not self.space.under(n):
                done.add(n)
                yield from self.declared(n)

    # -- expressions

    def name(self, n: int) -> str:
        n = self.stands(n)
        r = self.values.rows[n]
        return number(r.name, r.dtype) if r.op == "number" else f"r{n}"

    def stands(self, n: int) -> int:
        """The row whose value a row has: one of two, where it is known which."""
        r = self.values.rows[n]
        while r.op == "within" and (known := self.decided.get((r.name[1], *r.name[0]))) is not None:
            n = r.args[0 if known else 1]
            r = self.values.rows[n]
        return n

    def reads(self, r: Row) -> tuple[int, ...]:
        """Every row that a row needs, as far as it is known which."""
        return tuple(dict.fromkeys(self.stands(n) for n in self.values.reads(r)))

    def declared(self, n: int) -> Iterator[str]:
        """The definition of a row's variable; a position is looked at before it is used."""
        r = self.values.rows[n]
        yield f"const {variable(r.dtype)} r{n} = {self._expression(n)};"
        limit = self._limit(n)
        if limit is not None:
            first, *others = (f"wx_abs_{DTYPES[carried(r.dtype)]}({self.name(a)})" for a in r.args)
            most = " * ".join([number(repr(limit), carried(r.dtype)), *others])
            some = "".join(f" & ({x} > 0)" for x in others)  # what is divided by zero needs no other function
            yield f"far |= ({first} > {most}){some};"
        yield from looked_at(f"r{n}", self._lookups.get(n, ()), self.holds, kept=self.space.looked)

    @cached_property
    def _apart(self) -> Interleaved | None:
        return Interleaved(self.space, (self.result, *self.others)) if self.grouped else None

    def read_from(self, n: int) -> tuple[str, Index]:
        """What a load reads: a pointer, and the place after it."""
        r = self.values.rows[n]
        return (f"x{r.name[0]}", r.name[1]) if self._apart is None else self._apart.read(*r.name)

    def written(self, i: int) -> str:
        """The place of an element of a result."""
        begin = 0 if self._apart is None else self._apart.begin(i)
        return f"out{nth(i)}[{self.index(self.values.results[i][1].plus(Index(const=-begin)))}]"

    def _expression(self, n: int) -> str:
        r = self.values.rows[n]
        if r.op == "load":
            base, where = self.read_from(n)
            return _either(self.holds(r.guards), widened(f"{base}[{self.index(where)}]", r.dtype), "0")
        if r.op == "position":
            return rounded(f"(({variable(r.dtype)})({self.index(r.name)}))", r.dtype)
        if r.op == "within":
            (low, high), where = r.name
            return _either(self.holds(((where, low, high),)), *map(self.name, r.args))
        bound = self._bound(n)
        if bound is not None:
            return self._bounded(n, bound)
        usual = cast(self.values, r, hides=self.hides) if r.name == "Cast" else divided(self.values, r) or self._once(n)
        usual = masked(self.values, r) or usual if self.hides else usual
        if self.hides and r.name in _BOUNDS and is_float(r.dtype):
            usual = f"wx_{r.name}_{DTYPES[carried(r.dtype)]}({{0}}, {{1}})"
        text = usual or bare(r) or expression(self._shorter(r), self._taken(r), r.dtype, self.functions)
        assert text is not None, "what cannot be written does not pass the check"
        text = text.format(*map(self.name, r.args))
        return rounded(text, r.dtype) if rounds(r.name, r.dtype) and n not in self.unrounded else text

    @cached_property
    def unrounded(self) -> frozenset[int]:
        """Rows that are not rounded where they are made: at least results that no other row reads, which are rounded
        where they are written."""
        if self.excess:
            return excess(self.values)
        return frozenset(n for n, _ in self.values.results if n not in self.values.users)

    def _once(self, n: int) -> str | None:
        """The text of what is computed once for a whole row, where there is one of fewer roundings than usual: all of
        the row's errors have those in common. Means are products with one part of a number."""
        r = self.values.rows[n]
        if not self.careful or r.op != "apply" or not is_float(r.dtype) or self.space.under(n):
            return None
        if r.name in ("sqrt", "rsqrt") and carried(r.dtype) == "float32":
            wide = self._as_double(r.args[0])
            if r.name == "sqrt":
                return wide and f"((float)__builtin_sqrt({wide}))"
            return f"((float)(1 / __builtin_sqrt({wide or '(double){0}'})))"
        if (parted := self._parted(n)) is None:
            return None
        other, whole = parted
        return f"({self.name(other)} / {number(repr(float(whole)), carried(r.dtype))})"

    def _parted(self, n: int) -> tuple[int, int] | None:
        """Which row a row is one part of, and of how many: a product with one part of a whole number, or a quotient."""
        r = self.values.rows[n]
        if (r.op, r.name) == ("apply", "div") and self.values.rows[r.args[1]].op == "number":
            many = float(self.values.rows[r.args[1]].name)
            return (r.args[0], int(many)) if many.is_integer() and 0 < abs(many) <= _WHOLE else None
        for place, a in enumerate(r.args if (r.op, r.name) == ("apply", "Mul") else ()):
            part = float(self.values.rows[a].name) if self.values.rows[a].op == "number" else 0.0
            whole = round(1 / part) if 0 < abs(part) < 1 and math.isfinite(1 / part) else 0
            if 0 < abs(whole) <= _WHOLE and 1 / whole == part:
                return r.args[1 - place], whole
        return None

    def _as_double(self, n: int) -> str | None:
        """A mean of squares and a little more as float64, not rounded before its root is taken; None for what is none.
        Neither of both is below zero, so that nothing cancels, and the sum is not too large for float32."""
        r = self.values.rows[n]
        for place, a in enumerate(r.args if (r.op, r.name, r.dtype) == ("apply", "Add", "float32") else ()):
            more, mean = self.values.rows[a], r.args[1 - place]
            if more.op == "number" and 0 < float(more.name) <= 1 and at_least_zero(self.values, mean):
                of, whole = self._parted(mean) or (mean, 0)
                part = f"((double){self.name(of)} / {whole})" if whole else f"(double){self.name(of)}"
                return f"({part} + (double){self.name(a)})"
        return None

    def _shorter(self, r: Row) -> str:
        """The function of a row, or one that is the same there and takes fewer instructions."""
        own = r.name == "exp" and self.functions.get(("exp", carried(r.dtype))) == symbol("exp", "float32")
        return BELOW if own and at_most_zero(self.values, r.args[0]) else r.name

    def _taken(self, r: Row) -> str:
        """The dtype of what a function takes."""
        return self.values.rows[r.args[1 if r.name == "Select" else 0]].dtype

    def holds(self, guards: Sequence[Guard]) -> str:
        """Whether all of some guards hold: "1" and "0" where that is known."""
        if not all(self.decided.get(g, True) for g in guards):
            return "0"
        return " & ".join(self._inside(*g) for g in guards if g not in self.decided) or "1"

    def _inside(self, where: Index, low: int, high: int) -> str:
        return f"((uint64_t)({self.index(where)}{f' - {low}' if low else ''}) < {high - low}u)"

    def index(self, index: Index) -> str:
        parts = [self._atom(a) if c == 1 else f"{self._atom(a)} * {c}" for a, c in index.terms]
        if index.const or not parts:
            parts.append(str(index.const))
        return " + ".join(parts)

    def _atom(self, a: Atom) -> str:
        if isinstance(a, str):
            return var(a)
        kind, what, n = a
        if kind == "row":
            return within(self.name(what), n, kept=self.space.looked)
        return f"(({self.index(what)}) {'/' if kind == 'div' else '%'} {n})"

    def buffer(self, n: int, before: str = "") -> str:
        """The element of a buffer at the loops' places, or the one before along an axis."""
        if n == self.space.rewritten:
            return f"out[{self.index(self.values.out)}]"
        parts, step = [], 1
        for k in reversed(self.space.buffered[n]):
            place = f"({var(k)} - {var(k)}_lo)" if k in self.space.tiles else var(k)
            place = f"({place} - 1)" if k == before else place
            parts.append(place if step == 1 else f"{place} * {step}")
            step *= self.space.width(k)
        return f"b{n}[{' + '.join(reversed(parts)) or '0'}]"


def _either(holds: str, inside: str, outside: str) -> str:
    """One of two values, by a condition that may be known."""
    return {"1": inside, "0": outside}.get(holds, f"({holds} ? {inside} : {outside})")
