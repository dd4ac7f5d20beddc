"""Assigning a plan's temporaries to offsets, in one arena for each device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from waxeq.backend.kernel import Kernel
from waxeq.backend.storage import CPU, LINE
from waxeq.memory.assign import Assignment, assign
from waxeq.memory.check import check_assignment
from waxeq.memory.liveness import ALIGN, Buffer, InPlace
from waxeq.plan.compose import in_place, lifetimes
from waxeq.plan.plan import Plan


def assign_plan(plan: Plan, kernels: Mapping[str, Kernel]) -> Plan:
    """The plan with an offset for every temporary and workspace, and the sizes of the arenas: one for each device."""
    life = lifetimes(plan, kernels=kernels)
    wishes = [InPlace(new, old) for new, old in in_place(plan, kernels)]
    found: dict[str, Assignment] = {}
    for place in sorted({plan.buffers[n].place for n in life} | {CPU}):
        align = ALIGN if place == CPU else LINE
        own = {n: span for n, span in life.items() if plan.buffers[n].place == place}
        rows = [Buffer(n, plan.buffers[n].bytes, *span, align) for n, span in own.items()]
        wanted = [w for w in wishes if w.buffer in own]
        found[place] = assign(rows, wanted)
        check_assignment(rows, found[place], wanted)
    offsets = {n: at for a in found.values() for n, at in a.offsets.items()}
    buffers = {n: replace(b, offset=offsets[n]) if n in life else b for n, b in plan.buffers.items()}
    granted = tuple((w.buffer, w.reuses) for w in wishes if offsets[w.buffer] == offsets[w.reuses])
    arenas = {p: a.arena_bytes for p, a in found.items() if p != CPU and a.arena_bytes}
    return replace(plan, buffers=buffers, arena_bytes=found[CPU].arena_bytes, in_place=granted, arenas=arenas)
