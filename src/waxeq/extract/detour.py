"""The cheapest change of a choice that uses a given call, for every call at once; and what it is worth to time one.

A detour is a choice itself, so what it costs is an upper bound that holds: if its call were faster than the break-even
price, the detour would be the better choice.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from waxeq.cost.estimate import Estimate
from waxeq.extract.ways import Row, Ways

_EDGE = 1.6449
"""The 95 % quantile of a normal distribution: intervals of estimates are to hold nine of ten timings."""


def detours(ways: Ways, chosen: Sequence[int]) -> list[float]:
    """For each row the cost of a choice that has it: `chosen` with the changes that are cheapest when each is looked at
    alone; infinite where none was found. In units of `ways.UNIT`."""
    made = {ways.rows[i].out: i for i in chosen}
    fallback, price = _cheapest(ways, made)
    above = _cheapest_users(ways, made, price)
    return [_with(ways, i, made, fallback, above) for i in range(len(ways.rows))]


def _cheapest(ways: Ways, made: Mapping[int, int]) -> tuple[dict[int, int], dict[int, float]]:
    """The cheapest maker of each state and what it costs with all it reads, where what is made costs nothing."""
    fallback: dict[int, int] = {}
    price: dict[int, float] = dict.fromkeys(made, 0.0)
    users: dict[int, list[int]] = {}
    missing = []
    heap: list[tuple[float, int]] = []
    for i, r in enumerate(ways.rows):
        reads = [s for s in dict.fromkeys(r.inputs) if s not in made]
        missing.append(len(reads))
        for s in reads:
            users.setdefault(s, []).append(i)
        if not reads and r.out not in made:
            heapq.heappush(heap, (r.cost, i))
    while heap:
        total, i = heapq.heappop(heap)
        s = ways.rows[i].out
        if s in price:
            continue
        fallback[s], price[s] = i, total
        for u in users.get(s, ()):
            missing[u] -= 1
            if not missing[u]:
                heapq.heappush(heap, (_total(ways.rows[u], price), u))
    return fallback, price


def _total(r: Row, price: Mapping[int, float]) -> float:
    return r.cost + sum(price.get(s, math.inf) for s in dict.fromkeys(r.inputs))


def _cheapest_users(ways: Ways, made: Mapping[int, int], price: Mapping[int, float]) -> dict[int, int]:
    """For each state that is not made, the row that uses it on the cheapest way up to something that is made."""
    above: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    makers: dict[int, list[int]] = {}
    for i, r in enumerate(ways.rows):
        makers.setdefault(r.out, []).append(i)
        for s in dict.fromkeys(r.inputs):
            readers.setdefault(s, []).append(i)
    order = itertools.count()
    heap = [(-float(ways.rows[i].cost), next(order), s, -1) for s, i in made.items()]
    heapq.heapify(heap)
    done: set[int] = set()
    while heap:
        spent, _, s, by = heapq.heappop(heap)
        if s in done:
            continue
        done.add(s)
        if s not in made:
            above[s] = by
        for i in makers.get(s, ()):
            r = ways.rows[i]
            whole = spent + _total(r, price)
            for t in dict.fromkeys(r.inputs):
                rest = whole - price.get(t, math.inf)
                if t not in done and t not in made and rest == rest and rest < math.inf:
                    heapq.heappush(heap, (rest, next(order), t, i))
    return above


def _with(
    ways: Ways, row: int, made: Mapping[int, int], fallback: Mapping[int, int], above: Mapping[int, int]
) -> float:
    """The cost of the choice that follows from having this row, or infinity."""
    change = {ways.rows[row].out: row}
    s = ways.rows[row].out
    while s not in made:
        up = above.get(s)
        if up is None or ways.rows[up].out in change:
            return math.inf
        s = ways.rows[up].out
        change[s] = up
    done: set[int] = set()
    opened: set[int] = set()
    stack = [(r, False) for r in ways.roots]
    total = 0
    while stack:
        s, ready = stack.pop()
        if s in done:
            continue
        i = change.get(s, made.get(s, fallback.get(s)))
        if i is None or (not ready and s in opened):
            return math.inf
        if ready:
            done.add(s)
            total += ways.rows[i].cost
            continue
        opened.add(s)
        stack.append((s, True))
        stack += [(t, False) for t in ways.rows[i].inputs if t not in done]
    return total if ways.rows[row].out in done else math.inf


@dataclass(frozen=True, slots=True)
class Worth:
    """What timing a call may bring: the seconds it is expected to save over the choice there is, the chance that it
    saves any, and whether it could even at its best."""

    gain: float
    chance: float
    possible: bool


def worth(e: Estimate, break_even: float) -> Worth:
    """What it is worth to time a call that is estimated so and must take less than `break_even` seconds to be chosen.

    The time is taken to be log-normal, with nine tenths of it inside the interval: the gain is what a put option at the
    break-even price is worth (Black and Scholes, J. Political Economy 81, 1973), or the value of information (Howard,
    IEEE Trans. SSC 2, 1966).
    """
    if not 0.0 < break_even < math.inf:
        return Worth(0.0, 0.0, False)
    spread = max(math.log(max(e.high, e.low) / e.low) / (2 * _EDGE), 1e-6)
    middle = math.log(e.seconds)
    d = (math.log(break_even) - middle) / spread
    chance = _below(d)
    mean = math.exp(middle + spread * spread / 2)
    return Worth(max(0.0, break_even * chance - mean * _below(d - spread)), chance, e.low < break_even)


def _below(x: float) -> float:
    """Of a standard normal distribution, the part below x."""
    return 0.5 * math.erfc(-x / math.sqrt(2))
