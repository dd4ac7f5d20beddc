"""Proof that no two buffers that are needed at one call share a byte."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush

from waxeq.errors import PlanError
from waxeq.memory.alias import handed_over
from waxeq.memory.assign import Assignment
from waxeq.memory.liveness import Buffer, InPlace, by_name

_Span = tuple[int, int, str]
"""Where a buffer begins and ends, and its name."""


def check_assignment(buffers: Sequence[Buffer], found: Assignment, in_place: Sequence[InPlace] = ()) -> None:
    """Check offsets, by whatever means they were found, against lifetimes alone.

    A result may lie on an operand only where `in_place` says so, they start at one offset, and the operand dies at
    the call that writes the result. Raises PlanError, naming the buffers, when two live buffers overlap, or when one
    has no offset, is not aligned or does not lie in the arena.
    """
    named = by_name(buffers)
    for b in buffers:
        _check_place(b, found)
    offsets = found.offsets
    allowed = {
        frozenset((w.buffer, w.reuses))
        for w in in_place
        if handed_over(named[w.reuses], named[w.buffer]) and offsets[w.buffer] == offsets[w.reuses]
    }
    live, ends = list[_Span](), list[tuple[int, _Span]]()
    for b in sorted((b for b in buffers if b.bytes), key=lambda b: (b.first, offsets[b.name], b.name)):
        while ends and ends[0][0] < b.first:
            span = heappop(ends)[1]
            del live[bisect_left(live, span)]
        span = (offsets[b.name], offsets[b.name] + b.bytes, b.name)
        for name in _under(live, span):
            if frozenset((name, b.name)) not in allowed:
                raise PlanError(f"buffers {name} and {b.name} share memory and are both needed at call {b.first}")
        insort(live, span)
        heappush(ends, (b.last, span))


def _under(live: Sequence[_Span], span: _Span) -> Iterator[str]:
    """Those of sorted spans that share a byte with another, the last first. Of what lies in the arena at one call no
    two do, but for a result on its operand, which begins where that does and is no longer: so none before a span that
    ends in time does."""
    start, stop, _ = span
    for i in range(bisect_left(live, (stop,)) - 1, -1, -1):
        if live[i][1] <= start:
            return
        yield live[i][2]


def _check_place(b: Buffer, found: Assignment) -> None:
    if b.name not in found.offsets:
        raise PlanError(f"buffer {b.name} has no offset")
    at = found.offsets[b.name]
    if at < 0 or at + b.bytes > found.arena_bytes:
        raise PlanError(
            f"buffer {b.name} at {at} ({b.bytes} bytes) lies outside the arena of {found.arena_bytes} bytes"
        )
    if at % b.align:
        raise PlanError(f"buffer {b.name} lies at {at}, which is no multiple of {b.align}")
