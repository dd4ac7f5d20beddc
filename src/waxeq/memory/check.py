"""Proof that no two buffers that are needed at one step share a byte."""

from __future__ import annotations

from collections.abc import Sequence

from waxeq.errors import PlanError
from waxeq.memory.assign import Assignment
from waxeq.memory.liveness import ALIGN, Buffer, InPlace


def check_assignment(buffers: Sequence[Buffer], found: Assignment, in_place: Sequence[InPlace] = ()) -> None:
    """Raise PlanError when two live buffers overlap (other than a result on the operand it replaces), or when one is not
    aligned or lies outside the arena."""
    allowed = {(w.buffer, w.reuses) for w in in_place}
    rows = sorted(buffers, key=lambda b: found.offsets[b.name])
    for b in rows:
        at = found.offsets[b.name]
        if at % ALIGN or at < 0 or at + b.room > found.arena_bytes:
            raise PlanError(f"buffer {b.name} lies at {at}, outside the arena or unaligned")
    for i, a in enumerate(rows):
        end = found.offsets[a.name] + a.bytes
        for b in rows[i + 1 :]:
            if found.offsets[b.name] >= end:
                break
            handed = ((a.name, b.name) in allowed or (b.name, a.name) in allowed) and (
                a.last == b.first or b.last == a.first
            )
            if a.meets(b) and a.bytes and b.bytes and not handed:
                raise PlanError(f"buffers {a.name} and {b.name} are needed at one step and share memory")
