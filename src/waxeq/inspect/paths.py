"""How lists of plans look on a screen: `waxeq paths`, `waxeq profile` and `waxeq pareto`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from waxeq.amounts import number_of
from waxeq.inspect.show import Data, facts, group, table, time_
from waxeq.memory.estimate import amount

if TYPE_CHECKING:
    from rich.console import RenderableType


def number(c: Data) -> str:
    """A count for people: in full below a million, else its order of magnitude."""
    n = c["number"]
    if n >= 10**6:
        power = int(math.log10(n))
        text = f"about {10 ** (math.log10(n) - power):.1f}e{power}"
    else:
        text = f"{n:,}"
    return text if c["exact"] else f"at most {text.removeprefix('about ')}"


def paths_view(d: Data) -> RenderableType:
    """Plans one below the other, the cheapest first."""
    rows = d["paths"]
    if not rows:
        return "there are no more" if d["from"] > 1 else "there is nothing to choose: no block has a plan"
    last = rows[-1]["number"]
    more = f"more with --from {last + 1}" + (f", or again with --state {d['state']}" if d["state"] else "")
    shown = (
        (r["number"], time_(r["seconds"]), f"{r['seconds'] / d['best']:.2f}x", r["basis"], _calls(r["calls"]))
        for r in rows
    )
    said = [("plans", number(d["count"]) + (", equal blocks planned alike" if d["repeated"] else ""))]
    if d["listed"] != d["count"]:
        said.append(("listed", f"{number(d['listed'])}, of the calls nearest to the best plan"))
    said.append(("paths", "these are all there are" if d["complete"] else more))
    columns = ("#", "predicted", "", "basis", "calls")
    return group(table(columns, shown, right=("#", "predicted")), facts(said))


def _calls(rows: Sequence[Data]) -> str:
    return "\n".join(
        f"{r['kernel']}: {r['what']}" + (f"  x{r['times']}" if r.get("times", 1) > 1 else "") for r in rows
    )


def profile_view(d: Data) -> RenderableType:
    """What a profile of one model or of several found."""
    return group(*(part for m in d["models"] for part in _profiled(m)))


def _profiled(m: Data) -> list[RenderableType]:
    if m["failed"] is not None:
        return [facts([("model", m["target"]), ("failed", m["failed"])])]
    kernels = f"{m['timings']:,} timed, {m['decisive']:,} of which could have changed the winner"
    left = f"{m['unmeasured']:,} unmeasured" + (
        f", {m['undecided']:,} of which could change the winner" * (m["undecided"] > 0)
    )
    said = [
        ("model", f"{m['model']} ({m['target']})"),
        ("plans", number(m["count"])),
        ("kernels", f"{kernels}; {left}"),
    ]
    if not m["finished"]:
        idle = m["timings"] == 0 and all(r["remembered"] for r in m["plans"]) and not m["interrupted"]
        said.append(("stopped", _LARGER if idle else "the same command again goes on from here"))
    if not m["plans"]:
        return [facts(said)]
    shown = (
        (r["number"], time_(r["predicted"]), time_(r["seconds"]), f"{r['predicted'] / r['seconds'] - 1:+.0%}",
         f"{r['rms']:.1e}", amount(r["peak"]),
         "fastest" if r["number"] == m["winner"] else "as fast" if r["fastest"] else "")
        for r in m["plans"]
    )  # fmt: skip
    columns = ("#", "predicted", "measured", "off", "error", "memory", "")
    return [facts(said), table(columns, shown, right=columns[:-1])]


_LARGER = "the budget has no room for what is left: give the same command a larger --budget to go on from here"


def spread_view(d: Data) -> RenderableType:
    """What a cluster timed for one model or for several."""
    return group(*(part for m in d["models"] for part in _spread(m)))


def _spread(m: Data) -> list[RenderableType]:
    if m["failed"] is not None:
        return [facts([("model", m["target"]), ("failed", m["failed"])])]
    said = [("model", f"{m['model']} ({m['target']})"), ("plans", number(m["count"]))]
    said += [("refused", text) for text in m["refused"]]
    if not m["finished"]:
        said.append(("stopped", "the same command again goes on from here"))
    shown = (
        (k["device"], k["about"], k["machines"], k["timings"], k["decisive"], k["unmeasured"], k["undecided"])
        for k in m["kinds"]
    )
    columns = ("device", "", "machines", "timed", "could change the winner", "unmeasured", "could still")
    return [facts(said), table(columns, shown, right=columns[2:])]


def pareto_view(d: Data) -> RenderableType:
    """Plans that ran, the fastest first; those of the front are marked."""
    rows = d["plans"]
    if not rows:
        return "no plan was run"
    fastest = rows[0]["seconds"]
    shown = (
        ("*" if r["front"] else "", time_(r["seconds"]), f"{r['seconds'] / fastest:.2f}x", f"{r['rms']:.1e}",
         f"{r['max']:.1e}", amount(r["peak"]), f"{r['tolerance']:g}", _made_of(r))
        for r in rows
    )  # fmt: skip
    columns = ("", "measured", " ", "RMS error", "max", "memory", "tolerance", "kernels")
    said = [("*", "no other plan is as good in time, error and memory, and better in one of them")]
    said += [("plot", d["plot"])] if d["plot"] else []
    return group(table(columns, shown, right=columns[1:7]), facts(said))


def _made_of(r: Data) -> str:
    if r["rejected"] is not None:
        return f"rejected: {r['rejected']}"
    return "the model as written" if r["as_written"] else f"{number_of(r['steps'], 'call')}: {', '.join(r['kernels'])}"


def estimates_view(rows: Sequence[Data]) -> RenderableType:
    """Errors by family, and what they mean."""
    if not rows:
        return facts([("estimates", "too few timings to say how far estimates are off; `waxeq calibrate` makes some")])
    shown = (
        (
            r["kernel"] or "all kernels",
            r["dtype"] or "",
            r["timings"],
            *(f"{r[n]:.0%}" for n in ("median", "ninth", "inside")),
        )
        for r in rows
    )
    columns = ("estimates of", "dtype", "timings", "median error", "90 %", "in interval")
    note = "each fifth of the timings estimated from the others, calls of one meaning and size together"
    return group(table(columns, shown, right=columns[2:]), facts([("error", note)]))
