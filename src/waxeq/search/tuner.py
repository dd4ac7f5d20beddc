"""Tuning: other ways to run what was chosen (tiles, widths), those first that could change the plan most.

Searching among all variants of all candidates would multiply both; a variant costs what its kernel costs, give or take
a part, so that it changes the speed of a choice and next to never the choice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

from waxeq.cost.estimate import Estimate
from waxeq.extract.candidates import Candidate, Space, State, variants
from waxeq.extract.choice import Choice, Priced, Problem
from waxeq.extract.greedy import followed
from waxeq.search.session import Session

_WORTH = 0.01
"""Part of a plan's time that a variant must be able to save to be timed."""
_MUCH = 0.1
"""The same to keep some of the time for searching for it."""
_FASTER = 0.98
"""What a variant may take of the call that it replaces: of several equal ones the luckiest would else be taken."""


_NEAR = 1.25
"""What one of two ways may take of the other for it to be tried in a whole plan too."""
_VISITS = 2
"""Times that each is timed: it is compared with one call, and of several tries of that the fastest was chosen."""
Way = tuple[Priced, Candidate]
"""A call of a choice, and another way to do it."""


@dataclass(frozen=True)
class Tuned:
    """A choice with faster variants in the place of its calls, and the problem that has those as well. `others`: the
    same with a variant that promised much where it was not much slower, and without where it was not much faster."""

    problem: Problem
    choice: Choice
    others: tuple[Choice, ...]


def tuned(
    session: Session, space: Space, rows: Sequence[Candidate], roots: tuple[State, ...], choice: Choice
) -> Tuned | None:
    """The choice tuned; None where there is nothing to time, or nobody waits for it.

    A variant is timed when it would save something if it took as little as it may. The bound stays that of the choice
    without variants.
    """
    if session.hurried or not session.options.measure or session.options.cost == "roofline":
        return None
    ways = _ways(space, choice)
    if not ways:
        return None
    guessed = _guessed(session, ways)
    gains = [(p.cost - e.low, c) for (p, c), e in guessed]
    worth = [c for gain, c in sorted(gains, key=lambda row: -row[0]) if gain > _WORTH * choice.cost]
    session.measure([c.call for c in worth], visits=_VISITS)
    problem = session.prices.problem(space, [*rows, *(c for _, c in ways)], roots, mood="cautious")
    order = choice.in_order()
    best = {p.candidate.out: _best(problem, p, ways) for p in order}
    found = _followed(problem, best, choice)
    hoped = {id(c) for (p, c), e in guessed if p.cost - e.seconds > _MUCH * choice.cost}
    differing = {p.candidate.out: q for p in order if (q := _rival(problem, p, ways, best, hoped)) is not None}
    others = (_followed(problem, {**best, **differing}, choice),) if differing else ()
    problem = problem.having(found)
    for other in others:
        problem = problem.having(other)
    return Tuned(problem, found, others)


def _followed(problem: Problem, made: Mapping[State, Priced], choice: Choice) -> Choice:
    found = followed(problem, made, choice.method)
    assert found is not None, "variants read what their calls read"
    return replace(found, bound=choice.bound, timed_out=choice.timed_out)


def promises(session: Session, space: Space, choice: Choice) -> bool:
    """Whether a variant that was never timed is expected to save much of a choice's time."""
    guessed = _guessed(session, _ways(space, choice))
    return any(p.cost - e.seconds > _MUCH * choice.cost for (p, _), e in guessed)


def _ways(space: Space, choice: Choice) -> list[Way]:
    return [(p, c) for p in choice.in_order() for c in variants(space, p.candidate)]


def _guessed(session: Session, ways: Sequence[Way]) -> list[tuple[Way, Estimate]]:
    """Those that were not timed, with what they may take."""
    estimates = session.prices.of([c.call for _, c in ways])
    return [(way, e) for way, e in zip(ways, estimates, strict=True) if e.source != "measured"]


def _best(problem: Problem, p: Priced, ways: Sequence[Way]) -> Priced:
    """The fastest way that was timed, or the call itself, at today's price."""
    own, timed = _timed(problem, p, ways)
    best = min(timed, key=lambda q: q.cost, default=own)
    return best if best.cost < _FASTER * own.cost else own


def _rival(
    problem: Problem, p: Priced, ways: Sequence[Way], best: Mapping[State, Priced], hoped: Set[int]
) -> Priced | None:
    """What may be the faster one when both run by turns, where one of them promised much: a shared machine may have
    been slow while the one was timed and not while the other was. None where that is not so."""
    own, timed = _timed(problem, p, ways)
    first = best[p.candidate.out]
    near = [q for q in (own, *timed) if q is not first and q.cost < _NEAR * first.cost]
    if id(first.candidate) not in hoped:
        near = [q for q in near if id(q.candidate) in hoped]
    return min(near, key=lambda q: q.cost, default=None)


def _timed(problem: Problem, p: Priced, ways: Sequence[Way]) -> tuple[Priced, list[Priced]]:
    """A call, and those of its variants that were timed, at today's prices."""
    out = p.candidate.out
    priced = {id(q.candidate): q for q in (*problem.makers[out], *problem.spare.get(out, ()))}
    timed = [q for base, c in ways if base is p and (q := priced[id(c)]).estimate.source == "measured"]
    return priced[id(p.candidate)], timed
