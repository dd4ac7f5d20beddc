"""What is shown is what the data says."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Any

import pytest
from rich.console import Console

from waxeq.cost.examine import Finding
from waxeq.inspect.paths import paths_view
from waxeq.inspect.show import explain_view, kernels_view, places, report_view, run_view
from waxeq.inspect.tables import count_view, findings_view, spare_view

pytestmark = pytest.mark.quick


def text(view: Any) -> str:
    console = Console(width=150, no_color=True)
    with console.capture() as got:
        console.print(view)
    return got.get()


def kernel(step: int, like: int, seconds: float, what: str = "x + y") -> dict[str, Any]:
    facts = {"kernel": "some.kernel", "what": what, "shapes": "2 -> 2", "sources": ["/a/m.py:3"], "basis": "measured"}
    return {**facts, "step": step, "like": like, "seconds": seconds, "walk": None, "sweeps": None}


def test_repeats_are_one_line_with_the_sum() -> None:
    said = text(kernels_view([kernel(0, 0, 1e-3), kernel(1, 1, 2e-3, "x * y"), kernel(2, 0, 1e-3), kernel(3, 0, 1e-3)]))
    (line,) = [row for row in said.splitlines() if "x + y" in row]
    assert "x3" in line and "3 ms" in line and "m.py:3" in line
    assert len(re.findall("some.kernel", said)) == 2


def test_steps_that_share_a_walk_are_named_once() -> None:
    rows = [
        {**kernel(i, i % 2, 1e-3), "walk": {"first": i - i % 2, "last": i - i % 2 + 1, "over": ["x"]}} for i in range(4)
    ]
    said = text(kernels_view([*rows, kernel(4, 4, 1e-3)]))
    assert "steps 0 to 1 go through x together, read once for all" in said and "steps 2 to 3" not in said


def test_of_sweeps_it_is_said_how_many_they_are() -> None:
    said = text(kernels_view([{**kernel(0, 0, 1e-3, "slice[a,b,0,1](pad[c,d,1,0.0](x))"), "sweeps": 4}]))
    assert "4 sweeps in one walk   2 -> 2" in said and "slice" not in said


def test_what_is_proved_is_said_to_be_of_predictions() -> None:
    """Some of those may be guesses: a note beside it says when there was no time to check them."""
    graph = {"nodes": 9, "classes": 4, "candidates": 3, "measured": 2, "stops": {"Saturated": 1}, "worst_gap": 0.0}
    blocks = {"total": 1, "distinct": 1, "remembered": 0, "reused": {"within": 0, "across": 0}}
    seconds = dict.fromkeys(("total", "opening", "measuring", "compiling", "searching"), 1.0)
    data = {"model": "m", "nodes": 3, "blocks": blocks, "e_graph": graph, "trial": None, "predicted": 1e-3,
            "verdict": "faster", "accuracy": [], "memory": {"peak": 0, "arena": 0, "resident": {}}, "seconds": seconds,
            "notes": [], "plan": "m.plan.json", "kernels": []}  # fmt: skip
    assert "proved within 0.0% of the least that is predicted" in text(report_view(data))
    assert "proved" not in text(report_view({**data, "e_graph": {**graph, "worst_gap": None}}))


def test_a_long_plan_shows_the_costliest_and_says_what_it_leaves_out() -> None:
    rows = [kernel(i, i, (i + 1) * 1e-6, f"step{i} done") for i in range(50)]
    said = text(kernels_view(rows))
    shown = [int(n) for n in re.findall(r"step(\d+) done", said)]
    assert shown == list(range(10, 50))
    assert "10 more kinds that take 55 us together" in said and "all 50 steps" in said


def test_markup_in_names_is_text() -> None:
    assert "[red]x[/red] + y" in text(kernels_view([kernel(0, 0, 1e-3, "[red]x[/red] + y")]))


@pytest.mark.parametrize(("n", "said"), [(1, "1 timing"), (2, "2 timings"), (1000, "1,000 timings")])
def test_what_is_said_of_many_timings_reads_right_of_one(n: int, said: str) -> None:
    finding = Finding("poisoned", "k", "d", "i0=3 float32", "a sample of 0.0 s", n)
    found = {"path": "t.duckdb", "findings": [{**asdict(finding), "advice": finding.advice}], "put_aside": 0}
    advice = "to be put aside by `waxeq db doctor --fix`, and timed again when needed"
    assert f"{said}; {advice}" in text(findings_view(found))
    fixed = text(findings_view({**found, "put_aside": n}))
    assert f"{said}, into the quarantine of t.duckdb" in fixed and "to be put aside" not in fixed
    assert text(count_view({"timings": n, "done": "written", "path": "t.parquet"})) == f"{said} written: t.parquet\n"
    spare = {
        "superseded": 0,
        "unused": n,
        "quarantined": 0,
        "forgotten": 0,
        "before": 9,
        "parts": [],
        "path": "t.duckdb",
    }
    rows = text(spare_view({**spare, "kept": n, "dry_run": True}))
    assert f"kept        {said} " in rows and f"{n:,} not used here" in rows


def listed(**more: Any) -> dict[str, Any]:
    call = {"kernel": "some.kernel", "what": "x", "basis": "measured", "times": 6}
    row = {"number": 4, "seconds": 2e-3, "basis": "measured", "calls": [call]}
    count = {"number": 4, "exact": True}
    data = {"model": "m", "from": 4, "complete": True, "best": 1e-3, "count": count, "listed": count, "state": None}
    return {**data, "repeated": True, "paths": [row], **more}


def test_paths_that_end_say_so() -> None:
    said = text(paths_view(listed()))
    assert "these are all" in said and "2.00x" in said and "x6" in said and "planned alike" in said
    assert "--from 5" in text(paths_view(listed(complete=False)))
    assert "no more" in text(paths_view(listed(paths=[])))
    many = text(paths_view(listed(count={"number": 3 * 10**40, "exact": False})))
    assert "at most 3.0e40" in many and "nearest to the best" in many


def explained(**runner_up: Any) -> dict[str, Any]:
    row = {**kernel(0, 0, 2e-3), "low": 1e-3, "high": 3e-3, "rules": [], "runner_up": runner_up}
    return {"model": "m", "kernels": [row], "own_rules": [], "notes": []}


@pytest.mark.parametrize(
    ("seconds", "basis", "said"),
    [
        (3e-3, "fitted", "other.kernel, 3 ms fitted"),
        (3e-3, "not recorded", "other.kernel, 3 ms not recorded"),
        (1e-3, "roofline", "other.kernel, 1 ms roofline (cheaper on paper: it was not measured)"),
        (1e-3, "measured", "other.kernel, 1 ms measured (cheaper by itself: whole plans are compared)"),
    ],
)
def test_a_runner_up_says_what_its_price_rests_on(seconds: float, basis: str, said: str) -> None:
    (line,) = [
        row for row in text(explain_view(explained(kernel="other.kernel", seconds=seconds, basis=basis))).splitlines()
        if "runner-up" in row
    ]  # fmt: skip
    assert line.split(maxsplit=1)[1].strip() == said


def test_each_size_is_shown_with_the_interval_of_its_own_dim() -> None:
    """Sizes come in the order of the dims, intervals in that of their names in the file."""
    found = {"outputs": [], "as_written": True, "seconds": 1e-3, "calls_timed": 3, "saved": None}
    said = text(run_view({**found, "sizes": {"T": 3, "B": 20}, "interval": {"B": [10, 40], "T": [2, 9]}}))
    assert "T = 3, in 2 to 9, B = 20, in 10 to 40" in said


def test_places_keep_lines_in_order() -> None:
    assert places(["m.py:10", "m.py:9", "m.py:9"]) == "m.py:9,10"
