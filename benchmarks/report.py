"""The comparison with every peer as text: a table for each number of threads, what failed, and what was lost or is over
its roofline, and why."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.contestants import CONTESTANTS
from benchmarks.row import WAXEQ, Record, processor

WHY = Path(__file__).parent / "why.txt"
LOSS, DEEP_LOSS, OFF_ROOF = 1.0, 0.9, 1.3


@dataclass(frozen=True)
class Standing:
    """A row from waxeq's side: the fastest peer, how much longer it takes, and how much longer waxeq takes than a copy
    of the bytes it must move (None for rows without such a number), and than its roofline, which is the copy or the
    functions that it must evaluate, whichever takes longer; the first call of torch.compile."""

    name: str
    threads: int
    on: str
    waxeq: Record
    best: str
    peer: Record
    copies: float | None
    roofs: float | None
    compiled: float | None

    @property
    def ratio(self) -> float:
        return self.peer["ratio"]

    @property
    def bound(self) -> bool:
        """Whether memory bounds the row: the copy is what takes longer."""
        return self.copies is not None and self.roofs == self.copies


def timed(record: Record) -> dict[str, Record]:
    """Contestants that were timed."""
    return {n: c for n, c in record["contestants"].items() if "seconds" in c}


def standing(record: Record) -> Standing | None:
    """None where waxeq or every peer failed."""
    found = timed(record)
    waxeq = found.pop(WAXEQ, None)
    if waxeq is None or not found:
        return None
    best = min(found, key=lambda n: found[n]["seconds"])
    copies = roofs = None
    if "copy" in record:
        copies = waxeq["seconds"] / record["copy"]
        roofs = waxeq["seconds"] / max(record["copy"], record.get("arithmetic", 0.0))
    return Standing(
        record["row"],
        record["threads"],
        processor(record),
        waxeq,
        best,
        found[best],
        copies,
        roofs,
        found.get("torch.compile", {}).get("first_call"),
    )


def geometric_mean(ratios: Sequence[float]) -> float:
    """Raises ValueError without ratios."""
    if not ratios:
        raise ValueError("no ratios")
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def reasons(path: Path = WHY) -> dict[str, str]:
    """Why rows are lost, by row or ROW@THREADS, and ` on PROCESSOR` behind either, or, with `roofline ` before it, far
    over their roofline: lines `name: sentence`; lines that start with # are comments."""
    rows = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        name, mark, text = line.partition(":")
        if mark and not line.startswith("#"):
            rows[name.strip()] = text.strip()
    return rows


def section(records: Sequence[Record], why: Mapping[str, str]) -> str:
    """All of it, in Markdown. Records are in the order of the report."""
    lines = ["## Every peer, on rows that others are measured on", "", *_NOTES, ""]
    for on, threads in sorted({(processor(r), r["threads"]) for r in records}):
        lines += _threads([r for r in records if (processor(r), r["threads"]) == (on, threads)], on, threads, why)
    return "\n".join(lines)


def _threads(records: Sequence[Record], on: str, threads: int, why: Mapping[str, str]) -> Iterator[str]:
    standings = [s for s in map(standing, records) if s is not None]
    yield from (f"### {on}, {threads} thread{'' if threads == 1 else 's'}", "")
    yield from summary(standings)
    yield from ("", *_table(_HEAD, map(cells, records)), "")
    yield from _listed(
        "Failed", [f"{r['row']}, {n}: {c['failed'].replace('|', '/')}" for r in records for n, c in _failed(r)]
    )
    lost = sorted((s for s in standings if s.ratio < LOSS), key=lambda s: s.ratio)
    if lost:
        rows = ((s.name, s.best, _interval(s.peer), _why(s, why)) for s in lost)
        yield from ("Lost:", "", *_table(("row", "best peer", "ratio", "why"), rows), "")
    if over := [s for s in standings if s.bound and (s.roofs or 0) > OFF_ROOF]:
        rows = ((s.name, _times(s.roofs), _why(s, why, "roofline ")) for s in over)
        yield from ("Over their roofline:", "", *_table(("row", "of its roofline", "why"), rows), "")
    for about in dict.fromkeys(f"{r['date']}; source {r['source']}; {r['device']}; {_versions(r)}." for r in records):
        yield from (about, "")


def summary(standings: Sequence[Standing]) -> list[str]:
    """How the targets stand, one line each."""
    if not standings:
        return ["No row has times of both waxeq and a peer."]
    mean = geometric_mean([s.ratio for s in standings])
    bound = [s for s in standings if s.bound]
    return [
        f"- geometric mean of the best peer's time over waxeq's: {mean:.2f} ({len(standings)} rows)",
        f"- rows under {DEEP_LOSS}: {_names(s for s in standings if s.ratio < DEEP_LOSS)}",
        f"- memory-bound rows ({len(bound)}) that take over {OFF_ROOF} times their roofline: "
        + _names(s for s in bound if (s.roofs or 0) > OFF_ROOF),
        "- first call longer than torch.compile's: "
        + _names(s for s in standings if s.compiled is not None and s.waxeq["first_call"] > s.compiled),
        f"- error above that of the best peer: {_names(s for s in standings if s.waxeq['error'] > s.peer['error'])}",
    ]


def _names(standings: Iterator[Standing]) -> str:
    return ", ".join(s.name for s in standings) or "none"


def cells(record: Record) -> tuple[str, ...]:
    """A row of the table."""
    found = record["contestants"]
    s = standing(record)
    best = ("-",) * 4 if s is None else (_interval(s.peer), _times(s.copies), _times(s.roofs), _error(s.peer))
    waxeq, compiled = found.get(WAXEQ, {}), found.get("torch.compile", {})
    kept = " (as written)" if waxeq.get("written") else ""
    return (
        record["row"],
        _time(waxeq) + kept,
        *(_marked(_time(found.get(n, {"absent": True})), s is not None and s.best == n) for n in CONTESTANTS),
        *best[:3],
        _error(waxeq),
        best[3],
        _first(waxeq) + "*" * ("first_call" in waxeq and "search" not in record),
        _first(compiled),
    )


_HEAD = (
    *("row", WAXEQ, *CONTESTANTS),
    *("best peer takes", "of a copy", "of its roofline", "error", "best peer's", "first call s", "torch.compile's"),
)
_NOTES = (
    "Milliseconds, medians; the best peer is bold. All contestants run in one fresh process, by turns in random "
    "order, on the same cores; a turn begins with 15 ms of untimed calls of its own, and freed memory is kept for the"
    " next call by all. `-`: the peer has no natural form of the row. `best peer takes`: its time over waxeq's, "
    "median of paired turns with a 95 % interval (of few turns, their range); over 1 is a gain. `of a copy`: waxeq's "
    "time over that of a copy, in the same turns, of the bytes that any program must move. `of its roofline`: over "
    "that of the copy, or of the functions (exp, log, erf) that any program must evaluate, each alone on numbers that"
    " lie in a cache and as fast as waxeq has it, whichever takes longer: where it is the copy, memory bounds the "
    "row. `error`: relative RMS against float64 (of sum_ab, which is one number, over eight draws of its arguments). "
    "`first call`: compiling and the first run, with what is imported meanwhile and no model compiled before (what "
    "waxeq compiles once for a machine is: threads, products, calls); for waxeq the whole search, with an empty "
    "timing table beside the calibration that ships for the machine, where there is one, and at most what "
    "torch.compile takes as its budget (*: with a budget of 12 s, and kernels that may have been compiled before).",
    "",
    *(f"- {c.name}: {c.note}" for c in CONTESTANTS.values()),
    "",
    "Rows of source c2dfe8fe328e are of an older comparison: JAX had weights as arguments, contestants had three "
    "turns where functions alone were timed beside them, Jacobi was to move its arrays in each sweep, and waxeq's "
    "first call had no run.",
)


def _table(head: Sequence[str], rows: Any) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for r in rows:
        yield "| " + " | ".join(r) + " |"


def _listed(title: str, rows: Sequence[str]) -> Iterator[str]:
    if rows:
        yield from (f"{title}:", "", *(f"- {r}" for r in rows), "")


def _failed(record: Record) -> list[tuple[str, Record]]:
    return [(n, c) for n, c in record["contestants"].items() if "failed" in c]


def _why(s: Standing, why: Mapping[str, str], what: str = "") -> str:
    own = f"{s.name}@{s.threads}"
    found = (why.get(what + n) for n in (f"{own} on {s.on}", f"{s.name} on {s.on}", own, s.name))
    return next(filter(None, found), "not explained yet")


def _time(c: Record) -> str:
    if "seconds" in c:
        return f"{c['seconds'] * 1e3:.3g}" if c["seconds"] < 1 else f"{c['seconds'] * 1e3:.0f}"
    return "failed" if "failed" in c else "-"


def _marked(text: str, best: bool) -> str:
    return f"**{text}**" if best else text


def _interval(c: Record) -> str:
    return f"{c['ratio']:.2f}x ({c['ratio_low']:.2f} to {c['ratio_high']:.2f})"


def _times(x: float | None) -> str:
    return "-" if x is None else f"{x:.2f}x"


def _error(c: Record) -> str:
    return f"{c['error']:.1e}" if "error" in c else "-"


def _first(c: Record) -> str:
    return f"{c['first_call']:.2g}" if "first_call" in c else "-"


def _versions(record: Record) -> str:
    return ", ".join(f"{n} {v}" for n, v in record["versions"].items())
