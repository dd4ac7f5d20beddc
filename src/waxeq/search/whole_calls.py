"""Models that one call of a backend does: what Python takes around other plans is paid once for all of their blocks, so
that steps which are slower one by one may be the faster ones together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from waxeq.backend.direct import Directly
from waxeq.extract.choice import Problem
from waxeq.extract.greedy import greedy
from waxeq.extract.joint import joined
from waxeq.ir.blocks import Block
from waxeq.ir.graph import Graph
from waxeq.plan.around import MOST, around, kind
from waxeq.plan.plan import Plan, Step
from waxeq.search.block import Optimized, planned, with_runners_up
from waxeq.search.blocks import remember
from waxeq.search.session import Session

_ROUNDS = 4
"""Times that calls are chosen and timed at most: the quickest of those that are left may turn out slow."""


def overhead(session: Session, plan: Plan) -> float:
    """Seconds of a call of a plan besides its steps."""
    inputs = sum(x.kind == "input" for x in plan.graph.leaves)
    return _around(session, plan.steps, inputs + len(plan.outputs), bool(plan.states))


def in_whole_calls(
    session: Session, graph: Graph, blocks: Sequence[Block], best: Mapping[str, Optimized]
) -> Mapping[str, Optimized]:
    """Plans of blocks, by key, of calls that a backend makes whole, where all of them together are predicted to take
    less so; the best ones else. What is not taken was beaten.

    That is for small models. A block that is only remembered stays as it is.
    """
    passed = sum(x.kind == "input" for x in graph.leaves) + len(graph.outputs)

    def seconds(plans: Mapping[str, Optimized]) -> float:
        steps = _steps(plans[b.key] for b in blocks)
        return sum(s.predicted for s in steps) + _around(session, steps, passed, bool(graph.states))

    steps = _steps(best.values())
    if session.hurried or graph.states or not around([session.kernels[s.call.kernel] for s in steps], passed, 1.0):
        return best
    taken = seconds(best)
    if taken > MOST:
        return best
    for way in dict.fromkeys(k.direct for k in session.kernels.values() if k.direct is not None):
        others = _all_by(session, best, way)
        if others is not None and seconds(others) < taken:
            for found in others.values():
                if found is not best[found.block.key] and not session.stopped:
                    remember(session, found)
            return others
        best = best if others is None else {k: _beating(o, others[k]) for k, o in best.items()}
    return best


def _steps(found: Iterable[Optimized]) -> list[Step]:
    """The steps of blocks, without copies of parts: those go, as a rule, where parts are read in their place."""
    return [s for o in found if not _copies(o) for s in o.plan.steps]


def _copies(o: Optimized) -> bool:
    return o.choice is None and all(s.call.meaning.head == "In" for s in o.plan.steps)


def _around(session: Session, steps: Sequence[Step], passed: int, states: bool) -> float:
    rows, launch = [session.kernels[s.call.kernel] for s in steps], session.prices.model.peaks.launch
    return around(rows, passed, launch, states=states)


def _all_by(session: Session, best: Mapping[str, Optimized], way: Directly) -> Mapping[str, Optimized] | None:
    """The blocks as calls of one kind; None where some block has none."""

    def is_so(o: Optimized) -> bool:
        return kind([session.kernels[s.call.kernel] for s in o.plan.steps]) is way

    mixed = [k for k, o in best.items() if _steps([o]) and not is_so(o)]
    if any(best[k].choice is None for k in mixed):
        return None
    rows = dict(best)
    for k in mixed:
        found = _by(session, best[k], way)
        if found is None or not is_so(found):  # what spreads a result may be of another kind
            return None
        rows[k] = found
    return rows


def _by(session: Session, found: Optimized, way: Directly) -> Optimized | None:
    """A block as calls of one kind, which are timed where they were not; None where there are none."""
    assert found.choice is not None
    whole, rows = _posed(session, found, way)
    choice = greedy(rows, session.choosing())
    for _ in range(_ROUNDS * session.measuring):
        guessed = [] if choice is None else [p for p in choice.in_order() if p.estimate.source != "measured"]
        if not session.measure([p.candidate.call for p in guessed]):
            break
        whole, rows = _posed(session, found, way)
        choice = greedy(rows, session.choosing())
    if choice is None:
        return None
    other = joined(rows, choice, session.prices.together)
    choice = choice if other is None else min(choice, other, key=lambda c: c.cost)
    choice = with_runners_up(whole, choice)
    made = replace(found, problem=whole, choice=choice, beaten=(found.choice, *found.beaten))
    return replace(made, plan=planned(made, choice))


def _posed(session: Session, found: Optimized, way: Directly) -> tuple[Problem, Problem]:
    """The problem of a block at the prices of now, and the same for candidates of one kind alone, those too that are
    needless beside others."""
    space, before = found.space, found.problem
    assert space is not None and before is not None
    rows = [p.candidate for s in before.makers for p in before.ways(s)]
    whole = session.prices.problem(space, rows, before.roots)
    usable = {n for n, k in session.kernels.items() if k.direct is way} - session.prices.excluded
    makers = {s: tuple(p for p in whole.ways(s) if p.candidate.call.kernel in usable) for s in whole.makers}
    return whole, Problem(makers, whole.roots, whole.given)


def _beating(best: Optimized, other: Optimized) -> Optimized:
    """The best plan of a block, with the choice of another one among those that it beat."""
    if other is best or other.choice is None:
        return best
    return replace(best, beaten=(other.choice, *best.beaten))
