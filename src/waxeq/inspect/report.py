"""Results as plain data: what `waxeq optimize --json` prints, and what the report on the screen is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from waxeq.cost.estimate import least_sure
from waxeq.inspect.formula import formula, shapes, sweeps
from waxeq.memory.estimate import Estimate, device_estimates, plan_estimate
from waxeq.plan.compose import shared_walks

if TYPE_CHECKING:  # what a command shows that searches nothing needs none of it
    from waxeq.backend.kernel import Kernel
    from waxeq.extract.choice import Priced
    from waxeq.extract.ways import Count
    from waxeq.plan.plan import Plan, RunnerUp, Step
    from waxeq.runtime.verify import Accuracy
    from waxeq.search.block import Optimized
    from waxeq.search.paths import Menu, Path
    from waxeq.search.result import Result

UNPRICED = "unpriced"
"""Basis of a step whose time is not known by itself: those of plans for ranges of sizes are timed as a whole."""


def report(result: Result, path: str) -> dict[str, Any]:
    """Everything worth saying about an optimization whose plan lies at `path`. Times in seconds, memory in bytes."""
    plan, r = result.plan, result.report
    return {
        "model": plan.name,
        "nodes": len(plan.graph.nodes),
        "blocks": {
            "total": r.blocks,
            "distinct": len(result.blocks),
            "remembered": sum(b.remembered for b in result.blocks),
            "cut_short": sum(bool(b.left) for b in result.blocks),
            "reused": {
                "within": r.blocks - len(result.blocks) if result.blocks else 0,
                "across": sum(b.remembered and b.of not in ("", plan.name) for b in result.blocks),
            },
        },
        "e_graph": e_graph(result.blocks),
        "kernels": kernels(plan, result.kernels),
        "folded": {"tensors": len(plan.folds), "bytes": plan.bytes_of("folded")},
        "predicted": r.predicted,
        "trial": None if r.trial is None else asdict(r.trial),
        "as_written": plan.written,
        "verdict": verdict(result),
        "accuracy": [accuracy(a, plan.written) for a in r.accuracy],
        "memory": memory(plan),
        "seconds": {
            "total": r.seconds,
            "measuring": r.measuring_seconds,
            "compiling": r.compiling_seconds,
            "opening": r.opening_seconds,
            "searching": max(0.0, r.seconds - r.opening_seconds - r.measuring_seconds - r.compiling_seconds),
        },
        "notes": list(r.notes),
        "interrupted": r.interrupted,
        "plan": path,
    }


def odd_values(tensors: Mapping[str, np.ndarray]) -> tuple[str, ...]:
    """A sentence for each weight that holds NaN or infinity: the model is still optimized, but is that meant?"""
    rows = []
    for name, a in tensors.items():
        if a.size and np.can_cast(a.dtype, np.float64, "same_kind") and not np.isfinite(a).all():
            nan, infinite = int(np.isnan(a).sum()), int(np.isinf(a).sum())
            counts = " and ".join(f"{n} {what}" for n, what in ((nan, "NaN"), (infinite, "infinite")) if n)
            rows.append(f"weight {name!r} holds {counts} of {a.size:,} elements; the plan will compute with them")
    return tuple(rows)


def e_graph(blocks: Sequence[Optimized]) -> dict[str, Any]:
    """Sizes of the e-graphs of distinct blocks together, and why each saturation stopped. A remembered block counts
    with what it had when it was searched."""
    facts = [b.facts for b in blocks]
    stops: dict[str, int] = {}
    for f in facts:
        stop = str(f.get("stop", "?"))
        stops[stop] = stops.get(stop, 0) + 1
    gaps = [g for f in facts if isinstance(g := f.get("gap"), float)]
    return {
        "nodes": sum(_count(f.get("e_nodes")) for f in facts),
        "classes": sum(_count(f.get("e_classes")) for f in facts),
        "candidates": sum(_count(f.get("candidates")) for f in facts),
        "measured": sum(_count(b.facts.get("measured")) for b in blocks if not b.remembered),
        "stops": stops,
        "worst_gap": max(gaps) if gaps else None,
    }


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0


def kernels(plan: Plan, installed: Mapping[str, Kernel]) -> list[dict[str, Any]]:
    """The steps of a plan. `like` is the first step with the same call for the same lines, as in repeated layers;
    `walk`: the steps that one shares a walk over large arrays with, and these arrays; None where it walks alone.
    `sweeps`: how many loops it is, of a kernel that computes several, each from the one before; else None."""
    first: dict[Any, int] = {}
    rows = []
    together = {i: w for w in shared_walks(plan, installed) for i in range(w.first, w.last + 1)}
    for (i, s), sources in zip(enumerate(plan.steps), places(plan), strict=True):
        c = s.call
        like = first.setdefault((c.kernel, c.text, c.dims, c.layout, sources), i)
        walk = together.get(i)
        shared = None if walk is None else {"first": walk.first, "last": walk.last, "over": sorted(walk.over)}
        k = installed.get(c.kernel)
        many = sweeps(c.meaning) if k is not None and k.form == "sweeps" else None
        rows.append({**kernel(i, s, sources), "like": like, "walk": shared, "sweeps": many})
    return rows


def places(plan: Plan) -> list[tuple[str, ...]]:
    """Source places of each step. A step for a value that the model does not name serves those that read it; a copy at
    the end comes from where the value was made."""
    rows = [s.sources for s in plan.steps]
    readers: dict[str, list[str]] = {}
    for i, s in reversed(list(enumerate(plan.steps))):
        rows[i] = rows[i] or tuple(dict.fromkeys(readers.get(s.writes, ())))
        for r in s.reads:
            readers.setdefault(r, []).extend(rows[i])
    made: dict[str, tuple[str, ...]] = {}
    for i, s in enumerate(plan.steps):
        rows[i] = rows[i] or tuple(dict.fromkeys(p for r in s.reads for p in made.get(r, ())))
        made[s.writes] = (*(made.get(s.writes, ()) if s.part else ()), *rows[i])
    return rows


def kernel(index: int, s: Step, sources: Sequence[str]) -> dict[str, Any]:
    """One step of a plan, with the places in the model that it comes from."""
    return {
        "step": index,
        "kernel": s.call.kernel,
        "what": formula(s.call, s.reads),
        "shapes": shapes(s),
        "writes": f"{s.writes}@{s.call.out.offset}" if s.part else s.writes,
        "sources": list(sources),
        "seconds": s.predicted,
        "low": s.low,
        "high": s.high,
        "basis": s.basis or UNPRICED,
        "runner_up": None if s.runner_up is None else runner_up(s.runner_up),
    }


def runner_up(r: RunnerUp) -> dict[str, Any]:
    """The next best way to make what a step makes."""
    return {"kernel": r.kernel, "seconds": r.seconds, "basis": r.basis or "not recorded"}


def verdict(result: Result) -> str:
    """The outcome in a few words."""
    t = result.report.trial
    if result.plan.written:
        if t is None:
            return f"kept the model as written: {result.report.kept or 'the plan was not accurate enough'}"
        return f"kept the model as written: the plan is {t.verdict}, {t.span}"
    if t is None:
        return "not timed against the model as written"
    return f"{t.verdict} {t.span}"


def accuracy(a: Accuracy, as_written: bool) -> dict[str, Any]:
    """Errors of one output against float64, relative to its RMS."""
    error = a.written if as_written else a.plan
    return {
        "output": a.output,
        "rms": error[1],
        "max": error[0],
        "written_rms": a.written[1],
        "exact_dtype": a.exact,
        "stepped": a.stepped,
        "rows": a.rows,
    }


def memory(plan: Plan) -> dict[str, Any]:
    """Bytes by kind while a plan runs, and the buffers that are needed at its busiest step, the largest first;
    `devices` has the same for the memory of each device besides the CPU that it uses."""
    return {**_memory(plan_estimate(plan)), "devices": {p: _memory(e) for p, e in device_estimates(plan).items()}}


def _memory(e: Estimate) -> dict[str, Any]:
    return {
        "peak": e.peak_bytes,
        "arena": e.arena_bytes,
        "least_arena": e.least_bytes,
        "resident": dict(e.resident),
        "busiest_step": e.call,
        "live": [{"buffer": name, "bytes": size} for name, size in e.live],
    }


def path_call(p: Priced) -> dict[str, Any]:
    """A call that may be part of a plan."""
    return {"kernel": p.candidate.call.kernel, "what": formula(p.candidate.call), "basis": p.estimate.source}


def path_row(number: int, path: Path, menu: Menu) -> dict[str, Any]:
    """One way to compute a model: its place in rising predicted cost, predicted seconds, its calls in order with how
    often each is made, and what the least sure of them rests on."""
    calls = [
        {**part.calls[i], "times": part.repeats}
        for part, rows in zip(menu.parts, path.rows, strict=True)
        for i in reversed(rows)
    ]
    basis = least_sure(str(c["basis"]) for c in calls) if calls else "measured"
    return {"number": number, "seconds": path.seconds, "basis": basis, "calls": calls}


def count(c: Count) -> dict[str, Any]:
    """How many there are: exactly, or at most."""
    return {"number": c.number, "exact": c.exact}
