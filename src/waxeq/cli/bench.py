"""Timing a plan against the model it came from and against other compilers: what `waxeq bench` does."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from waxeq.backend.discover import backends, kernels
from waxeq.cli import peers
from waxeq.cli.options import Search
from waxeq.cli.peers import reason
from waxeq.cli.sizes import asked, family_of, planned, target_at
from waxeq.cli.work import is_plan, load, search_plan
from waxeq.errors import TargetError, UsageError, WaxeqError
from waxeq.events import Events, Note
from waxeq.frontend.load import Target, load_target
from waxeq.frontend.trace import Traced
from waxeq.ir.interpret import interpret
from waxeq.plan.plan import Plan
from waxeq.runtime.load import read_saved
from waxeq.runtime.measure import WIDE, Samples, compare, in_fresh_process
from waxeq.runtime.neighbours import Load, Watch
from waxeq.runtime.program import Program
from waxeq.runtime.save import Saved, save_plan
from waxeq.runtime.sized import SizedProgram, SizedSaved
from waxeq.runtime.timing import results_error
from waxeq.runtime.turns import take_turns
from waxeq.runtime.written import Written
from waxeq.search.result import Result
from waxeq.symbolic.dims import Sizes

PLAN, WRITTEN, ORIGINAL = "plan", "model as written", "original function"
_ENOUGH = 12
"""Pairs of samples before an interval that is narrow is believed."""
_WRONG = 1e-2
"""Relative RMS error against float64 from which a peer is not the same function any more."""

Seconds = float | None
"""How long to time; None, where nobody waits for it: once each."""
Row = dict[str, Any]
Origin = tuple[str, str]
"""Where the original function is: its file and its name."""
At = tuple[Sizes, tuple[str, ...]]
"""Sizes that a plan for ranges of them is timed at, and its dims as `--dim` has them."""


def measured(
    target: str,
    dims: Sequence[str],
    at: Sequence[str],
    versus: Sequence[str],
    seconds: float,
    search: Search,
    events: Events,
) -> dict[str, Any]:
    """What `waxeq bench` finds out: as `bench_plan`, for a plan file or a model. Raises UsageError, TargetError,
    PlanError. Where the search is interrupted, what there is is timed once, and no peers."""  # fmt: skip
    peers.require(versus, target if is_plan(target) else None)
    if is_plan(target):
        search.require_only("threads", target)
    options = search.options()
    for text in options.remarks:
        events.emit(Note(text))
    known = planned(target, dims, search, events)
    found = None if known is None else known[0]
    if isinstance(found, SizedSaved):
        origin = None if is_plan(target) else family_of(target, dims).origin
        time_for, versus = _hurried(events, seconds, versus)
        return bench_sizes(found, asked(at, found.plans.dims), origin, dims, options.threads, time_for, versus)
    if at:
        raise UsageError(f"--at is for plans for ranges of sizes, but {target} has one size; leave it out")
    if found is not None:
        return bench_saved(Path(target), found, options.threads, seconds, versus)
    traced = load(target, events)
    result = search_plan(traced, options, events)
    return bench_result(result, traced, options.threads, *_hurried(events, seconds, versus))


def _hurried(events: Events, seconds: float, versus: Sequence[str]) -> tuple[Seconds, Sequence[str]]:
    """How long to time, and which peers, now that the search is over."""
    if not events.stop_requested:
        return seconds, versus
    left = f", and {', '.join(versus)} not at all" if versus else ""
    events.emit(Note(f"interrupted: the plan is timed once{left}"))
    return None, ()


def bench_result(
    result: Result, traced: Traced, threads: int, seconds: Seconds, versus: Sequence[str] = ()
) -> dict[str, Any]:
    """As `bench_plan`, for a plan that was just found; the original function is timed too."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bench.plan.json"
        save_plan(path, result.plan, result.tensors, traced.inputs)
        return bench_plan(path, result.plan, traced.origin, threads, seconds, versus)


def bench_saved(path: Path, saved: Saved, threads: int, seconds: float, versus: Sequence[str] = ()) -> dict[str, Any]:
    """As `bench_plan`, for a plan file that holds the inputs it was made with. Raises TargetError."""
    missing = [x.name for x in saved.plan.graph.leaves if x.kind == "input" and x.name not in saved.inputs]
    if missing:
        raise TargetError(_NO_INPUT.format(path, missing[0]))
    return bench_plan(path, saved.plan, None, threads, seconds, versus)


def bench_sizes(
    saved: SizedSaved,
    places: Sequence[Sizes],
    origin: Origin | None,
    dims: Sequence[str],
    threads: int,
    seconds: Seconds,
    versus: Sequence[str] = (),
) -> dict[str, Any]:
    """As `bench_plan`, for a plan for ranges of sizes at each of some sizes. `dims`: as `--dim` has them, where there
    is an original function. Raises TargetError."""  # fmt: skip
    missing = [n for n in saved.plans.takes if n not in saved.inputs]
    if missing:
        raise TargetError(_NO_INPUT.format("the plan", missing[0]))
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bench.plan.json"
        SizedProgram(saved.plans, kernels(backends()), saved.tensors).save(path, saved.inputs)
        for sizes in places:
            plan = saved.at(sizes, kernels(backends())).plan
            at = (sizes, tuple(dims))
            rows.append({"sizes": sizes, **bench_plan(path, plan, origin, threads, seconds, versus, at)})
    ranges = [{"name": d.name, "low": d.low, "high": d.high} for d in saved.plans.dims]
    return {"model": saved.plans.name, "threads": threads, "dims": ranges, "at": rows}


_NO_INPUT = "{} holds no input {!r} to time it on: `waxeq optimize` writes the inputs with a plan, Result.save does not"


def bench_plan(
    path: Path,
    plan: Plan,
    origin: Origin | None,
    threads: int,
    seconds: Seconds,
    versus: Sequence[str],
    at: At | None = None,
) -> dict[str, Any]:
    """Time the plan that lies at `path` (at some sizes, `plan` is what it is there), the model as written, the original
    function (where `origin` says where that is) and peers, by turns in a fresh process. A peer that fails, or computes
    something else, is a row with the reason. What makes times doubtful is in the notes."""  # fmt: skip
    job = (str(path), origin, tuple(n for n in versus if n != "numpy"), threads, seconds, at)
    times, states, note = in_fresh_process(race, job, threads=threads, timeout=600 + 10 * (seconds or 0.0))
    rivals = [{"name": n, **state, **_times(n, times)} for n, state in states.items()]
    notes = [n for n in (note, _doubt(rivals, seconds)) if n is not None]
    return {"model": plan.name, "threads": threads, "as_written": plan.written, "rivals": rivals, "notes": notes}


def _doubt(rivals: Sequence[Row], seconds: Seconds) -> str | None:
    """A sentence where intervals are so wide that they say little."""
    wide = {r["name"]: r["high"] / r["low"] for r in rivals if r["low"] is not None and r["high"] > WIDE * r["low"]}
    if not wide:
        return None
    return (
        f"how the plan compares with {', '.join(wide)} is known within a factor of {max(wide.values()):.2g} only: "
        f"timings were disturbed, or are too few; give more than --seconds {seconds:g}, on a quiet machine"
    )


def _times(name: str, times: Mapping[str, tuple[float, ...]]) -> Row:
    none: Row = dict.fromkeys(("seconds", "fast", "slow", "samples", "ratio", "low", "high", "verdict"))
    if name not in times:
        return none
    t = Samples(tuple(times[name]))
    fast, slow = (float(np.quantile(t.seconds, q)) for q in (0.25, 0.75))
    row = {**none, "seconds": t.median, "fast": fast, "slow": slow, "samples": len(t.seconds)}
    if name == PLAN:
        return row
    plan = Samples(tuple(times[PLAN]))
    if len(t.seconds) == 1:  # which says nothing of how sure it is
        return {**row, "ratio": t.median / plan.median}
    c = compare(plan, t)
    return {**row, "ratio": c.ratio, "low": c.low, "high": c.high, "verdict": f"the plan is {c.verdict}"}


def race(
    path: str,
    origin: Origin | None,
    versus: Sequence[str],
    threads: int,
    seconds: Seconds,
    at: At | None = None,
) -> tuple[dict[str, tuple[float, ...]], dict[str, Row], str | None]:
    """Raw seconds of each rival, what is known of it besides, and a sentence where other processes disturbed the
    timings; runs in a process of its own. `at`: for a plan for ranges of sizes."""
    peers.keep_to(threads)
    program, saved = _opened(path, at)
    target = _target(origin, at)
    if at is not None and target is not None:  # what is cut or repeated is another example than the function's own
        own = {n: a for n, a in peers.leaves(target.example) if n in saved.inputs}
        saved = replace(saved, inputs=own)
    inputs = dict(saved.inputs)
    truth = list(
        interpret(saved.plan.graph, {**saved.plan.graph.constants, **saved.tensors, **inputs}, oracle=True).values()
    )
    rivals: dict[str, Callable[[], Any]] = {}
    states: dict[str, Row] = {}
    for name, start in _starts(program, saved, target, versus, threads).items():
        states[name], call = _started(start, truth, saved.plan.structure, peer=name if name in versus else None)
        if call is not None:
            rivals[name] = call
    times, note = _timed(rivals, seconds)
    return {n: t.seconds for n, t in times.items()}, states, note


def _timed(rivals: Mapping[str, Callable[[], Any]], seconds: Seconds) -> tuple[dict[str, Samples], str | None]:
    """Samples of each, and what there is to say of other processes meanwhile."""
    watch, load = Watch("plan and rivals"), Load.now()
    if seconds is None:
        times = take_turns(rivals, budget=0.0, rounds=1, fewest=1, long=0.0)
    else:
        times = take_turns(rivals, budget=seconds, rounds=100_000, shared=True, unsettled=_unsettled)
    watch.add(load, (t.disturbed for t in times.values()))
    return times, watch.note


def _unsettled(times: Mapping[str, Samples]) -> Sequence[str]:
    """Who should be timed further: those whose ratio to the plan is not known within a hundredth, and so the plan."""
    plan, others = times[PLAN], {n: t for n, t in times.items() if n != PLAN}
    wide = [n for n, t in others.items() if len(t.seconds) < _ENOUGH or not compare(plan, t).narrow]
    return [PLAN, *wide] if wide else ()


def _opened(path: str, at: At | None) -> tuple[Program | SizedProgram, Saved]:
    """What runs a plan, and what it is at some sizes, with inputs of these."""
    found, installed = read_saved(path), kernels(backends())
    if isinstance(found, SizedSaved):
        assert at is not None, "a plan for ranges of sizes is timed at some"
        return SizedProgram(found.plans, installed, found.tensors), found.at(at[0], installed)
    return Program(found.plan, installed, found.tensors), found


def _target(origin: Origin | None, at: At | None) -> Target | None:
    """The original function with arguments to call it with."""
    if origin is None:
        return None
    name = ":".join(origin)
    return load_target(name) if at is None else target_at(name, at[1], at[0])


def _starts(
    program: Program | SizedProgram, saved: Saved, target: Target | None, versus: Sequence[str], threads: int
) -> dict[str, Callable[[], Callable[[], Any]]]:
    """How each rival is made ready."""
    graph, tensors, inputs = saved.plan.graph, saved.tensors, saved.inputs
    written = Written(graph, tensors)
    starts: dict[str, Callable[[], Callable[[], Any]]] = {
        PLAN: lambda: lambda: program.flat_results(inputs),
        WRITTEN: lambda: lambda: written(inputs),
    }

    def start(name: str) -> Callable[[], Callable[[], Any]]:
        return lambda: peers.peer(name, target, graph, tensors, inputs, threads)

    original = {} if target is None else {ORIGINAL: start("numpy")}
    return {**starts, **original, **{n: start(n) for n in versus}}


def _started(
    start: Callable[[], Callable[[], Any]], truth: Sequence[np.ndarray], structure: Any, *, peer: str | None
) -> tuple[Row, Callable[[], Any] | None]:
    """Start a rival and call it once. `structure`: that of the model's results. Only a `peer` may fail: the others
    have been proved before."""
    row: Row = {"first_call": None, "error": None, "failed": None}
    began = time.perf_counter()
    try:
        call = start()
        results = call()
        row["first_call"] = time.perf_counter() - began
        row["error"] = results_error(peers.arrays(results, structure), truth)
    except Exception as e:
        if peer is None:
            raise
        return {**row, "failed": reason(e) if isinstance(e, WaxeqError) else peers.failure(peer, e)}, None
    if peer is not None and not row["error"] <= _WRONG:
        return {**row, "failed": f"its results are not those of the model: relative RMS error {row['error']:.1e}"}, None
    return row, call
