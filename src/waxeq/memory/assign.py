"""Offsets in one arena: a few greedy orders, the smallest arena wins, and how far it is from the least that any could
do.

Source of the greedy orders: Pisarchyk and Lee, "Efficient memory management for deep neural net inference" (MLSys
workshop 2020), as in TFLite and TVM. Optimal offsets are dynamic storage allocation, which is NP-hard; greedy by size
meets the lower bound on most models, and the bound tells when it does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np

from waxeq.memory.alias import AliasClass, Aliases, alias
from waxeq.memory.liveness import Buffer, InPlace, busiest, rounded


@dataclass(frozen=True)
class Assignment:
    """Byte offset of each buffer in an arena of `arena_bytes`; buffers without bytes lie at 0.

    `least_bytes`: what is needed at the busiest call, so that no arrangement is smaller. `in_place`: the wishes that
    hold. `method`: the order that won.
    """

    offsets: Mapping[str, int]
    arena_bytes: int
    least_bytes: int
    in_place: tuple[InPlace, ...] = ()
    method: str = ""

    @property
    def gap(self) -> float:
        """How much larger than the lower bound the arena is: 0.0 is optimal."""
        return self.arena_bytes / self.least_bytes - 1 if self.least_bytes else 0.0


def assign(buffers: Sequence[Buffer], in_place: Sequence[InPlace] = ()) -> Assignment:
    """Place every buffer so that no two that are needed at one call share a byte, but for wishes that are granted.

    The answer depends on the arguments alone. Wishes that hold are kept unless the arena is smaller without those
    where a small buffer holds on to the room of a large one. Raises PlanError for two buffers of one name or an
    unknown name in a wish.
    """
    grain = min((b.align for b in buffers if b.bytes), default=1)
    wishes = alias(buffers, in_place)
    least = least_bytes(wishes, grain)
    best: Assignment | None = None
    for aliases, order, place in _attempts(buffers, wishes):
        rows = sorted((c for c in aliases.classes if c.bytes), key=order.key)
        offsets, end = place(rows)
        if best is None or rounded(end, grain) < best.arena_bytes:
            named = {b.name: offsets.get(c.name, 0) for c in aliases.classes for b in c.members}
            best = Assignment(named, rounded(end, grain), least, aliases.granted, order.name)
        if best.arena_bytes == least:
            break
    assert best is not None
    return best


@dataclass(frozen=True, slots=True)
class _Order:
    name: str
    key: Callable[[AliasClass], tuple[int, int, str]]


_BY_SIZE = _Order("largest first, best fit", lambda c: (-c.bytes, c.first, c.name))
_BY_LIFE = _Order("longest-lived first, first fit", lambda c: (c.first - c.last, -c.bytes, c.name))

_Place = Callable[[list[AliasClass]], tuple[dict[str, int], int]]


def _attempts(buffers: Sequence[Buffer], wishes: Aliases) -> Iterator[tuple[Aliases, _Order, _Place]]:
    """What is tried, the likeliest first."""
    sizes = {b.name: b.bytes for b in buffers}
    same = [w for w in wishes.granted if sizes[w.buffer] == sizes[w.reuses]]
    variants = [wishes] if len(same) == len(wishes.granted) else [wishes, alias(buffers, same)]
    for aliases in variants:
        yield aliases, _BY_SIZE, _best_fit
        yield aliases, _BY_LIFE, _first_fit


def least_bytes(wishes: Aliases, grain: int) -> int:
    """Bytes no arena can do without: what is live at the busiest call, a result and the operand it may replace
    counted once.

    Every offset is a multiple of `grain`, so each buffer keeps whole grains for itself.
    """
    rows: list[tuple[int, int, int]] = []
    for c in wishes.classes:
        for i, b in enumerate(c.members):
            handed = i + 1 < len(c.members) and c.members[i + 1].first == b.last
            life = (b.first, b.last)
            rows.append((rounded(b.bytes, grain), *life))
            if handed:  # the next member is no larger and lies inside this one at the call they share
                rows.append((-rounded(c.members[i + 1].bytes, grain), b.last, b.last))
    return busiest(rows)[0]


def _best_fit(order: list[AliasClass]) -> tuple[dict[str, int], int]:
    """Each in the narrowest gap that holds it."""
    return _placed(order, lambda c, gaps: min(gaps, key=lambda g: (g[1] - g[0], g[0]))[0])


def _first_fit(order: list[AliasClass]) -> tuple[dict[str, int], int]:
    """Each in the lowest gap that holds it."""
    return _placed(order, lambda c, gaps: next(iter(gaps))[0])


_Pick = Callable[[AliasClass, Iterable[tuple[int, float]]], int]


def _placed(order: list[AliasClass], pick: _Pick) -> tuple[dict[str, int], int]:
    """Offsets by class name and the end of the last, placing in `order`."""
    firsts, lasts = (np.array([t(c) for c in order]) for t in (attrgetter("first"), attrgetter("last")))
    starts, stops = np.zeros((2, len(order)), np.int64)
    offsets: dict[str, int] = {}
    for n, c in enumerate(order):
        beside = np.flatnonzero((firsts[:n] <= c.last) & (lasts[:n] >= c.first))
        taken = sorted(zip(starts[beside].tolist(), stops[beside].tolist(), strict=True))
        offsets[c.name] = at = pick(c, _gaps(taken, c.bytes, c.align))
        starts[n], stops[n] = at, at + c.bytes
    return offsets, int(stops.max(initial=0))


def _gaps(taken: Sequence[tuple[int, int]], size: int, align: int) -> Iterator[tuple[int, float]]:
    """(start, end) of the free runs that hold `size` bytes at an aligned start, lowest first; the last has no end.

    `taken` is sorted by start; runs may overlap one another, since their owners need not be alive together.
    """
    at = 0
    for start, stop in taken:
        if start - at >= size:
            yield at, start
        at = max(at, rounded(stop, align))
    yield at, float("inf")
