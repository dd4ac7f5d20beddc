"""All plans of a block in rising predicted cost, one at a time."""

from __future__ import annotations

from collections.abc import Iterator

from waxeq.extract.choice import Choice, Problem
from waxeq.extract.exact import WORK, polish


def paths(
    problem: Problem, first: Choice, *, seconds: float = 60.0, seed: int = 0, work: float = 5 * WORK
) -> Iterator[Choice]:
    """Yield `first`, then each next-best choice: the same mixed-integer program with every earlier choice forbidden.

    Ends when no other choice exists, or when HiGHS finds none with `work` (or in `seconds`). A choice is the set of
    calls it needs.
    """
    place = {id(p): i for i, p in enumerate(problem.candidates)}
    seen: list[frozenset[int]] = []
    current: Choice | None = first
    while current is not None:
        yield current
        seen.append(frozenset(place[id(p)] for p in current.in_order()))
        found = polish(problem, current, seconds, forbid=seen, seed=seed, work=work)
        fresh = frozenset(place[id(p)] for p in found.in_order())
        current = None if fresh in seen else found
