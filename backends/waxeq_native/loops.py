"""Fused loops: element-wise chains, folds of any number of stages, index maps, as one C function."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache, partial
from typing import ClassVar

from waxeq.backend.call import Call
from waxeq.backend.kernel import BESIDE, Features, Kernel
from waxeq.basis.typing import types
from waxeq.ir.term import Term
from waxeq.ir.types import FLOATS, numpy_dtype
from waxeq_cfamily.asked import LINE
from waxeq_cfamily.excess import as_bits, spares
from waxeq_cfamily.extremes import checked_once
from waxeq_cfamily.functions import functions, libm, own
from waxeq_cfamily.interleaved import whole
from waxeq_cfamily.loops import Emitter
from waxeq_cfamily.means import means
from waxeq_cfamily.overlapped import Lined, off_lines
from waxeq_cfamily.parted import parted
from waxeq_cfamily.resolved import INDEX_MAPS, RUNNING
from waxeq_cfamily.scalars import CTYPES, carried
from waxeq_cfamily.scans import longest
from waxeq_cfamily.shares import shares
from waxeq_cfamily.spaces import Widths, space
from waxeq_cfamily.split import Nest, nests
from waxeq_cfamily.stages import Space
from waxeq_cfamily.stretches import asks
from waxeq_cfamily.taken import NAME, astray, empty, matrices, replaceable
from waxeq_cfamily.unrolled import unrolled
from waxeq_cfamily.values import Unsupported, Values
from waxeq_native.apart import PipelinedApart
from waxeq_native.joint import STREAMED, Joined, Walk, joined, numbered
from waxeq_native.steps import OPERANDS, OUT_PLACE, WORKSPACE
from waxeq_native.work import GRAIN, NativeKernel, Part, Work, kept, same

_SCRATCH = 1 << 18
"""Bytes of buffers that a point may need: they lie on the stack."""
_JOINED = 1 << 16
"""Bytes of a result from which it is worth a compilation to make it in one loop with others."""
_SHORT, _TAKES = 1 << 22, 2
"""Operations up to which a thread takes what it does in so many chunks: a dozen would cost it a tenth of its time, and
two are enough for others to take one that has not been begun."""
_SCANNED = 256
"""How long a scan may be that is made for one point of the others; longer ones have kernels of their own."""
_COSTLY = 16
"""Operations of a function that needs a polynomial."""


class Loops(NativeKernel):
    """Any nest, its functions as the C library has them."""

    name = "loops"
    form = "loops"
    heads = INDEX_MAPS | RUNNING
    streams: ClassVar[bool] = False
    excess: ClassVar[bool] = False
    widths = Widths(columns=4096, turned=64, pairs=True, held=8, rewrites=True, looked=8, lookups=True)
    narrower = tuple(replace(w, lookups=True) for w in (Widths(), Widths(2048, 128), Widths(512, 16)))
    """Widths to try where what is kept for one point would not fit."""

    def functions(self) -> Mapping[tuple[str, str], str]:
        """C functions by (name, dtype)."""
        return libm()

    def limits(self) -> Mapping[tuple[str, str], tuple[float, str]]:
        """Where functions end, and the C name of what goes on there."""
        return {}

    def swift(self, meaning: Term) -> bool:
        return not _functions(meaning) & _called(type(self))

    def work(self, call: Call) -> Work | None:
        c = call.canonical
        if any(v.dtype not in CTYPES for v in (c.out, *c.operands)):
            return None
        if self.streams and 1 not in c.out.strides:
            return None
        try:
            values = self.looped(call)
            if empty(values) or astray(values) or any(r.dtype not in CTYPES for r in values.rows):
                return None
            if call.out.elements == 0:
                return Work(tuple)
            if matrices(values, FLOATS) or (self.streams and values.others) or longest(values) > _SCANNED:
                return None
            values = self.ready(call)
            for widths in (self.widths, *self.narrower):
                walks = tuple(nests(values, widths, call.threads, len(call.operands)))
                if self.streams and any(_in_parts_of_lines(w.space) for w in walks):
                    return None
                if all(w.space.scratch <= _SCRATCH for w in walks):
                    return self._written(call, walks, widths)
            return None
        except Unsupported:
            return None

    def looped(self, call: Call) -> Values:
        """The values as loops compute them: axes whose places are divided are two, and those of a few elements are
        written out; narrow floats that are only moved are their bits. Raises Unsupported."""
        values = self.values(call)
        return call.remember("looped", lambda: kept(("looped", *same(call)), lambda: unrolled(parted(as_bits(values)))))

    def ready(self, call: Call) -> Values:
        """The same, with means divided and networks of extremes that look for NaN once. Raises Unsupported."""
        values = self.looped(call)
        return call.remember("ready", lambda: kept(("ready", *same(call)), lambda: checked_once(means(values))))

    def _written(self, call: Call, walks: Sequence[Nest], widths: Widths) -> Work:
        """The work of walks one after another; partial results lie in the workspace. Raises Unsupported."""
        operands = list[str]()
        for i, (first, apart) in enumerate(_columns(call)):
            operands.append(f"args[{OPERANDS + i}]" if first == i else f"({operands[first]} + {apart})")
        dtypes = [v.dtype for v in call.operands]
        aliased = frozenset(self.in_place(call))
        emitters: list[Emitter] = []
        at = 0
        for w in walks:
            place = "args[2]" if w.partial is None else f"(args[1] + {at})"
            e = self.emitter(call, w.space, operands, place, dtypes, aliased if w.partial is None else frozenset())
            e.check()
            if asks(e):
                raise Unsupported("a fold along many arrays: what puts them together first is faster")
            emitters.append(e)
            if w.partial is not None:
                operands, dtypes = [*operands, place], [*dtypes, w.space.values.rows[-1].dtype]
                at += -(-w.elements * numpy_dtype(dtypes[-1]).itemsize // 64) * 64

        def write() -> tuple[Part, ...]:
            return tuple(Part(e.function(NAME), e.space.points(), self.grain(e, call.threads)) for e in emitters)

        looked_up = any(w.space.values.positions for w in walks)
        walk = None if looked_up else self._walk(call, walks, emitters[0], widths)
        return Work(write, at, looked_up, walks=True, walk=walk)

    def _walk(self, call: Call, walks: Sequence[Nest], first: Emitter, widths: Widths) -> Walk | None:
        """What it takes to write the first walk together with those of others, where that can be worth it."""
        values, grain = self.ready(call), partial(self.grain, threads=call.threads)
        if self.values(call) is not self.looped(call):
            return None
        if not values.folded:
            large = len(walks) == 1 and call.out.bytes >= _JOINED
            return Walk(first, values, widths, grain, OUT_PLACE, _columns(call)) if large else None
        pieces = walks[0].space
        if values.scans or len(walks) > 2 or all(v.bytes < BESIDE for v in call.operands):
            return None
        if len(walks) == 1:
            return Walk(first, values, widths, grain, OUT_PLACE, _columns(call))
        cut = not pieces.values.folded.isdisjoint(pieces.outer[:1])  # another is a row on its own
        return Walk(first, pieces.values, widths, grain, WORKSPACE, _columns(call), pieces) if cut else None

    def emitter(self, call: Call, s: Space, operands: Sequence[str], place: str, dtypes: Sequence[str],
                aliased: frozenset[int]) -> Emitter:  # fmt: skip
        """What writes the text of one walk of a call."""
        others = [place] * len(s.values.others)
        only = not (aliased or self.streams or s.values.folded or s.values.scans)
        kind = Lined if only and off_lines(s) else PipelinedApart
        return kind(
            s, self.functions(), operands, place, dtypes, aliased, self.limits(), self.streams, others,
            excess=self.excess,
        )  # fmt: skip

    def grain(self, e: Emitter, threads: int) -> int:
        """How many points are worth a chunk."""
        every, points = sum(operations(e.space).values()), e.space.points()
        share = -(-points // (_TAKES * threads)) if every <= _SHORT else 1
        return max(1, min(points, max(share, round(GRAIN / max(1.0, every / max(1, points))))))

    def in_place(self, call: Call) -> tuple[int, ...]:
        """Operands that are read only where the result is written: each element before its place is. None where what
        is read may be read again, for a function that ends, nor where the result goes past the cache."""
        if self.streams:
            return ()
        try:
            values = self.values(call)
        except Unsupported:
            return ()
        if any((r.name, carried(r.dtype)) in self.limits() for r in values.rows if r.op == "apply"):
            return ()
        return replaceable(values, call.canonical)

    def features(self, call: Call) -> Features:
        """Of what is put side by side, padded or looked up the axes of a call are no space that anybody walks: thirty
        rows side by side have 30! places."""
        found = _features(space(self.looped(call), self.widths), call.bytes_read + call.out.bytes)
        values, c = self.values(call), call.canonical
        if values.sizes.keys() == c.sizes.keys():
            return found
        inner = next((c.sizes[k] for k, s in zip(c.out.axes, c.out.strides, strict=True) if s == 1), 1)
        lines = math.prod(values.sizes.values()) / max(1, inner)
        return {**found, "rows": float(lines), "folds": float(call.out.elements) if values.folded else 0.0}

    @staticmethod
    def together(rows: Sequence[tuple[Kernel, Call]], reads: Sequence[Sequence[Hashable]]) -> Features | None:
        works = [k.of(c) for k, c in rows if isinstance(k, NativeKernel)]
        walks = [w.walk for w in works if w is not None and w.walk is not None]
        if len(walks) < len(rows) or len({c.threads for _, c in rows}) > 1:
            return None
        labels = [[*zip(w.dtypes, row, strict=False)] for w, row in zip(walks, reads, strict=True)]
        past = all(c.out.bytes >= STREAMED for _, c in rows)
        one = joined(tuple(walks), numbered(labels), OPERANDS, past)
        if one is None:
            return None
        pairs = [p for (_, c), row in zip(rows, reads, strict=True) for p in zip(row, c.operands, strict=True)]
        moved = sum({x: v.bytes for x, v in pairs}.values()) + sum(c.out.bytes for _, c in rows)
        return _features(one.emitter.space, moved) if isinstance(one, Joined) else one.features(moved)


class FastLoops(Loops):
    """The same with functions of our own, which become vectors, and narrow floats rounded only where it matters; for
    meanings that have such a function, or such floats between two functions."""

    name = "loops_fast"
    error = 5e-7
    excess = True

    def functions(self) -> Mapping[tuple[str, str], str]:
        return {**libm(), **own()}

    def limits(self) -> Mapping[tuple[str, str], tuple[float, str]]:
        return limits()

    def matches(self, meaning: Term) -> bool:
        return not _functions(meaning).isdisjoint(_apart()) or spares(meaning)


class NarrowLoops(Loops):
    """The same in smaller pieces: more points to share out, and more of them in cache at once."""

    name = "loops_narrow"
    usual = Loops
    variant_of = usual.name
    widths = Widths(1024, 512, pairs=True, lookups=True)


class NarrowFastLoops(FastLoops):
    """The same with functions of our own."""

    name = "loops_fast_narrow"
    usual = FastLoops
    variant_of = usual.name
    widths = NarrowLoops.widths


class Streaming(Loops):
    """The same for results that no cache holds: they are written past it."""

    name = "loops_stream"
    streams = True
    smallest = STREAMED


class FastStreaming(FastLoops):
    """The same with functions of our own."""

    name = "loops_fast_stream"
    streams = True
    smallest = STREAMED


def _columns(call: Call) -> tuple[tuple[int, int], ...]:
    """For each operand the one it is told by, and how many bytes from there it lies: itself, or the first column of an
    array of which it is another. Compilers read neighbours as one then, and take them apart in registers, where there
    are as many in a group as vectors have."""
    found, firsts = list[tuple[int, int]](), dict[Hashable, int]()
    for i, v in enumerate(call.operands):
        first = firsts.setdefault((call.shared[i], v.dtype), i) if call.shared else i
        step = min((abs(s) for s in v.strides if s), default=0)
        apart = v.offset - call.operands[first].offset
        near = first != i and abs(apart) < step and whole(step)
        found.append((first, apart * numpy_dtype(v.dtype).itemsize) if near else (i, 0))
    return tuple(found)


@cache
def _called(kind: type[Loops]) -> frozenset[tuple[str, str]]:
    """Functions by (name, dtype) that are calls of the C library in a kernel's text."""
    theirs = set(libm().values())
    return frozenset(pair for pair, text in kind().functions().items() if text in theirs)


@cache
def _apart() -> frozenset[tuple[str, str]]:
    """Functions of our own, but for the machine's division and square root, which all loops have."""
    return frozenset(p for p, row in functions().items() if p in own() and (row.kind != "exact" or p in libm()))


def _in_parts_of_lines(s: Space) -> bool:
    """Whether the result is written in squares that end within lines of the cache: past it that takes twenty times as
    long."""
    item = numpy_dtype(s.values.rows[s.values.root].dtype).itemsize
    return s.across is not None and s.vector is not None and s.width(s.vector) * item % LINE != 0


def _features(s: Space, moved: int) -> Features:
    """The features of a loop that moves so many bytes."""
    rows = {"launches": 1.0, "bytes": float(moved), **operations(s)}
    if s.vector is None or any(
        r.op == "load" and r.name[1].stride(v) not in (-1, 0, 1) for r in s.values.rows for v in (s.vector,)
    ):
        rows["strided_bytes"] = rows.pop("bytes")
    return rows


@lru_cache(maxsize=1 << 13)
def _functions(meaning: Term) -> frozenset[tuple[str, str]]:
    """Functions of a meaning by (name, dtype)."""
    kinds = types(meaning)
    return frozenset((t.args[0], carried(k.dtype)) for t, k in kinds.items() if t.head in ("Map", "Zip"))


def operations(s: Space) -> dict[str, float]:
    """How many operations of each kind a walk makes: "operations", and those of functions by name. What depends on
    fewer axes than there are points is made anew by each of them, what is needed at a part of the places there only."""
    values = s.values
    rows: dict[str, float] = {}
    for r, share in zip(values.rows, shares(values), strict=True):
        axes = r.axes | {k for a in r.args for k in values.rows[a].axes} if r.op == "fold" else r.axes
        count = share * s.points(axes) * math.prod(values.sizes[k] for k in axes)
        if r.costly:
            rows["operations"] = rows.get("operations", 0.0) + _COSTLY * count
            name = f"native:{r.name}:{carried(r.dtype)}"
            rows[name] = rows.get(name, 0.0) + count
        elif r.op in ("apply", "fold", "scan", "load"):
            rows["operations"] = rows.get("operations", 0.0) + count
    return rows


@cache
def limits() -> Mapping[tuple[str, str], tuple[float, str]]:
    """Where functions of our own end, and the C names of those that go on."""
    rows = functions().items()
    return {pair: (row.limit, row.beyond) for pair, row in rows if row.limit is not None and row.beyond is not None}


KERNELS = (Loops, FastLoops, NarrowLoops, NarrowFastLoops, Streaming, FastStreaming)
