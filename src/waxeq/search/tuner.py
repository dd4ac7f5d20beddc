"""Tuning: other ways to run what was chosen (tiles, widths), those first that could change the plan most.

Searching among all variants of all candidates would multiply both; a variant costs what its kernel costs, give or take
a part, so that it changes the speed of a choice and next to never the choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from waxeq.extract.candidates import Candidate, Space, State, variants
from waxeq.extract.choice import Choice, Priced, Problem
from waxeq.extract.greedy import followed
from waxeq.search.session import Session

_WORTH = 0.01
"""Part of a plan's time that a variant must be able to save to be timed."""
_FASTER = 0.98
"""What a variant may take of the call that it replaces: of several equal ones the luckiest would else be taken."""


def tuned(
    session: Session, space: Space, rows: Sequence[Candidate], roots: tuple[State, ...], choice: Choice
) -> tuple[Problem, Choice] | None:
    """The choice with faster variants in the place of its calls, and the problem that has those as well; None where
    there is none to time, or nobody waits for it.

    A variant is timed when it would save something if it took as little as it may. The bound stays that of the choice
    without variants.
    """
    if session.hurried or not session.options.measure or session.options.cost == "roofline":
        return None
    order = choice.in_order()
    ways = [(p, c) for p in order for c in variants(space, p.candidate)]
    if not ways:
        return None
    estimates = session.prices.of([c.call for _, c in ways])
    gains = [(p.cost - e.low, c) for (p, c), e in zip(ways, estimates, strict=True) if e.source != "measured"]
    worth = [c for gain, c in sorted(gains, key=lambda row: -row[0]) if gain > _WORTH * choice.cost]
    session.measure([c.call for c in worth])
    problem = session.prices.problem(space, [*rows, *(c for _, c in ways)], roots, mood="cautious")
    found = followed(problem, {p.candidate.out: _best(problem, p, ways) for p in order}, choice.method)
    assert found is not None, "variants read what their calls read"
    return problem.having(found), replace(found, bound=choice.bound, timed_out=choice.timed_out)


def _best(problem: Problem, p: Priced, ways: Sequence[tuple[Priced, Candidate]]) -> Priced:
    """The fastest way that was timed, or the call itself, at today's price."""
    out = p.candidate.out
    priced = {id(q.candidate): q for q in (*problem.makers[out], *problem.spare.get(out, ()))}
    own = priced[id(p.candidate)]
    timed = [q for base, c in ways if base is p and (q := priced[id(c)]).estimate.source == "measured"]
    best = min(timed, key=lambda q: q.cost, default=own)
    return best if best.cost < _FASTER * own.cost else own
