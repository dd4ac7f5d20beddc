"""C text of a nest: one function that computes a range of points of the outer axes.

The inner loops are scalar code without branches, one `#pragma omp simd` over the vector axis: the compiler makes
vectors of them, a GPU makes threads of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from waxeq.ir.types import is_float
from waxeq_cfamily.products import Product
from waxeq_cfamily.scalars import (
    CTYPES,
    combine,
    expression,
    narrowed,
    number,
    rounded,
    rounds,
    start,
    variable,
    widened,
)
from waxeq_cfamily.stages import Space, Stage
from waxeq_cfamily.values import Atom, Guard, Index, Unsupported, Values, chain

_BLOCK = 4096
"""Elements that one accumulator takes in before it is added to another: the error of a long sum grows with this."""

_STEPS = {"sum": "Add", "prod": "Mul"}
"""The functions of two numbers that scans are made of, where they have another name."""


@dataclass(frozen=True)
class Emitter:
    """Text for one space. `functions`: C names of functions by (name, dtype). `pointers`: the arguments that are
    operands, in order; `result`: the one that is written. `aliased`: operands that the result may replace."""

    space: Space
    functions: Mapping[tuple[str, str], str]
    operands: Sequence[str]
    result: str
    dtypes: Sequence[str]
    aliased: frozenset[int] = frozenset()
    outside: str = "((wx_context *)args[0])->outside"

    @property
    def values(self) -> Values:
        return self.space.values

    def function(self, name: str) -> str:
        """The whole function. Raises Unsupported."""
        lines = [f"void {name}(char *const *args, int64_t begin, int64_t end, int64_t thread) {{", "  (void)thread;"]
        lines += self._pointers()
        body = [*self._place(), *self._buffers()]
        watched = bool(self.values.positions)
        lines += ["  int32_t bad = 0;"] * watched
        done: set[int] = set()
        for s in self.space.stages:
            if s.product is not None:
                body += self.multiplied(s.product)
            else:
                body += [*self._scalars(s, done), *_Loop(self, s).text()]
        lines += ["  for (int64_t t = begin; t < end; t++) {", *("    " + x for x in body), "  }"]
        lines += [f"  if (bad) {self.outside} = 1;"] * watched
        return "\n".join([*lines, "}"])

    def multiplied(self, p: Product) -> Iterator[str]:
        """The text of a product: one for each member of the C family."""
        raise Unsupported("a product of matrices")

    @property
    def points(self) -> int:
        """How many points the outer axes have."""
        return math.prod(self._extent(k) for k in self.space.outer)

    def _extent(self, axis: str) -> int:
        return -(-self.values.sizes[axis] // self.space.tiles.get(axis, 1))

    def _pointers(self) -> Iterator[str]:
        for n, (text, dtype) in enumerate(zip(self.operands, self.dtypes, strict=True)):
            alone = "" if n in self.aliased else " restrict"
            yield f"  const {CTYPES[dtype]} *{alone} x{n} = (const {CTYPES[dtype]} *)({text});"
        t = CTYPES[self.values.rows[self.values.root].dtype]
        yield f"  {t} *{'' if self.aliased else ' restrict'} out = ({t} *)({self.result});"

    def _place(self) -> Iterator[str]:
        """The outer axes from the number of the point."""
        rest, first = "t", True
        for k in reversed(self.space.outer):
            n = self._extent(k)
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
            size = math.prod(self.space.width(k) for k in axes)
            yield f"WX_ALIGNED {variable(self.values.rows[n].dtype)} b{n}[{max(1, size)}];"

    def _scalars(self, stage: Stage, done: set[int]) -> Iterator[str]:
        """Values without inner axes that a stage needs and that were not made before."""
        need: set[int] = set()
        stack = [*(chain(self.values, f)[1] for f in stage.folds), *stage.kept]
        stack += [self.values.root] if stage.result else []
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
        r = self.values.rows[n]
        return number(r.name, r.dtype) if r.op == "number" else f"r{n}"

    def declared(self, n: int) -> Iterator[str]:
        """The definition of a row's variable; a position is looked at before it is used."""
        r = self.values.rows[n]
        yield f"const {variable(r.dtype)} r{n} = {self._expression(n)};"
        for size in self.values.positions.get(n, ()):
            yield f"bad |= wx_outside(r{n}, {size});"

    def _expression(self, n: int) -> str:
        r = self.values.rows[n]
        if r.op == "load":
            text = widened(f"x{r.name[0]}[{self.index(r.name[1])}]", r.dtype)
            return f"({self._holds(r.guards)} ? {text} : 0)" if r.guards else text
        if r.op == "position":
            return rounded(f"(({variable(r.dtype)})({self.index(r.name)}))", r.dtype)
        if r.op == "within":
            (low, high), where = r.name
            return f"({self._holds(((where, low, high),))} ? {self.name(r.args[0])} : {self.name(r.args[1])})"
        taken = self.values.rows[r.args[1 if r.name == "Select" else 0]].dtype
        text = expression(r.name, taken, r.dtype, self.functions)
        if text is None:
            raise Unsupported(f"{r.name} of {taken}")
        text = text.format(*map(self.name, r.args))
        return rounded(text, r.dtype) if rounds(r.name, r.dtype) and n != self.values.root else text

    def _holds(self, guards: Sequence[Guard]) -> str:
        rows = []
        for where, low, high in guards:
            text = self.index(where)
            rows.append(f"((uint64_t)({text}{f' - {low}' if low else ''}) < {high - low}u)")
        return " & ".join(rows)

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
            return f"wx_within(r{what}, {n})"
        return f"(({self.index(what)}) {'/' if kind == 'div' else '%'} {n})"

    def buffer(self, n: int, before: str = "") -> str:
        """The element of a buffer at the loops' places, or the one before along an axis."""
        parts, step = [], 1
        for k in reversed(self.space.buffered[n]):
            place = f"({var(k)} - {var(k)}_lo)" if k in self.space.tiles else var(k)
            place = f"({place} - 1)" if k == before else place
            parts.append(place if step == 1 else f"{place} * {step}")
            step *= self.space.width(k)
        return f"b{n}[{' + '.join(reversed(parts)) or '0'}]"


@cache
def beginning() -> str:
    """The text of prelude.h: what kernels of C begin with, after the functions."""
    return (Path(__file__).parent / "prelude.h").read_text(encoding="utf-8")


def var(axis: str) -> str:
    """The C name of an axis."""
    return axis.replace("'", "_b").replace(":", "_")


class _Loop:
    """The text of one stage."""

    def __init__(self, e: Emitter, stage: Stage) -> None:
        self.e, self.stage, self.space = e, stage, e.space
        self.values = e.values
        self.order = stage.order
        self.sources = {f: chain(self.values, f) for f in stage.folds}
        self.scalar = [f for f in stage.folds if not self._buffered_by_vector(f)]

    def _buffered_by_vector(self, f: int) -> bool:
        """Whether a fold's own axes reach the innermost loop: it then adds row to row."""
        return bool(self.order) and self.order[-1] not in self.sources[f][0]

    def text(self) -> list[str]:
        self.at: dict[int, list[str]] = {}
        for n in self._cone():
            self.at.setdefault(self._depth(n), []).extend(self._row(n))
        starts = [x for f in self.stage.folds if f not in self.scalar for x in self._cleared(f)]
        return [*starts, *self._nest(0)]

    def _depth(self, n: int) -> int:
        under = self.space.under(n)
        return max((i + 1 for i, k in enumerate(self.order) if k in under), default=0)

    def _cone(self) -> list[int]:
        """Rows to compute in the loops, in order."""
        starts = [s for _, s in self.sources.values()] + list(self.stage.kept)
        starts += [self.values.root] if self.stage.result else []
        seen: set[int] = set()
        stack = starts
        while stack:
            n = stack.pop()
            r = self.values.rows[n]
            if n in seen or r.op == "number" or not self.space.under(n):
                continue
            seen.add(n)
            if not self._loaded(n):
                stack += self.values.reads(r)
        return sorted(seen)

    def _loaded(self, n: int) -> bool:
        """Whether a row was made by an earlier stage and lies in a buffer."""
        return n in self.space.buffered and n not in self.stage.kept

    def _row(self, n: int) -> Iterator[str]:
        if self._loaded(n):
            yield f"const {variable(self.values.rows[n].dtype)} r{n} = {self._kept(n, self.e.buffer(n))};"
        elif self.values.rows[n].op == "scan":
            yield from self._ran(n)
        else:
            yield from self.e.declared(n)

    def _ran(self, n: int) -> Iterator[str]:
        """One step of a scan: from a variable where its axis is the innermost loop, else from the row before."""
        r = self.values.rows[n]
        axis, x = r.folded[0], self.e.name(r.args[0])
        last = f"a{n}" if self.order[-1] == axis else self.e.buffer(n, axis)
        name = str(_STEPS.get(r.name, r.name))
        text = expression(name, r.dtype, r.dtype, {})
        assert text is not None
        step = text.format(last, x)
        step = rounded(step, r.dtype) if rounds(name, r.dtype) else step
        yield f"const {variable(r.dtype)} r{n} = {var(axis)} > 0 ? {step} : {x};"
        if self.order[-1] == axis:
            yield f"a{n} = r{n};"

    def _kept(self, n: int, value: str) -> str:
        """A value read from a buffer or an accumulator: sums are not rounded there."""
        r = self.values.rows[n]
        unrounded = r.op == "fold" and r.name == "sum" and n != self.values.root
        return rounded(value, r.dtype) if unrounded else value

    def _free(self, f: int) -> int:
        """How many of the outermost loops are not folded."""
        return len([k for k in self.order if k not in self.sources[f][0]])

    def _nest(self, depth: int) -> list[str]:
        begun = [f for f in self.scalar if self._free(f) == depth]
        lines = [*self.at.get(depth, []), *(x for f in begun for x in self._begin(f))]
        if depth == len(self.order) - 1:
            ran = [n for n in self.stage.kept if self.values.rows[n].folded == (self.order[-1],)]
            lines += [f"{variable(self.values.rows[n].dtype)} a{n} = 0;" for n in ran]
        if depth < len(self.order):
            lines += self._opened(depth)
        else:
            lines += self._body()
        return [*lines, *(x for f in begun for x in self._end(f))]

    def _opened(self, depth: int) -> list[str]:
        k = self.order[depth]
        v, last = var(k), depth == len(self.order) - 1
        low, high = (f"{v}_lo", f"{v}_hi") if k in self.space.tiles else ("0", str(self.values.sizes[k]))
        inside = ["  " + x for x in self._nest(depth + 1)]
        loop = [f"for (int64_t {v} = {low}; {v} < {high}; {v}++) {{", *inside, "}"]
        if not (last and self.stage.straight):
            return loop
        sums = [f for f in self.scalar if self.values.rows[f].name == "sum"]
        if any(is_float(self.values.rows[f].dtype) and self._terms(f) > 2 * _BLOCK for f in sums):
            return self._blocked(loop, v, low, high, sums)
        return [self._pragma(), *loop]

    def _terms(self, f: int) -> int:
        """How many numbers a fold takes in."""
        return math.prod(self.values.sizes[k] for k in self.sources[f][0])

    def _blocked(self, loop: list[str], v: str, low: str, high: str, sums: list[int]) -> list[str]:
        """A long sum in blocks, each with an accumulator of its own."""
        begin = [f"{variable(self.values.rows[f].dtype)} a{f} = 0;" for f in sums]
        loop[0] = f"for (int64_t {v} = {v}_at; {v} < {v}_to; {v}++) {{"
        rename = [f"s{f} += a{f};" for f in sums]
        return [
            f"for (int64_t {v}_at = {low}; {v}_at < {high}; {v}_at += {_BLOCK}) {{",
            f"  const int64_t {v}_to = {v}_at + {_BLOCK} < {high} ? {v}_at + {_BLOCK} : {high};",
            *("  " + x for x in (*begin, self._pragma(), *loop, *rename)),
            "}",
        ]

    def _pragma(self) -> str:
        clauses = []
        for f in self.scalar:
            r = self.values.rows[f]
            op = {"sum": "+", "prod": "*", "max": "max", "min": "min", "any": "|", "all": "&"}[r.name]
            if r.dtype == "bool":
                op = {"sum": "|", "prod": "&", "max": "|", "min": "&"}.get(r.name, op)
            clauses.append(f"reduction({op}:a{f})")
            if self._watches(f):
                clauses.append(f"reduction(|:n{f})")
        clauses += ["reduction(|:bad)"] * bool(self.values.positions)
        return " ".join(["#pragma omp simd", *clauses])

    def _watches(self, f: int) -> bool:
        """Whether NaN must be looked for: a maximum that meets one is one."""
        r = self.values.rows[f]
        return r.name in ("max", "min") and is_float(r.dtype)

    def _begin(self, f: int) -> Iterator[str]:
        r = self.values.rows[f]
        t, zero = variable(r.dtype), start(r.name, r.dtype)
        if self._watches(f):
            yield f"int32_t n{f} = 0;"
        yield f"{t} s{f} = {zero};"
        yield f"{t} a{f} = {zero};"

    def _end(self, f: int) -> Iterator[str]:
        r = self.values.rows[f]
        value = f"s{f} + a{f}" if r.name == "sum" and r.dtype != "bool" else f"a{f}"
        if self._watches(f):
            value = f"n{f} ? WX_NAN_{'F64' if r.dtype == 'float64' else 'F32'} : a{f}"
        if f in self.space.buffered:
            yield f"{self.e.buffer(f)} = {value};"
        else:
            yield f"const {variable(r.dtype)} r{f} = {self._kept(f, value)};"

    def _cleared(self, f: int) -> list[str]:
        r = self.values.rows[f]
        size = max(1, math.prod(self.space.width(k) for k in self.space.buffered[f]))
        return [f"for (int64_t z = 0; z < {size}; z++) b{f}[z] = {start(r.name, r.dtype)};"]

    def _body(self) -> list[str]:
        lines = [f"{self.e.buffer(n)} = r{n};" for n in self.stage.kept]
        for f, (_, source) in self.sources.items():
            r, x = self.values.rows[f], self.e.name(source)
            if f in self.scalar:
                if self._watches(f):
                    lines.append(f"n{f} |= {x} != {x};")
                lines.append(f"a{f} = {combine(r.name, r.dtype, f'a{f}', x)};")
            else:
                b = self.e.buffer(f)
                step = combine(r.name, r.dtype, b, x)
                lines.append(f"{b} = {f'{x} != {x} ? {x} : ({step})' if self._watches(f) else step};")
        if self.stage.result:
            root = self.values.root
            result = narrowed(self.e.name(root), self.values.rows[root].dtype)
            lines.append(f"out[{self.e.index(self.values.out)}] = {result};")
        return lines
