"""Copies that nobody needs: who reads one finds the same elements, in the same order, where they were copied from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from waxeq.backend.call import sharing
from waxeq.backend.kernel import Kernel
from waxeq.backend.storage import CPU
from waxeq.plan.cover import long_strides
from waxeq.plan.plan import Plan, Step

Part = tuple[str, int]
"""A buffer, and which of its elements is the first of some that follow each other."""


def in_their_place(plan: Plan, kernels: Mapping[str, Kernel]) -> Plan:
    """The plan without copies of parts of buffers in the memory of the CPU, where all who read them can read the part
    itself. Memory is not assigned yet."""
    parts = _parts(plan)
    for n in (*(o.buffer for o in plan.outputs), *(b for _, b in plan.states)):
        parts.pop(n, None)
    while parts:
        left = [s for s in plan.steps if s.writes not in parts]
        steps = [_reading(s, parts) for s in left]
        refused = [s for s, new in zip(left, steps, strict=True) if new is not s and not _taken(new, kernels)]
        if not refused:
            return replace(plan, steps=tuple(steps), buffers={n: b for n, b in plan.buffers.items() if n not in parts})
        for n in {n for s in refused for n in s.reads}:
            parts.pop(n, None)
    return plan


def _taken(s: Step, kernels: Mapping[str, Kernel]) -> bool:
    return kernels[s.call.kernel].accepts(s.call)


def _parts(plan: Plan) -> dict[str, Part]:
    """What copies of parts are copies of, by the buffers that they write."""
    found: dict[str, Part] = {}
    for s in plan.steps:
        if _is_copy(s, plan):
            base, first = found.get(s.reads[0], (s.reads[0], 0))
            found[s.writes] = base, first + s.call.operands[0].offset
    return found


def _is_copy(s: Step, plan: Plan) -> bool:
    """Whether a step copies elements that follow each other, as they do."""
    if s.call.meaning.head != "In" or len(s.reads) != 1:
        return False
    (x,), out, to = s.call.operands, s.call.out, plan.buffers[s.writes]
    inside = {plan.buffers[n].place for n in (s.reads[0], s.writes)} == {CPU}
    whole = out.is_dense and out.offset == 0 and out.elements == to.elements
    return inside and whole and x.dtype == out.dtype and long_strides(x) == long_strides(out)


def _reading(s: Step, parts: Mapping[str, Part]) -> Step:
    """The step, reading parts where they are; itself where it reads none."""
    if parts.keys().isdisjoint(s.reads):
        return s
    places = [parts.get(n, (n, 0)) for n in s.reads]
    rows = zip(s.call.operands, places, strict=True)
    views = tuple(replace(v, offset=v.offset + first) for v, (_, first) in rows)
    reads = tuple(n for n, _ in places)
    return replace(s, call=replace(s.call, operands=views, shared=sharing(reads)), reads=reads)
