"""Copies into other orders of axes, as loops: what is read across is turned in squares, and large results are written
past the cache."""

from __future__ import annotations

from waxeq.backend.call import Call
from waxeq.ir.term import Term
from waxeq_native.loops import Loops, Streaming


class Copy(Loops):
    """One strided copy."""

    name = "copy"
    form = "copy"
    heads = frozenset({"In"})

    def matches(self, meaning: Term) -> bool:
        return meaning.head == "In"

    def in_place(self, call: Call) -> tuple[int, ...]:
        return ()


class StreamingCopy(Copy):
    """The same past the cache."""

    name = "copy_stream"
    streams, smallest = Streaming.streams, Streaming.smallest


KERNELS = (Copy, StreamingCopy)
