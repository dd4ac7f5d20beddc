"""Of calls that take as long, the one that comes closer to what it computes: time does not tell them apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from waxeq.extract.candidates import Candidate
from waxeq.extract.choice import Choice, Priced, Problem
from waxeq.extract.greedy import followed

Error = Callable[[Candidate], float | None]
"""The relative RMS error of a call against float64 that came with its timing; None where it was not timed."""
_AS_LONG = 1.05
"""What a call may take of another to be thought to take as long, if the other was timed to take so much at times."""
CLOSER = 0.9
"""Part of a call's error that another must not exceed: what is less is luck with the numbers of one timing."""


def closer(problem: Problem, choice: Choice, error: Error) -> Choice | None:
    """A choice with other calls in the place of some, which read no more, were timed to take as long, and had a smaller
    error then; None where there is none.

    Libraries and kernels of our own differ in how they sum: the error of a sum grows with the root of how many numbers
    are added one after another (N. J. Higham, The accuracy of floating point summation, 1993).
    """
    made = dict(choice.made)
    for state, p in choice.made.items():
        ways = [q for q in problem.ways(state) if _as_long(q, p) and _is_closer(error(q.candidate), error(p.candidate))]
        if ways:
            made[state] = min(ways, key=lambda q: q.cost)
    found = followed(problem, made, choice.method) if made != choice.made else None
    return None if found is None else replace(found, bound=choice.bound, timed_out=choice.timed_out)


def closer_within(problem: Problem, choice: Choice, error: Error, part: float) -> Choice | None:
    """A choice with calls of less error in the place of some, which read no more and were timed too, all of which take
    at most such a part of the choice's time more; None where there is none. Those that gain most for their time are
    the first. What it is worth shows when the plan runs: the error of one call may be lost in that of another."""
    swaps = []
    for state, p in choice.made.items():
        before = error(p.candidate)
        for q in problem.ways(state):
            if _instead(q, p) and _is_closer(after := error(q.candidate), before):
                assert before is not None and after is not None
                swaps.append((max(0.0, q.cost - p.cost), before - after, state, q))
    made, left = dict(choice.made), part * choice.cost
    for more, _, state, q in sorted(swaps, key=lambda s: s[0] / s[1]):
        if more <= left and made[state] is choice.made[state]:
            made[state], left = q, left - more
    found = followed(problem, made, choice.method) if made != choice.made else None
    return None if found is None else replace(found, bound=choice.bound, timed_out=choice.timed_out)


def _as_long(other: Priced, p: Priced) -> bool:
    return _instead(other, p) and other.cost <= min(p.estimate.high, _AS_LONG * p.cost)


def _instead(other: Priced, p: Priced) -> bool:
    timed = other.estimate.source == p.estimate.source == "measured"
    return timed and set(other.candidate.inputs) <= set(p.candidate.inputs)


def _is_closer(other: float | None, error: float | None) -> bool:
    return other is not None and error is not None and other < CLOSER * error
