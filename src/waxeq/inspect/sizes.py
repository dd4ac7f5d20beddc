"""Reports of plans for ranges of sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from waxeq.inspect.report import accuracy
from waxeq.search.sizes import SizedResult
from waxeq.symbolic.plan import Interval

if TYPE_CHECKING:
    from rich.console import RenderableType

Data = Mapping[str, Any]


def sizes_report(result: SizedResult, path: str) -> dict[str, Any]:
    """Everything worth saying about an optimization for ranges of sizes whose plan lies at `path`. Times in seconds."""
    r, plans = result.report, result.plans
    return {
        "model": plans.name,
        "dims": [{"name": d.name, "low": d.low, "high": d.high} for d in plans.dims],
        "inputs": {n: [x if isinstance(x, (int, str)) else str(x.expr) for x in t] for n, t in plans.takes.items()},
        "searched_at": [dict(s) for s in r.places],
        "contenders": r.contenders,
        "intervals": [interval(i) for i in plans.intervals],
        "switch_points": {n: list(s) for n, s in plans.switches.items()},
        "accuracy": [accuracy(a, False) for a in r.accuracy],
        "checked_at": r.checked,
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


def sizes_view(d: Data) -> RenderableType:
    """The report of an optimization for ranges of sizes."""
    from waxeq.inspect.show import facts, group, table, time_

    inputs = ", ".join(f"{n}[{', '.join(map(str, t))}]" for n, t in d["inputs"].items())
    ranges = ", ".join(f"{x['name']} = {x['low']} to {x['high']}" for x in d["dims"])
    places = "; ".join(", ".join(f"{n} = {s}" for n, s in p.items()) for p in d["searched_at"])
    above = [
        ("model", f"{d['model']}({inputs})"),
        ("sizes", ranges),
        ("choice", f"of {d['contenders']} plans, searched where {places}"),
    ]
    rows = []
    for i in d["intervals"]:
        a, b = i["predicted"]["least"], i["predicted"]["greatest"]
        what = "the model as written" if i["as_written"] else f"{len(i['kernels'])} kernels"
        where = ", ".join(f"{n} = {p}" if p == q else f"{n} = {p} to {q}" for n, (p, q) in i["ranges"].items())
        span = ("-", "-") if a is None or b is None else (time_(a["seconds"]), time_(b["seconds"]))
        bases = "-" if a is None else " and ".join(dict.fromkeys(p["basis"] for p in i["curve"]))
        rows.append((where, what, *span, bases))
    columns = ("interval", "plan", "predicted at its least", "at its greatest", "basis")
    switches = "; ".join(f"{n} = {', '.join(map(str, s))}" for n, s in d["switch_points"].items() if s)
    below = [("switches at", switches or "no size: one plan is best at all")]
    below += [
        ("accuracy", f"{x['output']}: relative RMS error {x['rms']:.1e} against float64, the largest at "
                     f"{d['checked_at']} sizes")
        for x in d["accuracy"]
    ]  # fmt: skip
    below += [("took", f"{d['seconds']:.2f} s"), *(("note", n) for n in d["notes"]), ("written to", d["plan"])]
    return group(facts(above), table(columns, rows), facts(below))
