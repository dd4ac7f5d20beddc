"""Doubts: what decides a choice is timed, or timed again, whatever is thought of it by then."""

from __future__ import annotations

import math
from collections.abc import Callable, Set
from dataclasses import replace

from waxeq.backend.call import Call
from waxeq.cost.key import TimingKey
from waxeq.events import Deadline
from waxeq.extract.candidates import State
from waxeq.extract.choice import Choice, Priced, Problem
from waxeq.extract.greedy import greedy

_HEAVY, _OFF, _OTHERS = 0.1, 2.0, 2
"""Part of a choice that is heavy enough to try other calls for it; what those may be predicted to take, as a multiple
of it; and how many are tried."""
_LUCK, _GAIN, _LIGHT = 0.6, 0.98, 0.02
"""Part of what it took that a call timed once may take when it is timed again: a shared machine is slow for half a
minute at a time, and the first to be timed finds its memory in no cache. Part of a choice that another must not exceed
to be its rival, and below which a call does not decide."""


def doubted(problem: Problem, choice: Choice) -> list[Call]:
    """Calls that were not measured, each of which would do the work of a heavy part of a choice from values that the
    choice has anyway, unless they are predicted to take far longer: the few best for each part, and the few best that
    read some of those values in another order, with what brings them into it.

    A family of timings may be off by more than its intervals say where calls were unlike those it was made of, or the
    machine was busier then; the calls that decide are worth the time to find out.
    """
    given = set(choice.made) | problem.given
    turned = _turned(problem, given)
    calls: dict[int, Call] = {}
    for p in choice.in_order():
        state, best = p.candidate.out, dict[tuple[str, tuple[State, ...]], tuple[float, list[Priced]]]()
        for q in problem.ways(state):
            others = tuple(dict.fromkeys(s for s in q.candidate.inputs if s not in given))
            if q.estimate.source == "measured" or not turned.keys() >= set(others):
                continue
            new = [q, *(turned[s] for s in others)]
            reads = {s for n in new for s in n.candidate.inputs}.difference(others)
            if state in reads:
                continue
            replaced = _cost_between(choice, state, reads)
            part = sum(n.estimate.seconds for n in new) / replaced if replaced else math.inf
            way = q.candidate.call.kernel, others
            if replaced > _HEAVY * choice.cost and part < min(_OFF, best.get(way, (math.inf,))[0]):
                best[way] = part, new
        for orders in (False, True):
            rows = sorted((row for (_, others), row in best.items() if bool(others) is orders), key=lambda row: row[0])
            new = (q.candidate.call for _, qs in rows[:_OTHERS] for q in qs if q.estimate.source != "measured")
            calls |= {id(c): c for c in new}
    return list(calls.values())


def _turned(problem: Problem, given: Set[State]) -> dict[State, Priced]:
    """What brings values that are given into another order, for each of these the cheapest call."""
    there, found = {s.number for s in given}, dict[State, Priced]()
    for state in problem.makers.keys() | problem.spare.keys():
        if state.number in there and state not in given:
            able = (q for q in problem.ways(state) if set(q.candidate.inputs) <= given)
            best = min(able, key=lambda q: q.estimate.seconds, default=None)
            if best is not None:
                found[state] = best
    return found


def _cost_between(choice: Choice, state: State, reads: Set[State]) -> float:
    """What the calls of a choice cost that lead from these values to a state."""
    left, seen = [state], set(reads)
    cost = 0.0
    while left:
        s = left.pop()
        if s not in seen and s in choice.made:
            seen.add(s)
            cost += choice.made[s].cost
            left += choice.made[s].candidate.inputs
    return cost


def decisive(
    problem: Problem, choice: Choice, key: Callable[[Call], TimingKey], once: Set[TimingKey], until: Deadline
) -> list[Call]:
    """Calls that were timed a single time, of a choice and of the one that would take its place if the calls that only
    that one has were as lucky as they may be; of each what the other does without."""
    own = {key(p.candidate.call) for p in choice.in_order()}

    def lucky(p: Priced) -> Priced:
        k = key(p.candidate.call)
        if k in own or k not in once or p.estimate.source != "measured":
            return p
        return replace(p, estimate=replace(p.estimate, seconds=_LUCK * p.estimate.seconds))

    makers = {s: tuple(map(lucky, problem.ways(s))) for s in problem.makers}
    rival = greedy(replace(problem, makers=makers, spare={}), until)
    if rival is None or rival.cost > _GAIN * choice.cost:
        return []
    calls = {key(p.candidate.call): p for p in (*choice.in_order(), *rival.in_order())}
    theirs = {key(p.candidate.call) for p in rival.in_order()}
    decide = ((own ^ theirs) & once).intersection(k for k, p in calls.items() if p.cost > _LIGHT * choice.cost)
    return [p.candidate.call for k, p in calls.items() if k in decide]
