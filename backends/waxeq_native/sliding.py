"""Loops that read each other at places around their own, as one C function: stencils that are swept again and again."""

from __future__ import annotations

import math

from waxeq.backend.call import Call
from waxeq.backend.kernel import Features
from waxeq.ir.types import numpy_dtype
from waxeq_cfamily import lockstep
from waxeq_cfamily.abreast import abreast
from waxeq_cfamily.lockstep_text import Written
from waxeq_cfamily.past import in_lines
from waxeq_cfamily.scalars import CTYPES
from waxeq_cfamily.sliding import function
from waxeq_cfamily.sweeps import sweeps
from waxeq_cfamily.taken import NAME
from waxeq_cfamily.values import Unsupported
from waxeq_cfamily.walks import Walk
from waxeq_native.abreast import CACHED, Slid, Style, written
from waxeq_native.gemm import entry
from waxeq_native.joint import STREAMED
from waxeq_native.loops import FastLoops, Loops, operations
from waxeq_native.steps import OPERANDS, OUT_PLACE
from waxeq_native.work import GRAIN, Part, Work, kept, same

_SMALLEST = 1 << 16
"""Bytes of a result from which what lies between the sweeps may leave the first cache."""

_WIDE = 32
"""Elements of the two vectors that a tile of a product is wide where vectors have 64 bytes: there are 32 of them."""


class Sliding(Loops):
    """Element-wise loops, their functions as the C library has them. Of what one of them makes, the rows that a later
    one still reads lie in cache."""

    name = "sliding"
    form = "sweeps"
    smallest = _SMALLEST

    def work(self, call: Call) -> Work | None:
        c = call.canonical
        if any(v.dtype not in CTYPES for v in (c.out, *c.operands)) or call.out.elements == 0:
            return None
        try:
            walk = self.walk(call)
            texts = [f"args[{OPERANDS + i}]" for i in range(len(call.operands))]
            reads = [*zip(c.operands, call.shared or range(len(texts)), strict=True)]
            style = Style(self.functions(), self.limits(), self.excess, self.streams)
            rows = written(walk, style, texts, reads, ["args[2]"], call.bytes_read + call.out.bytes)
        except Unsupported:
            return None
        if self.streams and not all(r.past for r in rows[-walk.results :]):
            return None
        slid = Slid(walk, style, reads, call.threads, call.out.bytes, OUT_PLACE, _chunk, _told)
        return Work(lambda: (Part(function(rows, NAME), walk.tasks(), _chunk(walk)),), walk=slid)

    def walk(self, call: Call) -> Walk:
        """How the sweeps of a call are walked. Raises Unsupported."""
        c = call.canonical
        key = ("sweeps", *same(call))

        def make() -> Walk:
            found = sweeps(c.meaning, c.operands, c.out, c.sizes)
            one = abreast([found], [range(len(c.operands))])
            if one is None:
                raise Unsupported("more axes than have names")
            return Walk.of(one.sweeps, call.threads)

        return call.remember("sweeps", lambda: kept(key, make))

    def in_place(self, call: Call) -> tuple[int, ...]:
        return ()

    def features(self, call: Call) -> Features:
        """Lengths of loops are those of its sweeps, one after another: a call has axes of each, which are no space that
        anybody walks. Nothing is folded."""
        return _told(self.walk(call), call.bytes_read + call.out.bytes)


def _chunk(walk: Walk) -> int:
    """How many tiles are worth a start."""
    every, tasks = sum(_operations(walk).values()), walk.tasks()
    return max(1, min(tasks, round(GRAIN * tasks / max(1.0, every))))


def _told(walk: Walk, moved: int) -> Features:
    lines = sum(math.prod(s.sizes()[:-1]) for s in walk.sweeps)
    return {"launches": 1.0, "bytes": float(moved), "rows": float(lines), "folds": 0.0, **_operations(walk)}


def _operations(walk: Walk) -> dict[str, float]:
    """How many operations of each kind all sweeps make, those that two tiles make among them."""
    rows: dict[str, float] = {}
    for group in walk.groups:
        for name, count in operations(walk.space(group)).items():
            rows[name] = rows.get(name, 0.0) + count * (1 + walk.twice(group[0]))
    return rows


class FastSliding(Sliding):
    """The same with functions of our own, which become vectors; only for meanings that have such a function."""

    name = "sliding_fast"
    error = FastLoops.error
    functions, limits, matches, excess = FastLoops.functions, FastLoops.limits, FastLoops.matches, FastLoops.excess


class StreamingSliding(Sliding):
    """The same for results that no cache holds, of rows that begin with its lines: they are written past it."""

    name = "sliding_stream"
    streams = True
    smallest = STREAMED


class FastStreamingSliding(FastSliding):
    """The same with functions of our own."""

    name = "sliding_fast_stream"
    streams = True
    smallest = STREAMED


def wide() -> bool:
    """Whether this machine has vectors of 64 bytes, and so registers enough for rows of several sweeps."""
    return entry("nr", "float32") >= _WIDE


class Lockstep(Sliding):
    """The same from registers to registers, a vector of each row after the other, on machines that are `wide`."""

    name = "sliding_lockstep"

    def work(self, call: Call) -> Work | None:
        c = call.canonical
        if not wide() or call.out.elements == 0 or any(v.dtype != c.out.dtype for v in c.operands):
            return None
        longest = max(c.out.shape, default=1) * numpy_dtype(c.out.dtype).itemsize
        if longest < lockstep.FEWEST * lockstep.VECTOR:
            return None
        texts = [f"args[{OPERANDS + i}]" for i in range(len(call.operands))]
        reads = [*zip(c.operands, call.shared or range(len(texts)), strict=True)]
        try:
            walk = self.walk(call)
            plan = lockstep.Lockstep.of(walk, reads)
        except Unsupported:
            return None
        last = walk.sweeps[-1]
        if self.streams and not in_lines(last.values, last.axes[-1]):
            return None
        asks = call.bytes_read + call.out.bytes > CACHED
        text = Written(plan, texts, "args[2]", self.streams, asks)
        return Work(lambda: (Part(text.function(NAME), plan.walk.tasks(), _chunk(plan.walk)),))


class StreamingLockstep(Lockstep):
    """The same for results that no cache holds, of rows that begin with its lines: they are written past it."""

    name = "sliding_lockstep_stream"
    streams = True
    smallest = STREAMED


KERNELS = (Sliding, FastSliding, StreamingSliding, FastStreamingSliding, Lockstep, StreamingLockstep)
