"""What is said of a plan that is slower than the function as Python runs it."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

import waxeq as wx
from waxeq.search.itself import told

X = np.random.default_rng(0).random((64, 64))


def _notes(fn, tmp_path: Path) -> list[str]:
    found = wx.optimize(fn, X, options=wx.Options.of(table=tmp_path / "t.duckdb", budget="2s", threads=1))
    assert found.report.trial is not None
    return [n for n in found.report.notes if n.startswith("the function itself takes")]


def _traced(x: np.ndarray) -> bool:
    return type(x) is not np.ndarray


def test_a_function_that_is_faster_than_its_plan_is_told_of(tmp_path: Path) -> None:
    (note,) = _notes(lambda x: np.linalg.norm(np.exp(x @ x @ x)) if _traced(x) else X, tmp_path)
    assert note.endswith("call the function")


def test_it_is_told_of_where_the_budget_is_spent(tmp_path: Path) -> None:
    """Of some ten milliseconds, as those of a table that is filled element by element, which takes NumPy a tenth."""
    fn, options = (lambda x: x + 1), wx.Options.of(table=tmp_path / "t.duckdb", budget="1s", threads=1)
    found = wx.optimize(fn, X, options=options)
    report, trial = found.report, found.report.trial
    assert trial is not None
    slow = replace(found, report=replace(report, notes=(), trial=replace(trial, written=0.015)))
    slow.__dict__["program"] = SimpleNamespace(flat_results=lambda inputs: time.sleep(0.01))
    spent: Any = SimpleNamespace(deadline=SimpleNamespace(left=0.0), events=SimpleNamespace(stop_requested=False))
    assert "call the function" in told(spent, fn, {"x": X}, wx.trace(fn, X), slow).report.notes[0]


def test_a_slower_one_is_not(tmp_path: Path) -> None:
    def fn(x: np.ndarray) -> np.ndarray:
        time.sleep(0.0 if _traced(x) else 0.005)
        return np.tanh(x) * 2

    assert not _notes(fn, tmp_path)


def test_it_gets_copies(tmp_path: Path) -> None:
    before = X.copy()

    def fn(x: np.ndarray) -> np.ndarray:
        x += 1
        return np.tanh(x)

    _notes(fn, tmp_path)
    np.testing.assert_array_equal(X, before)


def test_one_that_raises_by_itself_is_not_timed(tmp_path: Path) -> None:
    def fn(x: np.ndarray) -> np.ndarray:
        if not _traced(x):
            raise RuntimeError("asked for something else")
        return np.tanh(x)

    assert not _notes(fn, tmp_path)


def test_it_is_told_of_at_edges_of_ranges_of_sizes(tmp_path: Path) -> None:
    """As of a partition, which is a sort in plans for ranges."""
    options = wx.Options.of(table=tmp_path / "t.duckdb", budget="10s", threads=1)
    dims, x = {"T": (8, 64, {"x": 0})}, np.random.default_rng(0).random((64, 512)).astype(np.float32)
    found = wx.optimize(lambda x: np.sort(x, 1) if _traced(x) else x, x, options=options, dims=dims)
    (note,) = (n for n in found.report.notes if n.startswith("the function itself takes"))
    assert "where T = 64, and the plan" in note and note.endswith("or optimize it for one size")
