"""What a check found, for people: Markdown."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from calibration.gpu.journal import LEFT_OUT, RIGHT, Journal
from calibration.gpu.plans import PLANS
from calibration.gpu.targets import COPIED, Goal, targets

from waxeq.runtime.files import write_atomically

Row = Mapping[str, Any]
_ASKED, _ENDS = "cases.json", "ends.json"
_SECTIONS = ("machine", "correct", "target", "plan", "against", "grid", "sanitized", "compiled")


def write_summary(journal: Journal, out: Path) -> None:
    """summary.md beside the rows."""
    (out / "summary.md").write_text("\n".join(_lines(journal, out)) + "\n", encoding="utf-8")


def write_asked(out: Path, cases: Mapping[str, Sequence[str]]) -> None:
    """Keep what is to be tried, by section, so that a summary can say what was not."""
    known = _asked(out)
    write_atomically(out / _ASKED, json.dumps({**known, **cases}).encode())


def _asked(out: Path) -> dict[str, Sequence[str]]:
    place = out / _ASKED
    return json.loads(place.read_bytes()) if place.exists() else {}


def ends(out: Path, until: float, shares: Mapping[str, float], now: float) -> dict[str, float]:
    """When the time of each section is up in the run that ends at `until`: the first to ask decides, and processes that
    go on with that run are told the same."""
    place = out / _ENDS
    known = json.loads(place.read_bytes()) if place.exists() else {}
    if known.get("until") != until:
        found, at = dict[str, float](), now
        for section, share in shares.items():
            at = found[section] = at + share * (until - at)
        known = {"until": until, "ends": found}
        write_atomically(place, json.dumps(known).encode())
    return known["ends"]


def _untried(j: Journal, out: Path) -> list[Sequence[object]]:
    """Sections with the cases that have no outcome: the time was up before them."""
    left = {s: [x for x in cases if (s, x) not in j.done] for s, cases in _asked(out).items()}
    return [(s, f"{len(x)} of {len(_asked(out)[s])}", x[0]) for s, x in left.items() if x]


def _lines(j: Journal, out: Path) -> Iterator[str]:
    yield "# Check on a GPU"
    for r in j.of("machine"):
        yield from (f"- {k}: {v}" for k, v in r.items() if k not in ("section", "case", "outcome"))
    yield from _table("Outcomes", ("section", "cases", "outcomes"), _counts(j))
    bad = [(r["section"], r["case"], r["outcome"], str(r.get("why", "")).replace("|", "/")) for r in _bad(j)]
    head = ("section", "case", "outcome", "why")
    yield from _table("What is not right", head, [row for row in bad if row[2] != LEFT_OUT])
    yield from _table("Left out", head, [row for row in bad if row[2] == LEFT_OUT])
    yield from _table("Not tried, as the time was up", ("section", "cases", "the first"), _untried(j, out))
    if not _real(j):
        yield "\nThis is no GPU: the times below mean nothing."
    yield from _table("Goals", ("what", "goal", "measured", "reached"), _goals(j))
    yield from _table("Targets", ("target", "fastest", "us", "us, cold", "rate"), _targets(j))
    yield from _table("Plans", ("plan", "us", "us, called", "kernels", "error"), _plans(j))
    yield from _table("Against torch", ("what", "ours, us", "eager, us", "compiled, us"), _against(j))
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
    return max((r["bytes_per_second"] for r in j.of("machine") if "bytes_per_second" in r), default=None)


def _goals(j: Journal) -> list[Sequence[object]]:
    """Every goal, whether it was measured or not; what the others are held to has none."""
    rows = [(t.name, t.goal) for t in targets() if t.name != COPIED] + list(PLANS.items())
    found = []
    for name, goal in rows:
        value = _measured(j, name, goal)
        said = "not measured" if value is None else _of(goal, value)
        found.append((name, f"at least {_of(goal, goal.least)}", said, _reached(value, goal)))
    return found


def _measured(j: Journal, name: str, goal: Goal) -> float | None:
    """How far something came, as its goal counts; None where that was not measured."""
    if goal.of in ("copy", "tflops"):
        r, copy = _fastest(j, name), _copy(j)
        if r is None or (goal.of == "copy" and copy is None):
            return None
        return r["bytes"] / r["seconds"] / copy if goal.of == "copy" else r["operations"] / r["seconds"] / 1e12
    peers = {"cublas": ("eager",), "compiled": ("compiled",), "torch": ("eager", "compiled")}[goal.of]
    row = next((r for r in j.of("against") if r["case"] == name and r["outcome"] == RIGHT), None)
    if row is None:
        return None
    ratios, able = row["ratios"], [p for p in peers if p not in row.get("failed", {})]
    return min(ratios[p] for p in able) if able and all(p in ratios for p in able) else None


def _of(goal: Goal, value: float) -> str:
    return {"tflops": f"{value:.0f} TFLOP/s", "cublas": f"{value:.2f} of cuBLAS", "copy": f"{value:.0%} of a copy",
            "compiled": f"{value:.2f} of torch.compile", "torch": f"{value:.2f} of torch"}[goal.of]  # fmt: skip


def _reached(value: float | None, goal: Goal) -> str:
    return "" if value is None else "yes" if value >= goal.least else "no"


def _fastest(j: Journal, target: str) -> Row | None:
    """The row of the fastest kernel for a target."""
    rows = (r for r in j.of("target") if r.get("target") == target and r["outcome"] == RIGHT)
    return min(rows, key=lambda r: r["seconds"], default=None)


def _targets(j: Journal) -> list[Sequence[object]]:
    rows = ((t.name, _fastest(j, t.name)) for t in targets())
    return [(n, r["kernel"], _us(r["seconds"]), _us(r["cold"]), _rate(r)) for n, r in rows if r is not None]


def _rate(r: Row) -> str:
    made = r["operations"] / r["seconds"]
    return f"{made / 1e12:.1f} TFLOP/s" if made else f"{r['bytes'] / r['seconds'] / 1e9:.0f} GB/s"


def _plans(j: Journal) -> list[Sequence[object]]:
    return [
        (r["case"], _us(r["seconds"]), _us(r["called"]), r["steps"], f"{r['rms_error']:.1e}")
        for r in j.of("plan")
        if r["outcome"] == RIGHT
    ]


def _against(j: Journal) -> list[Sequence[object]]:
    found = []
    for r in (r for section in ("against", "compiled") for r in j.of(section) if r["outcome"] == RIGHT):
        found.append((r["case"], _us(r["seconds"]["ours"]), *(_beside(r, n) for n in ("eager", "compiled"))))
    return found


def _beside(r: Row, name: str) -> str:
    if name in r.get("failed", {}):
        return f"failed: {r['failed'][name]}"[:80].replace("|", "/").replace("\n", " ")
    took, ratios = r["seconds"], r["ratios"]
    return f"{_us(took[name])} ({ratios[name]:.2f}x)" if name in took else ""


def _simulated(j: Journal) -> list[Sequence[object]]:
    said = Counter(str(r["simulated"]) for r in j.of("correct") if "simulated" in r)
    most = max((r["apart"] for r in j.of("correct") if "apart" in r), default=None)
    return [*said.items(), *([("apart at most, of the largest value", f"{most:.1e}")] if most is not None else [])]


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:.1f}"
