"""Profiling a model: timing first what may change which plan is the best, then everything else, then whole plans.

What is measured is in the timing table as soon as it is known, so a profile that is stopped, by the clock, by Ctrl-C or
with the machine, goes on where it was: what the table knows is not timed again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import islice

from waxeq.amounts import number_of
from waxeq.backend.call import Call
from waxeq.cost.key import TimingKey
from waxeq.events import Deadline, Note, Progress, StageFinished, StageStarted
from waxeq.frontend.trace import Traced
from waxeq.runtime.alone import WAITING, alone
from waxeq.runtime.measure import compare
from waxeq.search.blocks import remember
from waxeq.search.paths import Menu
from waxeq.search.result import Result
from waxeq.search.session import Session
from waxeq.search.spread import Assemble, Spread, Way
from waxeq.search.trial import Proofs
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


@dataclass(frozen=True)
class Profiled:
    """What a profile did: timings taken (`decisive` of them of calls that could have changed the winner), calls that
    are still unmeasured (`undecided` of them could change the winner), and the plans that were run, cheapest prediction
    first. `finished`: nothing that was asked for is left; `interrupted`: the user wanted it to stop."""

    timings: int
    decisive: int
    unmeasured: int
    undecided: int
    plans: tuple[tuple[Way, Ran], ...]
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
    ran, whole = _plans(spread, islice(spread.plans(assemble, listings), plans), plans, clock, together)
    undecided = sum(w.possible for w, _ in left)
    session.events.emit(
        StageFinished("profile", clock.elapsed, f"{number_of(timings, 'timing')}, {number_of(len(ran), 'plan')}")
    )
    finished = not left and whole and not session.stopped
    done = Profiled(
        timings, decisive, len(left), undecided, tuple(ran), spread.menu(listings), finished, session.stopped,
        clock.elapsed,
    )  # fmt: skip
    if done.winner is not None:
        for o in ran[done.winner][0].blocks.values():
            remember(session, o.looked_through(timed=undecided == 0))
    return done


def _plans(
    spread: Spread, wanted: Iterator[tuple[Way, Result]], most: int, clock: Deadline, together: int
) -> tuple[list[tuple[Way, Ran]], bool]:
    """Plans run whole, and whether all that were wanted, `most` of them, were."""
    session, ran, whole = spread.session, list[tuple[Way, Ran]](), False
    proofs = Proofs(session, spread.traced, None)
    while not (whole or session.stopped or clock.expired):
        group = list(islice(wanted, together))
        if group:
            predicted = f"predicted {group[0][0].seconds * 1e3:.3g} ms"
            session.events.emit(Progress("plans", len(ran), most, predicted))
        seconds = min(5.0 * together / TOGETHER, max(0.5, clock.left))
        results = [r for _, r in group]
        found = run_plans(session, spread.traced, results, seconds, together, clock, fewest=0, proofs=proofs)
        ran += zip((w for w, _ in group), found, strict=False)
        whole = len(group) < together and len(found) == len(group)
    return ran, whole


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
        with _alone(session, clock) as held:
            taken += session.measure(calls, EACH, visits=_VISITS) if held else 0
    return taken


def _alone(session: Session, clock: Deadline) -> AbstractContextManager[bool]:
    """The machine for this process alone, once others have done; False where that is not before the clock ends."""
    stopped, waiting = (lambda: session.stopped or clock.expired), (lambda: session.events.emit(Note(WAITING)))
    return alone(stopped=stopped, waiting=waiting)


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
        with _alone(session, clock) as held:
            taken = session.measure(calls, EACH) if held else 0
        timings += taken
        decisive += taken if matters else 0
    return timings, decisive
