"""Text of kernels with folds: the ranks of a team share out a loop, fold what they took, and then fold that together.

What several stages of one row need is kept in registers; folds that have a value for each place of a loop lie in shared
memory. Nothing else leaves the chip but the result.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from waxeq_cfamily.scalars import CTYPES, start, var, variable
from waxeq_cfamily.values import Unsupported
from waxeq_cupy.stages import Stage
from waxeq_cupy.text import Text
from waxeq_cupy.threads import Laid

_SHARED = 48 << 10
"""Bytes of shared memory that a block may have without asking."""
_SIZES = {
    "float": 4,
    "double": 8,
    "int64_t": 8,
    "uint64_t": 8,
    "int32_t": 4,
    "uint32_t": 4,
    "int16_t": 2,
    "uint16_t": 2,
}


def step(kind: str, dtype: str) -> str:
    """The struct of prelude.cuh that folds two values of a dtype."""
    if kind in ("any", "all"):
        return "wx_or" if kind == "any" else "wx_and"
    if dtype == "bool":
        return {"sum": "wx_or", "prod": "wx_and", "max": "wx_or", "min": "wx_and"}[kind]
    return {"sum": "wx_add", "prod": "wx_mul", "max": "wx_max", "min": "wx_min"}[kind]


@dataclass(frozen=True)
class Rows:
    """The kernel of a nest that is laid on threads; `text` has its space."""

    text: Text
    laid: Laid
    _made: set[int] = field(default_factory=set)

    def written(self) -> str:
        """The whole kernel. Raises Unsupported where shared memory does not hold what must lie there."""
        if self._bytes() > _SHARED:
            raise Unsupported("folds that shared memory does not hold")
        self._made.clear()
        body = [*self._placed(), *self._declared()]
        for s in self.laid.schedule.stages:
            body += self._stage(s)
        return self.text.written(body)

    # -- where a thread is

    def _placed(self) -> Iterator[str]:
        t, laid, i = self.laid.threads, self.laid, self.text.integer
        rank = f"threadIdx.x / {t.columns}" if t.columns > 1 else "threadIdx.x"
        yield (
            f"const int rank = {f'{rank} % {t.ranks}' if t.points > 1 else rank};"
            if t.ranks > 1
            else "const int rank = 0;"
        )
        block = f"blockIdx.x / {laid.tiles}" if laid.tiles > 1 else "blockIdx.x"
        if t.points > 1:
            yield f"const {i} t = ({i})({block}) * {t.points} + threadIdx.x / {t.team};"
            if laid.points % t.points:
                yield f"if (t >= {laid.points}) return;"
        else:
            yield f"const {i} t = ({i})({block});"
        yield from self.text.places("t", laid.around, {k: laid.space.extent(k) for k in laid.around})
        if laid.columned:
            yield from self._column()
        yield "(void)t, (void)rank;"

    def _column(self) -> Iterator[str]:
        """The place along the vector axis. Beyond its end a thread that others wait for does its neighbour's work
        again, and writes nothing."""
        t, laid, i = self.laid.threads, self.laid, self.text.integer
        v, size = var(str(laid.space.vector)), laid.values.sizes[str(laid.space.vector)]
        tile = f"(blockIdx.x % {laid.tiles}) * {t.columns} + " if laid.tiles > 1 else ""
        place = f"({i})({tile}threadIdx.x % {t.columns})"
        if size % t.columns == 0:
            yield f"const {i} {v} = {place};"
        elif t.ranks == 1:
            yield f"const {i} {v} = {place};"
            yield f"if ({v} >= {size}) return;"
        else:
            yield f"const {i} {v}_own = {place}, {v} = {v}_own < {size} ? {v}_own : {size - 1};"

    def _writes(self) -> list[str]:
        """Under which conditions a thread writes what its team has in common."""
        t, laid = self.laid.threads, self.laid
        found = []
        if laid.columned and t.ranks > 1 and laid.values.sizes[str(laid.space.vector)] % t.columns:
            found.append(f"{var(str(laid.space.vector))}_own < {laid.values.sizes[str(laid.space.vector)]}")
        return found

    # -- what is kept

    def _buffer_size(self, f: int) -> int:
        axes = self.laid.schedule.buffered[f]
        return math.prod(self.laid.space.width(k) for k in axes)

    def _bytes(self) -> int:
        t = self.laid.threads
        total = sum(_SIZES.get(s, 1) * t.scratch for s in self._scratch())
        for f in self.laid.schedule.buffered:
            own = self._buffer_size(f) * t.columns * t.points
            total += own * _SIZES.get(variable(self.laid.values.rows[f].dtype), 1)
        return total

    def _scratch(self) -> list[str]:
        """Types of folds that go from warp to warp."""
        if not self.laid.threads.scratch:
            return []
        rows = self.laid.values.rows
        folds = (f for s in self.laid.schedule.stages for f in s.folds if self._shared_out(f, s))
        return sorted({variable(rows[f].dtype) for f in folds})

    def _shared_out(self, f: int, stage: Stage) -> bool:
        """Whether the ranks of a team each have a part of a fold."""
        return self.laid.threads.ranks > 1 and stage.spread in self.laid.schedule.folds[f][0]

    def _declared(self) -> Iterator[str]:
        t, rows = self.laid.threads, self.laid.values.rows
        if not t.scratch:
            yield "int none = 0; (void)none;"
        for s in self._scratch():
            yield f"WX_SHARED({s}, s_{s}, {t.scratch});"
        for f in self.laid.schedule.buffered:
            yield f"WX_SHARED({variable(rows[f].dtype)}, b{f}, {self._buffer_size(f) * t.columns * t.points});"
        for n in self.laid.kept:
            yield f"WX_KEPT({variable(rows[n].dtype)}, h{n}, {self.laid.steps * t.width});"

    def _buffer(self, f: int) -> str:
        """The element of a fold in shared memory at the places of the loops: columns side by side."""
        t, parts, size = self.laid.threads, [], self.laid.threads.columns
        for k in reversed(self.laid.schedule.buffered[f]):
            place = f"({var(k)} - {var(k)}_lo)" if k in self.laid.space.tiles else var(k)
            parts.append(place if size == 1 else f"{place} * {size}")
            size *= self.laid.space.width(k)
        if t.points > 1:
            parts.append(f"threadIdx.x / {t.team} * {size}")
        if t.columns > 1:
            parts.append(f"threadIdx.x % {t.columns}")
        return f"b{f}[{' + '.join(parts)}]"

    # -- stages

    def _stage(self, stage: Stage) -> Iterator[str]:
        before = [n for n in self._need(stage, self._made) if not self._under(n) and n not in self.laid.schedule.folds]
        for n in before:
            self._made.add(n)
            yield from self.text.declared(n)
        yield from Loops(self, stage).lines()
        if any(f in self.laid.schedule.buffered for f in stage.folds) and self.laid.threads.ranks > 1:
            yield f"wx_met<{self.laid.threads.columns}, {self.laid.threads.ranks}>();"

    def _under(self, n: int) -> frozenset[str]:
        return self.laid.space.under(n)

    def _need(self, stage: Stage, known: set[int]) -> list[int]:
        """Rows that a stage computes, and the folds that it reads."""
        folds = self.laid.schedule.folds
        starts = [folds[f][1] for f in stage.folds] or [self.laid.values.root]
        seen: set[int] = set()
        while starts:
            n = starts.pop()
            if n in seen or n in known or self.laid.values.rows[n].op == "number":
                continue
            seen.add(n)
            if n not in folds:
                starts += self.laid.values.reads(self.laid.values.rows[n])
        return sorted(seen)


class Loops:
    """The loops of one stage."""

    def __init__(self, rows: Rows, stage: Stage) -> None:
        self.rows, self.stage, self.laid, self.text = rows, stage, rows.laid, rows.text
        self.order = stage.order
        folds = rows.laid.schedule.folds
        self.sources = {f: folds[f] for f in stage.folds}
        self.loaded = frozenset(rows.laid.kept) & rows._made
        self.need = rows._need(stage, rows._made)
        self.need = sorted(n for n in {*self.need, *self._kept_reads()} if rows._under(n))

    def _kept_reads(self) -> set[int]:
        """Rows in registers that the stage looks at."""
        looked = {a for n in self.need for a in self.laid.values.reads(self.laid.values.rows[n])}
        looked |= {s for _, s in self.sources.values()} | ({self.laid.values.root} if self.stage.result else set())
        return looked & set(self.loaded)

    @property
    def stepped(self) -> bool:
        """Whether the loop over the vector axis has so many steps as registers are kept for."""
        return bool(self.laid.kept) and self.order == (self.laid.space.vector,)

    def lines(self) -> list[str]:
        self.at: dict[int, list[int]] = {}
        for n in self.need:
            under = self.rows._under(n)
            depth = max((i + 1 for i, k in enumerate(self.order) if k in under), default=0)
            self.at.setdefault(depth, []).append(n)
        lines = self._nest(0)
        self.rows._made.update(n for n in self.need if n in self.laid.kept)
        return lines

    def _free(self, f: int) -> int:
        """How many of the outer loops a fold keeps."""
        return len([k for k in self.order if k not in self.sources[f][0]])

    def _nest(self, depth: int) -> list[str]:
        last = depth == len(self.order)
        grouped = last and self._width(self.order[-1]) > 1 if self.order else False
        lines = [] if grouped else [x for n in self.at.get(depth, []) for x in self._row(n)]
        begun = [f for f in self.sources if self._free(f) == depth]
        rows = self.laid.values.rows
        lines += [f"{variable(rows[f].dtype)} a{f} = {start(rows[f].name, rows[f].dtype)};" for f in begun]
        lines += self._body() if last else self._opened(depth)
        for f in begun:
            lines += self._ended(f)
        return lines

    def _width(self, axis: str) -> int:
        own = axis == self.stage.spread == self.laid.space.vector == self.order[-1]
        return self.laid.threads.width if own else 1

    def _opened(self, depth: int) -> list[str]:
        k = self.order[depth]
        v, i, t = var(k), self.text.integer, self.laid.threads
        low, high = self.text.bounds(k)
        width = self._width(k)
        inside = ["  " + x for x in (self._group(k) if width > 1 else self._nest(depth + 1))]
        if k != self.stage.spread or (t.ranks == 1 and width == 1 and not self.stepped):
            return [f"for ({i} {v} = {low}; {v} < {high}; {v}++) {{", *inside, "}"]
        at = v if width == 1 else f"{v}_at"
        taken = f"rank * {width}" if width > 1 else "rank"
        if not self.stepped:
            first = taken if low == "0" else f"{low} + {taken}"
            return [
                "#pragma unroll 4",
                f"for ({i} {at} = {first}; {at} < {high}; {at} += {t.ranks * width}) {{",
                *inside,
                "}",
            ]
        n = self.laid.steps
        where = f"({i})(n * {t.ranks * width} + {taken})" if n > 1 else f"({i})({taken})"
        even = k not in self.laid.space.tiles and self.laid.values.sizes[k] == n * t.ranks * width
        first = where if low == "0" else f"{low} + {where}"
        body = [f"const {i} {at} = {first};", *(inside if even else [f"if ({at} < {high}) {{", *inside, "}"])]
        return ["#pragma unroll", f"for (int n = 0; n < {n}; n++) {{", *("  " + x for x in body), "}"]

    def _group(self, v: str) -> list[str]:
        """Several elements of the vector axis, moved at once where they can be."""
        own = self.at.get(len(self.order), [])
        i, width = self.text.integer, self.laid.threads.width
        wide = [n for n in own if self.text.wide(n, v) and n not in self.loaded]
        lines = ["{", f"  const {i} {var(v)} = {var(v)}_at;", *("  " + self.text.taken(n) for n in wide)]
        together = self.stage.result and self.text.wide_result
        root = self.laid.values.rows[self.laid.values.root]
        if together:
            lines.append(f"  wx_group<{CTYPES[root.dtype]}, {width}> all;")
        lines += [
            "  #pragma unroll",
            f"  for (int u = 0; u < {width}; u++) {{",
            f"    const {i} {var(v)} = {var(v)}_at + u;",
        ]
        for n in own:
            lines += ["    " + x for x in ([self.text.one(n, "u"), *self._keep(n)] if n in wide else self._row(n))]
        lines += ["    " + x for x in self._body("all.at[u]" if together else "")]
        lines.append("  }")
        if together:
            lines.append(f"  wx_given<{width}>(out, {self.text.index(self.laid.values.out)}, all);")
        return [*lines, "}"]

    # -- rows and folds

    def _row(self, n: int) -> Iterator[str]:
        if n in self.loaded:
            yield self.text.known(n, self._register(n))
        elif n in self.laid.schedule.buffered:
            yield self.text.known(n, self.text.folded(n, self.rows._buffer(n)))
        else:
            yield from self.text.declared(n)
            yield from self._keep(n)

    def _keep(self, n: int) -> Iterator[str]:
        if n in self.laid.kept and self.stepped:
            yield f"{self._register(n)} = r{n};"

    def _register(self, n: int) -> str:
        width = self.laid.threads.width
        place = "n" if width == 1 else "u" if self.laid.steps == 1 else f"n * {width} + u"
        return f"h{n}[{place}]"

    def _body(self, to: str = "") -> list[str]:
        rows = self.laid.values.rows
        lines = []
        for f, (_, source) in self.sources.items():
            x = self.text.name(source)
            x = f"(uint8_t)({x} != 0)" if rows[f].name in ("any", "all") else x
            t = variable(rows[f].dtype)
            lines.append(f"a{f} = {step(rows[f].name, rows[f].dtype)}::of<{t}>(a{f}, {x});")
        if self.stage.result:
            to = to or f"out[{self.text.index(self.laid.values.out)}]"
            lines += self._once(f"{to} = {self.text.stored};", spread=self.stage.spread is not None)
        return lines

    def _ended(self, f: int) -> Iterator[str]:
        r, t = self.laid.values.rows[f], self.laid.threads
        kind, dtype = step(r.name, r.dtype), variable(r.dtype)
        value = f"a{f}"
        shared = self.rows._shared_out(f, self.stage)
        if shared:
            scratch = f"s_{dtype}" if t.scratch else "none"
            value = f"wx_folded<{kind}, {t.columns}, {t.ranks}, {dtype}>(a{f}, {scratch})"
        if f in self.laid.schedule.buffered:
            yield f"const {dtype} w{f} = {value};"
            yield ("if (rank == 0) " if shared else "") + f"{self.rows._buffer(f)} = w{f};"
        else:
            yield f"const {dtype} r{f} = {self.text.folded(f, value)};"

    def _once(self, line: str, *, spread: bool) -> list[str]:
        """A line that one thread of a team runs; `spread`: each rank has its own."""
        conditions = self.rows._writes()
        if not spread and self.laid.threads.ranks > 1:
            conditions.append("rank == 0")
        return [f"if ({' && '.join(conditions)}) {line}" if conditions else line]
