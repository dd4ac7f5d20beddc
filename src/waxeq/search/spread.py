"""A model laid out: the candidates of each distinct block, what to time of them, and its plans in rising cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from heapq import merge
from itertools import islice
from typing import Any

from waxeq.backend.call import Call
from waxeq.cost.key import TimingKey
from waxeq.errors import BudgetError
from waxeq.extract.candidates import Candidate
from waxeq.extract.choice import Choice, Priced, Problem
from waxeq.extract.detour import Worth, detours, worth
from waxeq.extract.greedy import greedy
from waxeq.extract.joint import joined
from waxeq.extract.paths import Listing
from waxeq.extract.ways import UNIT
from waxeq.frontend.trace import Traced
from waxeq.ir.blocks import Block, cut
from waxeq.ir.graph import Graph, expand
from waxeq.search.block import Optimized, planned, with_runners_up
from waxeq.search.blocks import recalled, searched
from waxeq.search.paths import Menu, Part
from waxeq.search.placing import on_cpu
from waxeq.search.result import Result
from waxeq.search.session import Session

Assemble = Callable[[Session, Traced, Graph, Sequence[Block], Mapping[str, Optimized]], Result]
"""How plans of blocks, by key, become one plan: `waxeq.compile.assemble`."""


@dataclass(frozen=True)
class Way:
    """One plan of a model: predicted seconds, and the plan of each distinct block, by key."""

    seconds: float
    blocks: Mapping[str, Optimized]


class Spread:
    """A model laid out: its blocks, all candidates of each distinct one, and what is known of their calls."""

    def __init__(self, session: Session, traced: Traced) -> None:
        self.session, self.traced = session, traced
        session.model = traced.name
        self.graph = expand(traced.graph)
        self.blocks = on_cpu(session, cut(self.graph))
        self.repeats = Counter(b.key for b in self.blocks)
        self.known = recalled(session, self.blocks, cut=True)  # before the search remembers what it finds
        self.found = searched(session, self.blocks)
        self.candidates = {k: _candidates(o.problem) for k, o in self.found.items() if o.problem is not None}

    def on(self, session: Session) -> Spread:
        """The same, at the prices of another session."""
        other = copy(self)
        other.session = session
        return other

    def problem(self, key: str) -> Problem:
        """The problem of a block at the prices known by now."""
        found = self.found[key]
        assert found.space is not None and found.problem is not None
        return self.session.prices.problem(found.space, self.candidates[key], found.problem.roots)

    def ranked(self) -> list[tuple[Worth, Call]]:
        """Calls that were not measured, by what they may change: those the best choice rests on, those that could
        become part of a better one, the rest; of each kind the most promising first. None that takes more memory than
        plans may: they are in no plan, and may not fit into this machine."""
        best: dict[TimingKey, tuple[tuple[float, ...], Worth, Call]] = {}
        for key in self.candidates:
            for rank, w, call in self._ranked(key):
                k = self.session.prices.key(call)
                if k not in best or rank < best[k][0]:
                    best[k] = (rank, w, call)
        return [(w, call) for _, w, call in sorted(best.values(), key=lambda row: row[0])]

    def _ranked(self, key: str) -> Iterator[tuple[tuple[float, ...], Worth, Call]]:
        problem = self.problem(key)
        chosen = greedy(problem)
        listing = None if chosen is None else Listing.unseen(problem)
        if chosen is None or listing is None:
            return
        rows = listing.positions(chosen)
        through = detours(listing.ways, rows)
        cost, inside = sum(listing.ways.rows[i].cost for i in rows), set(rows)
        for i, p in enumerate(listing.calls):
            call = p.candidate.call
            large = call.out.bytes + call.bytes_read > self.session.options.max_memory
            if large or p.estimate.source == "measured" or call.kernel in self.session.prices.excluded:
                continue
            if i in inside:
                yield (0.0, -p.cost * self.repeats[key]), Worth(p.estimate.high - p.cost, 1.0, True), call
                continue
            w = worth(p.estimate, (cost - through[i]) * UNIT + p.cost)
            yield (1.0 if w.possible else 2.0, -w.gain * self.repeats[key], p.cost), w, call

    def listings(self) -> dict[str, Listing]:
        """Every choice of each distinct block, at the prices known by now."""
        rows = {}
        for key in self.candidates:
            problem = self.problem(key)
            chosen = greedy(problem)
            assert chosen is not None, "a block that was planned has a choice"
            rows[key] = Listing.of(problem, chosen)
        return rows

    def menu(
        self, listings: Mapping[str, Listing], about: Callable[[Priced], Mapping[str, Any]] = lambda p: {}
    ) -> Menu:
        """All plans of the model; `about` is what to say of a call."""
        parts = (
            Part(
                self.repeats[k], found.ways, found.count, found.listed,
                tuple(map(about, found.calls))
            )
            for k, found in listings.items()
        )  # fmt: skip
        return Menu(self.traced.name, tuple(parts))

    def plans(
        self, assemble: Assemble, listings: Mapping[str, Listing], most: int | None = None
    ) -> Iterator[tuple[Way, Result]]:
        """The plans of all ways, or of the first `most`, each once; none that needs more memory than is allowed. Raises
        BudgetError where all of them do."""
        seen: set[str] = set()
        refused: BudgetError | None = None
        for way in islice(self.ways(listings), most):
            try:
                result = assemble(self.session, self.traced, self.graph, self.blocks, way.blocks)
            except BudgetError as e:
                refused = e
                continue
            if result.runs not in seen:
                seen.add(result.runs)
                yield way, result
        if refused is not None and not seen:
            raise refused

    def ways(self, listings: Mapping[str, Listing]) -> Iterator[Way]:
        """Plans of the model in rising predicted cost: all of the menu, where every call is priced on its own; the one
        whose results are made side by side, where that is cheaper; and the one that the table remembers."""
        listed = (
            Way(path.seconds, {**self.found, **{k: self._follows(k, n.choice(rows)) for (k, n), rows in zip(
                listings.items(), path.rows, strict=True)}})
            for path in self.menu(listings).cheapest()
        )  # fmt: skip
        others = sorted((w for w in (self._side_by_side(listings), self._remembered()) if w), key=lambda w: w.seconds)
        return merge(others, listed, key=lambda w: w.seconds)

    def _follows(self, key: str, choice: Choice) -> Optimized:
        found = self.found[key]
        choice = with_runners_up(self.problem(key), choice)
        return replace(found, choice=choice, plan=planned(found, choice))

    def _side_by_side(self, listings: Mapping[str, Listing]) -> Way | None:
        """Each block as its cheapest choice, calls that are one loop priced as that; None where none are."""
        rows, joint, seconds = dict(self.found), False, 0.0
        for key, listing in listings.items():
            best = next((listing.choice(path) for _, path in listing.cheapest()), None)
            if best is None:
                return None
            other = joined(self.problem(key), best, self.session.prices.together)
            if other is not None and other.cost < best.cost:
                best, joint = other, True
            rows[key] = self._follows(key, best)
            seconds += self.repeats[key] * best.cost
        return Way(seconds, rows) if joint else None

    def _remembered(self) -> Way | None:
        """What the table remembers of every block, from this or a longer search; None where it lacks one."""
        if not self.known.keys() >= self.found.keys():
            return None
        rows = {k: replace(o, plan=self.known[k].plan, choice=None) for k, o in self.found.items()}
        return Way(sum(self.repeats[k] * s.predicted for k, o in rows.items() for s in o.plan.steps), rows)


def _candidates(problem: Problem) -> list[Candidate]:
    rows = (p for group in (problem.makers, problem.spare) for ps in group.values() for p in ps)
    return [p.candidate for p in rows]
