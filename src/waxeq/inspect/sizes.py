"""Reports of plans for ranges of sizes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from waxeq.amounts import number_of
from waxeq.backend.kernel import Kernel
from waxeq.inspect.explain import explain_plan
from waxeq.inspect.report import accuracy, memory
from waxeq.memory.estimate import COPIED, amount
from waxeq.search.sizes import SizedResult
from waxeq.symbolic.dims import Box
from waxeq.symbolic.peak import peaks
from waxeq.symbolic.plan import Interval, SizedPlans, of_ranges
from waxeq.symbolic.size import written

if TYPE_CHECKING:
    from rich.console import RenderableType

Data = Mapping[str, Any]


def sizes_report(result: SizedResult, path: str) -> dict[str, Any]:
    """Everything worth saying about an optimization for ranges of sizes whose plan lies at `path`. Times in seconds."""
    r, plans = result.report, result.plans
    return {
        "model": plans.name,
        "dims": _dims(plans),
        "inputs": {n: [x if isinstance(x, (int, str)) else str(x.expr) for x in t] for n, t in plans.takes.items()},
        "searched_at": [dict(s) for s in r.places],
        "contenders": r.contenders,
        "intervals": [interval(i) for i in plans.intervals],
        "switch_points": {n: list(s) for n, s in plans.switches.items()},
        "accuracy": [accuracy(a, False) for a in r.accuracy],
        "checked_at": r.checked,
        "trials": [{"sizes": dict(t.sizes), **asdict(t.trial)} for t in r.trials],
        "seconds": r.seconds,
        "notes": list(r.notes),
        "interrupted": r.interrupted,
        "plan": path,
    }


def interval(i: Interval) -> dict[str, Any]:
    """An interval, its kernels in order, and what it takes at the edges and at the points of its curve."""
    edges = {
        "least": {n: a for n, (a, _) in i.box.ranges.items()},
        "greatest": {n: b for n, (_, b) in i.box.ranges.items()},
    }
    predicted = {name: i.predicted(s) for name, s in edges.items()}
    return {
        "ranges": {n: list(r) for n, r in i.box.ranges.items()},
        "as_written": i.plan.as_written,
        "kernels": [s["kernel"] for s in i.plan.data["steps"]],
        "predicted": {n: None if p is None else {"seconds": p.seconds, "basis": p.basis} for n, p in predicted.items()},
        "curve": [{"sizes": dict(p.sizes), "seconds": p.seconds, "basis": p.basis} for p in i.curve],
    }


def memory_sizes(plans: SizedPlans, kernels: Mapping[str, Kernel]) -> dict[str, Any]:
    """For each interval the most bytes as functions of the dims, and memory by kind at its edges."""
    able, rows = of_ranges(kernels), []
    for i in plans.intervals:
        formulas = peaks(i, plans.dims, able)
        edges = [{"sizes": s, **memory(i.plan.at(s, able))} for s in i.box.corners()]
        rows.append({"ranges": {n: list(r) for n, r in i.box.ranges.items()}, "as_written": i.plan.as_written,
                     "peak": [str(getattr(f, "expr", f)) for f in formulas], "edges": edges})  # fmt: skip
    most = max(e["peak"] for r in rows for e in r["edges"])
    return {"model": plans.name, "dims": _dims(plans), "peak": most, "intervals": rows}


def explain_sizes(plans: SizedPlans, kernels: Mapping[str, Kernel]) -> dict[str, Any]:
    """Why the plan of each interval is as it is, kernel by kernel, at a size within it."""
    able, rows = of_ranges(kernels), []
    for i in plans.intervals:
        at = _within(i.box)
        said, point = explain_plan(i.plan.at(at, able), able).to_json(), i.predicted(at)
        predicted = None if point is None else {"seconds": point.seconds, "basis": point.basis}
        rows.append({"ranges": {n: list(r) for n, r in i.box.ranges.items()}, "explained_at": at,
                     "predicted": predicted, **said})  # fmt: skip
    return {"model": plans.name, "dims": _dims(plans), "intervals": rows}


def _within(box: Box) -> dict[str, int]:
    """Sizes in the middle of a box, primes if there are: they are no multiples that other numbers of a model could be
    taken for."""
    found = {}
    for n, (a, b) in box.ranges.items():
        middle = math.isqrt(a * b)
        around = [s for d in range(64) for s in (middle + d, middle - d) if a <= s <= b]
        found[n] = next((s for s in around if s > 2 and all(s % k for k in range(2, math.isqrt(s) + 1))), middle)
    return found


def _dims(plans: SizedPlans) -> list[dict[str, Any]]:
    return [{"name": d.name, "low": d.low, "high": d.high} for d in plans.dims]


def range_(ranges: Mapping[str, Sequence[int]]) -> str:
    """An interval for people: T = 1 to 40."""
    return str(Box({n: (a, b) for n, (a, b) in ranges.items()}))


def memory_sizes_view(d: Data) -> RenderableType:
    """Memory of each interval: a function of the sizes, and what it comes to at the edges."""
    from waxeq.inspect.show import facts, group, memory_line

    parts = []
    for i in d["intervals"]:
        peak = i["peak"][0] if len(i["peak"]) == 1 else f"max({', '.join(i['peak'])})"
        small = f"and inputs of up to {amount(COPIED)} are copied"
        what = "" if i["as_written"] else f", before each buffer of the arena is rounded up to 64 {small}"
        rows = [(range_(i["ranges"]), f"at most {peak} bytes{what}")]
        rows += [(f"   {written(e['sizes'])}", memory_line(e)) for e in i["edges"]]
        parts.append(facts(rows))
    return group(*parts, facts([("at most", amount(d["peak"]))]))


def explain_sizes_view(d: Data) -> RenderableType:
    """Why the plan of each interval is as it is."""
    from waxeq.inspect.show import explain_view, facts, group, time_

    parts = []
    for i in d["intervals"]:
        taken = "" if i["predicted"] is None else f", {time_(i['predicted']['seconds'])} {i['predicted']['basis']}"
        parts += [facts([("sizes", f"{range_(i['ranges'])}; below, where {written(i['explained_at'])}{taken}")])]
        parts += [explain_view(i)]
    return group(*parts)


def bench_sizes_view(d: Data) -> RenderableType:
    """Times side by side, one size after the other."""
    from waxeq.inspect.show import bench_view, facts, group

    parts = [part for r in d["at"] for part in (facts([("sizes", written(r["sizes"]))]), bench_view({**d, **r}))]
    return group(*parts)


def sizes_view(d: Data) -> RenderableType:
    """The report of an optimization for ranges of sizes."""
    from waxeq.inspect.show import error_line, facts, group, table, time_

    inputs = ", ".join(f"{n}[{', '.join(map(str, t))}]" for n, t in d["inputs"].items())
    ranges = ", ".join(f"{x['name']} = {x['low']} to {x['high']}" for x in d["dims"])
    places = "; ".join(map(written, d["searched_at"]))
    contenders = number_of(d["contenders"], "plan")
    above = [
        ("model", f"{d['model']}({inputs})"),
        ("sizes", ranges),
        ("choice", f"of {contenders}, searched where {places}" if places else "as it is locked"),
    ]
    rows = []
    for i in d["intervals"]:
        a, b = i["predicted"]["least"], i["predicted"]["greatest"]
        what = "the model as written" if i["as_written"] else number_of(len(i["kernels"]), "kernel")
        span = ("-", "-") if a is None or b is None else (time_(a["seconds"]), time_(b["seconds"]))
        bases = "-" if a is None else " and ".join(dict.fromkeys(p["basis"] for p in i["curve"]))
        rows.append((range_(i["ranges"]), what, *span, bases))
    columns = ("interval", "plan", "predicted at its least", "at its greatest", "basis")
    switches = "; ".join(f"{n} = {', '.join(map(str, s))}" for n, s in d["switch_points"].items() if s)
    below = [("switches at", switches or "no size: one plan is best at all")]
    below += [("accuracy", f"{error_line(x)}, the largest at {d['checked_at']} sizes") for x in d["accuracy"]]
    if d["trials"]:
        trials = sorted(d["trials"], key=lambda t: (*t["sizes"].values(),))
        held = ", ".join(f"{written(t['sizes'])}: {t['ratio']:.2f}x" for t in trials)
        below += [("held against", f"the model as written in a process of its own: {held}")]
    below += [("took", f"{d['seconds']:.2f} s"), *(("note", n) for n in d["notes"]), ("written to", d["plan"])]
    return group(facts(above), table(columns, rows), facts(below))
