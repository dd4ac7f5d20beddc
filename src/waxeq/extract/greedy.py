"""Greedy extraction by DAG cost: a worklist over states, shared work counted once; then better makers one by one.

After the greedy-dag extractor of the extraction gym: each state keeps its best maker with the *set* of calls below
it, so a call used twice is paid once; a state is visited again when something below it got cheaper. Always acyclic: a
set that contains the state itself is refused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping

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
    makers = {s: b.maker for s, b in best.items()}
    return improve(problem, repair(makers, problem), makers)


def improve(problem: Problem, choice: Choice, fallback: Mapping[State, Priced]) -> Choice:
    """Make small changes while one makes the whole choice cheaper.

    Greedy counts sharing below a state, not between states: a maker that reads what another call makes anyway looks
    too dear to it. States a change needs and the choice lacks are made as `fallback` says.
    """
    users: dict[State, list[Priced]] = {}
    for p in problem.candidates:
        for i in dict.fromkeys(p.candidate.inputs):
            users.setdefault(i, []).append(p)
    found, cost, changed = dict(choice.made), choice.cost, True
    while changed:
        changed = False
        for change in (*_other_makers(problem, found), *_shared_states(problem, found, users)):
            if any(s not in found for s in change):
                continue
            new = _follow(problem, {**fallback, **found, **change})
            if new is not None and (total := sum(q.cost for q in new.values())) < cost * (1 - 1e-9):
                found, cost, changed = new, total, True
    return Choice(found, problem.roots, cost, method="greedy")


def _other_makers(problem: Problem, found: Mapping[State, Priced]) -> Iterator[dict[State, Priced]]:
    """Another maker for one state."""
    for s, now in found.items():
        for p in problem.makers[s]:
            if p is not now:
                yield {s: p}


def _shared_states(
    problem: Problem, found: Mapping[State, Priced], users: Mapping[State, list[Priced]]
) -> Iterator[dict[State, Priced]]:
    """For a state that is not made: every state that would be made more cheaply if it were, at once."""
    for s in problem.makers:
        if s in found:
            continue
        change: dict[State, Priced] = {}
        for p in users.get(s, ()):
            out, rest = p.candidate.out, (i for i in p.candidate.inputs if i != s)
            now = change.get(out, found.get(out))
            if now is not None and p.cost < now.cost and all(i in found or i in problem.given for i in rest):
                change[out] = p
        if len(change) > 1:
            yield change


def _follow(problem: Problem, made: Mapping[State, Priced]) -> dict[State, Priced] | None:
    """What the roots need when states are made as `made` says, operands first; None when that runs in a circle."""
    done: dict[State, Priced] = {}
    opened: set[State] = set()
    stack = [(r, False) for r in problem.roots]
    while stack:
        s, ready = stack.pop()
        if s in problem.given or s in done:
            continue
        if ready:
            done[s] = made[s]
        elif s in opened or s not in made:
            return None
        else:
            opened.add(s)
            stack.append((s, True))
            stack.extend((i, False) for i in made[s].candidate.inputs if i not in done)
    return done


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
