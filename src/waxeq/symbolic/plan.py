"""Plans for a range of sizes: one plan for each interval, its sizes, strides and offsets functions of the dims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from waxeq.backend.call import Call
from waxeq.backend.discover import require
from waxeq.backend.kernel import Kernel
from waxeq.backend.storage import CPU
from waxeq.errors import PlanError
from waxeq.memory.assign import Assignment
from waxeq.memory.check import check_assignment
from waxeq.memory.liveness import Buffer as Lifetime
from waxeq.memory.liveness import InPlace
from waxeq.plan.compose import direct, in_place, lifetimes
from waxeq.plan.encode import decode
from waxeq.plan.plan import Plan, Step
from waxeq.symbolic.dims import Box, Dim, Sizes, bind
from waxeq.symbolic.offsets import Place, offsets_at
from waxeq.symbolic.over import Everywhere
from waxeq.symbolic.size import Size, fill, written

UNTIMED = "not timed"
"""On which the seconds of the model as written rest where it was not run: they say only that all else goes first."""


@dataclass(frozen=True, slots=True)
class Point:
    """What a plan takes at some sizes: seconds, and what they rest on: "measured" (whole plans were timed), "kernels"
    (the sum of timed kernels), "estimated", or UNTIMED."""

    sizes: Sizes
    seconds: float
    basis: str


@dataclass(frozen=True)
class SizedPlan:
    """A plan whose numbers are functions of the dims. `data` is that of a plan file, with holes for sizes; `order` the
    places of its arena, the lowest first; `ranges` those of the dims, which kernels are compiled for."""

    data: Mapping[str, Any]
    order: tuple[Place, ...]
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)
    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def as_written(self) -> bool:
        """Whether the model as written is the plan."""
        return bool(self.data["written"])

    def at(self, sizes: Sizes, kernels: Mapping[str, Kernel]) -> Plan:
        """The plan at some sizes. Nothing is searched, and nothing compiled that was not for other sizes. `kernels` are
        those of ranges. Raises PlanError where a kernel does not take its call at these sizes, or is not installed."""
        plan = self.unplaced(sizes)
        if plan.written:
            return plan
        require((s.call.kernel for s in plan.steps), kernels)
        steps = tuple(replace(s, call=_taken(s.call, kernels, sizes)) for s in plan.steps)
        plan = replace(plan, steps=steps)
        return _placed(_with_scratch(plan, kernels), self.order, kernels).check()

    def unplaced(self, sizes: Sizes) -> Plan:
        """The plan at some sizes, without offsets."""
        plan = decode(fill(self.data, sizes), self.constants)
        rows = zip(plan.steps, self._everywhere, strict=True)
        return replace(plan, steps=tuple(replace(s, call=replace(s.call, over=e.at(sizes))) for s, e in rows))

    @cached_property
    def _everywhere(self) -> tuple[Everywhere, ...]:
        return tuple(Everywhere(s, self.ranges) for s in self.data["steps"])


def compiles(kernel: Kernel) -> bool:
    """Whether something is compiled for a kernel when it is bound, or it works on other memory than the CPU's."""
    return type(kernel).prepare is not Kernel.prepare or {kernel.device, kernel.origin} != {CPU}


def of_ranges(kernels: Mapping[str, Kernel]) -> dict[str, Kernel]:
    """What plans for ranges of sizes are made of: kernels that compile nothing, and those that compile once for all
    sizes, by the name of the one whose calls they take."""
    rows = {n: k if not compiles(k) else k.sized for n, k in kernels.items()}
    return {n: k for n, k in rows.items() if k is not None}


def _taken(call: Call, kernels: Mapping[str, Kernel], sizes: Sizes) -> Call:
    """The call, by another kernel for the same meanings where its own is for larger or smaller sizes. Raises
    PlanError."""
    if kernels[call.kernel].accepts(call):
        return call
    other = alike(call, kernels)
    if other is None:
        raise PlanError(f"kernel {call.kernel} does not take its call where {written(sizes)}")
    return other


def alike(call: Call, kernels: Mapping[str, Kernel]) -> Call | None:
    """The call by another kernel for the same meanings, of those that compile nothing."""
    own = kernels[call.kernel]
    for name, k in kernels.items():
        same = (k.form, k.pattern) == (own.form, own.pattern) and k.error <= own.error and not compiles(k)
        other = replace(call, kernel=name)
        if same and (k.form not in ("loops", "sweeps") or k.matches(call.meaning)) and k.accepts(other):
            return other
    return None


def _with_scratch(plan: Plan, kernels: Mapping[str, Kernel]) -> Plan:
    """The plan with the scratch memory that its kernels need at these sizes, and no other."""
    buffers, steps = dict(plan.buffers), list[Step]()
    for s in plan.steps:
        k = kernels[s.call.kernel]
        need, name = k.workspace(s.call), s.workspace
        if name is not None and need:
            buffers[name] = replace(buffers[name], elements=need)
        elif name is not None:
            buffers[name] = replace(buffers[name], elements=0)
        steps.append(replace(s, workspace=name if need else None, retained=k.retained(s.call)))
    return replace(plan, buffers=buffers, steps=tuple(steps))


def _placed(plan: Plan, order: Sequence[Place], kernels: Mapping[str, Kernel]) -> Plan:
    """The plan with offsets, which are proved once more. A large result lies outside the arena. The places are those of
    all sizes, of which only the large ones have steps that could run side by side: they do where memory allows it."""
    life, outside = lifetimes(plan, beside=False), direct(plan)
    found, end = offsets_at(order, room(plan, order))
    buffers = {n: replace(b, offset=None if n in outside else found.get(n)) for n, b in plan.buffers.items()}
    pairs = [(a, b) for a, b in in_place(plan, kernels, beside=False) if found[a] == found[b]]
    rows = [Lifetime(n, plan.buffers[n].bytes, *span) for n, span in life.items()]
    check_assignment(rows, Assignment(found, end, end), [InPlace(a, b) for a, b in pairs])
    return replace(plan, buffers=buffers, arena_bytes=end, in_place=tuple(pairs))


def room(plan: Plan, order: Sequence[Place]) -> dict[str, int]:
    """The bytes of the arena that each buffer of its places takes: none where it lies outside."""
    outside = direct(plan)
    return {n: 0 if n in outside else plan.buffers[n].bytes for p in order for n in p.buffers}


@dataclass(frozen=True)
class Interval:
    """A plan for the sizes in a box, and its cost curve."""

    box: Box
    plan: SizedPlan
    curve: tuple[Point, ...] = ()

    def predicted(self, sizes: Sizes) -> Point | None:
        """What the curve says of some sizes: between points in proportion to the logarithms, as times grow by powers;
        None for a plan without a curve."""
        if not self.curve:
            return None
        if len(sizes) > 1 or any(p.sizes == sizes for p in self.curve):
            near = min(self.curve, key=lambda p: sum(abs(np.log(p.sizes[n] / s)) for n, s in sizes.items()))
            return Point(sizes, near.seconds, near.basis if near.sizes == sizes else "estimated")
        (name,) = sizes
        xs = np.log([p.sizes[name] for p in self.curve])
        ys = np.log([max(p.seconds, 1e-12) for p in self.curve])
        return Point(sizes, float(np.exp(np.interp(np.log(sizes[name]), xs, ys))), "estimated")


@dataclass(frozen=True)
class SizedPlans:
    """A program for all sizes in some ranges. `takes`: for each input its dtype and, for each axis, a number, a dim's
    name or a formula."""

    name: str
    dims: tuple[Dim, ...]
    takes: Mapping[str, tuple[int | str | Size, ...]]
    intervals: tuple[Interval, ...]
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def constants(self) -> dict[str, np.ndarray]:
        """Constants of all plans, by name."""
        return {n: a for i in self.intervals for n, a in i.plan.constants.items()}

    def sizes(self, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
        """The size of every dim, from the shapes of inputs. Raises TypeMismatch."""
        return bind(self.takes, shapes, self.dims)

    def interval(self, sizes: Sizes) -> Interval:
        """The interval that sizes in range lie in."""
        found = next((i for i in self.intervals if sizes in i.box), None)
        if found is None:
            raise PlanError(f"the plan has no interval for {written(sizes)}; make it anew with `waxeq optimize`")
        return found

    @cached_property
    def switches(self) -> Mapping[str, tuple[int, ...]]:
        """For each dim the sizes at which another interval begins."""
        return {d.name: tuple(sorted({i.box.ranges[d.name][0] for i in self.intervals} - {d.low})) for d in self.dims}
