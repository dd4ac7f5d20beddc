"""Cuts of loops that read each other through views: a stencil that is swept several times, a filter of a filter.

Growing cuts stops at views, for what is seen at several places would be computed at each of them. Kernels that compute
it once take cuts that go on: what can be seen in something that is computed, is.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property

from waxeq.basis.heads import COMPUTED, VIEWS
from waxeq.basis.ways import ways
from waxeq.egraph.snapshot import ENode
from waxeq.extract.cuts import Cut, Cuts

_LOOPS, _NODES = 16, 400
"""Loops that one cut is made of at most, and e-nodes."""
_TRIED = 4
"""E-nodes of a class that are tried, in rising order of price."""


class Sweeps:
    """What can be made of classes that cuts were grown for. `given`: those that lie in memory from the beginning."""

    def __init__(self, cuts: Cuts, given: frozenset[int]) -> None:
        self.cuts, self.snapshot, self.given = cuts, cuts.snapshot, given
        self._begun: set[int] = set()
        self._known: dict[int, ENode | None] = {}

    def of(self, number: int) -> Iterator[Cut]:
        """Cuts of a class of two loops, of four, of eight, of sixteen, and of all that there are if those are fewer."""
        if number not in self._ends:
            return
        whole = self._below(number)
        behind = self._behind(number, whole)
        most = 1 + max(behind.values(), default=0)
        for n in sorted({2, 4, 8, 16, most}):
            if 1 < n <= min(most, _LOOPS):
                cut = self._cut(number, whole, {i for i, d in behind.items() if d >= n})
                yield from () if cut is None else (cut,)

    def _cut(self, number: int, whole: Mapping[int, ENode], stops: set[int]) -> Cut | None:
        """The cut that computes all but what stops it; None where it would read what nobody makes."""
        inside = {i: whole[i] for i in _reached(number, whole, stops)}
        read = {a for e in inside.values() for a in e.tensors if a not in inside}
        leaves = tuple(sorted(a for a in read if self.snapshot.classes[a].constant is None))
        had = all(self.cuts.rough.price(a) < math.inf for a in leaves)
        return Cut(number, inside, leaves, 0.0, 0.0) if had else None

    def _behind(self, number: int, whole: Mapping[int, ENode]) -> dict[int, int]:
        """Of what is looked at in several ways: how many such classes lie between it and a class, itself too."""
        many = ways((i, e.head, e.tensors) for i, e in whole.items())
        made = {i for i, e in whole.items() if e.head not in VIEWS and many.get(i, 0) > 1 and i != number}
        behind = dict.fromkeys(whole, 0)
        for i, e in whole.items():  # users first
            for a in e.tensors:
                if a in whole:
                    behind[a] = max(behind[a], behind[i] + (a in made))
        return {i: d for i, d in behind.items() if i in made}

    def _below(self, number: int) -> dict[int, ENode]:
        """All that a class can be computed from, with the e-nodes that do, users before what they use."""
        nodes: dict[int, ENode] = {}
        waiting = [number]
        for i in waiting:
            e = None if i in nodes else self._nodes.get(i)
            if e is not None and len(nodes) < _NODES:
                nodes[i] = e
                waiting += e.tensors
        uses = Counter(a for e in nodes.values() for a in dict.fromkeys(e.tensors) if a in nodes)
        order = [number]
        for i in order:
            for a in dict.fromkeys(nodes[i].tensors if i in nodes else ()):
                uses[a] -= 1
                if not uses[a] and a in nodes:
                    order.append(a)
        return {i: nodes[i] for i in order if i in nodes}

    @cached_property
    def _nodes(self) -> Mapping[int, ENode | None]:
        """The e-node that each class is had by: what it is seen in, before what computes it. None where it must lie in
        memory."""
        for i in sorted(self.cuts.flow, key=lambda i: (self.cuts.flow[i], i)):  # what the dear ones need is known then
            self._settle(i)
        return self._known

    def _settle(self, i: int) -> bool:
        """Finds the e-node of a class; whether it is known now, for it is not while what it needs is being found. What
        can only be had of itself stays in memory."""
        if i in self._known or i in self._begun:
            return i in self._known
        c = self.snapshot.classes[i]
        if i in self.given or c.weights_only or c.constant is not None:
            self._known[i] = None
            return True
        self._begun.add(i)
        views = [n for n in c.nodes if n.head in VIEWS]
        able = [n for n in c.nodes if n.head in COMPUTED or n.head in ("Pad", "Cat") or self._row(n)]
        price = self.cuts.rough.price
        ranked = sorted(able, key=lambda n: sum(map(price, dict.fromkeys(n.tensors))))[:_TRIED]
        found = next((n for n in views if self._settle(n.tensors[0]) and self._known[n.tensors[0]] is not None), None)
        if found is None:
            found = next((n for n in ranked if all(map(self._settle, n.tensors))), None)
        self._begun.discard(i)
        self._known[i] = found
        return True

    def _row(self, n: ENode) -> bool:
        """Whether an e-node is what lies at one known place along an axis."""
        return n.head == "Gather" and self.snapshot.classes[n.tensors[0]].constant is not None

    @cached_property
    def _ends(self) -> frozenset[int]:
        """Classes that are not only computed on the way to others: those that the cheapest cuts read, or see what they
        read in, and those that no other cut has inside."""
        first = [cuts[0] for cuts in self.cuts.best.values() if cuts]
        inside = {i for c in first for i in c.inside if i != c.root}
        read = {a for c in first for a in c.leaves}
        return frozenset(read | (self.cuts.best.keys() - inside))


def _reached(number: int, whole: Mapping[int, ENode], stops: set[int]) -> list[int]:
    """What a class is computed from, itself too, as far as nothing stops it."""
    found = {number: None}
    waiting = [number]
    for i in waiting:
        for a in whole[i].tensors:
            if a in whole and a not in found and a not in stops:
                found[a] = None
                waiting.append(a)
    return waiting
