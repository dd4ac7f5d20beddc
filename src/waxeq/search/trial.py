"""The last word: is the plan right, and is it faster than the model as written?"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from waxeq.errors import AccuracyError, FallbackError
from waxeq.events import StageFinished, StageStarted
from waxeq.frontend.trace import Traced
from waxeq.plan.encode import encode
from waxeq.plan.plan import Plan
from waxeq.runtime.measure import compare, in_fresh_process, interleaved
from waxeq.runtime.save import load_plan, save_plan
from waxeq.runtime.verify import Accuracy, require, verify
from waxeq.runtime.written import Written
from waxeq.search.result import Result, Trial
from waxeq.search.session import Session


def confirm(session: Session, traced: Traced, result: Result) -> Result:
    """The result, proved right and timed; or the model as written when the plan is not both."""
    rows = verify(result.program, traced.inputs, traced.tensors)
    notes = list(result.report.notes)
    session.events.emit(StageStarted("trial", ""))
    try:
        require(rows, session.options.tolerance)
    except AccuracyError as e:
        if session.options.strict:
            raise
        notes.append(f"the plan was dropped: {e}")
        return _reported(session, replace(result, plan=as_written(result.plan)), notes, rows, None)
    stopped = session.events.stop_requested
    if stopped:
        notes.append("stopped early: the plan is right, but it was not timed against the model as written")
    trial = _trial(session, traced, result) if session.options.trial and not stopped else None
    session.events.emit(StageFinished("trial", session.deadline.elapsed, ""))
    if trial is not None and trial.verdict != "faster":
        if session.options.strict:
            raise FallbackError(f"no plan is faster than the model as written (ratio {trial.ratio:.2f})")
        notes.append(f"the model as written is kept: the plan is {trial.verdict} ({1 / trial.ratio:.2f}x)")
        result = replace(result, plan=as_written(result.plan))
    return _reported(session, result, notes, rows, trial)


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


def _trial(session: Session, traced: Traced, result: Result) -> Trial:
    text = json.dumps(encode(result.plan), sort_keys=True)
    key = hashlib.sha256(f"{text}|{session.device.id}".encode()).hexdigest()
    known = None if session.options.fresh else session.table.memo_get("trial", key)
    if known is not None:
        return replace(Trial(**json.loads(known)), remembered=True)
    with tempfile.TemporaryDirectory() as d:
        path = Path(d) / "trial.plan.json"
        save_plan(path, result.plan, result.tensors, traced.inputs)
        budget = min(10.0, max(1.0, session.deadline.share(0.2)))
        found = in_fresh_process(contest, (str(path), traced.origin, budget), threads=session.options.threads)
    trial = Trial(**found)
    session.table.memo_put("trial", key, json.dumps(asdict(trial), sort_keys=True))
    return trial


def contest(path: str, origin: tuple[str, str] | None, budget: float) -> Mapping[str, object]:
    """Time a saved plan against the model as written; runs in a process of its own."""
    from waxeq.backend.discover import backends, kernels
    from waxeq.runtime.program import Program

    saved = load_plan(path)
    program = Program(saved.plan, kernels(backends()), saved.tensors)
    written = Written(saved.plan.graph, saved.tensors)
    inputs = {n: np.asarray(a) for n, a in saved.inputs.items()}
    rivals = {"plan": lambda: program.flat_results(inputs), "written": lambda: written(inputs)}
    if origin is not None:
        from waxeq.frontend.load import load_target

        target = load_target(":".join(origin))
        rivals["function"] = target.call
    times = interleaved(rivals, rounds=200, budget_seconds=budget)
    names = [n for n in rivals if n != "plan"]
    best = min(names, key=lambda n: times[n].median)
    c = compare(times["plan"], times[best])
    return {
        "plan": times["plan"].median,
        "written": times[best].median,
        "ratio": c.ratio,
        "low": c.low,
        "high": c.high,
        "verdict": c.verdict,
    }
