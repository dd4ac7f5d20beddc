"""What the next best way to make each tensor of a choice would cost, all that it needs besides included."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from waxeq.cost.estimate import least_sure
from waxeq.extract.candidates import State
from waxeq.extract.choice import Choice, Priced, Problem


def runners_up(problem: Problem, choice: Choice) -> dict[State, Priced]:
    """For each state that the choice makes, the next best maker; its seconds include those of everything it reads that
    the choice does not have anyway (work shared below it is counted as often as it is used), and its source is that of
    the least sure of them. A state that can be made in one way only has none."""
    makers: dict[State, list[Priced]] = {s: list(ps) for s, ps in problem.makers.items()}
    for s, ps in problem.spare.items():
        makers.setdefault(s, []).extend(ps)
    have = problem.given | set(choice.made)
    users = _users(choice)
    found: dict[State, Priced] = {}
    for s in choice.made:
        other = _second(s, choice.made[s], have - _above(s, users), makers)
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
    s: State, chosen: Priced, have: AbstractSet[State], makers: Mapping[State, Sequence[Priced]]
) -> Priced | None:
    """The cheapest other maker of `s`, by Knuth's algorithm over what could lead to it, stopped where nothing cheaper
    can come."""
    best: tuple[float, Priced] | None = None
    cost: dict[State, float] = {}
    basis: dict[State, str] = {}
    heap: list[tuple[float, int, Priced]] = []
    order = itertools.count()
    others = {id(p): p for p in makers.get(s, ()) if p.candidate is not chosen.candidate}
    direct = (p.cost for p in others.values() if have >= set(p.candidate.inputs))
    readers, missing = _leading_to(s, have, makers, min(direct, default=float("inf")))

    def rests_on(p: Priced) -> str:
        return least_sure((p.estimate.source, *(basis[i] for i in p.candidate.inputs if i in basis)))

    def offer(p: Priced) -> None:
        nonlocal best
        total = p.cost + sum(cost.get(i, 0.0) for i in p.candidate.inputs)
        if p.candidate.out != s:
            heapq.heappush(heap, (total, next(order), p))
        elif id(p) in others and (best is None or total < best[0]):
            best = (total, p)

    for p in (p for p, count in missing.values() if count == 0):
        offer(p)
    while heap and (best is None or heap[0][0] < best[0]):
        total, _, p = heapq.heappop(heap)
        made = p.candidate.out
        if made in cost:
            continue
        cost[made], basis[made] = total, rests_on(p)
        for r in readers.get(made, ()):
            _, count = missing[id(r)]
            missing[id(r)] = (r, count - 1)
            if count == 1:
                offer(r)
    if best is None:
        return None
    total, p = best
    return Priced(p.candidate, replace(p.estimate, seconds=total, source=rests_on(p)))


def _leading_to(
    s: State, have: AbstractSet[State], makers: Mapping[State, Sequence[Priced]], most: float
) -> tuple[dict[State, list[Priced]], dict[int, tuple[Priced, int]]]:
    """Of the candidates that could be part of a way to `s` that costs at most `most`: who reads each state that is not
    there yet, and how many such states each reads (by identity)."""
    readers: dict[State, list[Priced]] = {}
    missing: dict[int, tuple[Priced, int]] = {}
    seen, stack = {s}, [s]
    while stack:
        for p in makers.get(stack.pop(), ()):
            if p.cost > most:
                continue
            wanted = [i for i in dict.fromkeys(p.candidate.inputs) if i not in have]
            missing[id(p)] = (p, len(wanted))
            for i in wanted:
                readers.setdefault(i, []).append(p)
                if i not in seen:
                    seen.add(i)
                    stack.append(i)
    return readers, missing
