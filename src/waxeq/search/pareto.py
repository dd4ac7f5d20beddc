"""What can be had: latency against error against memory, from plans that really ran."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from waxeq.amounts import number_of
from waxeq.backend.discover import backends, kernels
from waxeq.errors import AccuracyError
from waxeq.events import Deadline, Events, Note, Progress, StageFinished, StageStarted
from waxeq.frontend.trace import Traced
from waxeq.memory.estimate import plan_estimate
from waxeq.options import Options
from waxeq.runtime.verify import Accuracy, require
from waxeq.search.result import Result
from waxeq.search.session import Session, levels
from waxeq.search.spread import Assemble, Spread
from waxeq.search.tables import Opened
from waxeq.search.trial import Proofs, as_written
from waxeq.search.trials import Ran, run_plans

_LOOKED = 24
"""Plans of each tolerance that are laid out in memory, to find those that need less of it."""
_TOGETHER = 8
_RUNNING = 0.4
"""Part of the budget that is kept for running plans."""
_PROCESS, _BRIEF = 2.0, 0.5
"""Seconds that a process takes to start, import and load; and that plans which are run together take at least."""


@dataclass(frozen=True)
class Offer:
    """A plan that ran, and the tolerance from which on it may be chosen. `rejected`: why it is none to choose; `front`:
    no other is at least as good in time, error and memory, and better in one of them."""

    tolerance: float
    rejected: str | None
    result: Result
    ran: Ran
    front: bool = False


def offers(
    options: Options, events: Events, opened: Opened, traced: Traced, assemble: Assemble, plans: int
) -> list[Offer]:
    """Search under each tolerance, run the `plans` cheapest plans of each, some that need less memory, and
    the model as written, all side by side; the offers, fastest first. What the budget has no room for is noted."""
    clock = Deadline(options.budget)
    rows = _found(options, events, opened, traced, assemble, plans, clock)
    if rows:
        first = rows[0][1]
        rows.insert(1, (0.0, replace(first, plan=as_written(first.plan))))
    with Session.open(options, events, opened) as session:
        proofs = Proofs(session, traced, None)
        ran = _ran(proofs, [r for _, r in rows], clock)
        made = [
            Offer(t, None, r, one)
            if r.plan.written
            else Offer(*judged(proofs.accuracy(r), t, options.tolerance), r, one)
            for (t, r), one in zip(rows, ran, strict=False)
        ]
    events.emit(StageFinished("pareto", 0.0, number_of(len(made), "plan")))
    return sorted(_marked(made), key=lambda o: o.ran.seconds)


def _found(
    options: Options,
    events: Events,
    opened: Opened,
    traced: Traced,
    assemble: Assemble,
    plans: int,
    clock: Deadline,
) -> list[tuple[float, Result]]:
    """Distinct plans of each tolerance, the cheapest of each before the second cheapest of any."""
    found: dict[str, tuple[int, float, Result]] = {}
    steps = levels(options, kernels(backends(options.backends)).values())
    for n, tolerance in enumerate(steps):
        searching = clock.left - _RUNNING * (clock.seconds or 0.0)
        if events.stop_requested or (found and searching <= 0):
            left = ", ".join(f"{t:g}" for t in steps[n:])
            if not events.stop_requested:
                events.emit(Note(f"the budget was spent before these tolerances were searched: {left}"))
            break
        events.emit(StageStarted("pareto", f"tolerance {tolerance:g}"))
        events.emit(Progress("pareto", n, len(steps), f"tolerance {tolerance:g}"))
        budget = None if clock.seconds is None else max(0.0, searching / (len(steps) - n))
        level = options.model_copy(update={"tolerance": tolerance, "budget": budget, "fresh": True})
        with Session.open(level, events, opened) as session:
            for rank, result in enumerate(_cheapest(session, traced, assemble, plans)):
                found.setdefault(result.runs, (rank, tolerance, result))
    return [(t, r) for _, t, r in sorted(found.values(), key=lambda row: row[:2])]


def _ran(proofs: Proofs, results: Sequence[Result], clock: Deadline) -> list[Ran]:
    """The plans run, a second for each; as many as the budget has room for, those that come first, and at least the
    two first: the best one and the model as written."""
    session, ran = proofs.session, list[Ran]()
    groups = [results[i : i + _TOGETHER] for i in range(0, len(results), _TOGETHER)]
    for n, group in enumerate(groups):
        if n > 0 and clock.left < _PROCESS:
            break
        seconds = min(1.0 * len(group), max(_BRIEF, clock.left / (len(groups) - n) - _PROCESS))
        proving = clock.within(max(0.0, clock.left - _PROCESS - _BRIEF))
        fewest = 0 if n else 2
        ran += run_plans(session, proofs.traced, group, seconds, _TOGETHER, proving, fewest=fewest, proofs=proofs)
        if session.stopped:
            return ran
    if len(ran) < len(results):
        text = f"the budget was spent before {len(results) - len(ran)} of {len(results)} plans were run"
        session.events.emit(Note(text))
    return ran


def _cheapest(session: Session, traced: Traced, assemble: Assemble, plans: int) -> Iterator[Result]:
    """The plans predicted to be the fastest, then those of some more that need least memory, while less than these."""
    spread = Spread(session, traced)
    rows: list[Result] = []
    for _, result in spread.plans(assemble, spread.listings(), max(plans, _LOOKED)):
        rows.append(result)
        if session.stopped or (session.hurried and len(rows) >= plans):
            break
    yield from rows[:plans]
    least = min((plan_estimate(r.plan).peak_bytes for r in rows[:plans]), default=0)
    lean = sorted(rows[plans:], key=lambda r: plan_estimate(r.plan).peak_bytes)
    yield from (r for r in lean[: max(1, plans // 2)] if plan_estimate(r.plan).peak_bytes < least)


def judged(errors: tuple[Accuracy, ...], level: float, limit: float) -> tuple[float, str | None]:
    """The tolerance from which on a plan with these errors, searched under `level`, may be chosen, and why it may not
    at `limit`. Kernels that each keep a level may be off by more together: such a plan is for a tolerance of its own.
    """
    try:
        require(errors, limit)
    except AccuracyError as e:
        return level, str(e)
    try:
        require(errors, level)
    except AccuracyError:
        return min(limit, _rounded_up(max(e.plan[1] for e in errors))), None
    return level, None


def _rounded_up(error: float) -> float:
    """To two digits."""
    unit = 10.0 ** (math.floor(math.log10(error)) - 1)
    return float(f"{math.ceil(error / unit) * unit:.1e}")


def _marked(rows: Sequence[Offer]) -> list[Offer]:
    right = [o for o in rows if o.rejected is None]
    best = {id(right[i]) for i in front([(o.ran.seconds, o.ran.rms_error, float(o.ran.peak_bytes)) for o in right])}
    return [replace(o, front=id(o) in best) for o in rows]


def front(points: Sequence[Sequence[float]]) -> list[int]:
    """The positions of the points that no other is as good as in everything and better than in something; less is
    better. Of equal points the first."""
    return [
        i
        for i, p in enumerate(points)
        if not any(_better(q, p) or (tuple(q) == tuple(p) and j < i) for j, q in enumerate(points))
    ]


def _better(a: Iterable[float], b: Iterable[float]) -> bool:
    pairs = list(zip(a, b, strict=True))
    return all(x <= y for x, y in pairs) and any(x < y for x, y in pairs)
