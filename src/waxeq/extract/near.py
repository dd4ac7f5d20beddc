"""Loops near a choice, which do the work of its calls: what growing cuts by rough prices did not come to.

A class keeps few of its cuts, those that rough prices rank first. Once a choice is known, each pair of its calls where
one reads the other is a cut too, as is each of them without something inside, and what a call of a library stands for;
true prices say what they are worth.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from heapq import nlargest

from waxeq.basis.heads import HEADS
from waxeq.egraph.snapshot import ENode, Snapshot
from waxeq.extract.candidates import Candidate, Space, loops_of
from waxeq.extract.choice import Choice, Problem
from waxeq.extract.cuts import Cut, is_pointwise, ordered
from waxeq.extract.views import look

_PAIRS = 24
"""Pairs of calls that are looked at, those that take most."""
_SPLIT, _PLACES = 4, 8
"""Calls that are split, those that take most; and in how many ways each."""
_DEPTH = 6
"""Views at most between what one call makes and what another reads of it."""
_DEEP = 4
"""E-nodes, one above another, that another kernel's call stands for at most."""


def merged(space: Space, choice: Choice) -> Iterator[tuple[Candidate, float]]:
    """Loops that make what a call of the choice makes, and inside what it reads of another one; each with the seconds
    that both calls take."""
    made = {p.candidate.out: p for p in choice.in_order() if _grown(p.candidate)}
    pairs = [(p, made[s]) for p in made.values() for s in dict.fromkeys(p.candidate.inputs) if s in made]
    for p, q in nlargest(_PAIRS, pairs, key=lambda pair: pair[0].cost + pair[1].cost):
        inside = _both(space.snapshot, p.candidate, q.candidate)
        found = () if inside is None else _looped(space, p.candidate, inside)
        yield from ((c, p.cost + q.cost) for c in found)


def instead(space: Space, choice: Choice) -> Iterator[tuple[Candidate, float]]:
    """Loops that make from the same what a call of another kernel makes, each with the seconds of that call. Cuts that
    make inside what is read may have taken their place."""
    for p in choice.in_order():
        c = p.candidate
        if not _grown(c):
            reads = {a for _, e in c.nodes for a in e.tensors}
            inside = _made_of(space.snapshot, c.out.number, reads) if reads else None
            found = () if inside is None else _looped(space, c, inside)
            yield from ((other, p.cost) for other in found)


def split(space: Space, problem: Problem, choice: Choice) -> Iterator[tuple[Candidate, float]]:
    """Loops that read something which a call of the choice computes inside, where they go over it again and again; each
    with what is left of the seconds of that call once it is made."""
    made = dict[int, float]()
    for s, ways in problem.makers.items():
        made[s.number] = min(made.get(s.number, math.inf), *(p.cost for p in ways))
    folds = [p for p in choice.in_order() if _grown(p.candidate) and not is_pointwise(dict(p.candidate.nodes))]
    for p in nlargest(_SPLIT, folds, key=lambda p: p.cost):
        inside = dict(p.candidate.nodes)
        for x in [i for i in inside if i != p.candidate.out.number and made.get(i, math.inf) < p.cost][:_PLACES]:
            rest = {i: e for i, e in inside.items() if i != x}
            yield from ((c, p.cost - made[x]) for c in _looped(space, p.candidate, rest))


def _made_of(snapshot: Snapshot, root: int, reads: Collection[int]) -> dict[int, ENode] | None:
    """E-nodes that make a class of what is read; None where there are none so near."""

    @cache
    def made(number: int, depth: int) -> dict[int, ENode] | None:
        for n in snapshot.classes[number].nodes if depth else ():
            others = [a for a in n.tensors if a not in reads and snapshot.classes[a].constant is None]
            if n.head in HEADS and n.tensors:
                parts = [made(a, depth - 1) for a in others]
                if None not in parts:
                    return {i: e for part in parts if part for i, e in part.items()} | {number: n}
        return None

    return made(root, _DEEP)


def _looped(space: Space, c: Candidate, inside: Mapping[int, ENode]) -> Iterator[Candidate]:
    """Loops that compute e-nodes together into where a candidate does."""
    root = c.out.number
    inside = _needed(root, inside)
    if ordered(root, inside) is not None:
        cut = Cut(root, inside, _leaves(space.snapshot, inside), 0.0, 0.0)
        yield from (other for other in loops_of(space, root, cut) if other.out == c.out)


def _grown(c: Candidate) -> bool:
    """Whether a call was made from a cut."""
    return bool(c.nodes) and all(e.head in HEADS for _, e in c.nodes)


def _both(snapshot: Snapshot, reader: Candidate, read: Candidate) -> dict[int, ENode] | None:
    """All that two calls compute; None where the reader's own e-nodes do without the other's result."""
    inside = dict(reader.nodes)
    for a in _leaves(snapshot, inside):
        inside |= _path(snapshot, a, read.out.number)
    inside = _needed(reader.out.number, {**dict(read.nodes), **inside})
    return inside if read.out.number in inside else None


def _leaves(snapshot: Snapshot, inside: Mapping[int, ENode]) -> tuple[int, ...]:
    """What e-nodes read that is not made by one of them."""
    read = {a for e in inside.values() for a in e.tensors if a not in inside}
    return tuple(sorted(a for a in read if snapshot.classes[a].constant is None))


def _path(snapshot: Snapshot, number: int, base: int) -> dict[int, ENode]:
    """The views by which a class is seen in another one, the fewest that there are; nothing where it is not."""
    paths = {number: dict[int, ENode]()}
    for _ in range(_DEPTH):
        if base in paths:
            break
        steps = [(i, n) for i in paths for n in snapshot.classes[i].nodes if look(snapshot, n) is not None]
        paths |= {n.tensors[-1]: {**paths[i], i: n} for i, n in steps if n.tensors[-1] not in paths}
    return paths.get(base, {})


def _needed(root: int, inside: Mapping[int, ENode]) -> dict[int, ENode]:
    """What the root is made from."""
    found, stack = dict[int, ENode](), [root]
    while stack:
        i = stack.pop()
        if i in inside and i not in found:
            found[i] = inside[i]
            stack += inside[i].tensors
    return found
