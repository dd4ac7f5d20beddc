"""The model as it was written, found again in its e-graph."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from waxeq.basis.heads import HEADS
from waxeq.egraph.lower import Lowered
from waxeq.egraph.snapshot import ENode, Snapshot, looks
from waxeq.ir.term import Term, postorder


def as_written(lowered: Lowered, snapshot: Snapshot, cheapest: Callable[[], Mapping[int, ENode | None]]) -> Snapshot:
    """The e-graph with no other e-nodes than those of the model as written, and kernels' patterns over them. Where a
    rule put a simpler one in the place of one of them, the `cheapest` of its class, and of the classes that it needs.
    Classes keep their numbers; those that only rewriting made have no e-nodes, but what depends on weights only keeps
    its own: nobody asks how it is made."""
    own = dict(_e_nodes(lowered, snapshot))
    kept: dict[int, set[ENode]] = {}
    for n, i in own.items():
        kept.setdefault(i, set()).update({n} & set(snapshot.classes[i].nodes))
    if gone := [i for i, nodes in kept.items() if not nodes and not snapshot.classes[i].weights_only]:
        _replaced(gone, kept, snapshot, cheapest())
    classes = (
        c if c.weights_only else replace(c, nodes=tuple(n for n in c.nodes if _stays(n, kept.get(i), kept)))
        for i, c in enumerate(snapshot.classes)
    )
    return replace(snapshot, classes=tuple(classes))


def _stays(n: ENode, own: Collection[ENode] | None, kept: Collection[int]) -> bool:
    """Whether an e-node is one of its class's `own`, or a pattern over classes that are `kept`."""
    return own is not None and (n in own or (n.head not in HEADS and all(a in kept for a in n.tensors)))


def _replaced(
    gone: Sequence[int], kept: dict[int, set[ENode]], snapshot: Snapshot, cheapest: Mapping[int, ENode | None]
) -> None:
    """Add for classes that are gone what there is in their place, and what that needs."""
    left = list(gone)
    while left:
        i = left.pop()
        n = cheapest.get(i)
        if n is not None and not kept.get(i):
            kept[i] = {n}
            left += [a for a in n.tensors if not kept.get(a) and not snapshot.classes[a].weights_only]


def _e_nodes(lowered: Lowered, snapshot: Snapshot) -> Iterator[tuple[ENode, int]]:
    """The e-nodes that the terms of a program are, each with its class; without those over what no class holds any
    more, as a rule put a simpler one in its place."""
    within = {looks(n.head, n.args): (n, i) for i, c in enumerate(snapshot.classes) for n in (*c.replaced, *c.nodes)}
    texts = [x.term for x in lowered.roots.values()]
    for t, args, _ in in_classes(texts, lambda t, args: within.get(looks(t.head, args), (None, None))[1]):
        yield within[looks(t.head, args)]


def in_classes(
    texts: Iterable[Term], number: Callable[[Term, tuple[Any, ...]], int | None]
) -> Iterator[tuple[Term, tuple[Any, ...], int]]:
    """The terms of some texts, each after what it reads, as the e-nodes that they are: a term, its arguments with
    numbers of classes for terms, and the number of its class, as `number` tells it of those two. Without terms that it
    knows no class of, and what reads them."""
    numbers: dict[Term, int] = {}
    for t in postorder(*texts):
        if all(a in numbers for a in t.terms):
            args = tuple(numbers[a] if isinstance(a, Term) else a for a in t.args)
            if (found := number(t, args)) is not None:
                numbers[t] = found
                yield t, args, found
