"""Which memory orders each e-class may be materialized in ("interesting orders", as in query optimizers).

Taken from the model as written: every value of the graph names its axes in order. Classes that only rewriting made
get the order that these agree on, what windows slide over gets one in which they read less far, products get one in
which the axes of each factor lie together, and kernels may propose more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import pairwise

from waxeq.egraph.lower import Lowered
from waxeq.egraph.snapshot import Snapshot
from waxeq.ir.op import Named

Order = tuple[str, ...]
_MOST = 3
_TURNS = 2
"""How often the axes of a product's result may change from one factor to the other: images and rows of heads do twice,
and lie in matrices."""


class Orders:
    """Proposals for the order of axes of each e-class, best first, at most three."""

    def __init__(self, lowered: Lowered, snapshot: Snapshot) -> None:
        self.lowered, self.snapshot = lowered, snapshot
        self._written: dict[int, dict[Order, None]] = {}
        self._before: Counter[tuple[str, str]] = Counter()
        for name, x in lowered.roots.items():
            order = tuple(k for k in x.axes if k is not None)
            for i, a in enumerate(order):
                self._before.update((a, b) for b in order[i + 1 :])
            number = snapshot.roots.get(name)
            if number is not None:
                axes = snapshot.classes[number].axes
                self._written.setdefault(number, {})[tuple(k for k in order if k in axes)] = None
        self._known: dict[int, tuple[Order, ...]] = {}

    def of(self, number: int, more: Iterable[Order] = ()) -> tuple[Order, ...]:
        """Orders for e-class `number`, with proposals from kernels added while there is room."""
        if number not in self._known:
            axes = self.snapshot.classes[number].axes
            rows = dict(self._written.get(number, {}))
            if not rows:
                rows[self.agreed(axes)] = None
            known = tuple(o for o in rows if frozenset(o) == axes) or (self.agreed(axes),)
            near = (_between(o, self._windows[number]) for o in known[:1] if number in self._windows)
            apart = (_apart(o, *self._factors[number]) for o in known[:1] if number in self._factors)
            self._known[number] = tuple(dict.fromkeys((*known, *near, *apart)))[:_MOST]
        have = self._known[number]
        for o in more:
            if o not in have and len(have) < _MOST and frozenset(o) == self.snapshot.classes[number].axes:
                have = (*have, o)
        self._known[number] = have
        return have

    def agreed(self, axes: frozenset[str]) -> Order:
        """The order that most values of the model put these axes in (ranked by how many others an axis comes
        before).
        """
        ranked = self._ranked
        return tuple(sorted(axes, key=lambda k: ranked.get(k, (0, k))))

    @cached_property
    def _windows(self) -> Mapping[int, frozenset[str]]:
        """Of each class the axes that windows slide over, those of windows over its windows among them."""
        slides = [
            (number, n.args[0], n.tensors[0])
            for number, c in enumerate(self.snapshot.classes) for n in c.nodes if n.head == "Unfold"
        ]  # fmt: skip
        found: dict[int, frozenset[str]] = {}
        for _ in slides:
            before = dict(found)
            for view, axis, read in slides:
                own = self.snapshot.classes[read].axes
                found[read] = found.get(read, frozenset()) | {axis} | (found.get(view, frozenset()) & own)
            if found == before:
                break
        return found

    @cached_property
    def _factors(self) -> Mapping[int, tuple[frozenset[str], frozenset[str]]]:
        """Of each class that is a sum of products the axes of both factors."""
        classes, found = self.snapshot.classes, dict[int, tuple[frozenset[str], frozenset[str]]]()
        sums = {i: n.tensors[0] for i, c in enumerate(classes) for n in c.nodes if n.head == "Sum"}
        for i, summed in sums.items():
            met = {i}
            while summed in sums and summed not in met:
                met.add(summed)
                summed = sums[summed]
            factors = next((n.tensors for n in classes[summed].nodes if n.head == "Mul"), None)
            if factors is not None:
                found[i] = classes[factors[0]].axes, classes[factors[1]].axes
        return found

    @cached_property
    def _ranked(self) -> Mapping[str, tuple[int, str]]:
        names = dict.fromkeys(k for pair in self._before for k in pair)
        lead = {k: sum(1 if self._before[k, j] >= self._before[j, k] else -1 for j in names if (k, j) in self._before
                       or (j, k) in self._before) for k in names}  # fmt: skip
        return {k: (-lead[k], k) for k in names}


def _between(order: Order, windows: frozenset[str]) -> Order:
    """The order with the axis that comes before the windows' between them: a convolution of images reads all channels
    of a few lines, and these lie close together then, where the columns of one channel still lie in one run."""
    at = [i for i, k in enumerate(order) if k in windows]
    if len(at) < 2 or at[0] == 0:
        return order
    first, last = at[0], at[-1]
    return (*order[: first - 1], *order[first:last], order[first - 1], *order[last:])


def _apart(order: Order, left: frozenset[str], right: frozenset[str]) -> Order:
    """The order with the axes of one factor before those of the other, where they come by turns: a product of matrices
    writes rows then, and what mixes them is a copy (a transposed convolution took four times as long)."""
    sides = [k in left for k in order if (k in left) != (k in right)]
    if sum(a != b for a, b in pairwise(sides)) <= _TURNS:
        return order
    both = (k for k in order if (k in left) == (k in right))
    alone = [[k for k in order if k in own and k not in other] for own, other in ((left, right), (right, left))]
    return (*both, *(k for group in sorted(alone, key=lambda g: order.index(g[0])) for k in group))


def dense_order(x: Named) -> Order:
    """The named axes of a value, in its order."""
    return tuple(k for k in x.axes if k is not None)
