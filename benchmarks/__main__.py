"""`python -m benchmarks [EXPERIMENT ...]`: measure, print, and write RESULTS.md and results.json beside this file."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter
from rich.console import Console
from rich.table import Table as Drawn

from benchmarks.experiments import EXPERIMENTS, Bench, Table
from waxeq.cost.device import current_device
from waxeq.options import cores

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
        linear, examples, layers, prediction, ablations.
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
    (out / "RESULTS.md").write_text(_markdown(json.loads((out / "results.json").read_text())))


def _drawn(t: Table) -> Drawn:
    drawn = Drawn(*t.columns, title=t.title, caption=" ".join(t.notes))
    for r in t.rows:
        drawn.add_row(*map(str, r))
    return drawn


def _store(out: Path, name: str, t: Table, threads: int, seconds: float) -> None:
    path = out / "results.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    about = {"device": current_device(threads).describe(), "versions": _versions(), "took": round(seconds)}
    known[name] = {**asdict(t), **about, "date": time.strftime("%Y-%m-%d")}
    path.write_text(json.dumps({n: known[n] for n in EXPERIMENTS if n in known}, indent=1) + "\n")


def _versions() -> dict[str, str]:
    found = {}
    for package in ("waxeq", "numpy", "scipy", "egglog", "jax", "onnxruntime"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _markdown(results: dict) -> str:
    rows = ["# Results", "", "Written by `python -m benchmarks`; ratios count, absolute times are of one machine.", ""]
    for r in results.values():
        rows += [f"## {r['title']}", "", *r["notes"], ""] if r["notes"] else [f"## {r['title']}", ""]
        rows += ["| " + " | ".join(r["columns"]) + " |", "|" + "---|" * len(r["columns"])]
        rows += ["| " + " | ".join(str(c) for c in row) + " |" for row in r["rows"]]
        versions = ", ".join(f"{n} {v}" for n, v in r["versions"].items())
        rows += ["", f"{r['date']}; {r['device']}; {versions}.", ""]
    return "\n".join(rows)


if __name__ == "__main__":
    app()
