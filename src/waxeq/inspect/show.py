"""How plain data looks on a screen: each function turns the data of one command into something rich can print."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from waxeq.amounts import number_of
from waxeq.inspect.report import UNPRICED
from waxeq.memory.estimate import amount

if TYPE_CHECKING:
    from rich.console import RenderableType

Data = Mapping[str, Any]


def time_(seconds: float) -> str:
    """Seconds for people: 12.3 us."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        shown = float(f"{seconds / size:.3g}")  # 0.99996 s is 1 s, not 1000 ms
        if shown >= 1:
            return f"{shown:.3g} {unit}" if shown < 1000 else f"{seconds / size:,.0f} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, right: Sequence[str] = ()) -> RenderableType:
    """A plain table; columns in `right` are aligned to the right."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    t = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for c in columns:
        t.add_column(c, justify="right" if c in right else "left", overflow="fold")
    for r in rows:
        t.add_row(*(Text(str(x)) for x in r))
    return t


def facts(rows: Iterable[tuple[str, str]]) -> RenderableType:
    """Labels and values, one a line."""
    from rich.table import Table
    from rich.text import Text

    t = Table.grid(padding=(0, 2))
    t.add_column(style="bold", no_wrap=True)
    t.add_column(overflow="fold")
    for label, value in rows:
        t.add_row(label, Text(value))
    return t


def group(*parts: RenderableType) -> RenderableType:
    """Parts below each other."""
    from rich.console import Group

    return Group(*parts)


_SHOWN = 40
"""Most kernels in a table, repeats not counted."""


def kernels_view(rows: Sequence[Data]) -> RenderableType:
    """The kernels of a plan, repeats together; of a long plan the costliest."""
    groups = _repeats(rows)
    shown = sorted(groups, key=lambda g: -sum(k["seconds"] for k in g))[:_SHOWN]
    shown.sort(key=lambda g: g[0]["step"])
    lines = [
        (g[0]["step"], f"x{len(g)}" if len(g) > 1 else "", g[0]["kernel"], _what(g[0]),
         places(g[0]["sources"]), time_(sum(k["seconds"] for k in g)), _bases(g))
        for g in shown
    ]  # fmt: skip
    below = table(("#", "", "kernel", "what", "from", "predicted", "basis"), lines, right=("#", "predicted"))
    together = [("one walk", text) for text in _walks(rows)]
    if together:
        below = group(below, facts(together))
    if len(shown) == len(groups):
        return below
    left = sum(k["seconds"] for k in rows) - sum(k["seconds"] for g in shown for k in g)
    note = f"{len(groups) - len(shown)} more kinds that take {time_(left)} together; --json lists all {len(rows)} steps"
    return group(below, facts([("not shown", note)]))


def _what(k: Data) -> str:
    """What a step computes, and the sizes of that."""
    computed = k["what"] if k["sweeps"] is None else f"{number_of(k['sweeps'], 'sweep')} in one walk"
    return f"{computed}   {k['shapes']}"


def _walks(rows: Sequence[Data]) -> list[str]:
    """A sentence for each group of steps that share a walk over an array; of repeated ones the first."""
    found: dict[Any, str] = {}
    for k in rows:
        w = k["walk"]
        if w is not None and k["step"] == w["first"]:
            alike = tuple(r["like"] for r in rows[w["first"] : w["last"] + 1])
            found.setdefault(alike, _walk(w))
    return list(found.values())


def _walk(w: Data) -> str:
    return f"steps {w['first']} to {w['last']} go through {', '.join(w['over'])} together, read once for all"


def _repeats(rows: Sequence[Data]) -> list[list[Data]]:
    """Steps that are alike, together."""
    found: dict[Any, list[Data]] = {}
    for k in rows:
        rules = k.get("rules")
        found.setdefault((k["like"], None if rules is None else tuple(rules)), []).append(k)
    return list(found.values())


def _bases(rows: Sequence[Data]) -> str:
    return ", ".join(dict.fromkeys(k["basis"] for k in rows))


def places(sources: Sequence[str]) -> str:
    """Source places, lines of one file together: mlp.py:12,14."""
    lines: dict[str, list[str]] = {}
    for s in sources:
        file, _, line = s.rpartition(":")
        lines.setdefault(file.rpartition("/")[2], []).append(line)
    return " ".join(f"{f}:{','.join(sorted(set(ls), key=_number))}" for f, ls in lines.items()) or "-"


def _number(text: str) -> tuple[int, str]:
    return (int(text), "") if text.isdigit() else (0, text)


def report_view(d: Data) -> RenderableType:
    """The report of an optimization."""
    blocks, t = d["blocks"], d["trial"]
    rows = _searched(d) if blocks["distinct"] else [("model", f"{d['model']}: {number_of(d['nodes'], 'node')}")]
    below: list[tuple[str, str]] = []
    if t is not None:
        below.append(("plan", f"{time_(t['plan'])} measured, {time_(d['predicted'])} predicted{_off(d)}"))
        how = "few runs" if t["brief"] else "median, interleaved, in a fresh process"
        known = "; remembered" if t["remembered"] else ""
        below.append(("as written", f"{time_(t['written'])} ({how}{known})"))
    else:
        below.append(("plan", f"{time_(d['predicted'])} predicted"))
    below.append(("verdict", d["verdict"]))
    below += [("accuracy", _accuracy(a)) for a in d["accuracy"]]
    below += [("memory", memory_line(d["memory"])), ("took", _took(d["seconds"], searched=bool(blocks["distinct"])))]
    below += [("note", n) for n in d["notes"]]
    below.append(("written to", d["plan"]))
    kernels = [kernels_view(d["kernels"])] if d["kernels"] else []
    return group(facts(rows), *kernels, facts(below))


def _searched(d: Data) -> list[tuple[str, str]]:
    """What a search went through."""
    blocks, e = d["blocks"], d["e_graph"]
    stops = ", ".join(s if n == 1 else f"{s} x{n}" for s, n in e["stops"].items())
    gap = "" if e["worst_gap"] is None else f", proved within {e['worst_gap']:.1%} of the least that is predicted"
    return [
        ("model", f"{d['model']}: {number_of(d['nodes'], 'node')}, {number_of(blocks['total'], 'block')} of which "
                  f"{blocks['distinct']} distinct{_reused(blocks)}"),
        ("e-graph", f"{e['nodes']:,} e-nodes in {e['classes']:,} e-classes, {stops}"),
        ("choice", f"of {number_of(e['candidates'], 'candidate call')}, {e['measured']} newly measured{gap}"),
    ]  # fmt: skip


def _off(d: Data) -> str:
    """How far a plan's prediction is from what was measured; a plan of nothing takes no time."""
    predicted, measured = d["predicted"], d["trial"]["plan"]
    if not measured:
        return ""
    return f" ({abs(predicted / measured - 1):.0%} {'over' if predicted > measured else 'under'})"


def _reused(blocks: Data) -> str:
    """How often a block did not have to be searched."""
    within, across = blocks["reused"]["within"], blocks["reused"]["across"]
    said = [f"{within} repeated"] if within else []
    if blocks["remembered"]:
        said.append(f"{blocks['remembered']} remembered" + (f", {across} of them from other models" if across else ""))
    return f" ({'; '.join(said)})" if said else ""


def _accuracy(a: Data) -> str:
    if a["exact_dtype"]:
        return f"{a['output']}: exact" if a["rms"] == 0 else f"{a['output']}: differs"
    return f"{error_line(a)} (as written {a['written_rms']:.1e})"


def error_line(a: Data) -> str:
    """How far off a result is; of whole numbers, how far off what they are rounded from must have been."""
    what = "before it is rounded, " if a["stepped"] else ""
    some = f", of one row in {a['rows']}; all are as near to the model's" if a["rows"] > 1 else ""
    return f"{a['output']}: {what}relative RMS error {a['rms']:.1e} against float64{some}"


def memory_line(m: Data) -> str:
    """Peak bytes in one line."""
    parts = [("arena", m["arena"]), *m["resident"].items()]
    return f"{amount(m['peak'])} at most: " + (", ".join(f"{amount(n)} {what}" for what, n in parts if n) or "nothing")


def _took(s: Data, *, searched: bool) -> str:
    """Where the time went. Of a plan that was not searched for there is only the check."""
    if not searched:
        return time_(s["total"])
    parts = [(s["measuring"], "measuring kernels"), (s["searching"], "searching, checking and timing plans")]
    if s["compiling"] >= 0.05:
        parts.insert(1, (s["compiling"], "compiling them"))
    if s["opening"] >= 0.05:
        parts.insert(0, (s["opening"], "opening the timing table, backends and rules"))
    return f"{time_(s['total'])}: " + ", ".join(f"{time_(seconds)} {what}" for seconds, what in parts)


def run_view(d: Data) -> RenderableType:
    """The results of a plan."""
    rows = ((o["name"], f"{o['dtype']}{o['shape']}", *(_numbers(o))) for o in d["outputs"])
    what = "the model as written" if d["as_written"] else f"{time_(d['predicted_seconds'])} predicted"
    below: list[tuple[str, str]] = [("time", f"{time_(d['seconds'])} (median of {d['calls_timed']}; {what})")]
    if "sizes" in d:
        ends = {n: "{} to {}".format(*d["interval"][n]) for n in d["sizes"]}
        below.append(("sizes", ", ".join(f"{n} = {s}, in {ends[n]}" for n, s in d["sizes"].items())))
    if d["saved"]:
        below.append(("saved", d["saved"]))
    return group(table(("output", "type", "min", "mean", "max", "NaN", "inf"), rows), facts(below))


def bundle_view(d: Data) -> RenderableType:
    """What was put into one file."""
    rows = ((name, f"{size:,}") for name, size in d["files"].items())
    below = [("written to", f"{d['path']}, {d['bytes']:,} bytes; `waxeq run {d['path']}` runs it")]
    below += [("compiled for", f"{', '.join(a)} (kernels of {b})") for b, a in d["compiled_for"].items()]
    for name, why in d["compiled_when_run"].items():
        below.append(("needs there", f"no kernel of {name} is in it: they are compiled where it is run, which needs a "
                      f"compiler there. {why}".strip()))  # fmt: skip
    return group(table(("file", "bytes"), rows, right=("bytes",)), facts(below))


def _numbers(o: Data) -> tuple[str, ...]:
    values = (f"{o[k]:.6g}" if k in o else "-" for k in ("min", "mean", "max"))
    return (*values, str(o.get("nan", "-")), str(o.get("infinite", "-")))


def bench_view(d: Data) -> RenderableType:
    """Times side by side; below them, who could not take part and why."""
    timed = [r for r in d["rivals"] if r["failed"] is None]
    rows = ((r["name"], time_(r["seconds"]), _ratio(r), f"{r['error']:.1e}", time_(r["first_call"]), r["samples"])
            for r in timed)  # fmt: skip
    below = [(r["name"], f"failed: {r['failed']}") for r in d["rivals"] if r["failed"] is not None]
    below += [("threads", str(d["threads"])), *([("plot", d["plot"])] if d["plot"] else [])]
    below += [("note", n) for n in d["notes"]]
    columns = ("what", "time", "plan is faster by", "error", "first call", "samples")
    return group(table(columns, rows, right=("time", "error", "first call", "samples")), facts(below))


def _ratio(r: Data) -> str:
    if r["ratio"] is None:
        return "-"
    return f"{r['ratio']:.2f}x " + ("once" if r["low"] is None else f"[{r['low']:.2f}, {r['high']:.2f}]")


def rules_view(rows: Sequence[Data]) -> RenderableType:
    """Rules."""
    return group(
        table(("rule", "class", "law"), ((r["name"], r["class"], r["law"]) for r in rows)),
        facts([("rules", str(len(rows)))]),
    )


def backends_view(rows: Sequence[Data]) -> RenderableType:
    """Backends and their kernels."""
    parts: list[RenderableType] = []
    for b in rows:
        state = f"on {b['device']}" if b["usable"] else f"cannot be used: {b['why']}"
        parts.append(facts([(b["name"], f"{b['distribution']}, {state}")]))
        if b["kernels"]:
            kernels = ((k["name"], k["form"], k["meaning"] or "-") for k in b["kernels"])
            parts.append(table(("kernel", "form", "meaning"), kernels))
    return group(*parts) if parts else "no backend is installed"


def explain_view(d: Data) -> RenderableType:
    """Why a plan is as it is, kernel by kernel."""
    parts: list[RenderableType] = [facts([("model", d["model"])])]
    for g in _repeats(d["kernels"]):
        k = g[0]
        steps = ",".join(str(x["step"]) for x in g)
        rows = [
            (k["kernel"], _what(k)),
            ("   step" + "s" * (len(g) > 1), steps),
            ("   from", places(k["sources"])),
            ("   rules", _rules(k["rules"])),
        ]
        if k["walk"] is not None:
            rows.append(("   one walk", _walk(k["walk"])))
        if k["basis"] != UNPRICED:
            other = k["runner_up"]
            rows.append(("   cost", f"{time_(k['seconds'])} {k['basis']} [{time_(k['low'])}, {time_(k['high'])}]"))
            rows.append(("   runner-up", "none" if other is None else _runner_up(other, k["seconds"])))
        parts.append(facts(rows))
    parts += [facts([(r["name"], f"{r['law']}   {r['class']}, {r['place']}")]) for r in d["own_rules"]]
    if d["notes"]:
        parts.append(facts([("note", n) for n in d["notes"]]))
    return group(*parts)


def _runner_up(other: Data, chosen: float) -> str:
    """The next best call. Why one that costs less was not taken: guesses are not believed over measurements, and whole
    plans are compared, not kernels."""
    text = f"{other['kernel']}, {time_(other['seconds'])} {other['basis']}"
    if other["seconds"] >= chosen:
        return text
    return text + (
        " (cheaper by itself: whole plans are compared)" if other["basis"] == "measured"
        else " (cheaper on paper: it was not measured)"
    )  # fmt: skip


def _rules(names: Sequence[str] | None) -> str:
    if names is None:
        return "not traced back"
    return ", ".join(names) if names else "none are needed: nothing in it was rewritten"


def mem_view(d: Data) -> RenderableType:
    """Memory by kind, that of the CPU first."""
    others = [group(f"in the memory of {place}:", _memory(e)) for place, e in d["devices"].items()]
    return group(_memory(d), *others) if others else _memory(d)


def _memory(d: Data) -> RenderableType:
    kinds = [("arena", d["arena"]), *d["resident"].items(), ("peak", d["peak"])]
    above = facts([(what, amount(size)) for what, size in kinds])
    if not d["live"]:
        return above
    live = table(("needed at the busiest step", "size"), ((r["buffer"], amount(r["bytes"])) for r in d["live"]))
    return group(above, live, facts([("least possible arena", amount(d["least_arena"]))]))


def calibrate_view(d: Data) -> RenderableType:
    """What a calibration did."""
    rows = [("device", d["device"]), ("new timings", f"{d['timings']:,} in {time_(d['seconds'])}")]
    rows += [("not reached", "anything" if d["left"] is None else f"{d['left']:,} calls")] if d["left"] != 0 else []
    rows += [("written to", d["path"])] if d["path"] else []
    rows += [("note", d["note"])] if d["note"] else []
    return facts(rows)


def certificates_view(rows: Sequence[Data]) -> RenderableType:
    """Certificates of rules: those that were refused in full."""
    from rich.text import Text

    good = [r for r in rows if r["admitted"]]
    shown: list[RenderableType] = []
    if good:
        passed = ((r["rule"], r["class"], r["verdict"], r["met"]) for r in good)
        shown.append(table(("rule", "class", "verdict", "samples"), passed, right=("samples",)))
    shown += [Text(r["said"]) for r in rows if not r["admitted"]]
    return group(*shown, facts([("certified", f"{len(good)} of {len(rows)}")]))


def doctor_view(rows: Sequence[Data]) -> RenderableType:
    """Checks of the installation."""
    return facts((f"{'ok  ' if r['ok'] else 'FAIL'}  {r['check']}", r["found"]) for r in rows)
