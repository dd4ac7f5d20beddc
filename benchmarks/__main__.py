"""`python -m benchmarks [EXPERIMENT ...]` and `python -m benchmarks peers`: measure, print, and write RESULTS.md and
results.json beside this file."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter
from rich.console import Console
from rich.table import Table as Drawn

from benchmarks import report
from benchmarks.comparison import Terms, compare, versions
from benchmarks.contestants import CONTESTANTS
from benchmarks.experiments import EXPERIMENTS, Bench, Table
from benchmarks.row import Record, install
from benchmarks.workloads import select
from waxeq.cost.device import current_device
from waxeq.options import cores
from waxeq.runtime.files import write_atomically
from waxeq.runtime.measure import in_fresh_process

HERE = Path(__file__).parent
app = App(name="benchmarks", help=__doc__)


@app.default
def main(
    *experiments: str,
    threads: int | None = None,
    budget: float = 10.0,
    table: Path | None = None,
    out: Annotated[Path, Parameter(show_default=False)] = HERE,
) -> None:
    """Run experiments (all by default).

    Parameters
    ----------
    experiments
        linear, examples, layers, prediction, ranking, overhead, ablations.
    threads
        For every contestant [default: all cores].
    budget
        Seconds for one contest.
    table
        A timing table to start from [default: an empty one].
    out
        Where RESULTS.md and results.json go [default: benchmarks/].
    """
    names = experiments or tuple(EXPERIMENTS)
    unknown = [n for n in names if n not in EXPERIMENTS]
    if unknown:
        sys.exit(f"there is no experiment {unknown[0]!r}; there are {', '.join(EXPERIMENTS)}")
    console = Console()
    with tempfile.TemporaryDirectory() as d:
        bench = Bench(threads or cores(), table or Path(d) / "timings.duckdb", budget)
        for n in names:
            start = time.time()
            found = EXPERIMENTS[n](bench)
            console.print(_drawn(found))
            _store(out, n, found, bench.threads, time.time() - start)
    _write(out)


@app.command
def peers(
    *,
    rows: str = "*",
    threads: int | None = None,
    budget: float = 20.0,
    search: float = 60.0,
    contestants: str = ",".join(CONTESTANTS),
    table: Path | None = None,
    again: bool = False,
    as_json: Annotated[bool, Parameter(name="--json", negative=())] = False,
    out: Annotated[Path, Parameter(show_default=False)] = HERE,
) -> None:
    """The comparison with every peer. Results are written after each row; rows that were measured with this very source
    on this machine are not measured again, so a run that was cut off goes on where it was.

    Parameters
    ----------
    rows
        Which rows: names or patterns, comma between them.
    threads
        For every contestant [default: all cores].
    budget
        Seconds of timing for each row.
    search
        Seconds for waxeq's search for each row.
    contestants
        Which peers, comma between them.
    table
        A timing table for waxeq to start from [default: an empty one for each row].
    again
        Measure again what was measured.
    as_json
        Print the records of the rows on stdout, those of this machine.
    out
        Where RESULTS.md and results.json go [default: benchmarks/].
    """
    chosen = tuple(contestants.split(","))
    unknown = [n for n in chosen if n not in CONTESTANTS]
    if unknown:
        sys.exit(f"there is no contestant {unknown[0]!r}; there are {', '.join(CONTESTANTS)}")
    try:
        names = tuple(w.name for w in select(rows))
    except ValueError as e:
        sys.exit(str(e))

    def done(records: list[Record]) -> None:
        _keep(out, "peers", records)
        _write(out)

    with tempfile.TemporaryDirectory() as caches:
        in_fresh_process(install, (caches,), threads=threads or cores())
        terms = Terms(chosen, threads or cores(), budget, search, table, caches)
        found = compare(names, terms, _known(out).get("peers", []), again=again, done=done)
    device = current_device(terms.threads).describe()
    wanted = [r for r in found if r["row"] in names and (r["threads"], r["device"]) == (terms.threads, device)]
    print(json.dumps(wanted, indent=1) if as_json else report.section(wanted, report.reasons()))


def _drawn(t: Table) -> Drawn:
    drawn = Drawn(*t.columns, title=t.title, caption=" ".join(t.notes))
    for r in t.rows:
        drawn.add_row(*map(str, r))
    return drawn


def _store(out: Path, name: str, t: Table, threads: int, seconds: float) -> None:
    about = {"device": current_device(threads).describe(), "versions": versions(), "took": round(seconds)}
    _keep(out, name, {**asdict(t), **about, "date": time.strftime("%Y-%m-%d")})


def _known(out: Path) -> dict[str, Any]:
    path = out / "results.json"
    return json.loads(path.read_text()) if path.exists() else {}


def _keep(out: Path, name: str, found: Any) -> None:
    """Put a section into results.json; the file is whole at any moment."""
    known = {**_known(out), name: found}
    text = json.dumps({n: known[n] for n in (*EXPERIMENTS, "peers") if n in known}, indent=1) + "\n"
    write_atomically(out / "results.json", text.encode())


def _write(out: Path) -> None:
    """RESULTS.md from results.json."""
    write_atomically(out / "RESULTS.md", _markdown(_known(out)).encode())


def _markdown(results: dict) -> str:
    rows = ["# Results", "", "Written by `python -m benchmarks`; ratios count, absolute times are of one machine.", ""]
    known = dict(results)
    records = known.pop("peers", [])
    for r in known.values():
        rows += [f"## {r['title']}", "", *r["notes"], ""] if r["notes"] else [f"## {r['title']}", ""]
        rows += ["| " + " | ".join(r["columns"]) + " |", "|" + "---|" * len(r["columns"])]
        rows += ["| " + " | ".join(str(c) for c in row) + " |" for row in r["rows"]]
        versions = ", ".join(f"{n} {v}" for n, v in r["versions"].items())
        rows += ["", f"{r['date']}; {r['device']}; {versions}.", ""]
    if records:
        rows.append(report.section(records, report.reasons()))
    return "\n".join(rows)


if __name__ == "__main__":
    app()
