"""One row of the comparison: waxeq's plan and every peer in one fresh process, checked, then timed by turns."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.draws import error_of_draws
from benchmarks.roofline import EVALUATED
from benchmarks.workload import Arguments, Workload, flat, mapped
from waxeq.cli.bench import reason
from waxeq.errors import WaxeqError
from waxeq.runtime.measure import Samples, compare, in_fresh_process
from waxeq.runtime.timing import results_error

WAXEQ, COPY, ALONE = "waxeq", "copy", "alone: "
INSTALLED = "waxeq"
"""The folder of waxeq's cache among those of compilers."""
PACED = "torch.compile"
"""The peer whose first call is the time that waxeq's search has."""
_ASKED = 2.0
"""How many times the time of the search that first call took before, where it is not asked for again: one machine was a
third faster than an hour before."""
_PART = 0.95
"""Part of that first call that the search and the first run after it have: what comes after the search may take a
moment more than is left for it."""
TIMEOUT = 900.0

Record = dict[str, Any]
"""What is known of a row, as JSON. `contestants`: by name, `failed` with a reason, or `absent`, or `seconds` (median),
`low` and `high` (quartiles), `samples`, `first_call` (seconds, with compiling), `error` (relative RMS against float64),
and for peers `ratio`, `ratio_low`, `ratio_high`: how much longer it takes than waxeq. `search`: seconds that waxeq's
search was given, of those that it was `asked` for, beginning with this `table`. `copy`: seconds of a copy that moves
`moved` bytes; `arithmetic`: seconds that the row's `functions` take alone, on what lies in a cache."""


def processor(record: Record) -> str:
    """What a row was measured on, in short: clouds call processors of several generations by one name, and their
    second-level caches tell them apart."""
    name, _, rest = record["device"].partition(",")
    caches = re.search(r"caches [^/,]+/([^/,]+)", rest)
    return name if caches is None else f"{name} ({caches[1]} L2)"


def measure_row(
    name: str,
    peers: Sequence[str],
    *,
    threads: int,
    budget: float,
    search: float,
    table: Path | None,
    caches: str,
    before: Record | None = None,
) -> Record:
    """Measure a row. What fails is recorded with its reason; a peer that takes the process down is left out of the next
    attempt. The search has a little less time than the first call of `PACED`, where that takes part; where that took
    far longer than `search` in the record of `before`, it is not asked first."""
    from benchmarks.workloads import WORKLOADS

    workload = WORKLOADS[name]
    earlier = {} if before is None else before["contestants"]
    known, run = earlier.get(PACED, {}).get("first_call", 0.0), earlier.get(WAXEQ, {}).get("seconds", 0.0)
    paced = _first_call(name, threads, caches) if PACED in peers and known < _ASKED * search else None
    search = search if paced is None else min(search, max(0.0, _PART * paced - run))
    record: Record = {"row": name, "threads": threads, "budget": budget, "search": search, "moved": workload.moved}
    found = record["contestants"] = {}
    with tempfile.TemporaryDirectory() as folder:
        plan = str(Path(folder) / "row.plan.json")
        if (installed := Path(caches) / INSTALLED).is_dir():
            shutil.copytree(installed, own_cache(plan))
        try:
            job = (name, plan, threads, search, None if table is None else str(table))
            found[WAXEQ] = in_fresh_process(optimize, job, threads=threads, timeout=TIMEOUT + 10 * search)
        except WaxeqError as e:
            found[WAXEQ] = {"failed": reason(e)}
        failed = "failed" in found[WAXEQ]
        times = _race(name, None if failed else plan, peers, threads, budget, caches, folder, found)
    _enter(record, times, workload.functions)
    if paced is not None and "first_call" in found[PACED]:
        found[PACED]["first_call"] = paced
    return record


def _enter(record: Record, times: dict[str, tuple[float, ...]], functions: Mapping[str, int]) -> None:
    """Times of contestants, and what bounds them, go into a row's record."""
    found = record["contestants"]
    if COPY in times:
        record["copy"] = Samples(times.pop(COPY)).median
        each = {f: Samples(times.pop(ALONE + f)).median / EVALUATED for f in functions}
        record["arithmetic"] = sum(each[f] * n for f, n in functions.items())
    for n, seconds in times.items():
        found[n] |= _summary(seconds, times.get(WAXEQ) if n != WAXEQ else None)


def own_cache(plan: str) -> Path:
    """waxeq's cache of compiled kernels for a row whose plan lies at `plan`."""
    return Path(plan).parent / INSTALLED


def install(caches: str) -> None:
    """Compile what waxeq compiles once for a machine, and not for a model, into the cache that rows begin with; runs in
    a process of its own."""
    os.environ["WAXEQ_CACHE"] = str(Path(caches) / INSTALLED)
    from waxeq.backend.discover import backends, kernels
    from waxeq.ir.types import FLOATS

    found = backends()
    for k in kernels(found).values():
        str(k.code)  # the texts of all are read
    for b in found:
        b.ready(FLOATS)  # and what all plans use is there


def _first_call(name: str, threads: int, caches: str) -> float | None:
    """Seconds of the first call of `PACED` in a process of its own; None where it has none."""
    try:
        return in_fresh_process(first_call, (name, PACED, threads, caches), threads=threads, timeout=TIMEOUT)
    except WaxeqError:  # said when it is its turn
        return None


def first_call(name: str, peer: str, threads: int, caches: str) -> float:
    """Seconds of a peer's first call, with compiling; runs in a process of its own."""
    from benchmarks.contestants import CONTESTANTS, settle
    from benchmarks.workloads import WORKLOADS

    settle(threads, caches)
    workload = WORKLOADS[name]
    start = CONTESTANTS[peer].ready(workload, workload.make(), threads)
    began = time.perf_counter()
    start()()
    return time.perf_counter() - began


def _summary(seconds: tuple[float, ...], waxeq: tuple[float, ...] | None) -> Record:
    low, high = (float(np.quantile(seconds, q)) for q in (0.25, 0.75))
    row: Record = {"seconds": Samples(seconds).median, "low": low, "high": high, "samples": len(seconds)}
    if waxeq is not None:
        c = compare(Samples(waxeq), Samples(seconds))
        row |= {"ratio": c.ratio, "ratio_low": c.low, "ratio_high": c.high}
    return row


def _race(
    name: str,
    plan: str | None,
    peers: Sequence[str],
    threads: int,
    budget: float,
    caches: str,
    folder: str,
    found: dict[str, Record],
) -> dict[str, tuple[float, ...]]:
    """Times by contestant, tried again without whoever was running when the process died."""
    progress = Path(folder) / "running"
    left = list(peers)
    while True:
        progress.write_text("")
        job = (name, plan, tuple(left), threads, budget, caches, str(progress))
        try:
            times, states = in_fresh_process(contest, job, threads=threads, timeout=TIMEOUT + 10 * budget)
        except WaxeqError as e:
            guilty = progress.read_text()
            alone = guilty == WAXEQ or guilty in left
            for n in [guilty] if alone else [*left, *(() if plan is None else (WAXEQ,))]:
                found[n] = {**found.get(n, {}), "failed": reason(e)}
            if not alone:  # it was none of them that was starting
                return {}
            plan = None if guilty == WAXEQ else plan
            left = [n for n in left if n != guilty]
            continue
        for n, state in states.items():
            found[n] = {**found.get(n, {}), **state}
        return times


def optimize(name: str, plan: str, threads: int, search: float, table: str | None) -> Record:
    """Find waxeq's plan and write it; runs in a process of its own."""
    import waxeq as wx
    import waxeq.compile  # before the clock starts, as what peers are called by
    from benchmarks.contestants import settle
    from benchmarks.workloads import WORKLOADS
    from waxeq.runtime.save import save_plan

    with tempfile.TemporaryDirectory() as folder:
        settle(threads, folder, own_cache(plan))
        workload = WORKLOADS[name]
        arguments = workload.make()
        given = {} if workload.allowed is None else {"tolerance": workload.allowed}
        where = Path(table or Path(folder) / "timings.duckdb")
        options = wx.Options.of(threads=threads, budget=search, table=where, **given)
        start = time.perf_counter()
        result = wx.optimize(workload.fn, *workload.ordered(arguments), weights=workload.weights, options=options)
        inputs = {x.name: arguments[x.name] for x in result.program.inputs}
        result.program(*inputs.values())
        took = time.perf_counter() - start
        save_plan(plan, result.plan, result.tensors, inputs)
    kernels = sorted({s.call.kernel for s in result.plan.steps})
    return {"first_call": took, "written": result.plan.written, "kernels": kernels, "notes": list(result.report.notes)}


def contest(
    name: str, plan: str | None, peers: Sequence[str], threads: int, budget: float, caches: str, progress: str
) -> tuple[dict[str, tuple[float, ...]], dict[str, Record]]:
    """Times and states of contestants; runs in a process of its own, and writes to the file `progress` whose turn it is
    as long as one of them runs alone."""
    from benchmarks.contestants import settle
    from benchmarks.roofline import copying, evaluating
    from benchmarks.workloads import WORKLOADS
    from waxeq.runtime.turns import take_turns

    settle(threads, caches, None if plan is None else own_cache(plan))
    workload = WORKLOADS[name]
    arguments = workload.make()
    truth = reference(workload, arguments)
    rivals: dict[str, Callable[[], object]] = {}
    states: dict[str, Record] = {}
    for n in (*(() if plan is None else (WAXEQ,)), *peers):
        Path(progress).write_text(n)
        states[n], call = admit(n, plan, workload, arguments, threads, truth)
        if call is not None:
            rivals[n] = call
    Path(progress).write_text("")
    if workload.moved is not None:
        half = workload.moved // 2  # it reads and writes each byte
        rivals[COPY] = copying(np.ones(half, np.uint8), np.empty(half, np.uint8), threads)
        rivals |= {ALONE + f: evaluating(f, threads) for f in workload.functions}
    beside = [n for n in rivals if n not in states]
    if len(beside) == len(rivals):
        return {}, states
    return {n: t.seconds for n, t in take_turns(rivals, budget=budget, beside=beside).items()}, states


def admit(
    name: str,
    plan: str | None,
    workload: Workload,
    arguments: Arguments,
    threads: int,
    truth: Sequence[np.ndarray],
) -> tuple[Record, Callable[[], object] | None]:
    """Start a contestant, time its first call, and check its results. Without a call when it has no form for the
    workload, raises, or is wrong."""
    from benchmarks.contestants import CONTESTANTS, NoForm, arrays

    try:
        start = _waxeq(plan, arguments) if name == WAXEQ else CONTESTANTS[name].ready(workload, arguments, threads)
        began = time.perf_counter()
        call = start()
        results = call()
        state: Record = {} if name == WAXEQ else {"first_call": time.perf_counter() - began}
        error = results_error(arrays(results), truth)
        if workload.draws > 1:
            copies = name != WAXEQ and CONTESTANTS[name].copies
            again = (lambda: CONTESTANTS[name].ready(workload, arguments, threads)()()) if copies else call
            error = error_of_draws(
                workload, arguments, again, lambda found, now: results_error(arrays(found), reference(workload, now))
            )
    except NoForm:
        return {"absent": True}, None
    except Exception as e:  # a peer may raise anything; the row goes on without it and says so
        return {"failed": reason(e)}, None
    state["error"] = error
    if not error <= workload.tolerance:
        return {
            **state,
            "failed": f"wrong: error {error:.1e} against float64, more than {workload.tolerance:.0e}",
        }, None
    return state, call


def _waxeq(plan: str | None, arguments: Arguments) -> Callable[[], Callable[[], object]]:
    """The saved plan on the arrays that peers take, as a program of `optimize` has them: what NumPy and torch read lies
    in the last cache since the turn before, a copy of it does not."""
    from waxeq.backend.discover import backends, kernels
    from waxeq.runtime.program import Program
    from waxeq.runtime.save import load_plan

    assert plan is not None
    saved = load_plan(plan)
    given = [x for a in arguments.values() for x in flat(a).values()]

    def same(a: np.ndarray) -> np.ndarray:
        alike = (x for x in given if x.dtype == a.dtype and x.shape == a.shape and np.array_equal(x, a))
        return next(alike, a)

    program = Program(saved.plan, kernels(backends()), {n: same(a) for n, a in saved.tensors.items()})
    inputs = tuple(same(saved.inputs[x.name]) for x in program.inputs)
    return lambda: lambda: program(*inputs)


def reference(workload: Workload, arguments: Arguments) -> list[np.ndarray]:
    """The function's results in float64."""
    wide: Mapping[str, Any] = {n: mapped(a, _wide) for n, a in arguments.items()}
    results = workload.fn(**wide)
    return [np.asarray(r) for r in (results if isinstance(results, tuple) else (results,))]


def _wide(a: np.ndarray) -> np.ndarray:
    return a.astype(np.float64) if a.dtype.kind == "f" else a
