"""Other plans that may win when whole plans are timed: predictions are made call by call, and calls share a cache."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice

from waxeq.events import Deadline
from waxeq.extract.choice import Choice, Priced, Problem
from waxeq.extract.exact import WORK
from waxeq.extract.greedy import greedy
from waxeq.extract.paths import paths
from waxeq.ir.blocks import Block
from waxeq.search.block import Optimized, planned, with_runners_up
from waxeq.search.choosing import polish_seconds
from waxeq.search.session import Session

_WORTH = 1.25
"""A choice predicted to be slower than this factor is not worth the time of a trial."""
_NEARER = 1.5
"""The same for one of fewer calls. What is timed alone finds its operands where four memories by turns have left them,
and in a plan where the call before has: one loop of nTrans took 1.1 to 1.4 of two there, and 0.82 here."""

_PARTS = (1.0, 0.25, 0.06)
"""What a call costs in addition for that, as parts of the most that is worth it: of many the fewest look too slow."""


def rivals(session: Session, blocks: Sequence[Block], best: Mapping[str, Optimized]) -> list[Mapping[str, Optimized]]:
    """Ways to plan the whole model, the one with the lowest prediction first: at most `top_k`.

    They differ in one block, the one that takes most of the time of those that were searched. Only the first is timed
    where there is no time for a contest.
    """
    repeats = Counter(b.key for b in blocks)
    searched = {k: o for k, o in best.items() if o.choice is not None}
    rows = [best]
    hurried = session.hurried or session.deadline.left < session.contest
    if session.options.top_k > 1 and session.options.trial and searched and not hurried:
        key = max(searched, key=lambda k: (repeats[k] * sum(s.predicted for s in searched[k].plan.steps), k))
        for choice in islice(_others(session, searched[key]), session.options.top_k - 1):
            rows.append({**best, key: replace(searched[key], choice=choice, plan=planned(searched[key], choice))})
    return rows


def _others(session: Session, found: Optimized) -> Iterator[Choice]:
    """Choices that differ from the best: those it took the place of; one of fewer calls; the best for whom kernels
    take as long as they ever took, or as little; then the next in predicted cost."""
    problem, first = found.problem, found.choice
    assert problem is not None and first is not None
    seen = {_calls(first)}
    fewer = _fewer(session, problem, first)
    for c in chain(found.beaten, fewer, _reconsidered(session, problem), _following(session, problem, first)):
        if c is not None and _calls(c) not in seen and _is_worth_it(c, first):
            seen.add(_calls(c))
            yield with_runners_up(problem, c)
        if session.hurried:  # before the next is worked out
            return


def _is_worth_it(c: Choice, first: Choice) -> bool:
    """Whether a choice may turn out to be faster than the first, whatever is predicted."""
    return c.cost <= (_NEARER if len(c.made) < len(first.made) else _WORTH) * first.cost


def _calls(choice: Choice) -> frozenset[int]:
    return frozenset(id(p.candidate) for p in choice.in_order())


def _following(session: Session, problem: Problem, first: Choice) -> Iterator[Choice]:
    """The two that follow in predicted cost, as far as they are found soon: they are timed, not listed."""
    seconds, seed = polish_seconds(session), session.options.seed
    return islice(paths(problem, first, seconds=seconds, seed=seed, work=WORK, proved=False), 1, 3)


def _fewer(session: Session, problem: Problem, first: Choice) -> Iterator[Choice]:
    """The greedy choice of fewer calls where each call costs half of what the first takes in addition, or a part of
    that, until it is none that looks too slow: one kernel that looks slower than two may be the faster one where its
    operands lie nearer than they did when calls were timed one by one."""
    for part in _PARTS:
        each = part * (_NEARER - 1) * first.cost
        found = _at(problem, lambda p, each=each: p.estimate.seconds + each, session.choosing())
        if found is None or len(found.made) >= len(first.made):
            return
        if _is_worth_it(found, first):
            yield found
            return


def _reconsidered(session: Session, problem: Problem) -> Iterator[Choice | None]:
    """The greedy choices at the highest prices, and at the lowest."""
    for price in (lambda p: p.estimate.high, lambda p: p.estimate.low):
        yield _at(problem, price, session.choosing())


def _at(problem: Problem, price: Callable[[Priced], float], until: Deadline) -> Choice | None:
    """The greedy choice at other prices, priced as predicted."""
    original = {id(p.candidate): p for p in problem.candidates}
    makers = {
        s: tuple(Priced(p.candidate, replace(p.estimate, seconds=price(p))) for p in rows)
        for s, rows in problem.makers.items()
    }
    found = greedy(Problem(makers, problem.roots, problem.given), until)
    if found is None:
        return None
    made = {s: original[id(p.candidate)] for s, p in found.made.items()}
    return Choice(made, problem.roots, sum(p.cost for p in made.values()), method=found.method)
