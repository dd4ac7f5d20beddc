"""Other plans that may win when whole plans are timed: predictions are made call by call, and calls share a cache."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from waxeq.extract.choice import Choice, Priced, Problem
from waxeq.extract.exact import WORK
from waxeq.extract.greedy import greedy
from waxeq.extract.paths import paths
from waxeq.ir.blocks import Block
from waxeq.search.block import Optimized, planned, with_runners_up
from waxeq.search.session import Session

_WORTH = 1.25
"""A choice predicted to be slower than this factor is not worth the time of a trial."""


def rivals(session: Session, blocks: Sequence[Block], best: Mapping[str, Optimized]) -> list[Mapping[str, Optimized]]:
    """Ways to plan the whole model, the one with the lowest prediction first: at most `top_k`.

    They differ in one block, the one that takes most of the time of those that were searched.
    """
    repeats = Counter(b.key for b in blocks)
    searched = {k: o for k, o in best.items() if o.choice is not None}
    rows = [best]
    if session.options.top_k > 1 and session.options.trial and searched and not session.hurried:
        key = max(searched, key=lambda k: (repeats[k] * sum(s.predicted for s in searched[k].plan.steps), k))
        for choice in islice(_others(session, searched[key]), session.options.top_k - 1):
            rows.append({**best, key: replace(searched[key], choice=choice, plan=planned(searched[key], choice))})
    return rows


def _others(session: Session, found: Optimized) -> Iterator[Choice]:
    """Choices that differ from the best: those it took the place of; the best for whom kernels take as long as
    they ever took, or as little; then the next in predicted cost."""
    problem, first = found.problem, found.choice
    assert problem is not None and first is not None
    seen = {_calls(first)}
    slow, fast = (_reconsidered(problem, price) for price in (lambda p: p.estimate.high, lambda p: p.estimate.low))
    o = session.options
    following = islice(paths(problem, first, seconds=o.polish_seconds, seed=o.seed, work=WORK), 1, 3)
    for choices in ((*found.beaten, slow, fast), following):
        for c in choices:
            if session.hurried:
                return
            if c is not None and _calls(c) not in seen and c.cost <= _WORTH * first.cost:
                seen.add(_calls(c))
                yield with_runners_up(problem, c)


def _calls(choice: Choice) -> frozenset[int]:
    return frozenset(id(p.candidate) for p in choice.in_order())


def _reconsidered(problem: Problem, price: Callable[[Priced], float]) -> Choice | None:
    """The greedy choice at other prices, priced as predicted."""
    original = {id(p.candidate): p for p in problem.candidates}
    makers = {
        s: tuple(Priced(p.candidate, replace(p.estimate, seconds=price(p))) for p in rows)
        for s, rows in problem.makers.items()
    }
    found = greedy(Problem(makers, problem.roots, problem.given))
    if found is None:
        return None
    made = {s: original[id(p.candidate)] for s, p in found.made.items()}
    return Choice(made, problem.roots, sum(p.cost for p in made.values()), method=found.method)
