"""Tuning: other ways to run what was chosen (tiles, widths), those first that could change the plan most.

Searching among all variants of all candidates would multiply both; a variant costs what its kernel costs, give or take
a part, so that it changes the speed of a choice and next to never the choice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

from waxeq.cost.estimate import Estimate
from waxeq.cost.key import TimingKey
from waxeq.extract.candidates import Candidate, Space, State, variants
from waxeq.extract.choice import Choice, Priced, Problem
from waxeq.extract.greedy import followed
from waxeq.search.session import Session

_WORTH = 0.01
"""Part of a plan's time that a variant must be able to save to be timed."""
_MUCH = 0.1
"""Part of a plan's time that variants must be expected to save for some of the time for searching to be kept for them;
and of a call's for it to be tried both ways."""
_FASTER = 0.98
"""What a variant may take of the call that it replaces: of several equal ones the luckiest would else be taken."""
_NEAR = 1.25
"""What one of two ways may take of the other for it to be tried in a whole plan too."""

Way = tuple[Priced, Candidate]
"""A call of a choice, and another way to do it."""


@dataclass(frozen=True)
class Tuned:
    """A choice with faster variants in the place of its calls, and the problem that has those as well. `other`: the
    same with a variant that promised much where it was not much slower, and without where it was not much faster; None
    where there is no such variant."""

    problem: Problem
    choice: Choice
    other: Choice | None


def tuned(
    session: Session, space: Space, rows: Sequence[Candidate], roots: tuple[State, ...], choice: Choice
) -> Tuned | None:
    """The choice tuned; None where there is nothing to time, or nobody waits for it.

    A variant is timed when it would save something if it took as little as it may. The bound stays that of the choice
    without variants.
    """
    if session.hurried or not session.measuring:
        return None
    ways = _ways(space, choice)
    if not ways:
        return None
    guessed = _guessed(session, ways)
    gains = sorted(((p.cost - e.low, n) for n, ((p, _), e) in enumerate(guessed)), key=lambda row: -row[0])
    worth = [guessed[n][0] for gain, n in gains if gain > _WORTH * choice.cost]
    now = session.by_turns([c.call for p, v in worth for c in (p.candidate, v)])
    problem = session.prices.problem(space, [*rows, *(c for _, c in ways)], roots, mood="cautious")
    order = choice.in_order()
    timed = {p.candidate.out: _timed(session, problem, p, ways, now) for p in order}
    best = {out: _best(row) for out, row in timed.items()}
    found = _followed(problem, best, choice)
    hoped = {id(c) for (p, c), e in guessed if p.cost - e.seconds > max(_MUCH * p.cost, _WORTH * choice.cost)}
    differing = {out: q for out, row in timed.items() if (q := _rival(row, best[out], hoped)) is not None}
    problem = problem.having(found)
    if not differing:
        return Tuned(problem, found, None)
    other = _followed(problem, {**best, **differing}, choice)
    return Tuned(problem.having(other), found, other)


def _followed(problem: Problem, made: Mapping[State, Priced], choice: Choice) -> Choice:
    found = followed(problem, made, choice.method)
    assert found is not None, "variants read what their calls read"
    return replace(found, bound=choice.bound, timed_out=choice.timed_out)


def promises(session: Session, space: Space, choice: Choice) -> bool:
    """Whether variants that were never timed are expected to save much of a choice's time."""
    gains: dict[int, float] = {}
    for (p, _), e in _guessed(session, _ways(space, choice)):
        gains[id(p)] = max(gains.get(id(p), 0.0), p.cost - e.seconds)
    return sum(gains.values()) > _MUCH * choice.cost


def _ways(space: Space, choice: Choice) -> list[Way]:
    return [(p, c) for p in choice.in_order() for c in variants(space, p.candidate)]


def _guessed(session: Session, ways: Sequence[Way]) -> list[tuple[Way, Estimate]]:
    """Those that were not timed, with what they may take."""
    estimates = session.prices.of([c.call for _, c in ways])
    return [(way, e) for way, e in zip(ways, estimates, strict=True) if e.source != "measured"]


Timed = list[tuple[float, Priced]]
"""A call, and then its variants that were timed, each with what it takes of what the call does."""


def _timed(session: Session, problem: Problem, p: Priced, ways: Sequence[Way], now: Mapping[TimingKey, float]) -> Timed:
    """At today's prices; those that were timed by turns with the call, as they did then."""
    out = p.candidate.out
    priced = {id(q.candidate): q for q in problem.ways(out)}
    own = priced[id(p.candidate)]
    variants = [q for base, c in ways if base is p and (q := priced[id(c)]).estimate.source == "measured"]

    def part(q: Priced) -> float:
        both = [now.get(session.prices.key(x.candidate.call)) for x in (q, own)]
        return q.cost / own.cost if both[0] is None or both[1] is None else both[0] / both[1]

    return [(1.0, own), *((part(q), q) for q in variants)]


def _best(row: Timed) -> Priced:
    """The fastest way that was timed, or the call itself."""
    part, best = min(row, key=lambda found: found[0])
    return best if part < _FASTER else row[0][1]


def _rival(row: Timed, first: Priced, hoped: Set[int]) -> Priced | None:
    """What may be the faster one in a whole plan, where one of them promised much; None where that is not so."""
    limit = _NEAR * next(part for part, q in row if q is first)
    near = [(part, q) for part, q in row if q is not first and part < limit]
    if id(first.candidate) not in hoped:
        near = [(part, q) for part, q in near if id(q.candidate) in hoped]
    return min(near, key=lambda found: found[0])[1] if near else None
