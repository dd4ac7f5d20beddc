"""The model as it was written, found again in its e-graph."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from waxeq.basis.heads import HEADS
from waxeq.egraph.lower import Lowered
from waxeq.egraph.snapshot import ENode, Snapshot
from waxeq.ir.term import Term, postorder


def as_written(lowered: Lowered, snapshot: Snapshot) -> Snapshot:
    """The e-graph with no other e-nodes than those of the model as written, and kernels' patterns over them. Classes
    keep their numbers; those that only rewriting made have no e-nodes, but what depends on weights only keeps its own:
    nobody asks how it is made."""
    own = dict(_e_nodes(lowered, snapshot))
    made = set(own.values())

    def kept(number: int, n: ENode) -> bool:
        return n in own or (n.head not in HEADS and made.issuperset((number, *n.tensors)))

    classes = (
        c if c.weights_only else replace(c, nodes=tuple(n for n in c.nodes if kept(i, n)))
        for i, c in enumerate(snapshot.classes)
    )
    return replace(snapshot, classes=tuple(classes))


def _e_nodes(lowered: Lowered, snapshot: Snapshot) -> Iterator[tuple[ENode, int]]:
    """The e-nodes that the terms of a program are, each with its class; without those over what no class holds any
    more, as a rule put a simpler one in its place."""
    within = {n: i for i, c in enumerate(snapshot.classes) for n in (*c.replaced, *c.nodes)}
    numbers: dict[Term, int] = {}
    for t in postorder(*(x.term for x in lowered.roots.values())):
        if all(a in numbers for a in t.terms):
            args = tuple(numbers[a] if isinstance(a, Term) else a for a in t.args)
            n = ENode(t.head, args, HEADS[t.head].tensors)
            if n in within:
                numbers[t] = within[n]
                yield n, numbers[t]
