"""Growing candidates: which of them come first where time is short."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from waxeq.backend.storage import CPU
from waxeq.basis.heads import VIEWS
from waxeq.events import FOREVER, Deadline
from waxeq.extract.candidates import Candidate, Space, by_pattern, copies, loops_of, sweeps_of, transfers
from waxeq.extract.cuts import Cut, Cuts
from waxeq.extract.sweeps import Sweeps

_BRIEF = 1e-3
"""Seconds for each class below which there is no time for more than one kernel of what is made point by point."""
_SHORT = 0.03
"""Seconds for each class below which growing may not come to all cuts."""
_AGAIN = 4.0
"""Times that whole stretches may make again what they have in common, where time is so short: the results of a
recurrence are each a longer text than the one before, and their lengths add up to its square."""
_LOOKED = 0.1
"""The part of the time for the cheapest cuts after which it is asked whether it will be enough."""


def candidates(
    space: Space, cuts: Cuts, until: Deadline = FOREVER, spare: bool = False, trees: Mapping[int, Cut] | None = None
) -> list[Candidate]:
    """All candidates, in a deterministic order, as far as there is time. Those of patterns, of each class's own
    e-node alone and of whole stretches come whatever the time is, as there must be a plan; unless they are to `spare`,
    beside others that make one. With `trees`, those of these cuts come first, and in brief in the place of e-nodes in
    them alone."""
    numbers = [i for i, c in enumerate(space.snapshot.classes) if not c.weights_only]
    found = _Found(space, cuts, until, trees or {})
    if trees is not None and found.brief:
        found.grow_trees(numbers)
    elif spare:
        found.grow_spare(numbers)
    else:
        found.grow(numbers)
    return _of_one_pool(space, [c for i in numbers for c in found.of(i)])


def is_brief(space: Space, until: Deadline) -> bool:
    """Whether there is no time for more than one kernel of what is made point by point."""
    return until.left < _BRIEF * len(space.snapshot.classes)


def is_short(space: Space, until: Deadline) -> bool:
    """Whether there may be no time for all cuts."""
    return until.left < _SHORT * len(space.snapshot.classes)


class _Found:
    """The candidates found so far, by class."""

    def __init__(self, space: Space, cuts: Cuts, until: Deadline, trees: Mapping[int, Cut]) -> None:
        self.space, self.cuts, self.until = space, cuts, until
        self.brief = is_brief(space, until)
        self.longer = Sweeps(cuts, frozenset(space.leaves))
        self.grown = trees
        self.trees = {i: list(loops_of(space, i, cut, brief=True)) for i, cut in trees.items()}
        self.calls: dict[int, list[Candidate]] = {}
        self.loops: dict[tuple[int, int], list[Candidate]] = {}
        self.swept: dict[int, list[Candidate]] = {}
        self.copied: dict[int, list[Candidate]] = {}

    def of(self, i: int) -> Iterator[Candidate]:
        """Those of a class."""
        yield from self.trees.get(i, ())
        yield from self.calls.get(i, ())
        for n in range(len(self.cuts.of(i))):
            yield from self.loops.get((i, n), ())
        yield from self.swept.get(i, ())
        yield from self.copied.get(i, ())

    def grow(self, numbers: Sequence[int]) -> None:
        """Operands before those that read them, as kernels propose memory orders for what they make. Where time may end
        it those come first that take most to make: what is fused into those does not have to be made alone."""
        self._each(numbers, self._needed)
        self._soon(numbers)
        self._each(self._dear(numbers), self._sweeps)
        self._each(self._dear(numbers), self._cuts, self.until)
        self._each(numbers, self._rest)

    def grow_trees(self, numbers: Sequence[int]) -> None:
        """Those of trees, and of what is in none; whole stretches too, where they make little twice."""
        inner = {i: e for cut in self.grown.values() for i, e in cut.inside.items() if i not in self.grown}
        beside = {i for i, e in inner.items() if e.head == "Cat"}  # each holds the one before
        for i in numbers:
            if i not in beside:
                (self._stretch if i in self.grown or i in inner else self._needed)(i)
        others = [i for i in numbers if i not in inner]
        self._each(others, self._rest)
        if all(i in self.grown or i in self.space.leaves or self._is_view(i) for i in others):
            return  # what else there is makes again what a tree makes once
        self._soon(others)
        self._each(self._dear(numbers), self._sweeps, self.until)
        self._each(self._dear(numbers), self._cuts, self.until)
        self._each((i for i in self._dear(numbers) if i in inner), self._rest, self.until)

    def _is_view(self, i: int) -> bool:
        maker = self.cuts.rough.maker.get(i)
        return maker is None or maker.head in VIEWS

    def _stretch(self, i: int) -> None:
        """A whole stretch that ends there, where there is one."""
        cuts = self.cuts.of(i)
        for n in range(len(cuts)):
            if len(cuts[n].inside) > 1 and self.cuts.needed(i, n, _AGAIN):
                self._loops(i, n)

    def _soon(self, numbers: Sequence[int]) -> None:
        """The cheapest cuts, as long as there seems to be time for all of them; from then on those that take most."""
        whole = self.until.left
        until = self.until.within(whole)
        for n, i in enumerate(numbers):
            if _LOOKED * whole <= until.elapsed >= whole * n / len(numbers):
                return self._each(self._dear(numbers[n:]), self._cheapest, until)
            self._cheapest(i)

    def grow_spare(self, numbers: Sequence[int]) -> None:
        """All of it until the time is over."""
        for step in (self._cheapest, self._rest, self._sweeps, self._cuts):
            self._each(self._dear(numbers), step, self.until)

    def _each(self, numbers: Iterable[int], step: Callable[[int], None], until: Deadline = FOREVER) -> None:
        for i in numbers:
            if until.expired:
                return
            step(i)

    def _dear(self, numbers: Iterable[int]) -> list[int]:
        return sorted(numbers, key=lambda i: -self.cuts.flow.get(i, 0.0))

    def _needed(self, i: int) -> None:
        """Its own e-node alone, and a whole stretch; in brief, of what would be left to a pattern the smallest cut."""
        cuts = self.cuts.of(i)
        rows = [n for n in range(len(cuts)) if self.cuts.needed(i, n, _AGAIN if self.brief else math.inf)]
        if self.brief and cuts and not rows:
            rows = [min(range(len(cuts)), key=lambda n: len(cuts[n].inside))]
        for n in rows:
            self._loops(i, n)

    def _cheapest(self, i: int) -> None:
        """Its cheapest cut beside those."""
        for n in range(len(self.cuts.of(i))):
            if (i, n) not in self.loops and self.cuts.first(i, n):
                self._loops(i, n)

    def _cuts(self, i: int) -> None:
        for n in range(len(self.cuts.of(i))):
            if (i, n) not in self.loops and not self.until.expired:
                self._loops(i, n)

    def _sweeps(self, i: int) -> None:
        if i not in self.space.leaves:
            self.swept[i] = list(sweeps_of(self.space, i, self.longer, self.until))

    def _rest(self, i: int) -> None:
        """Kernels of patterns, and copies."""
        if i not in self.space.leaves:
            self.calls[i] = [c for n in self.space.snapshot.classes[i].nodes for c in by_pattern(self.space, i, n)]
        self.copied[i] = [*copies(self.space, i), *transfers(self.space, i)]

    def _loops(self, i: int, n: int) -> None:
        cut, tree = self.cuts.of(i)[n], self.grown.get(i)
        if i not in self.space.leaves and (tree is None or tree.inside != cut.inside):
            self.loops[i, n] = list(loops_of(self.space, i, cut, brief=self.brief))


def _of_one_pool(space: Space, rows: list[Candidate]) -> list[Candidate]:
    """Without the calls on other threads than the best loops have, where those can do the same: threads of a BLAS spin
    for a while when they are done, and a plan that goes from one pool to the other takes up to twice as long. With one
    thread they are the same library called in another way, and each would have to be timed. The same from the same, in
    whatever orders of axes: what a product is needed in, another kernel may read as it lies, or copy."""
    loops = (k for k in space.kernels.values() if k.form == "loops" and k.device == CPU)
    quickest = min(loops, key=lambda k: k.pace, default=None)
    pool = quickest.pool if quickest is not None else ""
    foreign = {n for n, k in space.kernels.items() if k.pool not in ("", pool)} if pool else set()
    same = {_classes(c) for c in rows if space.kernels[c.call.kernel].pool == pool}
    return [c for c in rows if c.call.kernel not in foreign or _classes(c) not in same]


def _classes(c: Candidate) -> tuple[int, frozenset[int]]:
    """What a call makes of what."""
    return c.out.number, frozenset(s.number for s in c.inputs)
