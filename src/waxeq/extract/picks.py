"""Which of the ways to read its operands a call is tried with."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import TypeVar

from waxeq.backend.call import View
from waxeq.extract.orders import Order
from waxeq.ir.term import Term, postorder

_COMBINATIONS = 8
_AGAIN = 64
"""How often each element of an operand is read at least where a copy of it takes nothing beside those reads."""
_POINTS = 1 << 16
"""Points of a loop from which on what vectors save takes longer than the start of a copy."""

State = TypeVar("State")


@dataclass(frozen=True)
class Loops:
    """The loops that compute a meaning: the axes of its result and those that are folded, `inner` those that the
    innermost loop may run along, and the axes of operands of which one known place is `taken`."""

    sizes: Mapping[str, int]
    inner: frozenset[str]
    taken: frozenset[str]

    @staticmethod
    def of(meaning: Term, order: Order, sizes: Mapping[str, int]) -> Loops:
        folded = {t.args[-2] for t in postorder(meaning) if t.head in ("Sum", "Red")}
        taken = {t.args[0] for t in postorder(meaning) if t.head == "Gather" and t.args[1].head == "Num"}
        every = {k: sizes[k] for k in (*order, *sorted(folded))}
        return Loops(every, frozenset({*order[-1:], *folded}), frozenset(taken - every.keys()))

    def apart(self, v: View) -> bool:
        """Whether the innermost loop reads an operand far apart, and again and again: a vector of it is then put
        together out of several."""
        own = [k for k in v.axes if self.sizes.get(k, 1) > 1]
        if not self.inner.intersection(own) or not self.taken.issuperset(k for k in v.axes if k not in self.sizes):
            return False
        often = math.prod(self.sizes.values()) // math.prod(self.sizes[k] for k in own)
        large = math.prod(self.sizes.values()) >= _POINTS
        return large and often >= _AGAIN and min(abs(v.stride(k)) for k in own) > 1

    def nearer(self, order: Order) -> Order:
        """An order of an operand's axes in which what is read of it at one place lies side by side."""
        return (*(k for k in order if k in self.taken), *(k for k in order if k not in self.taken))


def picks(
    ways: Sequence[Sequence[tuple[State, View]]], order: Order, loops: Loops, *, both: bool
) -> Iterator[tuple[tuple[State, View], ...]]:
    """The first few combinations of ways to read the operands of a result in an order of its axes, those in which the
    innermost loop reads none far apart where there are such; with `both` the first of all as well. One operand that is
    read so is enough to make the loop slow: copies of a part of them are no choice."""
    ranked = [sorted(o, key=lambda way: _mismatch(way[1], order)) for o in ways]
    near = [[way for way in o if not loops.apart(way[1])] or o for o in ranked]
    if both and all(ranked) and any(o[0] != every[0] for o, every in zip(near, ranked, strict=True)):
        yield tuple(o[0] for o in ranked)
    yield from islice(product(*near), _COMBINATIONS)


def _mismatch(v: View, order: Order) -> int:
    """How far a view's memory order is from the result's: 0 when the axes they share come in one order."""
    shared = [k for k in order if k in v.axes and v.stride(k)]
    steps = [v.stride(k) for k in shared]
    return sum(a < b for i, a in enumerate(steps) for b in steps[i + 1 :])
