"""Widening what a choice is made of: candidates near to it that growing by rough prices did not come to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, takewhile

from waxeq.egraph.snapshot import Snapshot
from waxeq.extract.candidates import Candidate, Space, State, variants
from waxeq.extract.choice import Choice, Priced, Problem
from waxeq.extract.near import instead, merged, split
from waxeq.search.choosing import Chosen, choose
from waxeq.search.session import Session

_TIMES = 6
"""Times that a choice is widened: what came of two calls may take in a third one."""
_GAIN = 0.98
"""Part of what is taken now that another must not exceed to be worth going on from."""
_NEAR = 16.0
"""What a call may take of the chosen one for its variants to be looked at: another width of vectors may be worth it."""
_RIVALS = 6
"""Calls beside a chosen one whose variants are looked at."""
_LEAST = 0.02
"""Part of a choice's time that a call takes for others to be looked at in its place."""


@dataclass(frozen=True)
class Widened:
    """A choice, and all candidates that it was chosen of."""

    chosen: Chosen
    rows: Sequence[Candidate]


def widened(
    session: Session,
    space: Space,
    rows: Sequence[Candidate],
    roots: tuple[State, ...],
    chosen: Chosen,
    text: Snapshot | None = None,
) -> Widened:
    """The best choice of these candidates and of those near to it, again as long as that gains something and there is
    time: pairs of its calls in one loop nest, its calls without what they compute again and again, loops for calls of
    libraries, and variants of calls that are no choice without them."""
    if text is not None and session.searching > session.deadline.elapsed and _nested(chosen.choice):
        chosen = _fold_by_fold(session, space, rows, roots, chosen, text)
    found = Widened(chosen, rows)
    for _ in range(_TIMES):
        new = [] if session.hurried else _promising(session, space, found)
        if not new:
            break
        before, rows = found.chosen, [*found.rows, *new]
        found = Widened(_again(session, space, rows, roots, before), rows)
        if found.chosen.choice.cost >= _GAIN * before.choice.cost:
            break
    return found


def _again(
    session: Session, space: Space, rows: Sequence[Candidate], roots: tuple[State, ...], before: Chosen
) -> Chosen:
    """What is chosen now; what was before, where that is no dearer at the prices of now, or a kernel turned out not to
    run here."""
    unusable = len(session.prices.excluded)
    better = choose(session, space, rows, roots)
    if better is None or len(session.prices.excluded) > unusable:
        return before
    measured, old = better.measured + before.measured, better.problem.alone(before.choice)
    if old.cost <= better.choice.cost:
        return replace(better, problem=better.problem.having(old), choice=old, beaten=before.beaten, measured=measured)
    gained = better.choice.cost < _GAIN * old.cost
    beaten = (*better.beaten, *((old, *before.beaten) if gained else ()))
    return replace(better, measured=measured, beaten=beaten)


def _nested(choice: Choice) -> bool:
    """Whether some call has a fold inside another one's loops, or after it."""
    return any(p.candidate.folds > 1 for p in choice.made.values())


def _fold_by_fold(
    session: Session,
    space: Space,
    rows: Sequence[Candidate],
    roots: tuple[State, ...],
    chosen: Chosen,
    text: Snapshot,
) -> Chosen:
    """What is chosen once the model was timed as it is written, each of its folds made alone. Where loops of several
    folds take long, they raise what all others like them are thought to take, and none of these is timed then."""
    own = {i for i, c in enumerate(text.classes) if c.nodes}
    single = [c for c in rows if c.folds < 2 and own.issuperset((c.out.number, *(i for i, _ in c.nodes)))]
    plain = choose(session, space, single, roots)
    if plain is None or not plain.measured:
        return chosen
    found = _again(session, space, rows, roots, chosen)
    return replace(found, measured=found.measured + plain.measured)


def _promising(session: Session, space: Space, found: Widened) -> list[Candidate]:
    """Calls that nobody looked at. Loops may turn out to take less than what they are to take the place of; a variant
    is known, or thought, to do so."""
    have = {c.looks for c in found.rows}
    problem, choice = found.chosen.problem, found.chosen.choice
    near = takewhile(
        lambda _: not session.hurried,
        chain(merged(space, choice), split(space, problem, choice), instead(space, choice)),
    )
    loops = list({c.looks: (c, now) for c, now in near if c.looks not in have}.values())
    have |= {c.looks for c, _ in loops}
    others = [(c, now) for c, now in _others(space, problem, choice) if c.looks not in have]
    estimates = session.prices.of([c.call for c, _ in (*loops, *others)])
    hoped = [c for (c, now), e in zip(loops, estimates[: len(loops)], strict=True) if e.low < now]
    likely = zip(others, estimates[len(loops) :], strict=True)
    return [*hoped, *(c for (c, now), e in likely if e.seconds < _GAIN * now)]


def _others(space: Space, problem: Problem, choice: Choice) -> Iterator[tuple[Candidate, float]]:
    """Variants of the next best calls that read nothing more than is there, each with what is taken now by the chosen
    one, and by calls that only that reads: a call that does the work of both is a variant of no other."""
    have = problem.given | choice.made.keys()
    readers = Counter(s for p in choice.made.values() for s in {*p.candidate.inputs})
    readers.update(choice.roots)
    for out, p in choice.made.items():
        alone = {s: choice.made[s].cost for s in {*p.candidate.inputs} & choice.made.keys() if readers[s] == 1}
        if p.cost + sum(alone.values()) < _LEAST * choice.cost:
            continue
        near: list[tuple[float, Priced, float]] = []
        for q in problem.ways(out):
            now = p.cost + sum(cost for s, cost in alone.items() if s not in q.candidate.inputs)
            if q.candidate is not p.candidate and q.cost < _NEAR * now and have.issuperset(q.candidate.inputs):
                near.append((q.cost / now, q, now))
        near.sort(key=lambda row: row[0])
        yield from ((c, now) for _, q, now in near[:_RIVALS] for c in variants(space, q.candidate))
