"""The order in which a nest's folds are made on a GPU.

A fold must be complete before what uses it begins, so folds have levels. Those of one level and one order of loops are
one stage; the last stage writes the result. Costly values are computed again rather than kept: memory is what is slow.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from waxeq_cfamily.stages import Space
from waxeq_cfamily.values import Values, chain

_SPREAD = 16
"""Elements that an axis must have for the ranks of a team to share out the vector axis and no longer one."""
_RANKS, _TOGETHER, _ALONE = 256, 100, 4
"""About how many ranks share out a loop; what their common fold costs beside its steps (0.4 us on an H200), and what a
step costs for which each reads a line of its own, both in steps that they take side by side."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One nest of loops, in `order`: the `folds` that it makes, or the result. The ranks of a team share out the axis
    `spread`; None where there is no loop."""

    order: tuple[str, ...]
    spread: str | None
    folds: tuple[int, ...] = ()

    @property
    def result(self) -> bool:
        return not self.folds


@dataclass(frozen=True)
class Schedule:
    """The stages of a nest."""

    space: Space

    @property
    def values(self) -> Values:
        return self.space.values

    @cached_property
    def folds(self) -> dict[int, tuple[tuple[str, ...], int]]:
        """The outermost fold of each chain: its axes and what is folded."""
        rows = self.values.rows
        chains = {n: chain(self.values, n) for n, r in enumerate(rows) if r.op == "fold"}
        inside: set[int] = set()
        for n, (_, source) in chains.items():
            m = rows[n].args[0]
            while m != source:
                inside.add(m)
                m = rows[m].args[0]
        return {n: c for n, c in chains.items() if n not in inside}

    @cached_property
    def _levels(self) -> dict[int, int]:
        """How many folds one after another stand before a row, itself included."""
        known: dict[int, int] = {}
        for n, r in enumerate(self.values.rows):
            if n in self.folds:
                known[n] = known[self.folds[n][1]] + 1
            else:
                known[n] = max((known[a] for a in self.values.reads(r)), default=0)
        return known

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """In the order in which they run."""
        groups: dict[tuple[int, tuple[str, ...]], list[int]] = {}
        for f in self.folds:
            groups.setdefault((self._levels[f], self._order(f)), []).append(f)
        made = [
            Stage(order, self._shared_out(order, self.folds[fs[0]][0]), tuple(fs))
            for (_, order), fs in sorted(groups.items())
        ]
        last = tuple(k for k in self.space.inner if k in self.space.written)
        return (*made, Stage(last, self._spread(last)))

    def _order(self, fold: int) -> tuple[str, ...]:
        """Loops of a fold: those that it keeps, then those that it folds, the vector axis inside."""
        axes, source = self.folds[fold]
        over = [k for k in self.space.inner if k in self.space.under(source) or k in axes]
        return (*(k for k in over if k not in axes), *(k for k in over if k in axes))

    def _shared_out(self, order: tuple[str, ...], axes: tuple[str, ...]) -> str | None:
        """The axis of a fold over `axes` that ranks share out: one that it keeps, where each rank is sooner done with
        folds of its own than all of them with one common fold after another."""
        width, found = self.space.width, self._spread(order)
        kept = [k for k in order if k not in axes]
        if found in kept or not kept:
            return found
        longest, others, steps = max(kept, key=width), math.prod(map(width, kept)), math.prod(map(width, axes))
        alone = -(-width(longest) // _RANKS) * (others // width(longest)) * steps * _ALONE
        return longest if alone < others * (-(-steps // _RANKS) + _TOGETHER) else found

    def _spread(self, order: tuple[str, ...]) -> str | None:
        if not order:
            return None
        v = next((k for k in self.space.vectors if k in order), order[-1])
        longest = max(order, key=lambda k: (self.space.width(k), k == v))
        return v if self.space.width(v) >= min(_SPREAD, self.space.width(longest)) else longest

    def cone(self, stage: Stage) -> frozenset[int]:
        """Rows that are computed in a stage's loops or before them: all that it needs, but for folds."""
        starts = [self.folds[f][1] for f in stage.folds] or [self.values.root]
        seen: set[int] = set()
        while starts:
            n = starts.pop()
            if n not in seen:
                seen.add(n)
                if n not in self.folds:
                    starts += self.values.reads(self.values.rows[n])
        return frozenset(seen)

    @cached_property
    def buffered(self) -> dict[int, tuple[str, ...]]:
        """Folds that have a value for each place of some loops, with those: they lie in shared memory."""
        inner = self.space.inner
        return {f: tuple(k for k in inner if k in self.space.under(f)) for f in self.folds if self.space.under(f)}


def stages_of(space: Space) -> Iterator[Stage]:
    """The stages of a nest, in order."""
    yield from Schedule(space).stages
