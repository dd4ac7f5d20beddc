"""Running folds (prefix sums, products, extremes) with anything element-wise before and after them.

Where a row lies side by side, it goes through the first cache block by block, of which parts are run through at once:
no step waits for all before it; sums with nothing around them need no blocks (scan_through.py). Where it lies across
memory, rows of columns are folded into what has come so far. Long rows of which there are few are cut in pieces that
threads share out: each begins with the folds of those before it (G. E. Blelloch, Prefix Sums and Their Applications,
1990).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from waxeq.backend.call import Call
from waxeq.backend.kernel import Features
from waxeq.ir.term import Term, postorder
from waxeq.ir.types import numpy_dtype
from waxeq_cfamily.asked import read_in_turn
from waxeq_cfamily.loops import Emitter
from waxeq_cfamily.nest import Loop
from waxeq_cfamily.resolved import INDEX_MAPS
from waxeq_cfamily.scalars import CTYPES, rounded, var, variable
from waxeq_cfamily.scans import Scan, stepped
from waxeq_cfamily.spaces import Widths, space
from waxeq_cfamily.split import Nest, piece
from waxeq_cfamily.stages import Space, Stage
from waxeq_cfamily.taken import NAME, empty
from waxeq_cfamily.values import Index, Unsupported
from waxeq_native import scan_rows
from waxeq_native.joint import STREAMED
from waxeq_native.loops import FastLoops, Loops, operations
from waxeq_native.products import FRAME
from waxeq_native.scan_text import Run
from waxeq_native.scan_through import Through
from waxeq_native.sliding import wide
from waxeq_native.steps import OPERANDS
from waxeq_native.work import Part, Work, kept, same

_BLOCK = 1024
"""Elements of a block: of rows that lie side by side, and of a few columns. More columns than these are one row."""
_COLUMNS, _NARROWEST = 8192, 1024
"""Columns that are run through side by side: at most, and at least where threads share them out."""
_PIECES, _LONG = 8, 1 << 14
"""Pieces for each thread, and the elements that one has at least."""

_SHARES = 4
"""Chunks for each thread that there are at least, where these are made of several rows at once."""


class _Down(Space):
    """A walk down columns. What is made of what has come so far is made there and then."""

    @property
    def stages(self) -> tuple[Stage, ...]:
        every = super().stages
        if len(every) != 2 or every[0].kept != self.values.scans or {*every[0].order} != {*every[1].order}:
            return every
        return (replace(every[0], kept=(), results=every[1].results),)


@dataclass(frozen=True)
class Way:
    """How a scan is walked: a block of `space` after the other, `blocks` of them for each of `pieces` of a row.
    `totals`: the walk that folds all pieces before, where there are several."""

    run: Run
    space: Space
    blocks: int
    totals: Nest | None

    @staticmethod
    def of(scan: Scan, threads: int, operand: int) -> Way:
        """`operand`: the number of the one that folds of pieces are. Raises Unsupported."""
        values, k = scan.values, scan.axis
        whole = space(values, Widths(columns=_COLUMNS), merge=False)
        v = whole.vector
        if v is None or v not in values.rows[scan.row].axes:
            raise Unsupported("nothing lies side by side")
        if v != k and threads > 1 and whole.points() < threads:
            narrow = max(_NARROWEST, -(-values.sizes[v] // threads))
            whole = space(values, Widths(columns=min(_COLUMNS, narrow)), merge=False)
        run, columns = Run(scan, lies=v == k), 1 if v == k else int(whole.width(v))
        width = max(1, _BLOCK // columns)
        blocks = -(-scan.size // width)
        pieces = 1
        if whole.points() < threads and run.apart:
            pieces = min(blocks, _PIECES * threads, scan.size * columns // _LONG)
        each = -(-blocks // max(1, pieces))
        walk = (Space if v == k else _Down)(values, (*whole.outer, k), {**whole.tiles, k: width}, whole.vectors)
        totals = scan.totals(each * width, Widths(), operand, run.dtype) if each < blocks else None
        return Way(run, walk, each, totals)

    @property
    def scan(self) -> Scan:
        return self.run.scan

    @property
    def lies(self) -> bool:
        """Whether rows lie side by side."""
        return self.run.lies

    @property
    def whole(self) -> int:
        """Blocks of a row."""
        return self.space.extent(self.scan.axis)

    @property
    def pieces(self) -> int:
        """Pieces of a row."""
        return -(-self.whole // self.blocks)

    @property
    def rows(self) -> int:
        return self.space.points((self.scan.axis,))

    @property
    def columns(self) -> int:
        """How many scans are walked side by side: as many numbers go from one block to the next."""
        return 1 if self.lies else int(self.space.width(self.space.vector or ""))


@dataclass(frozen=True, kw_only=True)
class WayEmitter(Emitter):
    """Text for one scan. `way`: how it is walked. `folds`: the argument where the folds of pieces are."""

    way: Way
    folds: str

    @cached_property
    def through(self) -> Through | None:
        """How rows are run through without blocks, where they are."""
        return Through.of(self.way.run, self.streams)

    @property
    def together(self) -> bool:
        """Whether several rows are run through at once: whole ones, and where they go through the cache and vectors are
        a line those that it holds. Of others off its lines several take longer than one after the other (1.4 times, Zen
        4); with half as wide vectors 0.7 of it (Zen 3)."""
        if self.through is None or self.way.totals is not None or not scan_rows.taken(self.through):
            return False
        size = int(self.way.rows * self.way.scan.size) * numpy_dtype(self.way.scan.dtype).itemsize
        return self.streams or size < STREAMED or not wide()

    @property
    def carry(self) -> str:
        """What has come so far, at the loops' places."""
        v = self.space.vector or ""
        if self.way.lies:
            return "carry[0]"
        return f"carry[{var(v)} - {var(v)}_lo]" if v in self.space.tiles else f"carry[{var(v)}]"

    def walked(self) -> Iterator[str]:
        way = self.way
        t = CTYPES[way.run.dtype]
        yield "  int64_t task = begin;"
        yield from ("  " + x for x in (self._rows(self.through) if self.together and self.through is not None else ()))
        yield "  for (; task < end; task++) {"
        yield f"    const int64_t row = task / {way.pieces}, piece = task % {way.pieces}, first = row * {way.whole};"
        yield f"    const int64_t from = piece * {way.blocks};"
        yield f"    const int64_t to = from + {way.blocks} < {way.whole} ? from + {way.blocks} : {way.whole};"
        yield f"    WX_ALIGNED {t} carry[{way.columns}];"
        yield from ("    " + x for x in self._begun())
        yield from ("    " + x for x in (self._blocks() if self.through is None else self._through(self.through)))
        yield "  }"

    def _blocks(self) -> Iterator[str]:
        yield "for (int64_t t = first + from; t < first + to; t++) {"
        yield from ("  " + x for x in self.point())
        yield "}"

    def _through(self, through: Through) -> Iterator[str]:
        """A piece in one go."""
        k, v = self.way.scan.axis, var(self.way.scan.axis)
        operand, where = through.load.name
        yield "const int64_t t = first + from;"
        yield from self.place()
        yield f"const int64_t {v} = {v}_lo, left = {self.way.scan.size} - {v};"
        yield f"const int64_t whole = (to - from) * {self.space.width(k)}, many = whole < left ? whole : left;"
        yield f"{through.name}(x{operand} + {self.index(where)}, &{self.written(0)}, many, {self.carry});"

    def _rows(self, through: Through) -> Iterator[str]:
        """Several rows at once, where the machine has vectors for it."""
        v, rows = var(self.way.scan.axis), scan_rows.ROWS
        operand, where = through.load.name
        t = CTYPES[self.way.scan.dtype]
        yield "#if WX_ROWS_AT_ONCE"
        yield f"for (; end - task >= {rows}; task += {rows}) {{"
        yield f"  const {t} *from[{rows}];"
        yield f"  {t} *to[{rows}];"
        yield f"  for (int64_t row = 0; row < {rows}; row++) {{"
        yield f"    const int64_t t = (task + row) * {self.way.whole};"
        yield from ("    " + x for x in self.place())
        yield f"    const int64_t {v} = {v}_lo;"
        yield f"    from[row] = x{operand} + {self.index(where)}, to[row] = &{self.written(0)};"
        yield "  }"
        yield f"  if (!{scan_rows.name(through)}(from, to, {self.way.scan.size})) break;"
        yield "}"
        yield "#endif"

    def _begun(self) -> Iterator[str]:
        """What a piece begins with: nothing, and what those before it come to."""
        way = self.way
        r = way.run.step
        yield f"for (int64_t z = 0; z < {way.columns}; z++) carry[z] = {way.run.nothing};"
        if way.totals is None:
            return
        where, v = way.totals.space.values.out, self.space.vector or ""
        yield "{"
        yield "  const int64_t t = first;"
        yield from ("  " + x for x in self.place())
        t = CTYPES[way.run.dtype]
        yield f"  const {t} *folds = (const {t} *)({self.folds});"
        yield "  for (int64_t before = 0; before < piece; before++) {"
        yield f"    const int64_t {var(piece(way.scan.axis))} = before;"
        if not way.lies:
            low, high = (f"{var(v)}_lo", f"{var(v)}_hi") if v in self.space.tiles else ("0", self.values.sizes[v])
            yield "    #pragma omp simd"
            yield f"    for (int64_t {var(v)} = {low}; {var(v)} < {high}; {var(v)}++)"
        step = stepped(r, self.carry, f"folds[{self.index(where)}]")
        yield f"      {self.carry} = {step};"
        yield "  }"
        yield "}"

    def loop(self, stage: Stage) -> Loop:
        way = self.way
        made = way.scan.row in stage.kept or way.scan.row not in self.space.buffered
        return _Runs(self, stage) if made else super().loop(stage)


class _Runs(Loop):
    """The stage that a scan is made in. Where rows lie side by side what is scanned is made first, as any value is, and
    run through in the buffer where it lies."""

    def __init__(self, e: WayEmitter, stage: Stage) -> None:
        super().__init__(e, replace(stage, straight=True))
        self.way, self.carry = e.way, e.carry

    def running(self) -> list[str]:
        return []

    def ran(self, n: int) -> Iterator[str]:
        r = self.values.rows[n]
        x = self.e.name(r.args[0])
        if self.way.lies:
            yield f"const {variable(r.dtype)} r{n} = {x};"
            return
        yield f"{self.carry} = {stepped(self.way.run.step, self.carry, x)};"
        text = f"({variable(r.dtype)}){self.carry}"
        yield f"const {variable(r.dtype)} r{n} = {rounded(text, r.dtype) if self.way.run.rounds else text};"

    def _soon(self) -> str:
        """Where something that the next block is made of lies, and the bytes of its elements."""
        r = next(read_in_turn(self, self.way.scan.axis, 0), None)
        if r is None:
            return f"(const char *)b{self.way.scan.row}, 0"
        at = self.e.index(r.name[1].plus(Index(const=self.space.width(self.way.scan.axis))))
        return f"(const char *)(x{r.name[0]} + {at}), {numpy_dtype(r.dtype).itemsize}"

    def text(self) -> list[str]:
        lines = super().text()
        if not self.way.lies:
            return lines
        n, v = self.way.scan.row, var(self.way.scan.axis)
        dtype, many = self.values.rows[n].dtype, f"{v}_hi - {v}_lo"
        lines.append(f"{{ const int64_t {v} = {v}_lo;")
        lines.append(f"  carry[0] = {self.way.run.name}(b{n}, {many}, carry[0], {self._soon()}); }}")
        if self.way.run.rounds:
            lines.append(f"for (int64_t z = 0; z < {many}; z++) b{n}[z] = {rounded(f'b{n}[z]', dtype)};")
        return lines


class Scans(Loops):
    """A running fold along one axis, with anything element-wise around it."""

    name = "scan"
    heads = INDEX_MAPS | {"Scan"}

    def matches(self, meaning: Term) -> bool:
        return any(t.head == "Scan" for t in postorder(meaning))

    def work(self, call: Call) -> Work | None:
        c = call.canonical
        if any(v.dtype not in CTYPES for v in (c.out, *c.operands)) or (self.streams and 1 not in c.out.strides):
            return None
        try:
            values = self.values(call)
            if empty(values) or values.positions or any(r.dtype not in CTYPES for r in values.rows):
                return None
            return self._parts(call, self.way(call)) if call.out.elements else None
        except Unsupported:
            return None

    def way(self, call: Call) -> Way:
        """Raises Unsupported."""

        def made() -> Way:
            return Way.of(Scan.of(self.values(call)), call.threads, len(call.operands))

        key = "way of a scan"
        return call.remember(key, lambda: kept((key, *same(call)), made))

    def writer(self, call: Call) -> Callable[..., WayEmitter]:
        """What writes the text of a walk."""
        return WayEmitter

    def _parts(self, call: Call, way: Way) -> Work:
        """Raises Unsupported."""
        operands = [f"args[{OPERANDS + i}]" for i in range(len(call.operands))]
        dtypes = [v.dtype for v in call.operands]
        e = self.writer(call)(
            way.space, self.functions(), operands, "args[2]", dtypes, frozenset(self.in_place(call)), self.limits(),
            self.streams, way=way, folds="args[1]", excess=self.excess,
        )  # fmt: skip
        e.check()
        if way.space.scratch > FRAME:
            raise Unsupported("buffers that leave the stack")
        if e.limited:
            raise Unsupported("a block that may be computed again")
        first = None
        if way.totals is not None:
            first = Emitter(
                way.totals.space, self.functions(), operands, "args[1]", dtypes, limits=self.limits(),
                excess=self.excess,
            )  # fmt: skip
            first.check()

        def write() -> tuple[Part, ...]:
            tasks = way.rows * way.pieces
            grain = 1 if way.totals is not None else -(-self.grain(e, call.threads) // way.blocks)
            if e.together and not call.sized and tasks >= _SHARES * scan_rows.ROWS * call.threads:
                grain += -grain % scan_rows.ROWS
            used = way.run.text() * way.lies + ("" if e.through is None else e.through.text())
            used += scan_rows.text(e.through) if e.together and e.through is not None else ""
            last = Part(used + e.function(NAME), tasks, min(grain, int(tasks)))
            if first is None:
                return (last,)
            return Part(first.function(NAME), first.space.points(), self.grain(first, call.threads)), last

        room = 0 if way.totals is None else way.totals.elements * numpy_dtype(way.run.dtype).itemsize
        return Work(write, room)

    def features(self, call: Call) -> Features:
        way = self.way(call)
        twice = way.totals is not None
        moved = float((1 + twice) * call.bytes_read + call.out.bytes)
        return {"launches": 1.0 + twice, "bytes": moved, **operations(way.space)}


class FastScans(Scans):
    """The same with functions of our own, which become vectors; only for meanings that have such a function."""

    name = "scan_fast"
    error = FastLoops.error
    functions, limits, excess = FastLoops.functions, FastLoops.limits, FastLoops.excess

    def matches(self, meaning: Term) -> bool:
        return super().matches(meaning) and FastLoops().matches(meaning)


class StreamingScans(Scans):
    """The same for results that no cache holds: they are written past it."""

    name = "scan_stream"
    streams = True
    smallest = STREAMED


class FastStreamingScans(FastScans):
    """The same with functions of our own."""

    name = "scan_fast_stream"
    streams = True
    smallest = STREAMED


KERNELS = (Scans, FastScans, StreamingScans, FastStreamingScans)
