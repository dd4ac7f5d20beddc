"""Results that one loop computes: where a backend runs calls together, what they have in common is paid once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace

from waxeq.backend.call import Call
from waxeq.cost.estimate import Estimate
from waxeq.extract.candidates import State
from waxeq.extract.choice import Choice, Priced, Problem
from waxeq.extract.greedy import followed

Together = Callable[[Sequence[Call], Sequence[Sequence[Hashable]]], Estimate | None]
"""What calls take as one loop, given what each reads; None where they are not one."""
_TRIED = 3
"""Calls for one result that are tried beside others."""
_MOST = 8
"""Results that are looked at: what more of them have in common is found as they are bound."""


def joined(problem: Problem, choice: Choice, together: Together) -> Choice | None:
    """The cheapest choice that makes several results at once, each call priced at what it adds to those before; None
    where no two calls for results can be one loop.

    Calls that share work are dearer alone than calls that share what one of them has written, and only those are to be
    had where every call is priced on its own.
    """
    choice = problem.alone(choice)
    roots = [r for r in dict.fromkeys(problem.roots) if r in choice.made][:_MOST]
    found: list[Choice] = []
    for options in ({r: [choice.made[r]] for r in roots}, {r: _straight(problem, choice, r) for r in roots}):
        seen: set[State] = set()
        for first, leads in options.items():
            groups = [_group(lead, options, together) for lead in leads] if first not in seen else []
            seen |= {p.candidate.out for g in groups for p in g}
            rows = [{**choice.made, **{p.candidate.out: p for p in g}} for g in groups if len(g) > 1]
            found += [c for made in rows if (c := followed(problem, made, choice.method)) is not None]
    best = min(found, key=lambda c: c.cost, default=None)
    return None if best is None else replace(best, timed_out=choice.timed_out)


def _straight(problem: Problem, choice: Choice, root: State) -> list[Priced]:
    """The cheapest calls for a result that read nothing which has to be made; the one chosen, if it is such a one."""
    rows = [choice.made[root], *(p for p in problem.ways(root) if p.candidate is not choice.made[root].candidate)]
    return sorted((p for p in rows if problem.given.issuperset(p.candidate.inputs)), key=lambda p: p.cost)[:_TRIED]


def _group(lead: Priced, options: Mapping[State, Sequence[Priced]], together: Together) -> list[Priced]:
    """A call and those for other results that are one loop with it, priced at what they add."""
    group, whole = [lead], lead.estimate
    for root, ways in options.items():
        if root != lead.candidate.out:
            rows = [(e.seconds, n, e) for n, p in enumerate(ways) if (e := _beside(group, p, together)) is not None]
            if rows:
                seconds, n, e = min(rows)
                part = max(0.0, seconds - whole.seconds) / seconds
                more = Estimate(part * e.seconds, part * e.low, part * e.high, e.source)
                group.append(replace(ways[n], estimate=more))
                whole = e
    return group


def _beside(group: Sequence[Priced], other: Priced, together: Together) -> Estimate | None:
    """What calls take together with one more, where that saves something and reads nothing that they make."""
    rows = [p.candidate for p in (*group, other)]
    if {c.out for c in rows} & {s for c in rows for s in c.inputs}:
        return None
    reads = [[(s, v.offset) for s, v in zip(c.inputs, c.call.operands, strict=True)] for c in rows]
    found = together([c.call for c in rows], reads)
    apart = sum(p.estimate.seconds for p in (*group, other))
    return found if found is not None and found.seconds < apart else None
