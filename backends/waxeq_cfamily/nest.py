"""C text of one stage: its loops, the accumulators of its folds, the buffers that it fills."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from waxeq.ir.types import is_float
from waxeq_cfamily.asked import in_pieces, in_vectors, in_whole, next_piece, next_rows
from waxeq_cfamily.converted import Converted
from waxeq_cfamily.fission import Fission
from waxeq_cfamily.lanes import LANES, Lanes
from waxeq_cfamily.scalars import CTYPES, combine, narrowed, nth, rounded, start, var, variable
from waxeq_cfamily.scans import stepped
from waxeq_cfamily.sections import Sections
from waxeq_cfamily.several import Several, done
from waxeq_cfamily.spaces import scattered
from waxeq_cfamily.stages import Stage
from waxeq_cfamily.stretches import clipped, in_stretches
from waxeq_cfamily.turned import squares, turns
from waxeq_cfamily.values import chain

if TYPE_CHECKING:
    from waxeq_cfamily.loops import Emitter

_BLOCK, _LONG = 256, 1024
"""Elements that one vector takes in before it is added to another with more digits: the error of a long sum grows with
this. And those from which a sum is long."""

_ASKED = 128
"""Elements that are asked for in one go: with more lines than a core can wait for it stands still."""

_PIECE = 128
"""Elements of the result that are made in cache before they are written past it: what is computed meanwhile hides what
lines take to be written, where of 512 a core stood still."""

_CHAINS = 4
"""Vectors that an accumulator has where little is computed."""


class Loop:
    """The text of one stage."""

    def __init__(self, e: Emitter, stage: Stage) -> None:
        self.e, self.stage, self.space = e, stage, e.space
        self.values = e.values
        self.order = stage.order
        self.singles = bool(self.order) and scattered(self.values, self.order[-1])
        self.sources = {f: chain(self.values, f) for f in stage.folds}
        self.scalar = [f for f in stage.folds if not self._buffered_by_vector(f)]
        self.blocked = self._summed_in_blocks()
        self.converted = Converted(self)
        self.spans: Mapping[str, tuple[int, int]] = {}
        """From where to where the loops go that are one stretch of their axis."""
        self.singly = False
        """Whether rows are taken one at a time."""

    def _buffered_by_vector(self, f: int) -> bool:
        """Whether a fold's own axes reach the innermost loop: it then adds row to row."""
        return bool(self.order) and self.order[-1] not in self.sources[f][0]

    @cached_property
    def at(self) -> dict[int, list[str]]:
        """The definitions of rows, by how many loops are around them."""
        found: dict[int, list[str]] = {}
        for n in self.cone():
            found.setdefault(self.depth(n), []).extend(self.row(n))
        return found

    def text(self) -> list[str]:
        starts = [x for f in self.stage.folds if f not in self.scalar for x in self._cleared(f)]
        return [*next_rows(self), *starts, *self.nest(0)]

    def depth(self, n: int) -> int:
        under = self.space.under(n)
        return max((i + 1 for i, k in enumerate(self.order) if k in under), default=0)

    def cone(self) -> list[int]:
        """Rows to compute in the loops, in order."""
        starts = [s for _, s in self.sources.values()] + list(self.stage.kept)
        starts += [self.values.results[i][0] for i in self.stage.results]
        seen: set[int] = set()
        stack = starts
        while stack:
            n = self.e.stands(stack.pop())
            r = self.values.rows[n]
            if n in seen or r.op == "number" or not self.space.under(n):
                continue
            seen.add(n)
            if not self.loaded(n):
                stack += self.e.reads(r)
        return sorted(seen)

    def loaded(self, n: int) -> bool:
        """Whether a row was made by an earlier stage and lies in a buffer."""
        return n in self.space.buffered and n not in self.stage.kept

    def row(self, n: int, held: str = "") -> Iterator[str]:
        """The definition of a row's variable. What an earlier stage made is in a buffer, or in variables called by a
        name."""
        if n in self.converted.loads:
            yield f"const float r{n} = w{n}[{self.converted.place()}];"
        elif self.loaded(n):
            value = f"{held}{n}" if held else self.e.buffer(n)
            yield f"const {variable(self.values.rows[n].dtype)} r{n} = {self._kept(n, value)};"
        elif self.values.rows[n].op == "scan":
            yield from self.ran(n)
        else:
            yield from self.e.declared(n)

    def ran(self, n: int) -> Iterator[str]:
        """One step of a scan: from a variable where its axis is the innermost loop, else from the row before."""
        r = self.values.rows[n]
        axis, x = r.folded[0], self.e.name(r.args[0])
        last = f"a{n}" if self.order[-1] == axis else self.e.buffer(n, axis)
        yield f"const {variable(r.dtype)} r{n} = {var(axis)} > 0 ? {stepped(r, last, x)} : {x};"
        if self.order[-1] == axis:
            yield f"a{n} = r{n};"

    def running(self) -> list[str]:
        """The variables of scans along the innermost loop."""
        ran = [n for n in self.stage.kept if self.values.rows[n].folded == (self.order[-1],)]
        return [f"{variable(self.values.rows[n].dtype)} a{n} = 0;" for n in ran]

    def _kept(self, n: int, value: str) -> str:
        """A value read from a buffer or an accumulator: sums are not rounded there, some not at all."""
        r = self.values.rows[n]
        unrounded = r.op == "fold" and r.name == "sum" and n not in self.e.unrounded
        return rounded(value, r.dtype) if unrounded else value

    def _free(self, f: int) -> int:
        """How many of the outermost loops are not folded."""
        return len([k for k in self.order if k not in self.sources[f][0]])

    def nest(self, depth: int) -> list[str]:
        begun = [f for f in self.scalar if self._free(f) == depth]
        lines = [*self.at.get(depth, []), *(x for f in begun for x in self.begin(f))]
        if depth == len(self.order) - 1:
            lines += self.running()
        if depth < len(self.order):
            lines += in_stretches(self, depth) or self.opened(depth)
        else:
            lines += self._body()
        return [*lines, *(x for f in begun for x in self.end(f))]

    def opened(self, depth: int) -> list[str]:
        """The loop at some depth, with all that is in it."""
        k = self.order[depth]
        v, last = var(k), depth == len(self.order) - 1
        if depth == len(self.order) - 2 and turns(self):
            return squares(self)
        low, high = self.bounds(k)
        several = Several(self)
        if depth == len(self.order) - 3 and several.held:
            return several.in_registers(low, high)
        if depth == len(self.order) - 2 and several.added and not self.singly:
            return several.together(low, high)
        if last and self.stage.straight:
            return Sections(self).text(low, high)
        inside = ["  " + x for x in self.nest(depth + 1)]
        return [f"for (int64_t {v} = {low}; {v} < {high}; {v}++) {{", *inside, "}"]

    def innermost(self, low: str, high: str, most: int | None = None) -> list[str]:
        """The innermost loop from one place to another, made of vectors. `most`: how many places it may have."""
        most = self.space.width(self.order[-1]) if most is None else most
        if self.converted.loads or self.converted.results:
            return self.converted.text(low, high, self._vectors, most)
        return self._vectors(low, high, most)

    def _vectors(self, low: str, high: str, most: int) -> list[str]:
        v, fission = var(self.order[-1]), Fission(self)
        if self.streamed or len(fission.parts) > 1:
            return self._in_cache(fission, v, low, high)
        inside = ["  " + x for x in self.nest(len(self.order))]

        def text(first: str, last: str) -> list[str]:
            return [f"for (int64_t {v} = {first}; {v} < {last}; {v}++) {{", *inside, "}"]

        if most >= _ASKED and ((soon := [*self.e.soon(v, _ASKED)]) or self.e.lined):
            return in_whole(v, _ASKED, low, high, soon, lambda a, b: self._straight(text(a, b), v, a, b), self.e.lined)
        if 2 * self.e.lined <= most and self.e.lined:
            return in_vectors(v, self.e.lined, low, high, lambda a, b: self._straight(text(a, b), v, a, b))
        loop = text(low, high)
        return self._blocked(loop, v, low, high) if self.blocked else self._straight(loop, v, low, high)

    def bounds(self, k: str) -> tuple[str, str]:
        low, high = (f"{var(k)}_lo", f"{var(k)}_hi") if k in self.space.tiles else ("0", str(self.values.sizes[k]))
        if k in self.spans:
            low, high = clipped(low, high, *self.spans[k]) if k in self.space.tiles else map(str, self.spans[k])
        return (done(var(k)) if self.stage.result and k == self.finished else low), high

    @cached_property
    def finishing(self) -> Loop | None:
        """The stage that goes on from the folds of this one, where each element of the result needs no other, and
        nothing that was made elsewhere."""
        last = self.space.stages[-1]
        if not last.result or not Several(self).held or self.e.streams or last.order != (self.order[0], self.order[-1]):
            return None
        ending = Loop(self.e, last)
        ending.converted = Converted(ending, never=True)
        made = {n for n in ending.cone() if ending.loaded(n)}
        return ending if made <= {*self.stage.folds} else None

    @cached_property
    def finished(self) -> str | None:
        """The axis along which an earlier stage has made results from its registers."""
        earlier = (Loop(self.e, s) for s in self.space.stages if s.folds)
        return next((x.order[0] for x in earlier if x.finishing is not None), None)

    @cached_property
    def streamed(self) -> bool:
        """Whether the result goes past the cache, a piece at a time."""
        return (
            self.e.streams
            and not self.converted.results
            and self.stage.result
            and self.stage.straight
            and not self.blocked
            and bool(self.order)
            and self.values.out.stride(self.order[-1]) == 1
        )

    def _in_cache(self, fission: Fission, v: str, low: str, high: str) -> list[str]:
        """The innermost loop in pieces: the loops that it is cut in have values in cache for each other, and results
        that are streamed are made there and written past it."""
        loops = fission.texts([*self.written()], _PIECE)
        if not self.streamed:
            return in_pieces(v, _PIECE, low, high, [*loops])
        made = [(nth(i), CTYPES[self.values.rows[n].dtype], at) for i, (n, at) in enumerate(self.values.results)]
        body = [
            *next_piece(self),
            *(f"WX_ALIGNED {t} piece{i}[{_PIECE}];" for i, t, _ in made),
            *loops,
            f"const int64_t {v} = {v}_at;",
            *(
                f"wx_stream(out{i} + {self.e.index(at)}, piece{i}, ({v}_to - {v}_at) * (int64_t)sizeof({t}));"
                for i, t, at in made
            ),
        ]
        return in_pieces(v, _PIECE, low, high, body)

    def _terms(self, f: int) -> int:
        """How many numbers a fold takes in."""
        return math.prod(self.values.sizes[k] for k in self.sources[f][0])

    def _summed_in_blocks(self) -> tuple[int, ...]:
        """The sums of a stage that has a long one: their innermost loop is cut in blocks."""
        sums = tuple(f for f in self.scalar if self.values.rows[f].name == "sum")
        long = any(is_float(self.values.rows[f].dtype) and self._terms(f) > _LONG for f in sums)
        return sums if long and self.stage.straight else ()

    def _blocked(self, loop: list[str], v: str, low: str, high: str) -> list[str]:
        """A long sum in blocks, each with an accumulator of its own. What is asked for is so in smaller pieces."""
        asked, (begin, whole) = [*self.asked()], self.lanes.around_block
        loop[0] = f"for (int64_t {v} = {v}_at; {v} < {v}_to; {v}++) {{"
        added = self._straight(loop, v, f"{v}_at", f"{v}_to")
        if asked:
            first, last = f"{v}_first", f"{v}_last"
            added = in_pieces(v, self.asked_once, first, last, [*asked, *added])
        else:
            first, last = f"{v}_at", f"{v}_to"
        return in_pieces(v, self.block, low, high, [*begin, *added, *whole], first, last)

    @property
    def block(self) -> int:
        """Elements of a block of a long sum."""
        return _BLOCK * self.chains

    asked_once: ClassVar[int] = _ASKED
    """Elements of a piece that is asked for in one go."""

    def asked(self) -> Iterator[str]:
        """What asks for a piece that will be read soon."""
        return next_piece(self)

    def accumulators(self, f: int, kind: str) -> tuple[str, ...]:
        """Those of a fold, called after what they take in: numbers ("a") or sums of those ("s")."""
        return (f"{kind}{f}",)

    @cached_property
    def lanes(self) -> Lanes:
        """The accumulators of folds that are no buffers."""
        return Lanes(self)

    @cached_property
    def chains(self) -> int:
        """How many vectors an accumulator has: with one each waits for the last, which is most of the time where little
        is computed."""
        alone = len(self.scalar) == len(self.stage.folds) and not self.stage.result
        if not self.scalar or not alone or self.space.width(self.order[-1]) < _CHAINS * LANES:
            return 1
        made = [self.values.rows[n] for n in self.cone() if self.depth(n) == len(self.order) and not self.loaded(n)]
        return 1 if any(r.costly for r in made) else _CHAINS

    def _straight(self, loop: list[str], v: str, low: str, high: str) -> list[str]:
        """The innermost loop as vectors."""
        return self.lanes.text(loop[1:-1], low, high) if self.lanes.many else [self.pragma(loop), *loop]

    def _accumulators(self) -> Iterator[tuple[int, str]]:
        """Folds with the names of their variables; a second one says whether NaN was met."""
        for f in self.scalar:
            yield f, f"a{f}"
            if self.watches(f):
                yield f, f"n{f}"

    def empty(self, f: int, x: str) -> str:
        """What an accumulator of a fold begins with, or what says that it has met no NaN."""
        r = self.values.rows[f]
        return "0" if x[0] == "n" else start(r.name, r.dtype)

    def pragma(self, body: Collection[str]) -> str:
        """What has a loop of this body made of vectors; not of a few lookups, which gcc masks: that takes six times as
        long. Flags have a vector only where it sets them: at the end of each loop all its elements become one."""
        few = self.scalar and self.values.positions and self.space.width(self.order[-1]) < LANES
        clauses = []
        for f, x in self._accumulators():
            r = self.values.rows[f]
            op = {"sum": "+", "prod": "*", "max": "max", "min": "min", "any": "|", "all": "&"}[r.name]
            if r.dtype == "bool":
                op = {"sum": "|", "prod": "&", "max": "|", "min": "&"}.get(r.name, op)
            op = "|" if x[0] == "n" else op
            clauses.append(f"reduction({op}:{x})")
        clauses += [f"reduction(|:{flag})" for flag in ("bad", "far") if any(f"{flag} |=" in line for line in body)]
        return "" if few or self.singles else " ".join(["#pragma omp simd", *clauses])

    def watches(self, f: int) -> bool:
        """Whether NaN must be looked for: a maximum that meets one is one."""
        r = self.values.rows[f]
        return r.name in ("max", "min") and is_float(r.dtype)

    def begin(self, f: int) -> Iterator[str]:
        for x in self.held(f):
            yield from self.lanes.cleared(f, x)

    def held(self, f: int) -> tuple[str, ...]:
        """The accumulators of a fold that are there before and after its loops."""
        own = self.accumulators(f, "s" if f in self.blocked else "a")
        return (f"n{f}", *own) if self.watches(f) else own

    def end(self, f: int) -> Iterator[str]:
        r = self.values.rows[f]
        for x in self.held(f):
            yield from self.lanes.merged(f, x)
        *flag, value = map(self.lanes.whole, self.held(f))
        if flag:
            value = f"{flag[0]} ? WX_NAN_{'F64' if r.dtype == 'float64' else 'F32'} : {value}"
        if f in self.space.buffered:
            yield f"{self.e.buffer(f)} = {value};"
        else:
            yield f"const {variable(r.dtype)} r{f} = {self._kept(f, value)};"

    def _cleared(self, f: int) -> list[str]:
        r = self.values.rows[f]
        axes = self.space.buffered[f]
        size, first = max(1, math.prod(self.space.width(k) for k in axes)), "0"
        if Several(self).held and axes[0] == self.order[0]:  # the rest begins as it is held
            low, high = self.bounds(axes[0])
            row = math.prod(self.space.width(k) for k in axes[1:])
            first = f"({high} - {low}) / {self.space.held} * {self.space.held * row}"
        return [f"for (int64_t z = {first}; z < {size}; z++) b{f}[z] = {start(r.name, r.dtype)};"]

    def sums(self, name: str = "") -> Iterator[str]:
        """What folds take in at the loops' places. Those of rows are in a buffer, or in variables called by a name."""
        for f, (_, source) in self.sources.items():
            r, x = self.values.rows[f], self.e.name(source)
            if f in self.scalar:
                a, n = map(self.lanes.taken, (f"a{f}", f"n{f}"))
                if self.watches(f):
                    yield f"{n} |= {x} != {x};"
                yield f"{a} = {combine(r.name, r.dtype, a, x)};"
            else:
                b = f"{name}{f}" if name else self.e.buffer(f)
                step = combine(r.name, r.dtype, b, x)
                yield f"{b} = {f'{x} != {x} ? {x} : ({step})' if self.watches(f) else step};"

    def _body(self) -> list[str]:
        return [*(f"{self.e.buffer(n)} = {self.e.name(n)};" for n in self.stage.kept), *self.sums(), *self.written()]

    def _no_vectors(self) -> Iterator[str]:
        """Keeps a loop from becoming vectors, where elements are taken one by one. gcc 12 mixes up the masks of three
        neighbours that are read where something holds and written side by side, too."""
        threes = len(self.values.results) % 3 == 0 and self.e.result in self.e.others
        rows = (self.values.rows[n] for n in self.cone()) if threes else ()
        guards = (g for r in rows if r.op == "load" for g in r.guards if g not in self.e.decided)
        if self.singles or any(g[0].stride(self.order[-1]) != 0 for g in guards):
            yield '__asm__ volatile("");'

    def written(self) -> Iterator[str]:
        """An element of each result goes to its place."""
        yield from self._no_vectors()
        for i in self.stage.results:
            n = self.values.results[i][0]
            if i in self.converted.results:
                yield f"whole{nth(i)}[{self.converted.place()}] = {self.e.name(n)};"
                continue
            result = narrowed(self.e.name(n), self.values.rows[n].dtype)
            at = f"{var(self.order[-1])} - {var(self.order[-1])}_at" if self.streamed else ""
            yield f"piece{nth(i)}[{at}] = {result};" if at else f"{self.e.written(i)} = {result};"
