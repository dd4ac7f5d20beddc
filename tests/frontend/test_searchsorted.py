"""Places in a sorted table: NumPy's for every dtype, side and length; inside the table whatever it holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import waxeq as wx
from waxeq.errors import TargetError
from waxeq.frontend.handlers.ordering import _SHORT
from waxeq.frontend.trace import trace
from waxeq.ir.interpret import interpret
from waxeq.ops.indexing import Gather

DTYPES = ("float32", "float64", "float16", "int64", "int32", "int8", "uint8", "uint64", "bool")
LENGTHS = (0, 1, 2, 3, 31, 32, 33, _SHORT, _SHORT + 1, 255, 256, 257, 1000)
SHAPES = ((), (0,), (1,), (40,), (3, 0), (5, 8))
ODD = (np.nan, np.inf, -np.inf, 0.0, -0.0, 2.5, 70.0, -71.0)


def drawn(seed: int, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers of which many are equal; NaN, zeros of both signs and infinities among the floats."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0 if dtype[0] == "u" else -60, 60, shape).astype(dtype)
    if x.dtype.kind == "f":
        x = np.where(rng.random(shape) < 0.2, rng.choice(ODD, shape).astype(dtype), x)
    return np.asarray(x, dtype)


def traced(fn: Any, *arrays: np.ndarray) -> np.ndarray:
    t = trace(fn, dict(zip(("table", "x", "order"), arrays, strict=False)))
    (y,) = interpret(t.graph, {**t.inputs, **t.tensors}).values()
    return y


@given(
    *(st.sampled_from(DTYPES),) * 2, st.sampled_from(LENGTHS), st.sampled_from(SHAPES),
    st.sampled_from(("left", "right")), st.integers(0, 99),
)  # fmt: skip
def test_places_are_numpys(of_table: str, of_x: str, n: int, shape: tuple[int, ...], side: Any, seed: int) -> None:
    def model(table, x):
        return np.searchsorted(table, x, side=side)

    table, x = np.sort(drawn(seed, of_table, (n,))), drawn(seed + 1, of_x, shape)
    got, want = traced(model, table, x), np.asarray(model(table, x))
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    np.testing.assert_array_equal(got, want)


@given(st.sampled_from(LENGTHS), st.sampled_from(("left", "right")), st.integers(0, 99))
def test_an_unsorted_table_is_read_only_inside(n: int, side: Any, seed: int) -> None:
    table, x = drawn(seed, "float32", (n,)), drawn(seed + 1, "float32", (40,))
    places = traced(lambda table, x: np.searchsorted(table, x, side), table, x)
    assert places.min() >= 0 and places.max() <= n


@pytest.mark.parametrize("n", [5, 300])
def test_a_table_is_read_in_a_given_order(n: int) -> None:
    def model(table, x, order):
        return np.searchsorted(table, x, sorter=order)

    table, x = drawn(3, "float32", (n,)), drawn(4, "float32", (40,))
    order = np.argsort(table)
    np.testing.assert_array_equal(traced(model, table, x, order), model(table, x, order))
    known = traced(lambda table, x: model(table, x, order), table, x)
    np.testing.assert_array_equal(known, model(table, x, order))


@pytest.mark.parametrize("value", [0.1, 3, True, [0.1, 7], np.float32(0.1)])
@pytest.mark.parametrize("n", [5, 300])
def test_numbers_that_are_written_in_a_model(value: Any, n: int) -> None:
    """A Python number has the width that NumPy's array of it has."""

    def model(table):
        return np.searchsorted(table, value)

    table = np.sort(np.append(drawn(3, "float32", (n - 1,)), np.float32(0.1)))
    np.testing.assert_array_equal(traced(model, table), model(table))


def test_a_place_of_a_scalar_is_a_scalar() -> None:
    def model(table, x):
        place = first = np.searchsorted(table, x)
        place += 1
        return first

    table = np.arange(300, dtype=np.float32)
    np.testing.assert_array_equal(traced(model, table, np.asarray(7.5)), 8)


def test_long_tables_are_halved_and_short_ones_compared() -> None:
    for n, halved in ((_SHORT, False), (_SHORT + 1, True)):
        given = {"table": np.arange(n, dtype=np.float32), "x": np.ones(9, np.float32)}
        t = trace(lambda table, x: np.searchsorted(table, x), given)
        assert (Gather in {type(node.op) for node in t.graph.nodes}) is halved


def test_what_is_no_table_is_refused_as_numpy_does() -> None:
    x = np.ones((3, 4), np.float32)
    with pytest.raises(TargetError, match="one dimension"):
        traced(lambda table, x: np.searchsorted(table, x), x, x)
    with pytest.raises(TargetError, match="side"):
        traced(lambda table, x: np.searchsorted(table, x, side="middle"), x[0], x)  # pyright: ignore


@pytest.mark.parametrize("dtype", ["float32", "int64"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_plan_finds_numpys_places(dtype: str, side: Any, tmp_path: Path) -> None:
    def model(table, x):
        return np.searchsorted(table, x, side=side)

    table, x = np.sort(drawn(1, dtype, (300,))), drawn(2, dtype, (2000,))
    options = wx.Options(table=tmp_path / "t.duckdb", trial=False, measure=False, cost="roofline", polish=False)
    program: Any = wx.optimize(model, table, x, options=options).program
    np.testing.assert_array_equal(program(table, x), model(table, x))
    program(table[::-1].copy(), x)


TABLE = np.sort(drawn(1, "float32", (300,)))


def constant(x):
    return np.searchsorted(TABLE, x)


def weight(x, w):
    return np.searchsorted(w, x.astype(np.float64), side="right")


def computed(x):
    return np.searchsorted(np.sort(x), np.array([0, 1, np.nan], np.float32))


@pytest.mark.parametrize("model, more", [(constant, {}), (weight, {"w": TABLE}), (computed, {})])
def test_one_plan_finds_places_at_any_size(model: Any, more: dict[str, np.ndarray], tmp_path: Path) -> None:
    options = wx.Options(table=tmp_path / "t.duckdb", trial=False, measure=False, cost="roofline", polish=False)
    x = drawn(2, "float32", (400,))
    program: Any = wx.optimize(
        model, weights=list(more), examples={"x": x, **more}, dims={"T": (1, 400, {"x": 0})}, options=options
    ).program
    for t in (1, 2, 33, _SHORT + 1, 400):
        np.testing.assert_array_equal(program(x[:t]), model(x[:t], **more))
