"""What numerical programs are written in: numbers in even steps, functions of rows, quantiles by every method, curves
through samples, least squares, histograms of several axes, padding by what lies at the edges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import waxeq as wx
from waxeq.errors import TargetError, UnsupportedError
from waxeq.ir.interpret import interpret

pytestmark = pytest.mark.quick

Check = Callable[..., None]
ROW = np.array([3.0, -1.5, 0.25, 7.0, 2.0, -4.0, 1.0])
OTHER = np.array([-2.0, 4.5, 1.25, 0.5, -6.0, 3.0, 2.0])
TABLE = (np.arange(20.0).reshape(4, 5) - 9) ** 2 / 7
WHOLE = np.array([[7, -3, 5, 5], [0, 2, -8, 1], [4, 4, 9, -1]])
SQUARE = np.array([[4.0, 1.0, 0.5], [1.0, 3.0, 0.25], [0.5, 0.25, 2.0]])


# -- numbers in even steps


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int8, np.int64])
def test_linspace_between_ends_that_are_data(check: Check, dtype: Any) -> None:
    row, other = ROW.astype(dtype), OTHER.astype(dtype)
    check(lambda a, b: (np.linspace(a[0], b[0], 5), np.linspace(a, b, 4, axis=1)), row, other)
    check(lambda a: np.linspace(0, a.max(), 6), row)
    check(lambda a, b: np.linspace(a, b, 3, endpoint=False, retstep=True), row, other)
    check(lambda a: (np.linspace(a, a, 3), np.linspace(a, 1, 1), np.linspace(a, 2.5, 0)), row)
    check(lambda a: (np.linspace(a[0], 9, 4, dtype=int), np.linspace(a[0], 9, 4, dtype=np.float32)), row)


def test_the_step_between_less_than_two_numbers_is_nan(check: Check) -> None:
    """Regression: it had the shape of the ends."""
    check(lambda a: (*np.linspace(a, 2, 1, retstep=True), *np.linspace(a, 2, 0, False, True)), ROW)


def test_logspace_and_geomspace_between_ends_that_are_data(check: Check) -> None:
    up = np.abs(ROW) + 0.5
    check(lambda a: (np.logspace(a[1], a[2], 5), np.logspace(a, 2, 3, base=2), np.logspace(a, 1, 3, axis=-1)), ROW)
    check(lambda a: (np.geomspace(a, 5, 4), np.geomspace(-a, -5, 4, axis=1), np.geomspace(a[0], 9, 1)), up)
    check(lambda a: (np.geomspace(a[0], 100, 3, endpoint=False), np.geomspace(a, 2, 4)), up.astype(np.float32))
    with pytest.raises(TargetError, match="non-negative"):
        wx.trace(lambda a: np.linspace(a[0], 1, -1), ROW)


# -- rows


def test_apply_along_axis(check: Check) -> None:
    check(lambda x: np.apply_along_axis(lambda r: r.sum() * r[0], 1, x), TABLE)
    check(lambda x: np.apply_along_axis(lambda r: np.sort(r)[:2], 0, x), TABLE)
    check(lambda x: np.apply_along_axis(lambda r: np.outer(r, r), 1, x.reshape(2, 2, 5)), TABLE)
    check(lambda x: np.apply_along_axis(lambda r, k, by=1: k * r / by, -1, x, 2.0, by=3), TABLE)
    check(lambda x: np.apply_along_axis(lambda r: r[r > 0].sum(), 1, x), WHOLE)
    check(lambda x: (np.apply_along_axis(np.median, 0, x), np.apply_along_axis(np.cumsum, 1, x)), WHOLE)
    check(lambda x: np.apply_along_axis(lambda r: r * 2, 0, x), ROW)


def test_apply_along_axis_of_no_rows_or_too_many() -> None:
    for function in (lambda r: r * 2, np.sum):
        with pytest.raises(TargetError, match="any iteration dimensions are 0"):
            wx.trace(lambda x, f=function: np.apply_along_axis(f, 1, x), np.zeros((0, 3)))
    with pytest.raises(UnsupportedError, match=r"1000 rows.*all rows at once"):
        wx.trace(lambda x: np.apply_along_axis(lambda r: r * 2, 1, x), np.zeros((1000, 3)))
    wx.trace(lambda x: np.apply_along_axis(np.sum, 1, x), np.zeros((1000, 3)))


def test_lexsort(check: Check) -> None:
    keys = np.array([[1, 0, 1, 0, 1, 0], [2, 2, 1, 1, 2, 2], [0, 0, 0, 0, 0, 0]])
    odd = np.array([np.nan, 1.0, np.nan, -np.inf, 1.0, 0.0])
    check(lambda k, x: (np.lexsort((x, k[0])), np.lexsort((k[1], k[0])), np.lexsort(k), np.lexsort((x,))), keys, odd)
    check(lambda k: (np.lexsort((k, -k), axis=0), np.lexsort((k == 0, k), axis=1)), keys)


# -- quantiles

METHODS = (
    *("inverted_cdf", "averaged_inverted_cdf", "closest_observation", "interpolated_inverted_cdf", "hazen", "weibull"),
    *("linear", "median_unbiased", "normal_unbiased", "lower", "higher", "midpoint", "nearest"),
)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.uint8])
def test_quantiles_by_every_method(check: Check, method: Any, dtype: Any) -> None:
    places = [0.0, 0.02, 0.1, 0.25, 0.37, 0.5, 0.625, 0.75, 0.98, 1.0]
    row, table = np.abs(ROW * 4).astype(dtype), (TABLE * 7).astype(dtype)
    check(lambda x: (np.quantile(x, places, method=method), np.quantile(x, 0.3, method=method)), row)
    check(lambda x: (np.percentile(x, [30, 70], axis=1, method=method), np.quantile(x, 1, method=method)), table)
    check(lambda x: np.quantile(x, 0.4, axis=0, method=method), np.where(TABLE < 1, np.nan, TABLE))
    check(lambda x: np.quantile(x[:1], places, method=method), row)


# -- polynomials and least squares


def test_polymul_keeps_what_it_cannot_know_to_be_0(check: Check) -> None:
    check(lambda a, b: (np.polymul(a, b), np.polymul([0, 0, 1, 2], a), np.polymul(a[0], b)), ROW, OTHER)
    check(lambda a: np.polymul(a, np.array([3, 1])), np.array([2, -1, 4]))
    traced = wx.trace(lambda a: np.polymul(a, [1.0, 2.0]), np.array([0.0, 1.0]))
    (got,) = interpret(traced.graph, traced.inputs).values()
    np.testing.assert_array_equal(got, [0.0, 1.0, 2.0])


def test_polyfit_at_known_places(check: Check) -> None:
    check(lambda y: (np.polyfit(np.arange(7), y, 2), np.polyfit(np.linspace(-1, 1, 7), y, 1, w=np.arange(1, 8))), ROW)
    check(lambda y: np.polyfit(np.arange(4.0), y, 1), TABLE + ROW[:5])
    check(lambda y: np.polyfit(np.arange(7), y, 3), ROW.astype(np.int16))
    with pytest.raises(UnsupportedError, match=r"places or by weights that are data.*np\.vander"):
        wx.trace(lambda x, y: np.polyfit(x, y, 1), ROW, OTHER)


def test_least_squares_by_a_known_matrix(check: Check) -> None:
    tall, flat, thin = np.vander(np.arange(7.0), 3), np.vander(np.arange(7.0), 3).T.copy(), np.ones((7, 2))
    check(lambda b: np.linalg.lstsq(tall, b), ROW)
    check(lambda b: np.linalg.lstsq(tall, np.stack([b, b + 1], 1), rcond=None)[:2], ROW)
    check(lambda b: (np.linalg.lstsq(flat, b[:3])[0], *np.linalg.lstsq(thin, b)[:2]), ROW)
    check(lambda b: np.linalg.pinv(tall) @ b, ROW)
    for call in (lambda a: np.linalg.lstsq(a, a[:, 0])[0], np.linalg.pinv):
        with pytest.raises(UnsupportedError, match=r"matrix that is data.*np\.linalg\.solve"):
            wx.trace(call, TABLE)


def test_least_squares_by_a_matrix_whose_columns_are_equal(check: Check) -> None:
    """Regression: by a negative `rcond`, which stands for the precision of numbers, solutions were of 1e15."""
    twice = np.array([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]])
    once = twice * [1, 0]  # whether a singular value that is nothing but rounding counts, builds of LAPACK differ in
    check(lambda b: np.linalg.lstsq(once, b[:3], rcond=-1), ROW)
    check(lambda b: np.linalg.lstsq(twice, b[:3], rcond=1e-9), ROW)


def test_condition_numbers_and_tensors_of_equations(check: Check) -> None:
    check(lambda m: tuple(np.linalg.cond(m, p) for p in (1, -1, np.inf, -np.inf, "fro")), SQUARE)
    check(lambda m: np.linalg.cond(np.stack([m, m + 1]), 1), SQUARE)
    four = np.kron(np.eye(2), SQUARE[:2, :2]) + 0.1
    check(lambda m, b: np.linalg.tensorsolve(m.reshape(2, 2, 2, 2), b), four, SQUARE[:2, 1:])
    check(lambda m, b: np.linalg.tensorsolve(m.reshape(2, 2, 4), b.reshape(4), axes=(0, 1)), four.T, SQUARE[:2, 1:])
    check(lambda m: (np.linalg.tensorinv(m.reshape(2, 2, 4)), np.linalg.tensorinv(m.reshape(4, 2, 2), 1)), four)
    with pytest.raises(UnsupportedError, match="singular values"):
        wx.trace(lambda m: np.linalg.cond(m), SQUARE)
    with pytest.raises(TargetError, match="empty arrays"):
        wx.trace(lambda m: np.linalg.cond(m[:0, :0], 1), SQUARE)


# -- histograms of several axes


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_histograms_of_several_axes(check: Check, dtype: Any) -> None:
    a, b, w = ROW.astype(dtype), OTHER.astype(dtype), np.abs(ROW)
    check(lambda a, b: np.histogram2d(a, b, bins=(3, 2), range=[[-2, 2], [-3, 3]], density=True), a, b)
    check(lambda a, b, w: np.histogram2d(a, b, bins=4, range=[[-4, 4], [-3, 3]], weights=w), a, b, w)
    check(lambda a, b: np.histogram2d(a, b, bins=[0, 1, 2, 7]), a, b)
    check(lambda a, b: np.histogram2d(a, b, bins=[2, [0, 1, 2]], range=[[-2, 2], [0, 1]]), a, b)

    def cells(x: Any) -> Any:
        counts, edges = np.histogramdd(x, bins=(2, [-1, 0, 3]), range=[(-4, 7), (0, 1)])
        return counts, *edges

    check(cells, np.stack([a, b], 1))
    check(lambda a: np.histogramdd([a, a, a], bins=2, range=[[-2, 2]] * 3)[0], np.array([np.nan, 2, -2, 0.5, np.inf]))
    check(lambda a: (lambda counts, edges: (counts, *edges))(*np.histogramdd(a, 4, [(-2, 2)])), a)
    with pytest.raises(UnsupportedError, match="range=\\(low, high\\)"):
        wx.trace(lambda a, b: np.histogram2d(a, b), ROW, OTHER)


# -- padding


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int8, np.int64])
def test_padding_by_what_lies_at_the_edges(check: Check, dtype: Any) -> None:
    x = (TABLE * 3).astype(dtype)
    for mode in ("maximum", "minimum", "mean", "median"):
        check(lambda x, m=mode: (np.pad(x, 2, m), np.pad(x, ((1, 2), (0, 3)), m, stat_length=2)), x)
    check(lambda x: (np.pad(x, 2, "linear_ramp"), np.pad(x, ((1, 2), (0, 3)), "linear_ramp", end_values=(3, -2))), x)
    check(lambda x: np.pad(x, 3, "linear_ramp", end_values=((1, 2), (3, 4))), x)
    for mode in ("reflect", "symmetric"):
        for width in (1, (2, 7), 13):
            check(lambda x, m=mode, w=width: np.pad(x, w, m, reflect_type="odd"), x)
            check(lambda x, m=mode, w=width: np.pad(x[:1], w, m, reflect_type="odd"), x)


@pytest.mark.parametrize("mode", ["maximum", "mean", "linear_ramp", "reflect"])
def test_padding_of_nothing_along_other_axes(check: Check, mode: Any) -> None:
    """Regression: edges were looked for where there is nothing."""
    check(lambda x: (np.pad(x, 0, mode), np.pad(x, ((0, 0), (1, 2)), mode)), np.zeros((0, 3)))


def test_padding_by_several_numbers(check: Check) -> None:
    check(lambda x: np.pad(x, 1, constant_values=((1, 2), (3, 4))), TABLE)
    check(lambda x: np.pad(x, (1, 2), constant_values=(x[0], 5)), ROW)
    check(lambda x: np.pad(x, (1, 2), constant_values=(2**62 + 1, 3)), np.arange(3))
    for call in (
        lambda x: np.pad(x, 1, "nothing"),
        lambda x: np.pad(x.astype(int), 1, constant_values=np.nan),
        lambda x: np.pad(x, 1, "edge", stat_length=2),
        lambda x: np.pad(x, 1, "maximum", stat_length=0),
        lambda x: np.pad(x[:0], 1, "mean"),
    ):
        with pytest.raises(TargetError, match="ValueError"):
            wx.trace(call, TABLE)


# -- of each element, and products


def test_reciprocals_of_integers(check: Check) -> None:
    for dtype in (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint64):
        check(np.reciprocal, np.array([1, 2, 127, 3], dtype))
    check(np.reciprocal, np.array([-1, -2, 1, 0], np.int32))


def test_cross_products_of_two_elements(check: Check) -> None:
    check(lambda x: (np.cross(x[:, :2], x[:, 2:4]), np.cross(x[:, :3], x[:, 2:4])), TABLE)
    check(lambda x: np.cross(x[:, :2], x[:, 1:4]), TABLE)
    with pytest.raises(TargetError, match="3-dimensional"):
        wx.trace(lambda x: np.linalg.cross(x[:, :2], x[:, 2:4]), TABLE)


def test_einsum_by_axis_numbers(check: Check) -> None:
    check(lambda a, b: (np.einsum(a, [0, 1], b, [2, 1]), np.einsum(a, [3, 0], b, [2, 0], [2, 3])), TABLE, TABLE + 1)
    check(lambda a: (np.einsum(a, [..., 5], [5, ...]), np.einsum(a[:, :4], [0, 0])), TABLE)
    check(lambda a, b: np.einsum("ij,kj->ik", a, b, optimize=np.einsum_path("ij,kj->ik", a, b)[0]), TABLE, TABLE)


def test_angles_of_real_numbers(check: Check) -> None:
    check(lambda x: (np.angle(x), np.angle(x, deg=True)), np.array([1.0, -2.0, 0.0, np.nan, -np.inf]))
    check(lambda x: np.angle(x), np.array([1, -2, 0], np.int16))
    check(lambda x: np.angle(x), ROW.astype(np.float32))


def test_views_as_integers_of_the_same_size(check: Check) -> None:
    def written(x: Any) -> Any:
        y = x.copy()
        y.view(np.uint8)[1:3] = 200
        y.view()[0] = 5
        return y, y.view("u1") >> np.uint8(4)

    check(written, np.array([-1, 2, -3, 4], np.int8))
    check(lambda x: (x > 0).view(np.int8) - (x < 0).view(np.int8), ROW)
    check(lambda x: x.view(np.uint64) ^ np.uint64(5), np.array([-1, 7]))
    for dtype in (np.float64, np.int32):
        with pytest.raises(UnsupportedError, match=r"ndarray\.view as .*x\.astype"):
            wx.trace(lambda x, d=dtype: x.view(d), np.array([1, 2]))


def test_a_vandermonde_matrix_of_no_columns(check: Check) -> None:
    check(lambda x: (np.vander(x, 0), np.vander(x, 1), np.vander(x, 3, increasing=True)), ROW)


def test_halves_that_change_places(check: Check) -> None:
    check(lambda x: (np.fft.fftshift(x), np.fft.ifftshift(x), np.fft.fftshift(x, 1), np.fft.ifftshift(x, (-1,))), TABLE)
    check(lambda x: (np.fft.fftshift(x), np.fft.ifftshift(x) * np.fft.fftfreq(7)), ROW)
