"""Histograms and counts: NumPy's own, at the edges of bins too, and refused where a length is data."""

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
from waxeq.errors import BoundsError, TargetError, UnsupportedError
from waxeq.frontend.trace import trace
from waxeq.ir.interpret import interpret

RNG = np.random.default_rng(0)
X = RNG.normal(size=4000)


def run(fn: Callable[..., Any], *arrays: np.ndarray) -> list[np.ndarray]:
    t = trace(lambda **kw: fn(*kw.values()), {f"x{i}": a for i, a in enumerate(arrays)})
    return list(interpret(t.graph, {**t.inputs, **t.tensors}).values())


def check(fn: Callable[..., Any], *arrays: np.ndarray) -> None:
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy tells that it counts bools as uint8
        want = fn(*(a.copy() for a in arrays))
        got = run(fn, *arrays)
    for g, w in zip(got, map(np.asarray, want if isinstance(want, tuple) else (want,)), strict=True):
        assert (g.dtype, g.shape) == (w.dtype, w.shape)
        np.testing.assert_allclose(g, w, rtol=1e-6 if w.dtype.itemsize > 2 else 1e-2)


RANGES = ((0, 1), (-3.0, 3.0), (0.1, 0.7), (np.float64(0.1), np.float64(0.9)), (-1, 2.5), (2, 2), (0, 255))


@given(
    st.sampled_from(("float64", "float32", "float16", "int64", "uint8", "int8", "bool")),
    st.integers(1, 60), st.sampled_from(RANGES), st.integers(0, 99),
)  # fmt: skip
def test_elements_on_edges_fall_where_numpy_puts_them(dtype: str, bins: int, ends: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    edges = np.histogram_bin_edges(np.zeros(0), bins, ends)
    near = rng.choice(edges, 200)
    x = np.concatenate([near, np.nextafter(near, 9e9), np.nextafter(near, -9e9), rng.normal(0, 2, 100)])
    x = (np.clip(np.round(x), 0, 100) if dtype == "uint8" else x).astype(dtype)
    check(lambda a: np.histogram(a, bins, ends), x)
    check(lambda a: np.histogram(a, edges.tolist()), x)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_what_is_no_number_is_in_no_bin(dtype: str) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 0.5, 1.0, -0.0, 2.0], dtype)
    check(lambda a: np.histogram(a, 4, (0, 1)), x)
    check(lambda a: np.histogram(a, [0, 0.5, 1]), x)
    check(lambda a: np.histogram(a, [-np.inf, 0, np.inf]), x)


@pytest.mark.parametrize("of", ["float32", "float16", "int64", "int8", "uint8", "bool", "float64"])
def test_weights_are_summed_in_their_dtype(of: str) -> None:
    x = X[:200]
    w = (np.arange(200) % 7).astype(of)
    check(lambda a, b: np.histogram(a, 9, (-2, 2), weights=b), x, w)
    check(lambda a, b: np.histogram(a, 9, (-2, 2), weights=b, density=True), x, w)
    check(lambda b: np.histogram(X[:200], 9, (-2, 2), weights=b), w)
    check(lambda b: np.histogram(X[:200], 9, weights=b), w)
    if of == "bool":
        with pytest.raises(TargetError, match="TypeError"):
            run(lambda a, b: np.histogram(a, [-1, 0, 1], weights=b), x, w)
        return
    check(lambda a, b: np.histogram(a, [-1, 0, 1], weights=b), x, w)


def test_edges_that_are_data_or_weights() -> None:
    check(lambda a, e: np.histogram(a, e), X, np.array([-1.0, 0, 0, 0.5, 2]))
    check(lambda a, e: np.histogram(a, e), np.arange(9, dtype=np.uint64), np.array([-1, 3, 8]))
    check(lambda a: np.histogram(a, [0, 2, 5]), np.arange(9, dtype=np.uint64))
    check(lambda a, e: np.histogram(a, e, density=True), X, np.array([-1.0, 0, 0.5, 2], np.float32))


def refused(match: str, fn: Callable[..., Any], *arrays: np.ndarray) -> None:
    with pytest.raises(UnsupportedError, match=rf"^test_counting\.py:\d+: .*{match}"):
        run(fn, *arrays)


def test_what_depends_on_the_data_is_refused_with_the_way_out() -> None:
    refused(r"range of bins.*give range=\(low, high\)", lambda a: np.histogram(a), X)
    refused("range of bins", lambda a: np.histogram_bin_edges(a, 7), X)
    refused("bins='auto'.*give a number", lambda a: np.histogram(a, "auto", (0, 1)), X)
    refused("not a number", lambda a: np.histogram(a, [0, 1, np.nan]), X)
    refused("bins that are data.*np.searchsorted", lambda a, e: np.digitize(a, e), X, X[:3])
    refused("bincount without minlength.*give minlength", lambda a: np.bincount(a), np.array([True]))


def test_bincount_of_numbers_beyond_int64_counts_none_from_the_end() -> None:
    check(lambda a: np.bincount(a, minlength=4), np.array([1, 3, 3], np.uint64))
    with pytest.raises(BoundsError):
        run(lambda a: np.bincount(a, minlength=4), np.array([1, 2**64 - 1], np.uint64))


def test_bincount_is_as_long_as_minlength_says() -> None:
    """Where all numbers are below it; others are refused when they come, negative ones as well."""
    signed, few = np.array([1, 2, 0, 4]), np.array([1, 2], np.uint8)
    check(lambda a: (np.bincount(a, minlength=5), np.bincount(a, a / 2, 7)), signed)
    check(lambda a: np.bincount(a, minlength=200), few)
    for bad in (5, -1):
        with pytest.raises(IndexError, match="out of bounds"):
            run(lambda a: np.bincount(a, minlength=5), np.array([1, bad]))


def test_errors_are_numpys() -> None:
    for match, fn in (
        ("monotonically", lambda a: np.histogram(a, [2, 1])),
        ("1d", lambda a: np.histogram(a, [[1, 2]])),
        ("max must be larger", lambda a: np.histogram(a, 3, (2, 1))),
        ("not finite", lambda a: np.histogram(a, 3, (0, np.inf))),
        ("increasing or decreasing", lambda a: np.digitize(a, [0, 2, 1])),
        ("must be positive", lambda a: np.histogram(a, 0, (0, 1))),
        ("safe", lambda a: np.bincount(a)),
        ("too deep", lambda a: np.bincount(a[None].astype(np.uint8), minlength=256)),
        ("too small depth", lambda a: np.bincount(a[0].astype(np.uint8), minlength=256)),
    ):
        with pytest.raises(TargetError, match=match):
            run(fn, X)


@pytest.mark.parametrize("bins", [[0, 0.5, 1], [1, 0.5, 0], [1, 1, 1], [-np.inf, 0, np.inf], [np.inf, 0], [3], []])
@pytest.mark.parametrize("right", [False, True])
def test_digits_of_bins_that_rise_or_fall(bins: Any, right: bool) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 0.5, 1.0, -0.0, 2.0, 3])
    check(lambda a: np.digitize(a, bins, right=right), x)
    check(lambda a: np.digitize(x=a, bins=np.array(bins, np.float32), right=right), x[:3].astype(np.float32))


def test_numpys_ways_to_say_bins() -> None:
    check(lambda a: np.histogram(a, bins=True, range=(0, 1)), X)
    check(lambda a: np.histogram(a[:0], [0, 1, 2], weights=a[:0] > 0), X)
    check(lambda w: np.bincount([0.0, 1, 1], weights=w), X[:3])
    refused("an edge that is not a number", lambda a: np.digitize(a, [1, np.nan]), X)


def test_edges_are_indexed_by_what_is_counted() -> None:
    def most(a: Any) -> Any:
        counts, edges = np.histogram(a, 8, (-2, 2))
        middles = (edges[1:] + edges[:-1]) / 2
        return edges[np.argmax(counts)], middles[counts.argmin()], np.histogram_bin_edges(a, [0, 1, 4])[a.argmax() * 0]

    check(most, X)


IMAGE = RNG.integers(0, 256, (40, 50), dtype=np.uint8)


def equalized(image):
    levels = np.bincount(image.ravel(), minlength=256)
    share = np.cumsum(levels) / image.size
    return share[image].astype(np.float32)


def spread(x):
    counts, edges = np.histogram(x, 20, (-2, 2), density=True)
    return counts, edges, np.digitize(x, edges)


@pytest.mark.parametrize("model, x", [(equalized, IMAGE), (spread, X)])
def test_a_plan_counts_as_numpy_does(model: Any, x: np.ndarray, tmp_path: Path) -> None:
    options = wx.Options(table=tmp_path / "t.duckdb", trial=False, measure=False, cost="roofline", polish=False)
    program: Any = wx.optimize(model, x, options=options).program
    for again in (x, np.roll(x, 3)[::-1].copy(), np.zeros_like(x)):
        want = model(again)
        rows = want if isinstance(want, tuple) else (want,)
        got = program(again)
        for g, w in zip(got if isinstance(got, tuple) else (got,), rows, strict=True):
            np.testing.assert_allclose(g, w, rtol=1e-6)


def test_one_plan_counts_at_any_size(tmp_path: Path) -> None:
    options = wx.Options(table=tmp_path / "t.duckdb", trial=False, measure=False, cost="roofline", polish=False)

    def model(x, y):
        return np.histogram(x, 8, (-2, 2))[0], np.histogram(x, [-1, 0, 2], weights=x)[0], np.bincount(y, minlength=256)

    y = RNG.integers(0, 256, 400, dtype=np.uint8)
    program: Any = wx.optimize(model, X[:400], y, dims={"T": (1, 400, {"x": 0, "y": 0})}, options=options).program
    for n in (1, 2, 33, 400):
        for g, w in zip(program(X[:n], y[:n]), model(X[:n], y[:n]), strict=True):
            np.testing.assert_allclose(g, w, rtol=1e-6)


def test_a_range_may_be_known_data_in_any_form() -> None:
    check(lambda a: np.histogram(a, np.int64(5), np.array([-1.0, 1])), X)  # pyright: ignore
    check(lambda a: np.histogram(a, 5, (np.zeros(1)[0], np.float32(1))), X)
    check(lambda a: np.histogram(a[:0], 3), X)
    check(lambda a: np.histogram(np.zeros(4) + 1, 3, weights=a[:4]), X)
    check(lambda a: np.histogram(np.arange(9.0), "auto")[0] * a[0], X)
    refused("range of bins", lambda a: np.histogram(a, 5, (a.min(), a.max())), X)
    with pytest.raises(TargetError, match="must be an integer"):
        run(lambda a: np.histogram(a, 2.5, (0, 1)), X)  # pyright: ignore
