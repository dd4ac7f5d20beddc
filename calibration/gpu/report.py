"""What a check found, for people: Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from calibration.gpu.journal import LEFT_OUT, RIGHT, Journal
from calibration.gpu.plans import PLANS
from calibration.gpu.targets import Goal, targets

Row = Mapping[str, Any]
_SECTIONS = ("machine", "correct", "target", "plan", "against", "grid", "sanitized")


def write_summary(journal: Journal, out: Path) -> None:
    """summary.md beside the rows."""
    (out / "summary.md").write_text("\n".join(_lines(journal)) + "\n", encoding="utf-8")


def _lines(j: Journal) -> Iterator[str]:
    yield "# Check on a GPU"
    for r in j.of("machine"):
        yield from (f"- {k}: {v}" for k, v in r.items() if k not in ("section", "case", "outcome"))
    yield from _table("Outcomes", ("section", "cases", "outcomes"), _counts(j))
    bad = [(r["section"], r["case"], r["outcome"], str(r.get("why", "")).replace("|", "/")) for r in _bad(j)]
    head = ("section", "case", "outcome", "why")
    yield from _table("What is not right", head, [row for row in bad if row[2] != LEFT_OUT])
    yield from _table("Left out", head, [row for row in bad if row[2] == LEFT_OUT])
    if not _real(j):
        yield "\nThis is no GPU: the times below mean nothing."
    yield from _table("Targets", ("target", "fastest", "us", "us, cold", "rate", "goal", "reached"), _targets(j))
    yield from _table("Plans", ("plan", "us", "us, called", "kernels", "error"), _plans(j))
    yield from _table(
        "Against torch", ("what", "ours, us", "eager, us", "compiled, us", "goal", "reached"), _against(j)
    )
    yield from _table("Simulated GPU against this one", ("result", "calls"), _simulated(j))


def _table(title: str, head: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    if rows:
        yield from ("", f"## {title}", f"| {' | '.join(head)} |", f"|{'---|' * len(head)}")
        yield from (f"| {' | '.join(map(str, row))} |" for row in rows)


def _counts(j: Journal) -> list[Sequence[object]]:
    rows = {s: Counter(r["outcome"] for r in j.of(s)) for s in _SECTIONS}
    return [(s, n.total(), ", ".join(f"{k} {v}" for k, v in n.items())) for s, n in rows.items() if n]


def _bad(j: Journal) -> list[Row]:
    return [r for s in _SECTIONS for r in j.of(s) if r["outcome"] != RIGHT]


def _real(j: Journal) -> bool:
    return all(r["real"] for r in j.of("machine") if "real" in r)


def _copy(j: Journal) -> float | None:
    return next((r["bytes_per_second"] for r in j.of("machine") if r["case"] == "copy" and r["outcome"] == RIGHT), None)


def _targets(j: Journal) -> list[Sequence[object]]:
    found = []
    for t in targets():
        rows = [r for r in j.of("target") if r.get("target") == t.name and r["outcome"] == RIGHT]
        if rows:
            r = min(rows, key=lambda r: r["seconds"])
            found.append((t.name, r["kernel"], _us(r["seconds"]), _us(r["cold"]), *_rate(r, t.goal, _copy(j))))
    return found


def _rate(r: Row, goal: Goal, copy: float | None) -> tuple[str, str, str]:
    """The rate of a target, what it is to be, and whether it is."""
    moved, made = r["bytes"] / r["seconds"], r["operations"] / r["seconds"]
    if goal.of == "copy":
        share = None if copy is None else moved / copy
        said = f"{moved / 1e9:.0f} GB/s" + ("" if share is None else f", {share:.0%} of a copy")
        return said, f"{goal.least:.0%} of a copy", _reached(share, goal)
    reached = _reached(made / 1e12, goal) if goal.of == "tflops" else ""
    return f"{made / 1e12:.1f} TFLOP/s", _goal(goal), reached


def _goal(g: Goal) -> str:
    return {"tflops": f"{g.least:g} TFLOP/s", "cublas": f"{g.least:g} of cuBLAS", "copy": f"{g.least:.0%} of a copy",
            "compiled": f"{g.least:g} of torch.compile"}[g.of]  # fmt: skip


def _reached(value: float | None, goal: Goal) -> str:
    return "" if value is None else "yes" if value >= goal.least else "no"


def _plans(j: Journal) -> list[Sequence[object]]:
    return [
        (r["case"], _us(r["seconds"]), _us(r["called"]), r["steps"], f"{r['rms_error']:.1e}")
        for r in j.of("plan")
        if r["outcome"] == RIGHT
    ]


def _against(j: Journal) -> list[Sequence[object]]:
    goals = {**{t.name: t.goal for t in targets()}, **PLANS}
    found = []
    for r in j.of("against"):
        if r["outcome"] == RIGHT:
            goal, took, ratios = goals[r["case"]], r["seconds"], r["ratios"]
            with_ratio = (_beside(took, ratios, n) for n in ("eager", "compiled"))
            peer = {"cublas": "eager", "compiled": "compiled"}.get(goal.of)
            reached = "" if peer is None else _reached(ratios.get(peer), goal)
            found.append((r["case"], _us(took["ours"]), *with_ratio, _goal(goal) if peer else "", reached))
    return found


def _beside(took: Mapping[str, float], ratios: Mapping[str, float], name: str) -> str:
    return f"{_us(took[name])} ({ratios[name]:.2f}x)" if name in took else ""


def _simulated(j: Journal) -> list[Sequence[object]]:
    said = Counter(str(r["simulated"]) for r in j.of("correct") if "simulated" in r)
    most = max((r["apart"] for r in j.of("correct") if "apart" in r), default=None)
    return [*said.items(), *([("apart at most, of the largest value", f"{most:.1e}")] if most is not None else [])]


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:.1f}"
