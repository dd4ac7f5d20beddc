"""Between samples, their slopes and jumps; covariances; sorted rows in which NaN is absence: as NumPy has them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import waxeq as wx
from waxeq.errors import TargetError, UnsupportedError, WaxeqError
from waxeq.frontend.trace import trace
from waxeq.ir.interpret import interpret

RNG = np.random.default_rng(0)
X = RNG.normal(size=(6, 7))
ODD = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, 2.0, 2.5, 7.0, -7.0])


def run(fn: Callable[..., Any], *arrays: Any) -> list[np.ndarray]:
    t = trace(lambda **kw: fn(*kw.values()), {f"x{i}": a for i, a in enumerate(arrays)})
    return list(interpret(t.graph, {**t.inputs, **t.tensors}).values())


def check(fn: Callable[..., Any], *arrays: Any, rtol: float = 1e-12) -> None:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        want, got = fn(*arrays), run(fn, *arrays)
    for g, w in zip(got, map(np.asarray, want if isinstance(want, tuple) else (want,)), strict=True):
        assert (g.dtype, g.shape) == (w.dtype, w.shape)
        np.testing.assert_allclose(g, w, rtol=max(rtol, 8 * np.finfo(w.dtype).eps if w.dtype.kind == "f" else 0))


# -- np.interp


@given(st.integers(1, 9), st.sampled_from((-9.0, None)), st.sampled_from((7, None)), st.booleans(), st.integers(0, 99))
def test_between_samples(n: int, left: Any, right: Any, odd: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    xp = np.sort(rng.integers(-4, 5, n).astype(float))  # some of them at one place
    fp = rng.choice(ODD, n) if odd else rng.normal(size=n)
    x = np.concatenate([ODD, xp, rng.normal(0, 3, 20)])
    check(lambda x, xp, fp: np.interp(x, xp, fp, left, right), x, xp, fp)
    check(lambda x: np.interp(x, xp, fp, left=left, right=right), x)
    check(lambda fp: np.interp(x, xp, fp, left, right), fp)


def test_samples_at_no_finite_places() -> None:
    x, xp = np.concatenate([ODD, [1e308, -1e308]]), np.array([-np.inf, -1.0, 1.0, np.inf])
    for fp in (np.array([0.0, 1, 2, 3]), np.array([5.0, 1, 1, 5]), np.array([1e308, -1e308, 1e308, np.inf])):
        check(lambda x, xp, fp: np.interp(x, xp, fp), x, xp, fp)
        check(lambda x, fp=fp: np.interp(x, xp, fp), x)


@pytest.mark.parametrize("period", [3, -4.0, 0.5])
def test_between_samples_of_a_period(period: Any) -> None:
    xp, fp = np.array([0.1, 5.2, -3.4, 0.2, 2.9]), np.array([1.0, 4, 2, 8, 5])
    check(lambda x, fp: np.interp(x, xp, fp, left=3, period=period), ODD, fp, rtol=1e-9)
    check(lambda x, xp: np.interp(x, xp, fp, period=period), X.astype(np.float32), xp, rtol=1e-6)


def test_a_number_between_samples_is_a_number_of_float64() -> None:
    check(lambda x: np.interp(x[0], [0, 300], [0, 1]), np.array([7], np.uint8))
    check(lambda x: np.interp(x, np.arange(300), np.sqrt(np.arange(300))), np.arange(9, dtype=np.float16))
    check(lambda a: np.interp(x=a / 9, xp=[0, 1], fp=[2, 3]), np.float32(3))


# -- slopes and jumps


@pytest.mark.parametrize("edge_order", [1, 2])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int64", "uint8"])
def test_slopes_of_any_spacing(edge_order: Any, dtype: str) -> None:
    x = (X * 9 + 40).astype(dtype)
    rows, columns = np.cumsum(RNG.random(6) + 0.1), np.arange(7) * 2
    k: Any = {"edge_order": edge_order}
    check(lambda x: np.gradient(x, **k), x)
    check(lambda x: np.gradient(x, 0.5, np.float64(2), **k), x)
    check(lambda x: np.gradient(x, rows, columns, **k), x)
    check(lambda x: np.gradient(x, columns, axis=-1, **k), x)
    check(lambda x, c: np.gradient(x, c, axis=-1, **k), x, columns**2)
    check(lambda x, r: np.gradient(x, r, 3, axis=(0, 1), **k), x, rows)
    check(lambda x: np.gradient(x[: edge_order + 1], axis=0, **k), x)
    check(lambda x, h: np.gradient(x, h, axis=[1], **k), x, np.float64(0.1))


def test_slopes_that_numpy_refuses() -> None:
    for match, fn in (
        ("TypeError", lambda x: np.gradient(x > 0)),
        ("too small", lambda x: np.gradient(x[:1])),
        ("too small", lambda x: np.gradient(x[:2], edge_order=2)),
        ("too small", lambda x: np.gradient(x[:2], edge_order=0)),  # pyright: ignore
        ("edge_order", lambda x: np.gradient(x, edge_order=3)),  # pyright: ignore
        ("match the length", lambda x: np.gradient(x, [1, 2], axis=0)),
        ("invalid number", lambda x: np.gradient(x, 1, 2, axis=0)),
        ("scalars or 1d", lambda x: np.gradient(x, x, axis=0)),
        ("dtype of `to_end`", lambda x: np.ediff1d(x.astype(int), 0.5)),
        ("non-zero", lambda x: np.interp(x, [1], [1], period=0)),
        ("same length", lambda x: np.interp(x, [1, 2], [1])),
        ("empty", lambda x: np.interp(x, [], [])),
        ("single numbers", lambda x: np.interp(x, [0, 1], [0, 1], left=[5])),  # pyright: ignore
        ("integer", lambda x: np.partition(x, [])),
        ("1-D", lambda x: np.interp(0.5, x, x)),
    ):
        with pytest.raises(WaxeqError, match=match):
            run(fn, X)


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "int8"])
def test_phases_without_jumps(dtype: str) -> None:
    x = np.cumsum(RNG.integers(-9, 9, (4, 30)), axis=1).astype(dtype)
    check(lambda x: np.unwrap(x), x)
    check(lambda x: np.unwrap(x, axis=0, period=6), x)
    check(lambda x: np.unwrap(x, period=5), x)
    check(lambda x: np.unwrap(x, discont=4, period=6.0), x)


def test_pieces_by_functions_of_each_element() -> None:
    def model(x: Any) -> Any:
        steps = np.piecewise(x, [x < -0.5, (x >= -0.5) & (x < 0), x > 1], [-1, lambda v: np.exp(v) * 2, np.sqrt, 0.25])
        return steps, np.piecewise(x, [x > 0], [lambda v, a, b: a * v + b], 3, b=1)

    check(model, X)
    check(model, X.astype(np.float32))
    check(lambda x: np.piecewise(x, [x > 0], [lambda v: np.where(v > 1, v, np.clip(v, min=0.2, max=0.5))]), X)
    check(lambda x: np.piecewise(x, [x > 0, True], [5, 7]), np.float64(-2))
    check(lambda x: np.piecewise(x, [x > 0], [lambda v: v - v.mean()]), X)
    with pytest.raises(UnsupportedError, match="elements a mask picks"):
        run(lambda x: np.piecewise(x, [x > 0], [np.sort]), X)


# -- covariances


@pytest.mark.parametrize("dtype", ["float64", "float32", "int8", "bool"])
def test_covariances(dtype: str) -> None:
    x, w, n = (X * 9).astype(dtype), RNG.random(7), np.array([1, 0, 2, 3, 1, 1, 2])
    check(lambda x: np.cov(x, rowvar=False, ddof=0), x, rtol=1e-9)
    check(lambda x, w: np.cov(x, aweights=w), x, w, rtol=1e-9)
    check(lambda x, w, n: np.cov(x, fweights=n, aweights=w, ddof=0), x, w, n, rtol=1e-9)
    check(lambda x, w: np.cov(x[0], x[1:3], fweights=n, aweights=w, bias=True), x, w, rtol=1e-9)
    check(lambda x: np.cov(x, dtype=np.float32), x, rtol=1e-5)
    check(lambda x: (np.cov(x[:, :1]), np.cov(x[0, :1]), np.cov(x, ddof=9)), x)
    check(lambda x: np.corrcoef(x[:2] + np.arange(7), x[2:] * 1.0, dtype=np.float64), x, rtol=1e-9)


# -- NaN as absence


def absent(dtype: str, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = rng.choice(np.array([np.nan, np.inf, -np.inf, 1, 2, -3, 0.5, 1e4]), (5, 8, 3), p=[0.3, 0.05, 0.05, *[0.12] * 5])
    x[0, :, 0] = np.nan
    x[1, :, 0] = 4
    return x.astype(dtype)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("axis", [None, 0, 1, -1, (0, 1), (2, 1)])
def test_middles_of_what_is_there(dtype: str, axis: Any) -> None:
    for seed in range(4):
        x = absent(dtype, seed)
        check(lambda x: np.nanmedian(x, axis=axis, keepdims=True), x, rtol=1e-3 if dtype == "float16" else 1e-12)
        for q in (0.3, 0, 1.0, 0.5):
            check(lambda x, q=q: np.nanquantile(x, q, axis=axis), x)
            check(lambda x, q=q: np.nanpercentile(x, q * 100, axis=axis, keepdims=True), x)
    check(lambda x: np.nanquantile(x, [0.25, 0.5], axis=axis), np.where(np.isnan(x), 3, x))
    if dtype == "float64":  # in others NumPy's dtype of nothing hangs on the axis
        check(lambda x: np.nanquantile(x, [], axis=axis), x)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int64", "int8"])
def test_middles_are_in_the_dtype_of_what_is_there_and_the_places(dtype: str) -> None:
    x, rtol = (X * 9).astype(dtype), 1e-2 if dtype == "float16" else 1e-5
    for q in (np.float32(0.3), np.float16(0.25), np.float64(0.3), 0.3, np.array([0.1, 0.9], np.float32), 1, True):
        check(lambda x, q=q: (np.quantile(x, q, axis=0), np.nanquantile(x, q, axis=1)), x, rtol=rtol)
    for q in (np.float32(30), np.uint8(30), 30, [20, 70]):
        check(lambda x, q=q: (np.percentile(x, q, axis=0), np.nanpercentile(x, q, axis=1)), x, rtol=rtol)
    check(lambda x: np.nanquantile(x[:0], 0.5), x)


def test_middles_of_long_rows_of_numbers_and_of_nothing() -> None:
    check(lambda x: np.nanmedian(x, axis=1), np.where(RNG.random((3, 900)) < 0.5, np.nan, RNG.normal(size=(3, 900))))
    check(lambda x: np.nanmedian(x, axis=0), np.arange(6, dtype=np.int8).reshape(2, 3))
    check(lambda x: np.nanmedian(x), np.float32(np.nan))
    check(lambda x: np.nanmedian(x[:0], axis=0), X)
    check(lambda x: np.nanpercentile(x[:, :0], 30, axis=1), X)


def test_the_best_of_what_is_there() -> None:
    x = np.array([[np.nan, 3, np.nan, 9], [np.inf, np.nan, -np.inf, 0], [np.nan, np.nan, -np.inf, np.nan]])
    check(lambda x: (np.nanargmax(x, axis=1), np.nanargmin(x, 1, keepdims=True), np.nanargmax(x)), x)
    check(lambda x: np.nanargmin(x, axis=0), np.arange(6).reshape(2, 3))
    assert run(lambda x: np.nanargmax(x, axis=1), np.full((2, 3), np.nan))[0].tolist() == [0, 0]


def test_parts_in_order_are_one_of_the_orders_that_numpy_allows() -> None:
    x = RNG.normal(size=(4, 30))
    for kth in (3, -1, [0, 5, 29], np.array([7])):
        got, at = run(lambda x, k=kth: (np.partition(x, k, axis=-1), np.argpartition(x, k)), x)
        want = np.partition(x, kth, axis=-1)
        np.testing.assert_array_equal(got[:, kth], want[:, kth])
        np.testing.assert_array_equal(np.take_along_axis(x, at, -1), np.sort(x))
    for match, kth in (("kth", 30), ("kth", [0, -31]), ("Booleans", True), ("integer", 1.0)):
        with pytest.raises(TargetError, match=match):
            run(lambda x, k=kth: np.partition(x, k), x)  # pyright: ignore


# -- whole plans


KNOTS, VALUES = np.linspace(0, 1, 40) ** 2, np.sin(np.linspace(0, 6, 40))


def curve(x, values):
    fixed, own = np.interp(x, KNOTS, VALUES), np.interp(x, KNOTS, values, left=0)
    return fixed, own, np.gradient(x, axis=1), np.piecewise(x, [x < 0.2, x > 0.7], [0, lambda v: v * v, np.sqrt])


def spread(x, values):
    masked = np.where(x > 0.8, np.nan, x)
    return np.cov(x.T), np.corrcoef(x, rowvar=False), np.nanmedian(masked, axis=1), np.nanpercentile(masked, 30, axis=0)


@pytest.mark.parametrize("model", [curve, spread])
def test_a_plan_computes_what_numpy_does(model: Any, tmp_path: Path) -> None:
    options = wx.Options(table=tmp_path / "t.duckdb", trial=False, measure=False, cost="roofline", polish=False)
    x, values = RNG.random((90, 5)), np.cos(KNOTS)
    program: Any = wx.optimize(model, x, values, options=options).program
    for scale in (1, -2, 0.5):
        for g, w in zip(program(x * scale, values * scale), model(x * scale, values * scale), strict=True):
            np.testing.assert_allclose(g, w, rtol=1e-4, atol=1e-6)


def sized(x):
    steps = np.unwrap(x * 9, axis=0), np.ediff1d(x, to_end=7), np.gradient(x, axis=0)
    below = np.partition(x, 2, axis=1)[:, 2], np.nanargmax(x, axis=1), np.nanmedian(x, axis=0)
    first = np.unravel_index(np.argmax(x), x.shape)
    return (
        *steps, *below, *first, np.interp(x, KNOTS, VALUES), np.cov(x.T), np.corrcoef(x.T), np.polyint(x[:, 0]),
        np.nanquantile(x, 0.3, axis=1), np.packbits(x > 0.5, axis=1), np.apply_over_axes(np.sum, x, [0]),
    )  # fmt: skip


def test_one_plan_computes_at_any_size(tmp_path: Path) -> None:
    options = wx.Options(table=tmp_path / "t.duckdb", trial=False, measure=False, cost="roofline", polish=False)
    x = RNG.random((60, 5))
    program: Any = wx.optimize(sized, x, dims={"T": (2, 60, {"x": 0})}, options=options).program
    for n in (2, 3, 17, 60):
        for g, w in zip(program(x[:n]), sized(x[:n]), strict=True):
            np.testing.assert_allclose(g, w, rtol=1e-4, atol=1e-6)
