"""Fusion: growing loop nests backwards over e-nodes and keeping the best few (priority cuts, as in technology mapping).

Source: Mishchenko et al., "Combinational and sequential mapping with priority cuts" (ICCAD 2007), with e-classes as the
structural choices. A cut of an e-class is a set of e-nodes computed together and the e-classes they read from memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from graphlib import TopologicalSorter
from itertools import product
from typing import NamedTuple

from waxeq.basis.heads import COMPUTED, VIEWS
from waxeq.basis.ways import places
from waxeq.egraph.snapshot import ENode
from waxeq.events import FOREVER, Deadline
from waxeq.extract.multiplied import Products, axis, chain
from waxeq.extract.rough import FLOP, START, Rough

_KEEP, _KEEP_ALONE, _KEEP_PURE, _NODES, _SPAN = 4, 2, 2, 6, 80
_WIDE = 512
"""E-nodes of a cut at most that is made point by point, where others have `_SPAN`: some two for each of the functions
that one block has (`waxeq.ir.blocks`)."""
_PASSES, _EARLY = 8, 4
"""Rounds of growing at most; and that from which on cuts that better ones replace are kept beside them: with the same
leaves, it is another form of the same thing, and some kernel may be made for the one or for the other."""
_PLACES = 16
"""Places at most at which loops compute a value for one element of their result."""
_BESIDE = ("Cat", "Gather", "Pad")
"""Heads that loops take in which ask for what is elsewhere."""
_FAR = 16.0
"""A cut that is this many times as dear as the best is nobody's choice."""
_NEAR = 1.5
"""Of cuts with a fold the one with the most inside is kept where it is at most this many times as dear: rough prices
do not know how much less a kernel of all takes than kernels of parts, each of which is cheap."""
_HOT = 1 << 16
"""Elements that one row of a fused reduction may have: more would leave the cache between stages."""


@dataclass(frozen=True, slots=True)
class Cut:
    """`inside` maps e-classes computed in the loops to their e-node; `leaves` are read. `work` is in rough units; it
    only ranks cuts, the cost model prices the calls made from them. `most`: it is there for having the most inside, or
    is made from one that is; it takes no other's place. `made`: of which e-node and cuts it was made, by number."""

    root: int
    inside: Mapping[int, ENode]
    leaves: tuple[int, ...]
    work: float
    flow: float
    most: bool = False
    made: int = field(default=-1, compare=False)


class _Joined(NamedTuple):
    """What an e-node over cuts of what it reads comes to, whatever classes cost; `bases`: what its leaves lie in."""

    made: int
    leaves: tuple[int, ...]
    bases: tuple[int, ...]
    work: float
    most: bool


class Cuts:
    """The best cuts of every e-class that loops can compute. Growing them makes rough prices (`rough.flow`) smaller.

    It goes on `until` then: classes that were not reached have the cut of their own e-node alone. Whatever the time is,
    where a stretch ends that is made point by point there is a cut of all of it, which growing comes to last."""

    def __init__(self, rough: Rough, until: Deadline = FOREVER) -> None:
        self.rough, self.snapshot, self.flow, self.until = rough, rough.snapshot, rough.flow, until
        self.best: dict[int, tuple[Cut, ...]] = {}
        # by the identity of e-nodes, which the snapshot keeps
        self._works: dict[tuple[int, int], float] = {}
        self._reads: dict[int, tuple[int, ...]] = {}
        # classes are looked at again and again while prices fall: half of what is joined was joined before
        self._joins: dict[tuple[int, ...], _Joined | None] = {}
        self._products = Products(self.snapshot)
        self._whole: dict[int, Cut] = {}
        self._results = frozenset(i for name, i in self.snapshot.roots.items() if name[0] != "%")
        self._shown = self._views_of_results()
        self._grow()
        self._joins.clear()
        self._products.forget()

    def of(self, number: int) -> tuple[Cut, ...]:
        """Of a class, the cheapest first."""
        return self.best.get(number, ())

    def first(self, number: int, n: int) -> bool:
        """Whether this one of the cuts of a class is its cheapest, or one that there is whatever the time is."""
        return n == 0 or self.needed(number, n)

    def over(self, number: int, n: ENode, pick: tuple[Cut | None, ...]) -> Cut | None:
        """The cut of an e-node of a class over cuts of what it reads, or over that (None); None where there is none."""
        joined = self._joined(number, n, pick)
        return None if joined is None else self._cut(number, n, pick, joined)

    def needed(self, number: int, n: int, again: float = math.inf) -> bool:
        """Whether it is its own e-node alone, from which all can be made without running in a circle, or a whole
        stretch, where what is in stretches is made at most so many times `again` by all of them together."""
        inside, whole = self.best[number][n].inside, self._whole.get(number)
        stretch = whole is not None and inside == whole.inside and self._repeated <= again
        return stretch or inside == {number: self.rough.maker.get(number)}

    @cached_property
    def _repeated(self) -> float:
        """How many times an e-node of whole stretches is in one of them."""
        rows = [c.inside for c in self._whole.values()]
        return sum(map(len, rows)) / max(1, len(set[int]().union(*rows)))

    def _grow(self) -> None:
        """Cuts of classes in rising order of price, again where those of what they are made from changed."""
        order = sorted(
            (i for i, ns in self.rough.single.items() if ns and i in self.flow), key=lambda i: (self.flow[i], i)
        )
        users: dict[int, set[int]] = {}
        for i in order:
            for a in {a for n in self.rough.single[i] for a in n.tensors}:
                users.setdefault(a, set()).add(i)
        stale, early = set(order), dict[int, tuple[Cut, ...]]()
        for n in range(_PASSES):
            early = dict(self.best) if n == _EARLY else early
            for i in order:
                if i in stale:
                    if self.until.expired:
                        self._leave_alone(order)
                        return self._end(order, early)
                    stale.discard(i)
                    if self._better(i):
                        stale |= users.get(i, set())
            if not stale:
                break
        self._end(order, early)

    def _end(self, order: Sequence[int], early: Mapping[int, tuple[Cut, ...]]) -> None:
        """Has classes keep cuts that they had before, and those of whole stretches."""
        self._whole = self._stretches(order)
        for cuts in (early, {i: (c,) for i, c in self._whole.items()}):
            for i, kept in cuts.items():
                self.best[i] += tuple(c for c in kept if all(c.inside != x.inside for x in self.best[i]))

    def _stretches(self, order: Sequence[int]) -> dict[int, Cut]:
        """For results, and for what no function of elements reads, the cut of all that is made point by point before
        them by what roughly is the cheapest; where that is too much, those of what a next one begins with too."""
        found = dict[int, Cut]()
        makers = {i: n for i in order if (n := self.rough.maker.get(i)) in self.rough.single[i] and n is not None}
        makers = {i: n for i, n in makers.items() if n.head in COMPUTED}
        read = {a for n in makers.values() for a in n.tensors}
        ends = self._results | (makers.keys() - read)
        for i in TopologicalSorter({i: makers.keys() & set(n.tensors) for i, n in makers.items()}).static_order():
            n = makers[i]
            before, alone = tuple(found.get(a) for a in n.tensors), (None,) * len(n.tensors)
            for pick in (before, alone):
                if i not in found and (cut := self.over(i, n, pick)) is not None:
                    found[i] = cut
                    ends |= {*n.tensors} if pick is not before else set()
        return {i: c for i, c in found.items() if i in ends and i in self.best}

    def _leave_alone(self, order: Sequence[int]) -> None:
        """Cuts of one e-node for classes that have none yet."""
        for i in order:
            if i not in self.best:
                n = min(self.rough.single[i], key=lambda n: (n != self.rough.maker.get(i), self._promise(n)))
                pick = (None,) * len(n.tensors)
                cut = self.over(i, n, pick)
                self.best[i] = () if cut is None else (cut,)

    def _better(self, i: int) -> bool:
        """Find a class's cuts anew; whether there are others than before."""
        before, new = self.best.get(i, ()), self._cuts_of(i)
        if not new:
            return False
        self.best[i] = new
        self.flow[i] = min(self.flow[i], new[0].flow)
        return [c.inside.keys() for c in before] != [c.inside.keys() for c in new]

    def _cuts_of(self, number: int) -> tuple[Cut, ...]:
        found: dict[tuple[bool, tuple[int, ...]], Cut] = {}
        maker = self.rough.maker.get(number)
        ranked = sorted(self.rough.single[number], key=lambda n: (n != maker, self._promise(n)))[:_NODES]
        for n in ranked:
            options = [self._options(a, n) for a in n.tensors]
            for pick in product(*options):
                joined = self._joined(number, n, pick)
                if joined is None:
                    continue
                key = (joined.most, joined.leaves)
                if key not in found or self._flow(joined) < found[key].flow:
                    found[key] = self._cut(number, n, pick, joined)
        ranking = sorted(found.values(), key=lambda c: (c.flow, len(c.inside), c.leaves))
        best = [c for c in ranking if not c.most]
        best = [c for c in best if c.flow <= _FAR * best[0].flow or c.inside == {number: maker}]
        other = sorted(best, key=lambda c: (self._alone(c), len(c.inside), c.leaves))[:_KEEP_ALONE]
        other += sorted(filter(_unfolded, best), key=lambda c: (self._alone(c), len(c.inside), c.leaves))[:1]
        other += sorted(best, key=lambda c: (self._read(c), -len(c.inside), c.flow, c.leaves))[:1]
        other += sorted(best, key=lambda c: (c.work + self.rough.made(c.leaves), len(c.inside), c.leaves))[:1]
        other += sorted(best, key=lambda c: (self._beside(c), len(c.inside), c.leaves))[:1]
        if maker not in ranked:  # a kernel of a pattern, which reads what loops could read too
            other += [c for c in best if len(c.inside) == 1][:1]
        # others may all need what is made from the maker
        usual = [c for n, c in enumerate(best) if n < _KEEP or c in other or c.inside == {number: maker}]
        usual = sorted((*usual, *self._pure(best, usual)), key=lambda c: (c.flow, len(c.inside), c.leaves))
        return (*usual, *self._most(ranking, usual))

    def _pure(self, best: Sequence[Cut], usual: Sequence[Cut]) -> Iterator[Cut]:
        """Of cuts with a product of matrices, and of those with a maximum of one (attention), a few with the fewest
        other folds, where none of the usual ones has so few: rough prices take what makes a side of a product (projects
        keys and values) for free where that is inside too, and next to no kernel takes it."""
        found = [(self._products.beside(c.made, c.root, c.inside), c) for c in best]
        rows = [(row, c) for row, c in found if row is not None]
        for attends in (False, True):
            ranked = sorted((r for r in rows if r[0].attends is attends), key=lambda r: (r[0], r[1].flow))
            least = [c for row, c in ranked if row == ranked[0][0]]
            if not any(c is x for c in least for x in usual):
                yield from least[:_KEEP_PURE]

    def _most(self, ranking: Sequence[Cut], usual: Sequence[Cut]) -> Iterator[Cut]:
        """The cut with the most inside, where it is near and has more folds than others. One with a product of matrices
        has more inside and is slower: what is around a product is made again for each of its tiles."""
        made = {id(c): c.work + self.rough.made(c.leaves) for c in ranking}
        near = [c for c in ranking if made[id(c)] <= _NEAR * min(made.values())]
        most = min(near, key=lambda c: (-self._folds(c), -len(c.inside), c.flow, c.leaves), default=None)
        if most is not None and self._folds(most) > max(map(self._folds, usual), default=0):
            yield replace(most, most=True)

    def _folds(self, cut: Cut) -> int:
        """How many folds a cut has; none where one is a product of matrices."""
        folds = [(i, e) for i, e in cut.inside.items() if e.head in ("Sum", "Red")]
        return 0 if any(self._products.of(i, e, cut.inside) is not None for i, e in folds) else len(folds)

    def _read(self, cut: Cut) -> int:
        """Elements that a cut reads: the one that reads least may be the one with the most inside."""
        return sum(self.rough.elements(self.snapshot.classes[a].axes) for a in cut.leaves)

    def _alone(self, cut: Cut) -> float:
        """What a cut costs when nobody else uses what it reads: many users of a class are alternatives, of which one at
        most comes true."""
        return cut.work + sum(self.rough.price(a) for a in cut.leaves)

    def _beside(self, cut: Cut) -> float:
        """What a cut costs beside the results, which are made anyway."""
        own = [a for a in cut.leaves if a not in self._shown]
        return cut.work + self.rough.shares(a for a in self.rough.bases(own) if a not in self._shown)

    def _views_of_results(self) -> frozenset[int]:
        """Results, and what can be seen in them."""
        found = set(self._results)
        views = ((i, n) for i, c in enumerate(self.snapshot.classes) for n in c.nodes if n.head in VIEWS)
        seen = [(i, a) for i, n in views for a in n.tensors]
        while more := {i for i, a in seen if a in found} - found:
            found |= more
        return frozenset(found)

    def _promise(self, n: ENode) -> float:
        return sum(self.rough.price(a) for a in dict.fromkeys(n.tensors))

    def _options(self, a: int, parent: ENode) -> list[Cut | None]:
        """How a child may be had: read from memory (None), or one of its own cuts."""
        c = self.snapshot.classes[a]
        if c.weights_only:
            return [self._as_narrow(a) if parent.head == "Mul" else None]
        options: list[Cut | None] = [None] if a in self.flow else []
        return options + [k for k in self.best.get(a, ()) if self._stays_hot(k, parent)]

    def _as_narrow(self, a: int) -> Cut | None:
        """Weights that were widened, as what they were before: products of fewer bits take less."""
        n = self.snapshot.widened(a)
        if n is None:
            return None
        self._reads[id(n)], self._works[a, id(n)] = n.tensors, 0.0
        return Cut(a, {a: n}, n.tensors, 0.0, 0.0)

    def _stays_hot(self, cut: Cut, parent: ENode) -> bool:
        """A reduction inside a larger nest keeps one row of its operand in cache: the row must be small. Products of
        matrices take their depth in blocks."""
        folded = {
            axis(n)
            for i, n in cut.inside.items()
            if n.head in ("Sum", "Red") and self._products.of(i, n, cut.inside) is None
        }
        return not folded or self.rough.elements(frozenset(folded)) <= _HOT

    def _flow(self, joined: _Joined) -> float:
        return joined.work + self.rough.shares(joined.bases)

    def _cut(self, number: int, n: ENode, pick: tuple[Cut | None, ...], joined: _Joined) -> Cut:
        inside = self._inside(number, n, pick)
        return Cut(number, inside, joined.leaves, joined.work, self._flow(joined), joined.most, joined.made)

    def _inside(self, number: int, n: ENode, pick: tuple[Cut | None, ...]) -> dict[int, ENode]:
        """The first cut that computes a class says how; what is not in it follows in order."""
        inside: dict[int, ENode] = {}
        for cut in pick:
            if cut is not None:
                inside = {**inside, **cut.inside, **inside} if inside else dict(cut.inside)
        return {**inside, number: n}

    def _joined(self, number: int, n: ENode, pick: tuple[Cut | None, ...]) -> _Joined | None:
        """None where an e-node cannot be computed with these cuts."""
        key = (number, id(n), *[-1 if c is None else 2 * c.made + c.most for c in pick])
        if key not in self._joins:
            self._joins[key] = self._join(number, n, pick)
        return self._joins[key]

    def _join(self, number: int, n: ENode, pick: tuple[Cut | None, ...]) -> _Joined | None:
        if any(c is not None and number in c.inside for c in pick):
            return None
        inside = self._inside(number, n, pick)
        if ordered(number, inside) is None:
            return None
        if id(n) not in self._reads:
            self._reads[id(n)] = tuple([a for a in n.tensors if self.snapshot.classes[a].constant is None])
        reads = self._reads  # every e-node inside was the last one once
        leaves = dict.fromkeys([a for e in inside.values() for a in reads[id(e)] if a not in inside])
        if any(a not in self.flow and not self.snapshot.classes[a].weights_only for a in leaves):
            return None
        most = any(c is not None and c.most for c in pick)
        if most and any(self._products.of(i, e, inside) is not None for i, e in inside.items() if e.head == "Sum"):
            return None
        bases = tuple(self.rough.bases(leaves))
        work = START + self._work(inside) + self.rough.traffic(number, bases)
        return _Joined(len(self._joins), tuple(sorted(leaves)), bases, work, most)

    def _work(self, inside: Mapping[int, ENode]) -> float:
        """The price of computing e-nodes together; a sum of products of matrices is worth as much as one alone, and so
        are several sums over one product."""
        sums = {i: e for i, e in inside.items() if e.head == "Sum"}
        products = {i: m for i, e in sums.items() if (m := self._products.of(i, e, inside)) is not None}
        if not products:
            return sum([self._work_of(i, e) for i, e in inside.items()])
        within = {a for i in products for a in chain(i, inside)} - set(products)
        rest = sum([self._work_of(i, e) for i, e in inside.items() if i not in products and i not in within])
        return rest + sum(
            FLOP * 2 * self.rough.elements(self._axes_read(inside[m])) for m in sorted(set(products.values()))
        )

    def _work_of(self, number: int, e: ENode) -> float:
        found = self._works.get((number, id(e)))
        if found is None:
            found = self._works[number, id(e)] = self.rough.work(number, e)
        return found

    def _axes_read(self, e: ENode) -> frozenset[str]:
        return frozenset().union(*(self.snapshot.classes[a].axes for a in e.tensors))


def ordered(root: int, inside: Mapping[int, ENode]) -> list[int] | None:
    """What is computed together, each class after what it is made from; None where it is too much for one loop nest,
    not all of it is needed for the root, something in it is needed for itself, or something is asked for at so many
    places that it should be made once."""
    if len(inside) > _SPAN and not (len(inside) <= _WIDE and is_pointwise(inside)):
        return None
    done: dict[int, bool] = {}  # False: what it reads is being looked at
    order, stack = list[int](), [root]
    while stack:
        i = stack[-1]
        if done.get(i) is None:
            done[i] = False
            for a in inside[i].tensors:
                if a in inside and not done.get(a, False):
                    if a in done:
                        return None
                    stack.append(a)
        else:
            if not done[i]:
                order.append(i)
            done[i] = True
            stack.pop()
    return order if len(order) == len(inside) and not _strewn(order, inside) else None


def is_pointwise(inside: Mapping[int, ENode]) -> bool:
    """Whether nothing but functions of elements is inside: one loop of any length."""
    return all(e.head in COMPUTED for e in inside.values())


def _unfolded(cut: Cut) -> bool:
    """Whether a cut has no fold inside. Rough prices do not see that loops with one go over what is folded twice, from
    memory where it is folded along columns."""
    return not folds(cut.inside.values())


def folds(inside: Iterable[ENode]) -> int:
    """How many e-nodes are folds."""
    return sum(e.head in ("Sum", "Red") for e in inside)


def _strewn(order: Sequence[int], inside: Mapping[int, ENode]) -> bool:
    """Whether something inside is asked for at many places: each has its own text, and they multiply with every array
    that is put beside parts of itself."""
    if sum(inside[i].head in _BESIDE for i in order) < 2:
        return False
    asked = places((i, inside[i].head, inside[i].tensors) for i in reversed(order))
    return any(asked[i] > _PLACES for i in order)
