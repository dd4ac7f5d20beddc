"""What the next best way to make each tensor of a choice would cost, all that it needs besides included."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace

from waxeq.cost.estimate import least_sure
from waxeq.extract.candidates import State
from waxeq.extract.choice import Choice, Priced, Problem


def runners_up(problem: Problem, choice: Choice) -> dict[State, Priced]:
    """For each state that the choice makes, the next best maker; its seconds include those of everything it reads that
    the choice does not have anyway (work shared below it is counted as often as it is used), and its source is that of
    the least sure of them. A state that can be made in one way only has none."""
    everything = [*problem.candidates, *(p for ps in problem.spare.values() for p in ps)]
    readers: dict[State, list[Priced]] = {}
    for p in everything:
        for i in dict.fromkeys(p.candidate.inputs):
            readers.setdefault(i, []).append(p)
    have = problem.given | set(choice.made)
    ready = [p for p in everything if have.issuperset(p.candidate.inputs)]
    users = _users(choice)
    found: dict[State, Priced] = {}
    for s in choice.made:
        lost = _above(s, users)
        still = [p for p in ready if lost.isdisjoint(p.candidate.inputs)]
        other = _second(s, choice.made[s], have - lost, still, readers)
        if other is not None:
            found[s] = other
    return found


def _users(choice: Choice) -> Mapping[State, list[State]]:
    rows: dict[State, list[State]] = {}
    for s, p in choice.made.items():
        for i in dict.fromkeys(p.candidate.inputs):
            rows.setdefault(i, []).append(s)
    return rows


def _above(s: State, users: Mapping[State, list[State]]) -> set[State]:
    """The state and every state made from it: what cannot be had without it."""
    found, stack = {s}, [s]
    while stack:
        new = [u for u in users.get(stack.pop(), ()) if u not in found]
        found.update(new)
        stack += new
    return found


def _second(
    s: State, chosen: Priced, have: AbstractSet[State], ready: Iterable[Priced], readers: Mapping[State, list[Priced]]
) -> Priced | None:
    """The cheapest other maker of `s`, by Knuth's algorithm, stopped where nothing cheaper can come."""
    best: tuple[float, Priced] | None = None
    cost: dict[State, float] = {}
    basis: dict[State, str] = {}
    missing: dict[int, int] = {}
    heap: list[tuple[float, int, Priced]] = []
    order = itertools.count()

    def rests_on(p: Priced) -> str:
        return least_sure((p.estimate.source, *(basis[i] for i in p.candidate.inputs if i in basis)))

    def offer(p: Priced) -> None:
        nonlocal best
        total = p.cost + sum(cost.get(i, 0.0) for i in p.candidate.inputs)
        if p.candidate.out == s:
            if p is not chosen and (best is None or total < best[0]):
                best = (total, p)
        elif p.candidate.out not in have:
            heapq.heappush(heap, (total, next(order), p))

    for p in ready:
        offer(p)
    while heap and (best is None or heap[0][0] < best[0]):
        total, _, p = heapq.heappop(heap)
        made = p.candidate.out
        if made in cost:
            continue
        cost[made], basis[made] = total, rests_on(p)
        for r in readers.get(made, ()):
            left = missing.get(id(r), sum(i not in have for i in set(r.candidate.inputs)))
            missing[id(r)] = left - 1
            if left == 1:
                offer(r)
    if best is None:
        return None
    total, p = best
    return Priced(p.candidate, replace(p.estimate, seconds=total, source=rests_on(p)))
