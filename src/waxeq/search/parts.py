"""Blocks that only cut parts out of what they are given: there is nothing to search in them."""

from __future__ import annotations

from collections.abc import Iterator

from waxeq.backend.call import Call, View, operand
from waxeq.backend.storage import CPU
from waxeq.ir.blocks import Block
from waxeq.ir.parts import parts_of
from waxeq.ir.words import is_fixed
from waxeq.plan.plan import Buffer, Step
from waxeq.plan.schedule import BlockPlan
from waxeq.search.block import Optimized
from waxeq.search.session import Session


def copied(session: Session, block: Block) -> Optimized | None:
    """The plan of a block whose results are unbroken parts of what it is given, in the memory of the CPU: a copy of
    each, which goes where whoever reads it can read the part itself. None for any other block."""
    graph = block.graph
    if block.places or any(n.op.view != "once" for n in graph.nodes):
        return None
    leaves = {x.name: Buffer(x.name, x.type.dtype, x.type.elements, x.kind) for x in graph.leaves}
    buffers, steps, outputs = dict(leaves), list[Step](), dict[str, str]()
    for name, value in graph.outputs:
        found = next((p for p in parts_of(graph, value) if p[0] < len(graph.leaves)), None)
        step = None if found is None or is_fixed(graph, found[0]) else _copy(session, block, value, *found)
        if step is None:
            return None
        outputs[name] = step.writes
        buffers[step.writes] = Buffer(step.writes, graph.type(value).dtype, graph.type(value).elements, "temporary")
        steps.append(step)
    return Optimized(block, BlockPlan(buffers, (), tuple(steps), outputs), False)


def _copy(session: Session, block: Block, value: int, leaf: int, first: int) -> Step | None:
    """The cheapest copy of a part of a leaf; None where no kernel makes one."""
    calls = [*_calls(session, block, value, first)]
    if not calls:
        return None
    e, call = min(zip(session.prices.of(calls), calls, strict=True), key=lambda row: row[0].seconds)
    about = (e.seconds, e.low, e.high, e.source, (f"%{value}",))
    return Step(call, (block.graph.leaves[leaf].name,), f"t{value}", None, *about)


def _calls(session: Session, block: Block, value: int, first: int) -> Iterator[Call]:
    kind = block.graph.type(value)
    sizes: dict[str, int] = {"a0": kind.elements} if kind.elements > 1 else {}
    axes = tuple(sizes)
    out = View.dense(axes, sizes, kind.dtype)
    part = View(axes, out.shape, out.strides, kind.dtype, first)
    for name, k in session.kernels.items():
        if k.form == "copy" and k.device == CPU and not k.variant_of and name not in session.prices.excluded:
            call = Call(name, operand(0, axes, kind.dtype), sizes, (part,), out, threads=session.options.threads)
            if kind.bytes >= k.smallest and k.accepts(call) and not k.workspace(call):
                yield call
