"""Fusion: growing loop nests backwards over e-nodes and keeping the best few (priority cuts, as in technology mapping).

Source: Mishchenko et al., "Combinational and sequential mapping with priority cuts" (ICCAD 2007), with e-classes as the
structural choices. A cut of an e-class is a set of e-nodes computed together and the e-classes they read from memory.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from waxeq.basis.scalar import SCALARS
from waxeq.egraph.snapshot import ENode, Snapshot

FUSIBLE = frozenset({"Map", "Zip", "Add", "Mul", "Select", "Cast", "Sum", "Red", "Iota"})
_PICKS = ("argmax", "argmin")
_KEEP, _NODES, _SPAN, _PASSES = 4, 6, 28, 2
_HOT = 1 << 16
"""Elements that one row of a fused reduction may have: more would leave the cache between stages."""
_READ = 0.6
"""Price of reading or writing one element of memory, in units of one cheap operation on a cached element."""
_START = 2000.0
"""Price of starting one kernel, in the same units."""


@dataclass(frozen=True, slots=True)
class Cut:
    """`inside` maps e-classes computed in the loops to their e-node; `leaves` are read. `work` is in rough units; it
    only ranks cuts, the cost model prices the calls made from them."""

    root: int
    inside: Mapping[int, ENode]
    leaves: tuple[int, ...]
    work: float
    flow: float


@dataclass(frozen=True, slots=True)
class Means:
    """Another way than loops to have a class in memory: `work` rough units on top of having `inputs`."""

    number: int
    work: float
    inputs: tuple[int, ...]


class Cuts:
    """The best cuts of every e-class that loops can compute, and the rough price (`flow`) of every class."""

    def __init__(self, snapshot: Snapshot, means: Sequence[Means], leaves: Collection[int]) -> None:
        self.snapshot = snapshot
        self._uses = self._count_uses()
        self._single = {i: self._fusible(i) for i, c in enumerate(snapshot.classes) if not c.weights_only}
        self.flow: dict[int, float] = {}
        self._base: dict[int, int] = {}
        self.best: dict[int, tuple[Cut, ...]] = {}
        self._spread(means, leaves)
        self._grow()

    def _spread(self, means: Sequence[Means], leaves: Collection[int]) -> None:
        """Prices with every e-node a kernel of its own: Knuth's generalisation of Dijkstra's algorithm."""
        rows = list(means)
        for i, ns in self._single.items():
            rows += (
                Means(i, _START + self._work(i, n) + self._traffic(i, n.tensors), tuple(dict.fromkeys(n.tensors)))
                for n in ns
            )
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
            view = made >= 0 and rows[made].work == 0.0
            self._base[i] = self._base.get(rows[made].inputs[0], rows[made].inputs[0]) if view else i
            for r in users.get(i, ()):
                waiting[r].discard(i)
                if not waiting[r] and rows[r].number not in self.flow:
                    heapq.heappush(heap, (rows[r].work + self._flow_of(rows[r].inputs), rows[r].number, r))

    def _bases(self, reads: Iterable[int]) -> dict[int, None]:
        """The tensors in memory that are read, each once: several may be read as views of one."""
        return dict.fromkeys(self._base.get(a, a) for a in reads)

    def _flow_of(self, reads: Iterable[int]) -> float:
        return sum(self._share(a) for a in self._bases(reads))

    def _share(self, a: int) -> float:
        """A user's part of the price of a class: area flow, with the count of users capped, as most are
        alternatives.
        """
        return self._price(a) / min(3, max(1, self._uses.get(a, 1)))

    def _traffic(self, number: int, reads: Iterable[int]) -> float:
        return _READ * sum(self.elements(self.snapshot.classes[a].axes) for a in (number, *self._bases(reads)))

    def _count_uses(self) -> dict[int, int]:
        uses: dict[int, set[int]] = {}
        for i, c in enumerate(self.snapshot.classes):
            for n in c.nodes:
                for a in n.tensors:
                    uses.setdefault(a, set()).add(i)
        return {k: len(v) for k, v in uses.items()}

    def elements(self, axes: frozenset[str]) -> int:
        return math.prod(self.snapshot.sizes[k] for k in axes)

    def _fusible(self, number: int) -> list[ENode]:
        nodes = [
            n for n in self.snapshot.classes[number].nodes
            if n.head in FUSIBLE and not (n.head == "Red" and n.args[0] in _PICKS) and number not in n.tensors
        ]  # fmt: skip
        return nodes

    def _grow(self) -> None:
        work = sorted((i for i, ns in self._single.items() if ns and i in self.flow), key=lambda i: (self.flow[i], i))
        for _ in range(_PASSES):
            before = dict(self.flow)
            for i in work:
                new = self._cuts_of(i)
                if new:
                    self.best[i] = new
                    self.flow[i] = min(self.flow[i], new[0].flow)
            if all(self.flow[i] > 0.999 * before[i] for i in work):
                return

    def _cuts_of(self, number: int) -> tuple[Cut, ...]:
        found: dict[tuple[int, ...], Cut] = {}
        ranked = sorted(self._single[number], key=self._promise)[:_NODES]
        for n in ranked:
            options = [self._options(a, n) for a in n.tensors]
            for pick in product(*options):
                cut = self._merge(number, n, pick)
                if cut is not None and (cut.leaves not in found or cut.flow < found[cut.leaves].flow):
                    found[cut.leaves] = cut
        return tuple(sorted(found.values(), key=lambda c: (c.flow, len(c.inside), c.leaves))[:_KEEP])

    def _promise(self, n: ENode) -> float:
        return sum(self._price(a) for a in dict.fromkeys(n.tensors))

    def _price(self, a: int) -> float:
        if self.snapshot.classes[a].weights_only:
            return 0.0
        return self.flow.get(a, math.inf)

    def _options(self, a: int, parent: ENode) -> list[Cut | None]:
        """How a child may be had: read from memory (None), or one of its own cuts."""
        c = self.snapshot.classes[a]
        if c.weights_only:
            return [None]
        options: list[Cut | None] = [None] if a in self.flow else []
        return options + [k for k in self.best.get(a, ()) if self._stays_hot(k, parent)]

    def _stays_hot(self, cut: Cut, parent: ENode) -> bool:
        """A reduction inside a larger nest keeps one row of its operand in cache: the row must be small."""
        folded = {n.args[0 if n.head == "Sum" else 1] for n in cut.inside.values() if n.head in ("Sum", "Red")}
        return not folded or self.elements(frozenset(folded)) <= _HOT

    def _merge(self, number: int, n: ENode, pick: tuple[Cut | None, ...]) -> Cut | None:
        inside: dict[int, ENode] = {}
        for cut in pick:
            for i, e in (cut.inside if cut else {}).items():
                inside.setdefault(i, e)
        if number in inside or len(inside) >= _SPAN:
            return None
        inside[number] = n
        leaves = dict.fromkeys(
            a for e in inside.values() for a in e.tensors if a not in inside and not self._constant(a)
        )
        if number in leaves or not self._acyclic(number, inside):
            return None
        if any(a not in self.flow and not self.snapshot.classes[a].weights_only for a in leaves):
            return None
        work = _START + sum(self._work(i, e) for i, e in inside.items())
        work += self._traffic(number, leaves)
        flow = work + self._flow_of(leaves)
        return Cut(number, inside, tuple(sorted(leaves)), work, flow)

    def _constant(self, a: int) -> bool:
        return self.snapshot.classes[a].constant is not None

    def _acyclic(self, root: int, inside: Mapping[int, ENode]) -> bool:
        state: dict[int, bool] = {}

        def visit(i: int) -> bool:
            if i in state:
                return state[i]
            state[i] = False
            ok = all(visit(a) for a in inside[i].tensors if a in inside)
            state[i] = ok
            return ok

        return visit(root) and len(state) == len(inside)

    def _work(self, number: int, n: ENode) -> float:
        axes = self.snapshot.classes[number].axes.union(*(self.snapshot.classes[a].axes for a in n.tensors))
        costly = n.head in ("Map", "Zip") and SCALARS[n.args[0]].cost == "costly"
        return self.elements(axes) * (4.0 if costly else 1.0)
