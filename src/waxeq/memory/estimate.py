"""Peak bytes, known before anything runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from waxeq.backend.storage import CPU, LINE, Storage
from waxeq.errors import BudgetError
from waxeq.ir.graph import Graph
from waxeq.memory.alias import alias
from waxeq.memory.assign import Assignment, least_bytes
from waxeq.memory.liveness import ALIGN, Buffer, InPlace, busiest
from waxeq.naming import option
from waxeq.plan.compose import lifetimes
from waxeq.plan.plan import Plan

COPIED = 1 << 12
"""Bytes up to which a program copies an input into memory of its own; a larger one is read where it lies."""
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True)
class Estimate:
    """Bytes a program holds while it runs: `arena_bytes` plus `resident` (bytes by kind: weights, states, results ...).

    `least_bytes`: below which no arrangement of the arena can go. `call`: the call at which most of the arena is in
    use, and `live` the buffers (name, bytes) needed there, the largest first.
    """

    arena_bytes: int
    least_bytes: int
    resident: Mapping[str, int] = field(default_factory=dict)
    call: int = 0
    live: tuple[tuple[str, int], ...] = ()

    @property
    def peak_bytes(self) -> int:
        return self.arena_bytes + sum(self.resident.values())

    def require(self, limit: int, what: str = "this machine has", fix: str | None = None) -> None:
        """Raise BudgetError when the peak is over `limit` bytes; `what` says whose limit it is."""
        if self.peak_bytes > limit:
            largest = f"; the largest buffer is {self.live[0][0]} ({amount(self.live[0][1])})" if self.live else ""
            fix = f" or raise {option('max_memory')}" if fix is None else fix
            raise BudgetError(
                f"the plan needs {amount(self.peak_bytes)} of memory and {what} {amount(limit)}{largest}; "
                f"use smaller inputs{fix}"
            )


def estimate(buffers: Sequence[Buffer], found: Assignment, resident: Mapping[str, int] | None = None) -> Estimate:
    """The peak of an assignment, beside what is resident at all times."""
    _, call = busiest((b.bytes, b.first, b.last) for b in buffers)
    live = sorted(((b.name, b.bytes) for b in buffers if b.first <= call <= b.last), key=lambda r: (-r[1], r[0]))
    return Estimate(found.arena_bytes, found.least_bytes, dict(resident or {}), call, tuple(live))


def plan_estimate(plan: Plan) -> Estimate:
    """The peak of a program that runs a plan, in the memory of the CPU: the arena, and beside it weights, constants,
    states, folded and packed weights, the caller's inputs, the program's copies of small ones, and one set of results.

    A plan that runs the model as written has no arena: its values live from their making to their last use (views of
    one another are counted as if they were copies).
    """
    if plan.written:
        rows = _values(plan.graph)
        most, _ = busiest((b.bytes, b.first, b.last) for b in rows)
        return estimate(rows, Assignment({}, most, most), resident(plan))
    return _arena(plan, CPU, plan.arena_bytes, resident(plan))


def resident(plan: Plan) -> dict[str, int]:
    """Bytes of the CPU's memory that are in use besides the arena, by kind."""
    inputs = [x.type.bytes for x in plan.graph.leaves if x.kind == "input"]
    held = {
        "weights": plan.bytes_of("weight"),
        "constants": plan.bytes_of("constant"),
        "states": plan.bytes_of("state"),
        "folded weights": plan.bytes_of("folded"),
        "packed weights": plan.retained,
        "inputs": sum(inputs),
        "copies of inputs": 0 if plan.written else sum(b for b in inputs if b <= COPIED),
        "results": sum(o.type.bytes for o in plan.outputs),
    }
    return {kind: size for kind, size in held.items() if size}


def device_estimates(plan: Plan) -> Mapping[str, Estimate]:
    """The peak in the memory of every other device that a plan uses: its arena, and beside it states, weights, inputs
    and one set of results."""
    return {place: _arena(plan, place, plan.arenas.get(place, 0), _held(plan, place)) for place in plan.devices}


def require_room(plan: Plan, storages: Mapping[str, Storage]) -> None:
    """Raise BudgetError when a plan needs more memory of a device than that has left."""
    for place, e in device_estimates(plan).items():
        if place in storages:
            e.require(storages[place].room, f"device {place!r} has", "")


def _held(plan: Plan, place: str) -> dict[str, int]:
    """What lies in the memory of a device besides its arena, by kind."""
    results = {o.buffer for o in plan.outputs if plan.buffers[o.buffer].place == place}
    held = {
        "states": plan.bytes_of("state", place=place),
        "weights": plan.bytes_of("folded", place=place),
        "inputs": plan.bytes_of("input", place=place),
        "results": sum(plan.buffers[b].bytes for b in results),
    }
    return {kind: size for kind, size in held.items() if size}


def _arena(plan: Plan, place: str, size: int, resident: Mapping[str, int]) -> Estimate:
    """The peak in the memory of one device."""
    align = ALIGN if place == CPU else LINE
    spans = {n: span for n, span in lifetimes(plan).items() if plan.buffers[n].place == place}
    rows = [Buffer(n, plan.buffers[n].bytes, *span, align) for n, span in spans.items()]
    wishes = [InPlace(new, old) for new, old in plan.in_place if new in spans]
    offsets = {b.name: plan.buffers[b.name].offset or 0 for b in rows}
    return estimate(rows, Assignment(offsets, size, least_bytes(alias(rows, wishes), align)), resident)


def _values(graph: Graph) -> list[Buffer]:
    """What a graph computes on the way to its results, which are counted on their own. What states become is held to
    the end of the call."""
    last = {i: v for v, n in graph.values() for i in n.inputs}
    last |= {v: len(graph.leaves) + len(graph.nodes) for _, v in graph.states}
    results = {v for _, v in graph.outputs}
    return [
        Buffer(f"%{v}", n.type.bytes, v, max(v, last.get(v, v))) for v, n in graph.values() if v not in results
    ]  # fmt: skip


def peak_bytes(buffers: Sequence[Buffer], found: Assignment, resident: Mapping[str, int] | None = None) -> int:
    """Bytes held while the program runs."""
    return estimate(buffers, found, resident).peak_bytes


def amount(size: int) -> str:
    """Bytes for people: 3.2 MiB."""
    value, unit = float(size), 0
    while value >= 1024 and unit + 1 < len(_UNITS):
        value, unit = value / 1024, unit + 1
    return f"{value:.0f} {_UNITS[unit]}" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"
