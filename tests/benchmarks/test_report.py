"""The comparison as text and on disk: losses, failures and targets are in it; what is known is not measured again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from benchmarks import comparison, report
from benchmarks.__main__ import app
from benchmarks.comparison import Terms, compare, current
from benchmarks.row import INSTALLED, Record

from waxeq.runtime.measure import in_fresh_process

pytestmark = pytest.mark.quick
TERMS = Terms(("numpy", "torch"), 2, 1.0, 1.0, None, "")


def record(name: str, waxeq: float, peers: dict[str, float], threads: int = 2, **more: Any) -> Record:
    rest = {"samples": 9, "first_call": 1.0, "error": 1e-7}
    found: dict[str, Any] = {"waxeq": {"seconds": waxeq, "low": waxeq, "high": waxeq, **rest, "first_call": 3.0}}
    for n, s in peers.items():
        ratio = s / waxeq
        span = {"ratio": ratio, "ratio_low": ratio * 0.9, "ratio_high": ratio * 1.1}
        found[n] = {"seconds": s, "low": s, "high": s, **rest, **span}
    about = {"source": "s", "device": "machine", "versions": {"numpy": "2"}, "date": "2026-01-01"}
    return {"row": name, "threads": threads, "budget": 1.0, "moved": None, "contestants": found, **about, **more}


WON = record("minilm", 1.0, {"numpy": 4.0, "torch": 2.0}, copy=0.5)
LOST = record("abv", 1.0, {"numpy": 4.0, "torch": 0.5})


def test_the_best_peer_is_the_fastest_one() -> None:
    s = report.standing(WON)
    assert s is not None
    assert (s.best, s.ratio, s.copies) == ("torch", 2.0, 2.0)


def test_a_row_whose_functions_take_longer_than_the_copy_is_not_bound_by_memory() -> None:
    computed = record("gelu", 1.0, {"torch": 2.0}, copy=0.25, arithmetic=0.8)
    s, memory = report.standing(computed), report.standing(WON)
    assert s is not None and memory is not None
    assert (s.copies, s.roofs, s.bound) == (4.0, 1.25, False)
    assert memory.bound and memory.roofs == 2.0
    assert "memory-bound rows (0) that take over 1.3 times their roofline: none" in report.section([computed], {})


def test_the_mean_is_geometric() -> None:
    assert report.geometric_mean([2.0, 0.5]) == pytest.approx(1.0)
    with pytest.raises(ValueError, match="no ratios"):
        report.geometric_mean([])


def test_targets_and_losses_are_printed_with_their_reason() -> None:
    text = report.section([WON, LOST], {"abv": "the product is the library's"})
    assert "best peer's time over waxeq's: 1.00 (2 rows)" in text
    assert "rows under 0.9: abv" in text
    assert "memory-bound rows (1) that take over 1.3 times their roofline: minilm" in text
    assert "| abv | torch | 0.50x (0.45 to 0.55) | the product is the library's |" in text
    assert "**2e+03**" in text or "**2000**" in text


def test_a_loss_without_a_reason_says_so_and_a_reason_may_be_of_one_number_of_threads() -> None:
    assert "not explained yet" in report.section([LOST], {})
    assert "alone" in report.section([LOST], {"abv@2": "alone", "abv": "else"})
    assert "else" in report.section([LOST], {"abv@1": "alone", "abv": "else"})
    assert "there" in report.section([LOST], {"abv on machine": "there", "abv@2": "alone", "abv": "else"})


def test_a_row_over_its_roofline_is_printed_with_its_reason() -> None:
    text = report.section([WON], {"roofline minilm@2": "it computes", "minilm": "else"})
    assert "| minilm | 2.00x | it computes |" in text and "Lost:" not in text
    assert "Over their roofline" not in report.section([LOST], {})


def test_each_machine_has_tables_of_its_own() -> None:
    text = report.section([WON, {**LOST, "device": "other, 2 cores"}], {})
    assert text.index("### machine, 2 threads") < text.index("minilm") < text.index("### other, 2 threads")
    assert text.index("### other, 2 threads") < text.index("| abv |")


def test_failures_are_listed_and_absent_peers_are_a_dash() -> None:
    broken = record("minilm", 1.0, {"numpy": 4.0})
    broken["contestants"] |= {"torch": {"failed": "wrong: error 1.0"}, "numba": {"absent": True}}
    text = report.section([broken], {})
    assert "- minilm, torch: wrong: error 1.0" in text
    assert "| - | failed | - |" in text  # numba, torch, torch.compile


def test_a_row_of_which_waxeq_failed_is_shown_and_not_counted() -> None:
    broken = record("minilm", 1.0, {"numpy": 4.0})
    broken["contestants"]["waxeq"] = {"failed": "no plan"}
    text = report.section([broken, LOST], {})
    assert "- minilm, waxeq: no plan" in text and "(1 rows)" in text


def test_reasons_are_read_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "why.txt"
    path.write_text("# a comment: not a row\nabv: one: two\n\nminilm@1: three\n")
    assert report.reasons(path) == {"abv": "one: two", "minilm@1": "three"}
    assert report.reasons(tmp_path / "none.txt") == {}


def test_reasons_are_of_rows_that_exist() -> None:
    names = (n.removeprefix("roofline ").partition(" on ")[0].partition("@")[0] for n in report.reasons())
    assert {*names} <= comparison.WORKLOADS.keys()


def measured_rows(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    rows: list[str] = []

    def measure(name: str, peers: Any, *, threads: int, budget: float, **rest: Any) -> Record:
        rows.append(name)
        found = record(name, 1.0, dict.fromkeys(peers, 2.0), threads, budget=budget)
        return {k: v for k, v in found.items() if k not in ("source", "device", "versions", "date")}

    monkeypatch.setattr(comparison, "measure_row", measure)
    return rows


def test_a_run_that_was_cut_off_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = measured_rows(monkeypatch)
    seen: list[int] = []
    known = compare(["abv"], TERMS, [], again=False, done=lambda r: seen.append(len(r)))
    both = compare(["minilm", "abv"], TERMS, known, again=False, done=lambda r: seen.append(len(r)))
    assert rows == ["abv", "minilm"] and seen == [1, 2]
    assert [r["row"] for r in both] == ["minilm", "abv"]  # in the order of the set
    compare(["abv"], TERMS, both, again=True, done=lambda r: None)
    assert rows == ["abv", "minilm", "abv"]


def test_rows_of_other_machines_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = measured_rows(monkeypatch)
    there = [{**LOST, "device": "other, 2 cores"}, {**WON, "device": "other, 2 cores"}]
    found = compare(["abv"], TERMS, there, again=False, done=lambda r: None)
    assert rows == ["abv"] and len(found) == 3 and all(r in found for r in there)


@pytest.mark.parametrize(
    "change",
    [
        *({"source": "other"}, {"device": "other"}, {"versions": {}}, {"contestants": {"waxeq": {}}}),
        *({"budget": 0.5}, {"asked": 0.5}, {"table": "t.duckdb"}),
    ],
)
def test_what_is_out_of_date_is_measured_again(change: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    measured_rows(monkeypatch)
    (known,) = compare(["abv"], TERMS, [], again=False, done=lambda r: None)
    assert current(known, TERMS)
    assert not current({**known, **change}, TERMS)


@pytest.mark.parametrize("file", ["examples/minilm.py", "calibration/0123456789ab.parquet", "src/waxeq/compile.py"])
def test_the_source_is_all_that_a_row_is_made_of(file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of examples, and those whose search began with a table that ships, stayed when these were changed."""
    monkeypatch.setattr(comparison, "ROOT", tmp_path)
    before = comparison.source.__wrapped__()
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text("another")
    assert comparison.source.__wrapped__() != before


def test_the_command_writes_beside_other_sections(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    begin_cache: Callable[[Path], None],
) -> None:
    def begun(function: Callable[..., Any], arguments: tuple[str], **more: Any) -> Any:
        begin_cache(Path(arguments[0]) / INSTALLED)
        return in_fresh_process(function, arguments, **more)

    monkeypatch.setattr("benchmarks.__main__.in_fresh_process", begun)
    measured_rows(monkeypatch)
    about = {"date": "d", "device": "m", "versions": {}, "notes": [], "took": 1}
    older = {"linear": {"title": "Linear", "columns": ["a"], "rows": [["b"]], **about}}
    elsewhere = {**record("abv", 1.0, {"jax": 2.0}), "device": "another machine"}
    (tmp_path / "results.json").write_text(json.dumps(older | {"peers": [elsewhere]}))
    app(["peers", "--rows", "abv", "--threads", "2", "--out", str(tmp_path), "--json"], result_action="return_value")
    (printed,) = json.loads(capsys.readouterr().out)
    assert printed["row"] == "abv" and printed["contestants"].keys() >= {"ort", "jax"}
    stored = json.loads((tmp_path / "results.json").read_text())
    assert stored["linear"] == older["linear"] and [r["row"] for r in stored["peers"]] == 2 * ["abv"]
    text = (tmp_path / "RESULTS.md").read_text()
    assert text.index("## Linear") < text.index("## Every peer") and "| abv |" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--rows", "nothing"], "no row is called 'nothing'"), (["--contestants", "numpy,rust"], "no contestant 'rust'")],
)
def test_what_does_not_exist_is_refused(arguments: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=message):
        app(["peers", *arguments, "--out", str(tmp_path)], result_action="return_value")


def test_first_calls_of_another_budget_are_marked() -> None:
    cells, marked = report.cells({**WON, "search": 1.5}), report.cells(WON)
    assert "3" in cells and "3*" not in cells and "3*" in marked


def test_processors_of_one_name_are_told_apart_by_their_caches() -> None:
    """Clouds call two generations "AMD EPYC": a row of one says nothing of the other."""
    small, large = (f"AMD EPYC, 2 cores, caches 32 KiB/{size}/32 MiB, 24 GiB" for size in ("512 KiB", "1 MiB"))
    text = report.section([{**WON, "device": small}, {**LOST, "device": large}], {})
    assert "### AMD EPYC (512 KiB L2), 2 threads" in text and "### AMD EPYC (1 MiB L2), 2 threads" in text
