"""Where values lie: on which devices the borders of blocks are, chosen by what the plans of all blocks cost.

Inside a block every value may lie on any device, and copies between devices are candidates like any others. Blocks are
searched one by one, so what passes between them, and states, which pass from call to call, lie on one device for the
whole model. Inputs and results lie where the options say: where that is the CPU's memory each device is tried for what
passes; where it is a device's, that one alone, as a search of twice as many blocks ends with less of each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from waxeq.backend.storage import CPU
from waxeq.errors import UsageError
from waxeq.ir.blocks import Block
from waxeq.ir.graph import Graph
from waxeq.search.block import Optimized
from waxeq.search.session import Session


def placings(session: Session, graph: Graph, blocks: Sequence[Block]) -> list[Sequence[Block]]:
    """The blocks with their borders on each device that is tried; one way where there is no other than the CPU."""
    outer = session.options.device
    tried = session.devices if outer == CPU else (outer,)
    ways = {tuple(b.key for b in way): way for way in (_on(session, graph, blocks, d) for d in tried)}
    return list(ways.values())


def occurring(ways: Iterable[Sequence[Block]]) -> list[Block]:
    """All blocks, each as often as in the way that has it most: one of them comes true."""
    ways, often = [*ways], Counter[str]()
    for blocks in ways:
        often |= Counter(b.key for b in blocks)
    return [b for key, b in {b.key: b for way in ways for b in way}.items() for _ in range(often[key])]


def on_cpu(session: Session, blocks: Sequence[Block]) -> Sequence[Block]:
    """The blocks as they are. Raises UsageError where inputs are to lie elsewhere than in the memory of the CPU."""
    if session.options.device != CPU:
        raise UsageError(f"device {session.options.device!r} is for `waxeq optimize`; leave it out")
    return blocks


def _on(session: Session, graph: Graph, blocks: Sequence[Block], inner: str) -> Sequence[Block]:
    outer = session.options.device
    kinds = [x.kind for x in graph.leaves]
    kept = {v for _, v in graph.states}
    given = {v for _, v in graph.outputs}

    def place(v: int) -> str:
        if v < len(kinds):
            return {"input": outer, "state": inner}.get(kinds[v], CPU)
        return outer if v in given and v not in kept else inner

    return [
        b.placed({n: p for n, v in (*b.leaves.items(), *b.outputs.items()) if (p := place(v)) != CPU}) for b in blocks
    ]


def cheapest(
    ways: Sequence[Sequence[Block]], plans: Mapping[str, Optimized]
) -> tuple[Sequence[Block], Mapping[str, Optimized]]:
    """The blocks whose plans are predicted to take least together, the first of equals, and these plans by key."""
    seconds = {key: sum(s.predicted for s in p.plan.steps) for key, p in plans.items()}
    blocks = min(ways, key=lambda blocks: sum(seconds[b.key] for b in blocks))
    return blocks, {b.key: plans[b.key] for b in blocks}
