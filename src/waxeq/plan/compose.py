"""From plans of blocks to the plan of a program: names, lifetimes, one arena."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from waxeq.backend.kernel import BESIDE, Kernel
from waxeq.backend.storage import CPU
from waxeq.ir.blocks import Block
from waxeq.ir.graph import Graph
from waxeq.ir.term import Term, rebuild
from waxeq.plan.plan import Buffer, Fold, Output, Plan, Step
from waxeq.plan.schedule import BlockPlan

DIRECT = 1 << 16
"""Bytes from which a result is written straight into the array the caller gets; a smaller one is copied out of the
arena.
"""


def compose(
    graph: Graph,
    blocks: Sequence[Block],
    plans: Sequence[BlockPlan],
    name: str,
    structure: Any,
    about: Mapping[str, Any],
) -> Plan:
    """One plan of all blocks, `plans[i]` being that of `blocks[i]`. Memory is not assigned yet
    (`memory.assign_plan`).
    """
    where = {i: x.name for i, x in enumerate(graph.leaves)}
    buffers = {x.name: Buffer(x.name, x.type.dtype, x.type.elements, x.kind) for x in graph.leaves}
    folds: list[Fold] = []
    steps: list[Step] = []
    for n, (block, plan) in enumerate(zip(blocks, plans, strict=True)):
        names = {local: where[v] for local, v in block.leaves.items()}
        for local, b in plan.buffers.items():
            if local not in names:
                names[local] = f"b{n}.{local}"
                buffers[names[local]] = replace(b, name=names[local])
            elif block.leaves[local] < len(graph.leaves) and b.place != CPU:
                buffers[names[local]] = replace(buffers[names[local]], place=b.place)
        folds += [_fold(f, names) for f in plan.folds]
        places = _places(block)
        steps += [_step(s, names, places) for s in plan.steps]
        where |= {v: names[plan.outputs[o]] for o, v in block.outputs.items()}
    outputs = tuple(Output(o, graph.type(v), where[v]) for o, v in graph.outputs)
    states = tuple((s, where[v]) for s, v in graph.states)
    ordered = grouped(side_by_side(steps, buffers), buffers)
    return Plan(name, graph, buffers, tuple(folds), ordered, outputs, states, structure=structure, about=about)


def side_by_side(steps: Sequence[Step], buffers: Mapping[str, Buffer]) -> tuple[Step, ...]:
    """Steps in an order in which those that read one large buffer follow each other where they can: such neighbours
    may be one loop. All others stay as they are."""
    readers = Counter(n for s in steps for n in _large(s, buffers))
    if all(n < 2 for n in readers.values()):
        return tuple(steps)
    made, left, rows = {s.writes for s in steps}, list(steps), list[Step]()
    over = frozenset[str]()
    while left:
        ready = [s for s in left if made.isdisjoint(s.reads)]
        s = next((s for s in ready if over & _large(s, buffers)), ready[0])
        over = over & _large(s, buffers) or _large(s, buffers)
        made.discard(s.writes)
        left.remove(s)
        rows.append(s)
    return tuple(rows)


def _large(s: Step, buffers: Mapping[str, Buffer]) -> frozenset[str]:
    """The large buffers that a step reads; none of sizes that are not known yet."""
    return frozenset(n for n in s.reads if isinstance(size := buffers[n].bytes, int) and size >= BESIDE)


def grouped(steps: Sequence[Step], buffers: Mapping[str, Buffer]) -> tuple[Step, ...]:
    """Steps in an order in which those of one device follow each other as far as they can: uploads as early and
    downloads as late as may be. Steps that all run on the CPU stay as they are."""

    def lane(s: Step) -> tuple[bool, str]:
        places = {buffers[n].place for n in (*s.reads, s.writes)}
        return len(places) > 1, buffers[s.writes].place

    lanes = [lane(s) for s in steps]
    if {place for _, place in lanes} <= {CPU}:
        return tuple(steps)
    made, left, rows, last = {s.writes for s in steps}, dict(enumerate(steps)), list[Step](), (False, CPU)
    while left:
        ready = [i for i, s in left.items() if made.isdisjoint(s.reads)]

        def rank(i: int, last: tuple[bool, str] = last) -> tuple[int, int]:
            copied, place = lanes[i]
            return (3 if place == CPU else 0) if copied else 1 if lanes[i] == last else 2, i

        n = min(ready, key=rank)
        last = lanes[n] if not lanes[n][0] else last
        made.discard(left[n].writes)
        rows.append(left.pop(n))
    return tuple(rows)


def _places(block: Block) -> Mapping[str, str]:
    """Source places by value number of the block's graph, as the steps of its plan name them."""
    return {f"%{v}": str(n.source) for v, n in block.graph.values() if n.source is not None}


def _step(s: Step, names: Mapping[str, str], places: Mapping[str, str]) -> Step:
    sources = tuple(dict.fromkeys(places[v] for v in s.sources if v in places))
    return replace(
        s,
        reads=tuple(names[r] for r in s.reads),
        writes=names[s.writes],
        workspace=names[s.workspace] if s.workspace else None,
        sources=sources,
    )


def _fold(f: Fold, names: Mapping[str, str]) -> Fold:
    def change(old: Term, args: tuple) -> Term:
        return Term(old.head, *((names[args[0]], *args[1:]) if old.head == "Par" else args))

    leaves = {names[k]: axes for k, axes in f.leaves.items()}
    return replace(f, writes=names[f.writes], term=rebuild(f.term, change), leaves=leaves)


def lifetimes(
    plan: Plan, *, beside: bool = True, kernels: Mapping[str, Kernel] = MappingProxyType({})
) -> dict[str, tuple[int, int]]:
    """First and last step of every buffer in the arena; what results or states read lives to the end, and, unless they
    need not run `beside` each other, what steps that may do that use, until the last of them is done. So does what
    neighbours use that these `kernels` compute in one loop, but for what a result may lie in."""
    life: dict[str, tuple[int, int]] = {}
    done = [w.last for w in walks(plan) for _ in range(w.first, w.last + 1)] if beside else range(len(plan.steps))
    loops = _loops(plan, kernels) if beside else range(len(plan.steps))
    for i, (s, last, loop) in enumerate(zip(plan.steps, done, loops, strict=True)):
        taken = {s.reads[n] for n in kernels[s.call.kernel].in_place(s.call)} if loop > i else ()
        for n in (*s.reads, s.writes, *((s.workspace,) if s.workspace else ())):
            if plan.buffers[n].role in ("temporary", "workspace"):
                first, known = life.get(n, (i, i))
                life[n] = (first, max(known, last if n in taken else max(last, loop)))
    end = len(plan.steps)
    for n in (*(o.buffer for o in plan.outputs), *(b for _, b in plan.states)):
        if n in life:
            life[n] = (life[n][0], end)
    outside = direct(plan)
    return {n: v for n, v in life.items() if n not in outside}


def _loops(plan: Plan, kernels: Mapping[str, Kernel]) -> Sequence[int]:
    """For each step the last of those that are one loop with it."""
    rows, first = list[int](), 0
    for end in range(1, len(plan.steps) + 1):
        if end == len(plan.steps) or not _one_loop(plan.steps[first : end + 1], kernels):
            rows += [end - 1] * (end - first)
            first = end
    return rows


def _one_loop(steps: Sequence[Step], kernels: Mapping[str, Kernel]) -> bool:
    """Whether steps are computed as one instruction where memory allows it."""
    kinds = [kernels.get(s.call.kernel) for s in steps]
    ways = {None if k is None else k.together for k in kinds}
    if (
        len(ways) > 1
        or ways & {None, Kernel.together}
        or {s.writes for s in steps} & {r for s in steps for r in s.reads}
    ):
        return False
    rows = [(k, s.call) for k, s in zip(kinds, steps, strict=True) if k is not None]
    reads = [[(r, v.offset) for r, v in zip(s.reads, s.call.operands, strict=True)] for s in steps]
    return rows[0][0].together(rows, reads) is not None


@dataclass(frozen=True)
class Walk:
    """Steps `first` to `last` may run side by side: all of them read these large buffers, and none reads what another
    writes. Parts of one buffer that several write do not meet."""

    first: int
    last: int
    over: frozenset[str]


def walks(plan: Plan) -> tuple[Walk, ...]:
    """The steps of a plan in groups of neighbours that a backend may run side by side."""
    rows: list[Walk] = []
    written = set[str]()
    for i, s in enumerate(plan.steps):
        large = _large(s, plan.buffers)
        together = rows[-1].over & large if rows else frozenset[str]()
        if together and written.isdisjoint(s.reads):
            rows[-1] = Walk(rows[-1].first, i, together)
        else:
            rows.append(Walk(i, i, large))
            written = set()
        written.add(s.writes)
    return tuple(rows)


def shared_walks(plan: Plan, kernels: Mapping[str, Kernel]) -> tuple[Walk, ...]:
    """Steps that are one loop over what they read, or take turns over pieces of it: neighbours that may, of kernels
    that are joined to one instruction."""

    def joined(w: Walk) -> bool:
        kinds = [kernels.get(plan.steps[i].call.kernel) for i in range(w.first, w.last + 1)]
        ways = {None if k is None else k.join for k in kinds}
        return len(ways) == 1 and not ways & {None, Kernel.join}

    return tuple(w for w in walks(plan) if w.first < w.last and joined(w))


def direct(plan: Plan) -> frozenset[str]:
    """Temporaries that are one result and nothing else, a large one in the memory of the CPU, and any in that of
    another device: they lie outside the arena."""
    ends = Counter(o.buffer for o in plan.outputs)
    kept = {b for _, b in plan.states}
    return frozenset(
        n for n, often in ends.items()
        if often == 1 and n not in kept
        and plan.buffers[n].role == "temporary"
        and (plan.buffers[n].place != CPU or plan.buffers[n].bytes >= DIRECT)
    )  # fmt: skip


def in_place(plan: Plan, kernels: Mapping[str, Kernel], *, beside: bool = True) -> list[tuple[str, str]]:
    """(result, operand) pairs of which the result may take the operand's memory, where the kernel allows it and the
    operand is not needed afterwards, by steps that run `beside` that one either."""
    life = lifetimes(plan, beside=beside, kernels=kernels)
    spans = [range(w.first, w.last + 1) for w in walks(plan)] if beside else []
    near = {i: [plan.steps[j] for j in span if j != i] for span in spans for i in span}
    pairs = []
    for i, s in enumerate(plan.steps):
        part = s.call.out.elements < plan.buffers[s.writes].elements
        if s.writes not in life or life[s.writes][0] != i or part:
            continue
        for n in kernels[s.call.kernel].in_place(s.call):
            r = s.reads[n]
            same = s.call.operands[n].is_dense and s.call.operands[n].offset == 0
            whole = plan.buffers[r].elements == s.call.operands[n].elements and s.reads.count(r) == 1
            if (
                r in life
                and life[r][1] == i
                and same
                and whole
                and not any(r in other.reads for other in near.get(i, ()))
                and plan.buffers[r].bytes == plan.buffers[s.writes].bytes
            ):
                pairs.append((s.writes, r))
                break
    return pairs
