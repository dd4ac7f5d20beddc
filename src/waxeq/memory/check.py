"""Proof that no two buffers that are needed at one call share a byte."""

from __future__ import annotations

from collections.abc import Sequence

from waxeq.errors import PlanError
from waxeq.memory.alias import handed_over
from waxeq.memory.assign import Assignment
from waxeq.memory.liveness import Buffer, InPlace, by_name, meets


def check_assignment(buffers: Sequence[Buffer], found: Assignment, in_place: Sequence[InPlace] = ()) -> None:
    """Check offsets, by whatever means they were found, against lifetimes alone.

    A result may lie on an operand only where `in_place` says so, they start at one offset, and the operand dies at
    the call that writes the result. Raises PlanError, naming the buffers, when two live buffers overlap, or when one
    has no offset, is not aligned or does not lie in the arena.
    """
    named = by_name(buffers)
    for b in buffers:
        _check_place(b, found)
    rows = sorted((b for b in buffers if b.bytes), key=lambda b: (found.offsets[b.name], b.name))
    allowed = {
        frozenset((w.buffer, w.reuses))
        for w in in_place
        if handed_over(named[w.reuses], named[w.buffer]) and found.offsets[w.buffer] == found.offsets[w.reuses]
    }
    for i, a in enumerate(rows):
        end = found.offsets[a.name] + a.bytes
        for b in rows[i + 1 :]:
            if found.offsets[b.name] >= end:
                break
            if meets(a, b) and frozenset((a.name, b.name)) not in allowed:
                call = max(a.first, b.first)
                raise PlanError(f"buffers {a.name} and {b.name} share memory and are both needed at call {call}")


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
