"""Greedy extraction by DAG cost: a worklist over states, shared work counted once.

After the greedy-dag extractor of the extraction gym: each state keeps its best maker with the *set* of calls below
it, so a call used twice is paid once; a state is visited again when something below it got cheaper. Always acyclic: a
set that contains the state itself is refused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from waxeq.extract.candidates import State
from waxeq.extract.choice import Choice, Priced, Problem


class _Best:
    __slots__ = ("below", "cost", "maker")

    def __init__(self, maker: Priced, below: dict[State, float]) -> None:
        self.maker, self.below = maker, below
        self.cost = sum(below.values())


def greedy(problem: Problem) -> Choice | None:
    """A good choice, or None when some root cannot be made."""
    best: dict[State, _Best] = {}
    users: dict[State, list[Priced]] = {}
    ready: deque[Priced] = deque()
    for p in problem.candidates:
        for i in dict.fromkeys(p.candidate.inputs):
            if i not in problem.given:
                users.setdefault(i, []).append(p)
        if all(i in problem.given for i in p.candidate.inputs):
            ready.append(p)
    waiting = set(map(id, ready))
    while ready:
        p = ready.popleft()
        waiting.discard(id(p))
        new = _try(p, best, problem)
        out = p.candidate.out
        if new is None or (out in best and best[out].cost <= new.cost * (1 + 1e-12)):
            continue
        best[out] = new
        for u in users.get(out, ()):
            if id(u) not in waiting:
                waiting.add(id(u))
                ready.append(u)
    if any(r not in best and r not in problem.given for r in problem.roots):
        return None
    return repair({s: b.maker for s, b in best.items()}, problem)


def _try(p: Priced, best: Mapping[State, _Best], problem: Problem) -> _Best | None:
    below: dict[State, float] = {}
    for i in p.candidate.inputs:
        if i in problem.given:
            continue
        if i not in best or p.candidate.out in best[i].below:
            return None
        below.update(best[i].below)
    below[p.candidate.out] = p.cost
    return _Best(p, below)


def repair(made: Mapping[State, Priced], problem: Problem, method: str = "greedy") -> Choice:
    """The choice that follows `made` from the roots."""
    needed: dict[State, Priced] = {}
    stack = [r for r in problem.roots if r not in problem.given]
    while stack:
        s = stack.pop()
        if s not in needed:
            needed[s] = made[s]
            stack.extend(i for i in made[s].candidate.inputs if i not in problem.given)
    return Choice(needed, problem.roots, sum(p.cost for p in needed.values()), method=method)
