"""Messages call options as their reader wrote them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import waxeq as wx
from waxeq.cli import main
from waxeq.cli.keeping import place_of
from waxeq.errors import TableError
from waxeq.naming import at_command_line, dim, dims_option, named, option, setting
from waxeq.runtime.save import require_place
from waxeq.search.calibrate import _require_place

A = np.ones((4, 4), np.float32)
MODEL = """
import numpy as np

def model(x):
    return np.tanh(x) + 1

def example_inputs():
    return {"x": np.ones((8, 8), np.float32)}
"""


def test_options_are_keywords_in_python_and_typed_at_the_command_line() -> None:
    assert (option("max_memory"), option("fresh", "True"), dims_option()) == ("max_memory=", "fresh=True", "dims=")
    assert (named("out", "output"), setting("threads", 1)) == ("out=", "threads=1")
    assert dim("T", 1, 9, ("x", 0)) == "dims={'T': (1, 9, {'x': 0})}"
    with at_command_line():
        assert (option("max_memory"), option("fresh", "True"), dims_option()) == ("--max-memory", "--fresh", "--dim")
        assert dim("T", 1, 9, ("x", 0)) == "--dim T=1:9@x.0"
    assert option("table") == "table="


def test_errors_of_python_name_no_options_of_the_command_line(tmp_path: Path) -> None:
    table = tmp_path / "t.duckdb"
    for options, dims in (
        (wx.Options(table=tmp_path / "not" / "there.duckdb"), None),
        (wx.Options(table=table, max_memory=10, budget=0), None),
        (wx.Options(table=table, budget=0), {"T": (1, 9)}),
        (wx.Options(table=table, lock=tmp_path / "not" / "there.lock"), None),
    ):
        with pytest.raises(wx.WaxeqError) as e:
            wx.optimize(lambda x: np.tanh(x) + 1, A, options=options, dims=dims)
        assert "--" not in str(e.value) and "=" in str(e.value)


def test_a_place_that_cannot_be_written_is_another_argument_in_python(tmp_path: Path) -> None:
    result = wx.optimize(lambda x: np.tanh(x) + 1, A, options=wx.Options(table=tmp_path / "t.duckdb", budget=0))
    with pytest.raises(wx.WaxeqError, match=r"cannot be written: .*; name another place$"):
        result.save(tmp_path / "not" / "there.plan.json")
    names = {"noext": r"as noext\.plan\.json", "a.txt": r"as a\.plan\.json", "b.waxeq": "`waxeq bundle`"}
    for name, said in names.items():
        with pytest.raises(wx.WaxeqError, match=rf"plans are called NAME\.json; give another name, .*{said}"):
            result.save(tmp_path / name)
    assert not [p for p in tmp_path.iterdir() if not p.name.startswith("t.duckdb")]


@pytest.mark.parametrize("command", ["optimize", "explain"])
def test_a_table_in_a_folder_that_is_not_there_is_refused_and_nothing_made(
    tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "m.py"
    model.write_text(MODEL)
    assert main([command, str(model), "--table", str(tmp_path / "mistyped" / "t.duckdb"), "--budget", "0"]) == 1
    said = capsys.readouterr().err
    assert "there is no folder" in said and "name another table with --table" in said
    assert not (tmp_path / "mistyped").exists()


def test_a_search_that_was_cut_short_writes_beside_a_plan_that_is_there(tmp_path: Path) -> None:
    path = tmp_path / "m.plan.json"
    assert place_of(path, interrupted=True).path == path
    path.write_text("{}")
    assert place_of(path, interrupted=False).path == path
    beside = place_of(path, interrupted=True)
    assert beside.path == tmp_path / "m.interrupted.plan.json" and str(path) in beside.kept[0]
    (tmp_path / "m.json").write_text("{}")
    assert place_of(tmp_path / "m.json", interrupted=True).path.name == "m.interrupted.json"


def test_a_search_that_was_cut_short_passes_over_names_that_are_taken(tmp_path: Path) -> None:
    """By an earlier one's plan, by what is no plan, which a plan is never written over, or by a plan's tensors."""
    path = tmp_path / "m.plan.json"
    for name in ("m.plan.json", "m.interrupted.plan.json", "m.interrupted-3.plan.safetensors"):
        (tmp_path / name).write_text('{"no": "plan"}')
    (tmp_path / "m.interrupted-2.plan.json").mkdir()
    place = place_of(path, interrupted=True)
    assert place.path == tmp_path / "m.interrupted-4.plan.json" and str(place.path) in place.kept[0]
    require_place(place.path)


def test_a_place_that_cannot_be_written_is_named_as_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where writing fails at the end, that is, which a look at the place before the work does not foresee."""
    source, plan, table = tmp_path / "m.py", tmp_path / "m.plan.json", str(tmp_path / "t.duckdb")
    source.write_text(MODEL)
    search = ["optimize", str(source), "--table", table, "--budget", "0s", "-o", str(plan)]
    assert main(search) == 0

    def full(waiting: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("waxeq.runtime.files._put", full)
    for typed in (search, ["bundle", str(plan)]):
        assert main(typed) != 0
        assert "No space left on device; name another place with --output" in capsys.readouterr().err
    with pytest.raises(wx.WaxeqError, match=r"No space left on device; name another place$"):
        wx.optimize(np.tanh, A, options=wx.Options(table=Path(table), budget=0)).save(plan)


def test_a_file_of_timings_that_has_no_place_is_called_as_python_calls_it(tmp_path: Path) -> None:
    with pytest.raises(TableError, match=r"name another place with out=$"):
        _require_place(Path("/proc/t.parquet"), tmp_path / "t.duckdb")


def test_a_median_along_a_dim_is_refused_by_its_name(tmp_path: Path) -> None:
    example, options = np.ones((8, 4)), wx.Options(table=tmp_path / "t.duckdb", budget=0)
    with pytest.raises(wx.WaxeqError, match=r"np\.median along an axis whose size changes .*leave dims= out"):
        wx.optimize(lambda x: np.median(x, axis=0), example, dims={"T": (1, 64, {"x": 0})}, options=options)


def half(x: Any, median_half: float) -> Any:
    return x[: int(x.shape[0] * median_half)]


def test_a_variable_that_is_called_like_a_median_is_none(tmp_path: Path) -> None:
    """Only calls are told of, after what is wrong."""
    example, options = np.ones((8, 4)), wx.Options(table=tmp_path / "t.duckdb", budget=0)
    with pytest.raises(wx.WaxeqError, match="no polynomial") as e:
        wx.optimize(half, example, median_half=0.5, dims={"T": (1, 64, {"x": 0})}, options=options)
    assert "np.median" not in str(e.value)
    with pytest.raises(wx.WaxeqError, match=r"is no polynomial: .* np\.percentile along an axis whose size changes"):
        wx.optimize(lambda x: np.percentile(x, 50, axis=0), example, dims={"T": (1, 64, {"x": 0})}, options=options)
