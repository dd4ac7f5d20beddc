"""All plans of a block in rising predicted cost, one at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from waxeq.extract.candidates import State
from waxeq.extract.choice import Choice, Priced, Problem
from waxeq.extract.detour import detours
from waxeq.extract.exact import WORK, polish
from waxeq.extract.ways import NODES, UNIT, Count, Ways, ways_of

_ALIKE = 2e-4
"""Part of the cost that a proved choice may lie above its bound: HiGHS goes on down to 1e-4, the rest is rounding."""


def paths(
    problem: Problem,
    first: Choice,
    *,
    seconds: float = 60.0,
    seed: int = 0,
    work: float = 5 * WORK,
    proved: bool = True,
) -> Iterator[Choice]:
    """Yield `first`, then each next-best choice: the same mixed-integer program with every earlier choice forbidden.

    Ends when no other choice exists, or when HiGHS finds none with `work` (or in `seconds`) or does not prove that none
    is cheaper; where that need not be `proved`, what it found follows, in whatever order. A choice is the set of calls
    it needs.
    """
    current: Choice | None = problem.alone(first)
    problem = problem.having(current)
    place = {id(p): i for i, p in enumerate(problem.candidates)}
    seen: list[frozenset[int]] = []
    while current is not None:
        yield current if seen else first
        seen.append(frozenset(place[id(p)] for p in current.in_order()))
        found = polish(problem, current, seconds, forbid=seen, seed=seed, work=work)
        fresh = frozenset(place[id(p)] for p in found.in_order())
        current = None if fresh in seen or (proved and not _is_least(found)) else found


def _is_least(found: Choice) -> bool:
    """Whether HiGHS ended as no choice is cheaper, as far as it tells costs apart."""
    return found.bound is not None and found.cost - found.bound <= _ALIKE * found.cost


@dataclass(frozen=True)
class Listing:
    """Every choice of a block: `ways` to make the roots, each row a call of `calls`. `count` is of all of them;
    `listed` of those that can be listed: fewer, where all calls together are too many to be looked through.
    """

    ways: Ways
    calls: tuple[Priced, ...]
    roots: tuple[State, ...]
    count: Count
    listed: Count

    @staticmethod
    def unseen(problem: Problem, nodes: int = NODES) -> Listing:
        """All choices of a problem, spare candidates among them, not counted yet; candidates that are the same call on
        the same states are one."""
        calls = _distinct(problem)
        unknown = Count(0, exact=False)
        return Listing(ways_of(calls, problem, nodes), calls, problem.roots, unknown, unknown)

    @staticmethod
    def of(problem: Problem, chosen: Choice, nodes: int = NODES) -> Listing:
        """All choices of a problem, counted. Where there are too many to be looked through, those are listed that have
        the calls whose cheapest detour from `chosen` costs least."""
        whole = Listing.unseen(problem, nodes)
        count = whole.ways.count()
        if count.exact:
            return replace(whole, count=count, listed=count)
        through = detours(whole.ways, whole.positions(chosen))
        order = sorted(range(len(through)), key=lambda i: (through[i], i))
        kept = len(order)
        while True:
            kept = max(len(chosen.made), kept // 2)
            near = tuple(whole.calls[i] for i in sorted(order[:kept]))
            ways = ways_of(near, problem, nodes)
            if (listed := ways.count()).exact:
                return Listing(ways, near, problem.roots, count, listed)
            nodes *= 2 if kept == len(chosen.made) else 1

    def positions(self, chosen: Choice) -> list[int]:
        """Where the calls of a choice stand."""
        place = {_identity(p): i for i, p in enumerate(self.calls)}
        return [place[_identity(p)] for p in chosen.in_order()]

    def cheapest(self) -> Iterator[tuple[float, tuple[int, ...]]]:
        """Choices in rising cost: predicted seconds, and the positions of their calls, users first."""
        for cost, rows in self.ways.cheapest():
            yield cost * UNIT, rows

    def choice(self, rows: Iterable[int]) -> Choice:
        """The choice that a path stands for."""
        made = {self.calls[i].candidate.out: self.calls[i] for i in rows}
        return Choice(made, self.roots, sum(p.cost for p in made.values()), method="listed")


def _identity(p: Priced) -> object:
    c = p.candidate
    return (c.out, c.inputs, c.call.kernel, c.call.text, c.call.dims, c.call.layout) if c.call else id(c)


def _distinct(problem: Problem) -> tuple[Priced, ...]:
    """Candidates at the prices they are expected to have, each once."""
    rows = (p for group in (problem.makers, problem.spare) for ps in group.values() for p in ps)
    found: dict[object, Priced] = {}
    for p in rows:
        found.setdefault(_identity(p), replace(p, mood="expected"))
    return tuple(found.values())
