"""Rough prices of e-classes, and what is too dear to look at: before any kernel is named.

Units are cheap operations on one cached element. They rank ways to compute a thing; the cost model prices the calls.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from waxeq.basis.heads import COMPUTED
from waxeq.basis.scalar import SCALARS
from waxeq.egraph.snapshot import ENode, Snapshot

FUSIBLE = COMPUTED | {"Sum", "Red", "Iota"}
START = 2000.0
"""Price of starting one kernel."""
FLOP = 0.03
"""Price of one floating-point operation of a product."""
_SUMS = 3
"""Sums within a sum that are looked through for a product."""
_COSTLY = 6.0
"""Cheap operations that a function such as exp takes."""
_PICKS = ("argmax", "argmin")
READ = 0.6
"""Price of reading or writing one element of memory."""
_SLACK, _LEAST = 0.05, 50 * START
"""An e-node is worth a look while a plan with it costs this part more than the best one, or this much;"""
_FACTOR, _STARTS = 1.5, 8 * START
"""and while what it needs and the cheapest means of its class do not costs this many times what those need and it does
not, or this much more: a small corner of a large program may not be dearer than itself by a part of the whole."""


@dataclass(frozen=True, slots=True)
class Means:
    """A way to have a class in memory: `work` on top of having `inputs`. `node` is the e-node it computes or sees,
    `inside` are those (class, e-node) that it computes on the way."""

    number: int
    work: float
    inputs: tuple[int, ...]
    node: ENode | None = None
    inside: tuple[tuple[int, ENode], ...] = ()


class Rough:
    """For every e-class the price (`flow`) of its cheapest means, shared work split between its users (area flow), and
    the e-node those means compute (`maker`): followed down, makers never run in a circle."""

    def __init__(
        self,
        snapshot: Snapshot,
        means: Sequence[Means],
        leaves: Collection[int],
        index_maps: frozenset[str] = frozenset(),
        pace: float = 1.0,
        fused: bool = False,
    ) -> None:
        """`index_maps`: heads besides element-wise ones and folds that some kernel takes into its loops, and folds that
        give places; `pace`: what an operation takes in the best of them. `fused`: loops start and move nothing, as if
        all of them were one: the least that they may take."""
        self.snapshot, self.index_maps, self.pace, self.fused = snapshot, index_maps, pace, fused
        self.flow: dict[int, float] = {}
        self.maker: dict[int, ENode | None] = {}
        self._elements: dict[frozenset[str], int] = {}
        self._base: dict[int, int] = {}
        self._best: dict[int, Means] = {}
        self._below: dict[int, int] = {}
        self._uses = self._count_uses()
        self.single = {i: self._fusible(i) for i, c in enumerate(snapshot.classes) if not c.weights_only}
        self.means = [*means, *(self._alone(i, n) for i, ns in self.single.items() for n in ns)]
        self.means += [m for i, ns in self.single.items() for n in ns if n.head == "Sum" for m in self._products(i, n)]
        self._spread(leaves)

    def _alone(self, number: int, n: ENode) -> Means:
        work = self.work(number, n)
        if not self.fused:
            work += START + self.traffic(number, n.tensors)
        return Means(number, work, tuple(dict.fromkeys(n.tensors)), n)

    def _products(self, number: int, n: ENode) -> Iterator[Means]:
        """A sum of products of matrices, made as one: no product lies in memory."""
        classes = self.snapshot.classes
        inside, i = self.sums(n.tensors[0], _SUMS)
        for m in self.single.get(i, ()):
            if m.head == "Mul":
                a, b = (classes[x].axes for x in m.tensors)
                if a - b and b - a:
                    work = START + FLOP * 2 * self.elements(a | b) + self.traffic(number, m.tensors)
                    yield Means(number, work, tuple(dict.fromkeys(m.tensors)), n, (*inside, (i, m)))

    def sums(self, number: int, most: int) -> tuple[list[tuple[int, ENode]], int]:
        """The sums, each of the next, that begin with a class, at most so many; and the class that the last is of."""
        found = list[tuple[int, ENode]]()
        while (sums := [n for n in self.single.get(number, ()) if n.head == "Sum"]) and len(found) < most:
            found.append((number, sums[0]))
            number = sums[0].tensors[0]
        return found, number

    def _spread(self, leaves: Collection[int]) -> None:
        """Knuth's generalisation of Dijkstra's algorithm."""
        rows = self.means
        waiting = [{a for a in m.inputs if not self.snapshot.classes[a].weights_only} for m in rows]
        users: dict[int, list[int]] = {}
        for r, need in enumerate(waiting):
            for a in need:
                users.setdefault(a, []).append(r)
        heap: list[tuple[float, int, int]] = [(0.0, i, -1) for i in sorted(leaves)]
        heap += [(m.work, m.number, r) for r, (m, need) in enumerate(zip(rows, waiting, strict=True)) if not need]
        heapq.heapify(heap)
        while heap:
            price, i, made = heapq.heappop(heap)
            if i in self.flow:
                continue
            self.flow[i] = price
            self.maker[i] = rows[made].node if made >= 0 else None
            if made >= 0:
                self._best[i] = rows[made]
                self._below[i] = 1 << i | self._cone(rows[made].inputs)
            view = made >= 0 and rows[made].work == 0.0
            self._base[i] = self._base.get(rows[made].inputs[0], rows[made].inputs[0]) if view else i
            for r in users.get(i, ()):
                waiting[r].discard(i)
                if not waiting[r] and rows[r].number not in self.flow:
                    heapq.heappush(heap, (rows[r].work + self.flow_of(rows[r].inputs), rows[r].number, r))

    def _cone(self, reads: Iterable[int]) -> int:
        """All classes that the cheapest way to have `reads` makes, as bits."""
        found = 0
        for a in reads:
            found |= self._below.get(a, 0)
        return found

    def bases(self, reads: Iterable[int]) -> dict[int, None]:
        """The tensors in memory that are read, each once: several may be read as views of one."""
        return dict.fromkeys([self._base.get(a, a) for a in reads])

    def flow_of(self, reads: Iterable[int]) -> float:
        """The price of having all of `reads`."""
        return self.shares(self.bases(reads))

    def shares(self, bases: Iterable[int]) -> float:
        """The same of what lies in memory itself."""
        return sum([self._share(a) for a in bases])

    def _share(self, a: int) -> float:
        """A user's part of the price of a class; the count of users is capped, as most are alternatives."""
        return self.price(a) / min(3, max(1, self._uses.get(a, 1)))

    def made(self, reads: Iterable[int]) -> float:
        """The price of making all of `reads` for one user, what they share once, by e-nodes one after another. Shares
        make what many need look cheap, however deep it lies."""
        return self._works(self._cone(reads))

    def price(self, a: int) -> float:
        """The price of a class; infinite for one that cannot be had."""
        return 0.0 if self.snapshot.classes[a].weights_only else self.flow.get(a, math.inf)

    def traffic(self, number: int, reads: Iterable[int]) -> float:
        """The price of moving a result and what it is made from."""
        return READ * sum(self.elements(self.snapshot.classes[a].axes) for a in (number, *self.bases(reads)))

    def work(self, number: int, n: ENode) -> float:
        """The price of computing one e-node in cache."""
        axes = self.snapshot.classes[number].axes
        if n.head not in self.index_maps:
            axes = axes.union(*(self.snapshot.classes[a].axes for a in n.tensors))
        costly = n.head in ("Map", "Zip") and SCALARS[n.args[0]].cost == "costly"
        return self.elements(axes) * self.pace * (_COSTLY if costly else 1.0)

    def elements(self, axes: frozenset[str]) -> int:
        found = self._elements.get(axes)
        if found is None:
            found = self._elements[axes] = math.prod(self.snapshot.sizes[k] for k in axes)
        return found

    def _count_uses(self) -> dict[int, int]:
        uses: dict[int, set[int]] = {}
        for i, c in enumerate(self.snapshot.classes):
            for n in c.nodes:
                for a in n.tensors:
                    uses.setdefault(a, set()).add(i)
        return {k: len(v) for k, v in uses.items()}

    def _fusible(self, number: int) -> list[ENode]:
        heads = FUSIBLE | self.index_maps
        nodes = (n for n in self.snapshot.classes[number].nodes if n.head in heads and number not in n.tensors)
        return [n for n in nodes if not (n.head == "Red" and n.args[0] in _PICKS and n.args[0] not in heads)]

    # -- pruning

    def pruned(self, roots: Collection[int]) -> Snapshot:
        """The e-graph without the e-nodes whose use would make every plan much dearer. Classes keep their numbers.

        Copies and views stay wherever their class stays: that a view costs nothing holds only where strides allow it.
        """
        excess = {id(m): self._excess(m) if m.number in self.flow else math.inf for m in self.means}
        regret = self._regrets(roots, excess)
        most = max(_LEAST, _SLACK * self._whole(roots))
        keep: dict[int, set[ENode]] = {}
        for m in self.means:
            free = len(m.inputs) == 1 and m.node not in self.single[m.number]
            more = 0.0 if free else excess[id(m)]
            if m.node is not None and regret.get(m.number, math.inf) + more <= most and (free or self._near(m)):
                keep.setdefault(m.number, set()).add(m.node)
                for i, n in m.inside:
                    keep.setdefault(i, set()).add(n)
        seen = {m.node for m in self.means}
        classes = []
        for i, c in enumerate(self.snapshot.classes):
            kept = keep.get(i, set())
            nodes = c.nodes if c.weights_only else tuple(n for n in c.nodes if n in kept or n not in seen)
            classes.append(replace(c, nodes=nodes))
        return replace(self.snapshot, classes=tuple(classes))

    def _excess(self, m: Means) -> float:
        """How much dearer a class gets by these means. To what is made point by point all that it can be seen in counts
        in full: that is in memory, where loops cannot have it inside, and its other users are as like as not other
        forms of the same."""
        best = self._best.get(m.number)
        seen = best is not None and best.work == 0.0 and m.node is not None and m.node.head in COMPUTED
        least = self.price(self._base[m.number]) if seen else 0.0
        return max(0.0, m.work + self.flow_of(m.inputs) - max(least, self.flow[m.number]))

    def _near(self, m: Means) -> bool:
        """Whether what only these means need costs about what only the cheapest need."""
        best = self._best.get(m.number, m)
        mine, other = self._cone(m.inputs), self._cone(best.inputs)
        spent = m.work + self._works(mine & ~other)
        return spent <= _FACTOR * (best.work + self._works(other & ~mine)) + _STARTS

    def _works(self, classes: int) -> float:
        """The work of making classes (bits), each by its cheapest means."""
        total = 0.0
        while classes:
            low = classes & -classes
            total += self._best[low.bit_length() - 1].work
            classes ^= low
        return total

    def _regrets(self, roots: Collection[int], excess: Mapping[int, float]) -> dict[int, float]:
        """How much dearer the cheapest plan gets that uses a class: shortest paths from the roots along means."""
        by: dict[int, list[Means]] = {}
        for m in self.means:
            by.setdefault(m.number, []).append(m)
        regret: dict[int, float] = {}
        heap = [(0.0, r) for r in sorted(roots)]
        while heap:
            value, i = heapq.heappop(heap)
            if i in regret or i not in self.flow:
                continue
            regret[i] = value
            for m in by.get(i, ()):
                more = value + excess[id(m)]
                if more < math.inf:
                    for a in m.inputs:
                        heapq.heappush(heap, (more, a))
        return regret

    def _whole(self, roots: Collection[int]) -> float:
        """What a plan costs that takes every class's cheapest means, shared work counted once."""
        return self._works(self._cone(roots))
