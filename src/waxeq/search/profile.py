"""Profiling a model: timing first what may change which plan is the best, then everything else, then whole plans.

What is measured is in the timing table as soon as it is known, so a profile that is stopped, by the clock, by Ctrl-C or
with the machine, goes on where it was: what the table knows is not timed again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from waxeq.amounts import number_of
from waxeq.backend.call import Call
from waxeq.cost.key import TimingKey
from waxeq.events import Deadline, Note, Progress, StageFinished, StageStarted
from waxeq.extract.candidates import Candidate
from waxeq.extract.choice import Priced, Problem
from waxeq.extract.detour import Worth, detours, worth
from waxeq.extract.greedy import greedy
from waxeq.extract.paths import Listing
from waxeq.extract.ways import UNIT
from waxeq.frontend.trace import Traced
from waxeq.ir.blocks import Block, cut
from waxeq.ir.graph import Graph, expand
from waxeq.runtime.alone import WAITING, alone
from waxeq.runtime.measure import compare
from waxeq.search.block import Optimized, planned, with_runners_up
from waxeq.search.blocks import remember, searched
from waxeq.search.paths import Menu, Part, Path
from waxeq.search.placing import on_cpu
from waxeq.search.result import Result
from waxeq.search.session import Session
from waxeq.search.trials import TOGETHER, Ran, run_plans

BATCH = 12
"""Calls that are compiled and timed between two looks at what is worth timing next."""
EACH = 0.02
"""Seconds of timing for each call."""
_LOOKS, _VISITS = 4, 3
"""Times that the calls of the cheapest plans are looked at, as others are the cheapest then; and that each of them is
timed again."""
_FRESH = 1e-8
"""Seconds that a byte of memory may take that was not used before: of a virtual machine, where its host has to find it
too (measured: 0.6e-9 to 1e-8)."""
_CLEARLY = 0.98
"""Part of the time of the plan that was predicted best that another must not exceed to take its place."""

Assemble = Callable[[Session, Traced, Graph, Sequence[Block], Mapping[str, Optimized]], Result]
"""How plans of blocks, by key, become one plan: `waxeq.compile.assemble`."""


@dataclass(frozen=True)
class Profiled:
    """What a profile did: timings taken (`decisive` of them of calls that could have changed the winner), calls that
    are still unmeasured (`undecided` of them could change the winner), and the plans that were run, cheapest prediction
    first. `finished`: nothing that was asked for is left; `interrupted`: the user wanted it to stop."""

    timings: int
    decisive: int
    unmeasured: int
    undecided: int
    plans: tuple[tuple[Path, Ran], ...]
    menu: Menu
    finished: bool
    interrupted: bool
    seconds: float

    @property
    def winner(self) -> int | None:
        """The position of the fastest plan: the one predicted best unless another is clearly faster."""
        times = [r.seconds for _, r in self.plans]
        best = min(range(len(times)), key=times.__getitem__, default=None)
        return None if best is None else best if times[best] < _CLEARLY * times[0] else 0

    @property
    def fastest(self) -> frozenset[int]:
        """The positions of the plans that their timings do not tell from the fastest: of the ratio to its time the 95 %
        interval reaches 1."""
        ran = [r for _, r in self.plans]
        best = min(ran, key=lambda r: r.seconds, default=None)
        return frozenset(
            i for i, r in enumerate(ran) if best is not None and compare(best.samples, r.samples).low <= 1.0
        )


class Spread:
    """A model laid out: its blocks, all candidates of each distinct one, and what is known of their calls."""

    def __init__(self, session: Session, traced: Traced) -> None:
        self.session, self.traced = session, traced
        session.model = traced.name
        self.graph = expand(traced.graph)
        self.blocks = on_cpu(session, cut(self.graph))
        self.repeats = Counter(b.key for b in self.blocks)
        self.found = searched(session, list({b.key: b for b in self.blocks}.values()))
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

    def optimized(self, listings: Mapping[str, Listing], path: Path) -> dict[str, Optimized]:
        """The plans of the distinct blocks on a path."""
        rows = dict(self.found)
        for (key, listing), chosen in zip(listings.items(), path.rows, strict=True):
            choice = with_runners_up(self.problem(key), listing.choice(chosen))
            rows[key] = replace(self.found[key], choice=choice, plan=planned(self.found[key], choice))
        return rows


def _candidates(problem: Problem) -> list[Candidate]:
    rows = (p for group in (problem.makers, problem.spare) for ps in group.values() for p in ps)
    return [p.candidate for p in rows]


def profile(
    session: Session,
    traced: Traced,
    assemble: Assemble,
    *,
    plans: int,
    clock: Deadline,
    together: int = TOGETHER,
    kernels: Deadline | None = None,
) -> Profiled:
    """Search a model, time the calls of its candidates, then its `plans` cheapest plans whole, until done, out of time
    or asked to stop; `together` plans by turns in one process. `kernels`: when the timing of calls ends, where that is
    before the rest does. The best plan by then is what the table remembers of the model's blocks."""
    spread = Spread(session, traced)
    session.events.emit(StageStarted("profile", traced.name))
    timings, decisive = _kernels(spread, kernels or clock)
    timings += _side_by_side(spread, plans, clock)
    session.deadline = Deadline(None)
    left = spread.ranked()
    listings = spread.listings()
    menu = spread.menu(listings)
    ran: list[tuple[Path, Ran]] = []
    ways: list[dict[str, Optimized]] = []
    wanted = islice(menu.cheapest(), plans)
    while not session.stopped and not clock.expired and (group := list(islice(wanted, together))):
        session.events.emit(Progress("plans", len(ran), plans, f"predicted {group[0].seconds * 1e3:.3g} ms"))
        options = [spread.optimized(listings, p) for p in group]
        results = [assemble(session, traced, spread.graph, spread.blocks, o) for o in options]
        seconds = min(5.0 * together / TOGETHER, max(0.5, clock.left))
        found = run_plans(session, traced, results, seconds, together, clock, fewest=0)
        ran += zip(group, found, strict=False)
        ways += options[: len(found)]
    finished = not (left or session.stopped or (clock.expired and len(ran) < min(plans, menu.listed.number)))
    undecided = sum(w.possible for w, _ in left)
    session.events.emit(
        StageFinished("profile", clock.elapsed, f"{number_of(timings, 'timing')}, {number_of(len(ran), 'plan')}")
    )
    done = Profiled(timings, decisive, len(left), undecided, tuple(ran), menu, finished, session.stopped, clock.elapsed)
    if done.winner is not None:
        for o in ways[done.winner].values():
            if o.choice is not None:
                remember(session, o.looked_through(timed=undecided == 0))
    return done


def _side_by_side(spread: Spread, plans: int, clock: Deadline) -> int:
    """Time the calls of the cheapest plans again, by turns, that were timed here a single time, until these plans are
    of none such; how many. Plans that differ by a few hundredths are else told apart by the moments in which their
    calls were timed."""
    session, taken = spread.session, 0
    session.deadline = clock
    for _ in range(_LOOKS):
        listings = spread.listings()
        found: dict[TimingKey, Call] = {}
        for path in islice(spread.menu(listings).cheapest(), plans):
            for listing, rows in zip(listings.values(), path.rows, strict=True):
                found |= {session.prices.key(c): c for c in (listing.calls[i].candidate.call for i in rows)}
        calls = [c for k, c in found.items() if k in session.once]
        if not calls or session.stopped or clock.expired:
            break
        session.events.emit(Progress("kernels", taken, taken + len(calls), "of the cheapest plans, again"))
        with alone(stopped=lambda: session.stopped, waiting=lambda: session.events.emit(Note(WAITING))) as held:
            taken += session.measure(calls, EACH, visits=_VISITS) if held else 0
    return taken


def _fitting(session: Session, calls: Sequence[Call], seconds: float) -> list[Call]:
    """The first calls, at most a batch, for whose memory and timing there is room in so many seconds."""
    found: list[Call] = []
    for call, price in zip(calls, session.prices.of(calls), strict=True):
        takes = EACH + 2 * price.seconds + _FRESH * (call.bytes_read + call.out.bytes)
        if takes <= seconds and len(found) < BATCH:
            found.append(call)
            seconds -= takes
    return found


def _kernels(spread: Spread, clock: Deadline) -> tuple[int, int]:
    """Time calls, what may change the winner first, looking anew after each batch: how many, and how many of them
    could. One that what is left has no room for is not begun."""
    session, timings, decisive = spread.session, 0, 0
    session.deadline, session.kept = clock, 0.0  # what is left of the budget is for measuring, and this clock ends it
    session.share(1.0)
    tried: set[TimingKey] = set()
    while not session.stopped and not clock.expired:
        rows = [(w, c) for w, c in spread.ranked() if session.prices.key(c) not in tried]
        possible, others = ([c for w, c in rows if w.possible is p] for p in (True, False))
        matters = _fitting(session, possible, clock.left)
        calls = matters or _fitting(session, others, clock.left)
        if not calls:
            break
        detail = f"{len(possible)} of {len(rows)} could change the winner"
        session.events.emit(Progress("kernels", timings, timings + len(rows), detail))
        tried.update(map(session.prices.key, calls))
        with alone(stopped=lambda: session.stopped, waiting=lambda: session.events.emit(Note(WAITING))) as held:
            taken = session.measure(calls, EACH) if held else 0
        timings += taken
        decisive += taken if matters else 0
    return timings, decisive
