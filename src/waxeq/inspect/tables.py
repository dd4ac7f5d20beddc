"""How the timing table looks on a screen: what it holds, what is wrong with it, what moved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from waxeq.amounts import number_of
from waxeq.inspect.show import Data, facts, group, table, time_
from waxeq.memory.estimate import amount

if TYPE_CHECKING:
    from rich.console import RenderableType

_SHOWN = 40
"""Most rows of a table on a screen; all are in the JSON."""


def status_view(d: Data) -> RenderableType:
    """The state of the timing table."""
    if not d["exists"]:
        return f"there is no timing table yet; `waxeq optimize` or `waxeq calibrate` makes it at {d['path']}"
    sizes = f"{amount(d['bytes'])}, near copy {amount(d['near_bytes'])}"
    rows = d["rows"]
    states = ", ".join(f"{n:,} {state}" for state, n in rows.items() if n)
    top = facts([
        ("table", f"{d['path']} ({sizes}{'' if d['writable'] else ', cannot be written'})"),
        ("timings", f"{sum(rows.values()):,}{f' ({states})' if states else ''}"),
        ("superseded", f"{d['superseded']:,} by newer timings of the same calls"),
        ("quarantine", f"{d['quarantined']:,}"),
        ("memos", ", ".join(f"{k} {n:,}" for k, n in d["memos"].items()) or "none"),
        *((f"device {i}", about) for i, about in d["devices"].items()),
        ("shipped", ", ".join(d["shipped"]) or "none"),
        *(("damaged", path) for path in d["damaged"]),
    ])  # fmt: skip
    shown = [(p["device"], p["kernel"], p["rows"], p["state"], p["why"]) for p in d["parts"]]
    columns = ("device", "kernel", "timings", "state", "why")
    return group(top, table(columns, shown, right=("timings",))) if shown else top


def findings_view(d: Data) -> RenderableType:
    """What is wrong with a table."""
    found = d["findings"]
    if not found:
        return f"nothing is wrong with {d['path']}"
    kinds = dict.fromkeys(f["kind"] for f in found)
    parts: list[RenderableType] = []
    for kind in kinds:
        rows = [f for f in found if f["kind"] == kind]
        done = d["put_aside"] and kind not in ("stale", "unknown")
        advice = "" if done else f"; {rows[0]['advice']}"
        parts.append(facts([(kind, f"{number_of(sum(f['rows'] for f in rows), 'timing')}{advice}")]))
        shown = [(f["device"], f["kernel"], f["what"], f["rows"], f["reason"]) for f in rows[:_SHOWN]]
        parts.append(table(("device", "kernel", "of", "timings", "why"), shown, right=("timings",)))
        parts += _more(rows)
    if d["put_aside"]:
        parts.append(
            facts([("put aside", f"{number_of(d['put_aside'], 'timing')}, into the quarantine of {d['path']}")])
        )
    return group(*parts)


def _more(rows: Sequence[object]) -> list[RenderableType]:
    return [f"and {len(rows) - _SHOWN:,} more; --json has all of them"] if len(rows) > _SHOWN else []


def merged_view(d: Data) -> RenderableType:
    """What came from where."""
    rows = ((s["source"], s["new"], s["known"], s["refused"], s["memos"]) for s in d["sources"])
    columns = ("from", "new", "known", "refused", "memos")
    notes = [("damaged", f"{s['source']}: {w}") for s in d["sources"] for w in s["damaged"]]
    notes += [(f"device {i}", about) for s in d["sources"] for i, about in s["devices"].items()]
    return group(table(columns, rows, right=columns[1:]), *([facts(dict.fromkeys(notes))] if notes else []))


def diff_view(d: Data) -> RenderableType:
    """Two tables side by side."""
    pairs = d["pairs"]
    clear = [p for p in pairs if not p["same"] and p["sure"]]
    top = facts([
        ("A", f"{d['a']}: {', '.join(d['devices_a'].values()) or 'no device is described'}"),
        ("B", f"{d['b']}: {', '.join(d['devices_b'].values()) or 'no device is described'}"),
        ("fingerprint", "; ".join(d["fingerprint"]) or "the same"),
        ("in both", f"{number_of(len(pairs), 'call')}, {len(clear):,} of them clearly different"),
        ("only in A", _kernels(d["only_a"])),
        ("only in B", _kernels(d["only_b"])),
    ])  # fmt: skip
    shown = [
        (p["key"]["kernel"], f"{p['key']['dims']} {p['key']['dtype']}", time_(p["a"]), time_(p["b"]),
         f"{p['ratio']:.2f}x [{p['low']:.2f}, {p['high']:.2f}]{'' if p['sure'] else ' (few samples)'}")
        for p in pairs[:_SHOWN]
    ]  # fmt: skip
    columns = ("kernel", "of", "A", "B", "B / A")
    return group(top, table(columns, shown, right=columns[2:]), *_more(pairs)) if shown else top


def _kernels(counts: Data) -> str:
    return ", ".join(f"{n:,} {k}" for k, n in counts.items()) or "none"


def count_view(d: Data) -> RenderableType:
    """How many timings a file was given, or gave."""
    more = f", {d['known']:,} known before, {d['refused']:,} refused" if "known" in d else ""
    return f"{number_of(d['timings'], 'timing')} {d['done']}{more}: {d['path']}"


def spare_view(d: Data) -> RenderableType:
    """What was dropped, or would be."""
    smaller = amount(d["before"]) if d["dry_run"] else f"{amount(d['before'])} before, {amount(d['after'])} now"
    rows = [
        ("table", f"{d['path']} ({smaller})"),
        ("would drop" if d["dry_run"] else "dropped", f"{d['superseded']:,} superseded by newer timings"),
        ("", f"{d['unused']:,} not used here"),
        ("", f"{d['quarantined']:,} from the quarantine"),
        ("", f"{d['forgotten']:,} old memos of searches"),
        ("kept", number_of(d["kept"], "timing")),
    ]
    parts = [(p["device"], p["kernel"], p["rows"], p["why"]) for p in d["parts"]]
    columns = ("device", "kernel", "timings", "why")
    return group(facts(rows), *([table(columns, parts, right=("timings",))] if parts else []))
