"""Plans that really ran: timed whole, side by side, with their errors and the memory they take."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from waxeq.backend.discover import backends, kernels
from waxeq.cost.memos import RAN
from waxeq.events import FOREVER, Deadline, Note
from waxeq.frontend.trace import Traced
from waxeq.memory.estimate import plan_estimate
from waxeq.plan.encode import decode
from waxeq.plan.plan import Plan
from waxeq.runtime.alone import WAITING, alone
from waxeq.runtime.handover import Handed, handed
from waxeq.runtime.measure import Samples, in_fresh_process
from waxeq.runtime.program import Program
from waxeq.runtime.turns import take_turns
from waxeq.runtime.written import Written
from waxeq.search.contest import given
from waxeq.search.duel import taken
from waxeq.search.result import Result
from waxeq.search.session import Session
from waxeq.search.trial import Proofs

TOGETHER = 6
"""Plans that are timed by turns in one process: each holds packed weights of its own."""
_FEWEST, _MOST = 9, 60
"""Rounds in which each plan is timed once."""
_HASTY, _BRIEF = 3, 0.5
"""As many are enough where a budget ends them; seconds that plans are timed for even then."""


@dataclass(frozen=True)
class Ran:
    """One plan that ran on the model's own inputs: seconds of its calls; errors of the worst output, relative to the
    RMS of the float64 reference; peak bytes. `remembered`: it was timed before."""

    samples: Samples
    max_error: float
    rms_error: float
    peak_bytes: int
    predicted: float
    kernels: int
    remembered: bool = False

    @property
    def seconds(self) -> float:
        """The median of a call."""
        return self.samples.median

    @property
    def quartiles(self) -> tuple[float, float]:
        """Seconds that a quarter of the calls took less than, and a quarter more."""
        s = sorted(self.samples.seconds)
        quarter = (len(s) - 1) // 4
        return s[quarter], s[-1 - quarter]


def run_plans(
    session: Session,
    traced: Traced,
    results: Sequence[Result],
    seconds: float = 5.0,
    together: int = TOGETHER,
    until: Deadline = FOREVER,
    fewest: int = 1,
    proofs: Proofs | None = None,
) -> list[Ran]:
    """Time plans whole, `together` of them at a time, for up to `seconds` each time; what the table knows is not timed
    again. Fewer than were given when the user wants to stop, or when it is `until` then: those that come first, the
    `fewest` of them in any case. `proofs` of the model, where there are some already."""
    proofs = proofs or Proofs(session, traced, None)
    rows: list[Ran] = []
    rounds = _FEWEST if until.seconds is None else _HASTY
    for start in range(0, len(results), together):
        errors: list[tuple[float, float]] = []
        for r in results[start : start + together]:
            if until.expired and len(rows) + len(errors) >= fewest:
                break
            errors.append(_errors(proofs, r))
        group = results[start : start + len(errors)]
        known = [None if session.options.fresh else _recalled(session, r) for r in group]
        new = [r for r, k in zip(group, known, strict=True) if k is None]
        for_these = min(seconds, max(_BRIEF, until.left))
        times = iter(
            _timed(session, traced, new, for_these, rounds, FOREVER if len(rows) < fewest else until) if new else ()
        )
        for r, k, e in zip(group, known, errors, strict=True):
            samples = k or next(times, None)
            if samples is None:
                return rows
            rows.append(_row(r.plan, samples, e, remembered=k is not None))
        if until.expired:
            break
    return rows


def _row(plan: Plan, samples: Samples, errors: tuple[float, float], *, remembered: bool) -> Ran:
    return Ran(samples, *errors, plan_estimate(plan).peak_bytes, plan.predicted, len(plan.steps), remembered)


def _errors(proofs: Proofs, r: Result) -> tuple[float, float]:
    rows = [a.written if r.plan.written else a.plan for a in proofs.accuracy(r)]
    return max((e[0] for e in rows), default=0.0), max((e[1] for e in rows), default=0.0)


def _recalled(session: Session, r: Result) -> Samples | None:
    known = session.table.memo_get(RAN.name, session.memo_key(RAN, runs=r.runs))
    return None if known is None else Samples(tuple(json.loads(known)))


def _timed(
    session: Session, traced: Traced, results: Sequence[Result], seconds: float, fewest: int, until: Deadline
) -> list[Samples]:
    """Time plans in a process of their own, alone on the machine; none when the user wants to stop, or others have not
    done with the machine `until` then."""

    def stopped() -> bool:
        return session.stopped or until.expired

    waiting = partial(session.events.emit, Note(WAITING))
    with handed(given(traced)) as arrays, alone(stopped=stopped, waiting=waiting) as held:
        if not held:
            return []
        texts = [r.text for r in results]
        wait = 600.0 + 40 * sum(r.plan.predicted for r in results)
        found = in_fresh_process(
            take, (arrays, texts, seconds, fewest), threads=session.options.threads, timeout=wait,
            stopped=lambda: session.stopped, held=arrays.held,
        )  # fmt: skip
    rows = [Samples(tuple(s)) for s in found or ()]
    for r, s in zip(results, rows, strict=False):
        session.table.memo_put(RAN.name, session.memo_key(RAN, runs=r.runs), json.dumps(s.seconds))
    return rows


def take(arrays: Handed, texts: Sequence[str], budget: float, fewest: int) -> list[tuple[float, ...]]:
    """Raw seconds of encoded plans on the arrays that are given, by turns; runs in a process of its own."""
    installed, (tensors, constants, inputs) = kernels(backends()), taken(arrays)
    plans = [decode(json.loads(t), constants) for t in texts]
    rivals = {str(i): _call(p, installed, tensors, inputs) for i, p in enumerate(plans)}
    times = take_turns(rivals, budget=budget, fewest=fewest, rounds=_MOST)
    return [times[str(i)].seconds for i in range(len(plans))]


def _call(
    plan: Plan, installed: Mapping[str, Any], tensors: Mapping[str, Any], inputs: Mapping[str, Any]
) -> Callable[[], object]:
    if plan.written:
        return partial(Written(plan.graph, tensors), inputs)
    return partial(Program(plan, installed, tensors).flat_results, inputs)
