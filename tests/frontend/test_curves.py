"""Slopes, areas, lines between points and convolutions, over the options that NumPy has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import waxeq as wx
from waxeq.errors import TargetError

pytestmark = pytest.mark.quick

ROW = np.array([3.0, -1.5, 0.25, 7.0, 2.0, -4.0, 1.0])
AT = np.array([0.0, 0.5, 2.0, 3.5, 4.0, 7.0, 9.0])
TABLE = (np.arange(20.0).reshape(4, 5) - 9) ** 2 / 7
ASKED = np.array([-3.0, 0.0, 0.25, 2.0, 8.0, 9.0, 12.0, np.nan, np.inf, -np.inf])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int16])
def test_gradient_with_spacings(check: Callable[..., None], dtype: Any) -> None:
    row, table = ROW.astype(dtype), TABLE.astype(dtype)
    check(lambda x: (np.gradient(x), np.gradient(x, 0.5), np.gradient(x, [0, 1, 2, 4, 5, 6, 8])), row)
    check(lambda x, at: (np.gradient(x, at), np.gradient(x, at, edge_order=2), np.gradient(x, at[1])), row, AT)
    check(lambda x: (*np.gradient(x, 2.0, 0.5), *np.gradient(x, 1.0, 2.0, axis=(1, 0))), table)
    check(lambda x, at: (*np.gradient(x, np.arange(4.0) ** 2, at[:5], edge_order=2),), table, AT)
    check(lambda x, at: np.gradient(x, at[:5], axis=-1), table, AT)
    check(lambda x: np.gradient([x[0], x[1], x[2]]), row)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int8, bool])
def test_trapezoid(check: Callable[..., None], dtype: Any) -> None:
    row, table = ROW.astype(dtype), TABLE.astype(dtype)
    check(lambda x: (np.trapezoid(x), np.trapezoid(x, dx=0.5), np.trapezoid(x, [0, 1, 2, 3, 5, 6, 7])), row)
    check(lambda x, at: np.trapezoid(x, at), row, AT)
    check(lambda m, at: (np.trapezoid(m, at[:4], axis=0), np.trapezoid(m, at[:4], axis=-2), np.trapezoid(m)), table, AT)
    check(lambda m: (np.trapezoid(m, m, axis=0), np.trapezoid(m[:, :1]), np.trapezoid(m[:, :0])), table)
    check(lambda x: np.trapezoid([x[0], x[1], x[2]], [0, 1, 3]), row)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_interp_to_the_left_and_to_the_right(check: Callable[..., None], dtype: Any) -> None:
    asked, row = ASKED.astype(dtype), ROW.astype(dtype)
    check(lambda q, at, y: (np.interp(q, at, y), np.interp(q, at, y, left=-1, right=np.nan)), asked, AT, row)
    check(lambda q, at, y: (np.interp(q, at, y, left=y[3]), np.interp(q[0], at, y, right=0.0)), asked, AT, row)
    check(lambda q: np.interp(q, [0, 1, 2], [10, 20, 5], right=0), asked)
    check(lambda q, at, y: np.interp(q, at, y, period=2 * np.pi), asked[:7], AT, row)
    check(lambda q, at, y: np.interp(q, at[:1], y[:1], left=1, right=2), asked, AT, row)
    check(lambda y: (np.interp([0.5, 1.5], np.arange(7), y), np.interp(2.5, [1, 3], [y[0], y[1]])), row)
    check(lambda q: np.interp(q.astype(int), [0, 1, 2], [10, 20, 5]), asked[:7])


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int8, bool])
def test_convolve_and_correlate(check: Callable[..., None], dtype: Any, mode: Any) -> None:
    row = ROW.astype(dtype)

    def both(a: Any, v: Any) -> Any:
        return np.convolve(a, v, mode), np.correlate(a, v, mode)

    for kernel in (row[:1], row[1:3], row[2:5], np.array([0.5, 1, 2]), np.array([3, -1], np.int8), row):
        check(both, row, kernel)
        check(both, kernel, row)
    check(
        lambda x: (*both(x, [1, 0, -1]), *both([x[0], x[1], x[2]], [1, 0]), np.convolve(x, x[0]), np.convolve(3, x)),
        row,
    )


def test_convolutions_of_nan_and_of_nothing(check: Callable[..., None]) -> None:
    check(lambda x: np.convolve(x, [1, 0, 2]), np.array([1, np.nan, np.inf, 2]))
    for x in (np.zeros(0), np.zeros((2, 2))):
        with pytest.raises(TargetError, match="ValueError"):
            wx.trace(lambda x: np.convolve(x, [1, 2]), x)
