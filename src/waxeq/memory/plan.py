"""Assigning a plan's temporaries to offsets in one arena."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from waxeq.backend.kernel import Kernel
from waxeq.memory.assign import assign
from waxeq.memory.check import check_assignment
from waxeq.memory.liveness import Buffer, InPlace
from waxeq.plan.compose import in_place, lifetimes
from waxeq.plan.plan import Plan


def assign_plan(plan: Plan, kernels: Mapping[str, Kernel]) -> Plan:
    """The plan with an offset for every temporary and workspace, and the size of the arena."""
    life = lifetimes(plan, kernels)
    rows = [Buffer(n, plan.buffers[n].bytes, *span) for n, span in life.items()]
    pairs = in_place(plan, kernels)
    wishes = [InPlace(new, old) for new, old in pairs]
    found = assign(rows, wishes)
    check_assignment(rows, found, wishes)
    buffers = {n: replace(b, offset=found.offsets[n]) if n in life else b for n, b in plan.buffers.items()}
    granted = tuple((a, b) for a, b in pairs if found.offsets[a] == found.offsets[b])
    return replace(plan, buffers=buffers, arena_bytes=found.arena_bytes, in_place=granted)
