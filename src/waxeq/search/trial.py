"""The last word: is the plan right, and is it faster than the model as written?"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from waxeq.backend.discover import backends, kernels
from waxeq.errors import AccuracyError, FallbackError
from waxeq.events import StageFinished, StageStarted
from waxeq.frontend.load import load_target
from waxeq.frontend.trace import Traced
from waxeq.ir.graph import Graph
from waxeq.plan.encode import decode
from waxeq.plan.plan import Plan
from waxeq.runtime.measure import Samples, compare, in_fresh_process, interleaved
from waxeq.runtime.program import Program
from waxeq.runtime.save import load_plan, save_plan
from waxeq.runtime.verify import Accuracy, Truth, require
from waxeq.runtime.written import Written
from waxeq.search.block import remember
from waxeq.search.result import Result, Trial
from waxeq.search.session import Session

_SETTLED = 1.5
"""An interval that is wider than this factor is not remembered: the next time is another chance."""
_PROMISING = 1.02
"""A median ratio that is worth another look when its interval does not settle who is faster."""


def confirm(session: Session, traced: Traced, results: Sequence[Result]) -> Result:
    """The fastest result that is right; or the model as written when none is right, or none is faster.

    `results`: ways to plan the model, lowest prediction first.
    """
    session.events.emit(StageStarted("trial", ""))
    proofs = _Proofs(session, traced, results[0].plan.graph)
    errors = [proofs.accuracy(r) for r in results]
    right, notes = _proved(session, results, errors)
    if not right:
        return _reported(session, replace(results[0], plan=as_written(results[0].plan)), notes, errors[0], None)
    contest = session.options.trial and not session.events.stop_requested
    winner, trial = _trial(session, traced, [r for r, _ in right]) if contest else (0, None)
    if trial is None and session.events.stop_requested:
        notes.append("stopped early: the plan is right, but it was not timed against the model as written")
    result, rows = right[winner]
    session.events.emit(StageFinished("trial", session.deadline.elapsed, ""))
    if trial is not None and trial.verdict != "faster":
        if session.options.strict:
            raise FallbackError(f"no plan is faster than the model as written (ratio {trial.ratio:.2f})")
        span = f"{trial.ratio:.2f}x, 95 % between {trial.low:.2f} and {trial.high:.2f}"
        kept = f"the model as written is kept: the plan's speed against it is {span}"
        result = replace(result, plan=as_written(result.plan), report=replace(result.report, kept=kept))
    elif winner > 0:
        for b in result.blocks:
            if b.choice is not None:
                remember(session, b)
    return _reported(session, result, notes, rows, trial)


def _proved(
    session: Session, results: Sequence[Result], errors: Sequence[tuple[Accuracy, ...]]
) -> tuple[list[tuple[Result, tuple[Accuracy, ...]]], list[str]]:
    """The results that agree with the float64 reference, with their errors; and a sentence for each that does not."""
    right, notes = [], list(results[0].report.notes)
    for r, rows in zip(results, errors, strict=True):
        try:
            require(rows, session.options.tolerance)
            right.append((r, rows))
        except AccuracyError as e:
            if session.options.strict:
                raise
            notes.append(f"a plan was dropped: {e}")
    return right, notes


class _Proofs:
    """Errors of plans on the model's own inputs and weights. What was found for the same plan, kernels, numbers and
    machine is remembered: running it again would give the same bits."""

    def __init__(self, session: Session, traced: Traced, graph: Graph) -> None:
        self.session, self.traced, self.graph = session, traced, graph

    @cached_property
    def truth(self) -> Truth:
        return Truth.of(self.graph, self.traced.inputs, self.traced.tensors)

    @cached_property
    def _numbers(self) -> str:
        found = hashlib.sha256()
        for name, a in sorted({**self.traced.tensors, **self.traced.inputs}.items()):
            found.update(f"{name}:{a.dtype}:{a.shape}".encode())
            found.update(np.ascontiguousarray(a).view(np.uint8).data if a.size else b"")
        return found.hexdigest()

    def accuracy(self, result: Result) -> tuple[Accuracy, ...]:
        """Errors of every output, measured now or when the table was told."""
        table = self.session.table
        parts = (result.text, self._numbers, self.session.kernels_hash(), self.session.device.id)
        key = hashlib.sha256("|".join(parts).encode()).hexdigest()
        known = None if self.session.options.fresh else table.memo_get("accuracy", key)
        if known is None:
            rows = self.truth.accuracy(result.program.flat_results(self.traced.inputs))
            table.memo_put("accuracy", key, json.dumps([asdict(r) for r in rows]))
            return rows
        read = json.loads(known)
        return tuple(Accuracy(r["output"], tuple(r["plan"]), tuple(r["written"]), r["exact"]) for r in read)


def _reported(
    session: Session, result: Result, notes: list[str], rows: tuple[Accuracy, ...], trial: Trial | None
) -> Result:
    report = replace(
        result.report,
        interrupted=session.events.stop_requested,
        seconds=session.deadline.elapsed,
        measuring_seconds=session.measuring_seconds,
        accuracy=rows,
        trial=trial,
        notes=tuple(notes),
    )
    return replace(result, report=report)


def as_written(plan: Plan) -> Plan:
    """The plan that runs the model op by op."""
    leaves = {n: b for n, b in plan.buffers.items() if b.role in ("input", "weight", "state", "constant")}
    return replace(plan, buffers=leaves, folds=(), steps=(), arena_bytes=0, in_place=(), written=True)


def _trial(session: Session, traced: Traced, results: Sequence[Result]) -> tuple[int, Trial | None]:
    """Which result is fastest in a contest of whole plans, and how it does against the model as written; the first and
    None when the user does not wait for the outcome."""
    texts = [r.text for r in results]
    key = _contest_key(session, texts)
    known = None if session.options.fresh else session.table.memo_get("contest", key)
    if known is not None:
        winner, trial = json.loads(known)
        return winner, replace(Trial(**trial), remembered=True)
    with tempfile.TemporaryDirectory() as d:
        path = Path(d) / "trial.plan.json"
        save_plan(path, results[0].plan, results[0].tensors, traced.inputs)
        budget = min(10.0, max(0.5, session.deadline.share(0.4)))
        origin = None if session.deadline.expired else traced.origin
        job = (str(path), texts[1:], origin, budget)
        answer = in_fresh_process(
            contest, job, threads=session.options.threads, stopped=lambda: session.events.stop_requested
        )
    if answer is None:
        return 0, None
    winner, found = answer
    trial = Trial(**found)
    if trial.high < _SETTLED * trial.low:
        session.table.memo_put("contest", key, json.dumps([winner, asdict(trial)], sort_keys=True))
        alone = _contest_key(session, texts[winner : winner + 1])  # the next time, the winner is all there is
        session.table.memo_put("contest", alone, json.dumps([0, asdict(trial)], sort_keys=True))
    return winner, trial


def _contest_key(session: Session, texts: Sequence[str]) -> str:
    return hashlib.sha256("|".join([*texts, session.device.id]).encode()).hexdigest()


def contest(
    path: str, more: Sequence[str], origin: tuple[str, str] | None, budget: float
) -> tuple[int, Mapping[str, object]]:
    """Time a saved plan, and `more` encoded plans on its tensors, against the model as written; runs in a process of
    its own. The number of the fastest plan, and how it compares."""
    installed, saved = kernels(backends()), load_plan(path)
    plans = [saved.plan, *(decode(json.loads(t), saved.plan.graph.constants) for t in more)]
    inputs = {n: np.asarray(a) for n, a in saved.inputs.items()}
    rivals: dict[str, Callable[[], object]] = {
        f"plan {i}": partial(Program(p, installed, saved.tensors).flat_results, inputs) for i, p in enumerate(plans)
    }
    rivals["written"] = partial(Written(saved.plan.graph, saved.tensors), inputs)
    if origin is not None:
        rivals["function"] = load_target(":".join(origin)).call
    times = interleaved(rivals, rounds=200, budget_seconds=budget)
    winner = min(range(len(plans)), key=lambda i: times[f"plan {i}"].median)
    best = min((n for n in rivals if n[:4] != "plan"), key=lambda n: times[n].median)
    plan, written = times[f"plan {winner}"], times[best]
    c = compare(plan, written)
    if c.verdict == "within noise" and c.ratio > _PROMISING:  # a noisy machine: the two alone, for as long again
        pair = {n: rivals[n] for n in (f"plan {winner}", best)}
        again = interleaved(pair, rounds=400, budget_seconds=budget, seed=1)
        plan, written = (Samples(times[n].seconds + again[n].seconds) for n in pair)
        c = compare(plan, written)
    return winner, {
        "plan": plan.median,
        "written": written.median,
        "ratio": c.ratio,
        "low": c.low,
        "high": c.high,
        "verdict": c.verdict,
    }
