"""Known arrays that a model makes and goes on to write to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import waxeq as wx
from waxeq.errors import UnsupportedError

pytestmark = pytest.mark.quick

X = np.array([4.5, 6.25])
TABLE = np.array([1.0, 2.0])


def elements(x: Any) -> Any:
    a = np.array([1.0, 2.0])
    b = a
    a[1] = x[0]
    a[0] += 3
    a *= x
    return a, b


def slices(x: Any) -> Any:
    g = np.linspace(0, 1, 5)
    g[1::2] = x
    rows = np.array([[1, 2], [3, 4]], np.float32)
    rows[:, 0] = x
    n = np.arange(4)
    n[-1] = x[1]
    return g, rows, n


def steps(x: Any) -> Any:
    made = []
    for i in range(2):
        a = np.array([0.0, 1.0])
        a[i] = x[i]
        made.append(a)
    return np.stack(made)


def within(x: Any) -> Any:
    def write() -> None:
        a[1] = x[1]

    a = np.array([0.0, 1.0])
    write()
    a[0] = x[0]
    return a


def of_traced(x: Any) -> Any:
    a = np.array(x)
    a[0] = 5
    b = np.array([x[0], 2.0])
    b[1] = x[1]
    return a, b, x


def places(x: Any) -> Any:
    """What is filled with numbers is still known."""
    i = np.array([1, 1])
    i[0] = 0
    flags = np.array([True, True])
    flags[1] = False
    return x[i], x[flags], x[: int(i[1])], np.ones(i[1])


@pytest.mark.parametrize("model", [elements, slices, steps, within, of_traced, places])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
def test_known_arrays_are_written_to(check: Callable[..., None], model: Callable[..., Any], dtype: Any) -> None:
    check(model, X.astype(dtype))


@pytest.mark.parametrize("copy", [False, None])
def test_an_array_that_shares_memory_with_what_is_known_is_not_written_to(copy: Any) -> None:
    """What was written to it was missing in the other one, without a word."""

    def model(x: Any) -> Any:
        t = np.linspace(1.0, 2.0, 2)
        a = np.array(t, copy=copy)
        a[1] = x[0]
        return t * x

    with pytest.raises(UnsupportedError, match="an array that is known while tracing is written to"):
        wx.trace(model, X)


def test_creators_that_give_several_things(check: Callable[..., None]) -> None:
    def model(x: Any) -> Any:
        a, step = np.linspace(0, 1, 2, retstep=True)
        rows, columns = np.indices((2, 1), sparse=True)
        return a * x + step, rows[:, 0] * x + columns[0, 0]

    check(model, X)


def test_empty_and_nan(check: Callable[..., None]) -> None:
    def model(x: Any) -> Any:
        a = x[:0]
        b = np.array([], np.float64)
        b[:] = a
        c = np.array([[np.nan]])
        c[0, 0] += x[0]
        return b, c

    check(model, np.array([np.nan, 1.0]))


def test_arrays_from_elsewhere_are_not_written_to() -> None:
    def module(x: Any) -> Any:
        a = np.asarray(TABLE)
        a[0] = x[0]
        return a

    with pytest.raises(UnsupportedError, match="an array that is known while tracing is written to"):
        wx.trace(module, X)
    assert TABLE.tolist() == [1.0, 2.0]


def test_the_elements_in_a_row_become_an_array(check: Callable[..., None]) -> None:
    def model(x: Any) -> Any:
        y = x.flat[:]
        y[:1] = 7
        return y, np.array(x.flat), np.asarray(x.flat) * 2, np.asarray(x.T.flat), np.array(x.flat, dtype=np.float32), x

    for x in (np.arange(6.0).reshape(2, 3), np.zeros((0, 3)), np.array([[3]]), np.array([[np.nan, 1]], np.float32)):
        check(model, x)


@pytest.mark.parametrize("name", ["asarray", "array"])
def test_a_row_of_elements_that_may_be_the_array_is_not_written_to(name: str) -> None:
    def model(x: Any) -> Any:
        y = getattr(np, name)(x.flat)
        y[0] = 7
        return x

    with pytest.raises(UnsupportedError, match="may or may not change both"):
        wx.trace(model, X)


def test_python_numbers_of_what_is_traced_are_refused() -> None:
    for f in (lambda x: x[0].item() * 2, lambda x: x.item(0) + 1):
        with pytest.raises(UnsupportedError, match=r"ndarray\.item gives Python numbers, .*leave it an array.*x\[0\]"):
            wx.trace(f, X)
    with pytest.raises(UnsupportedError, match=r"ndarray\.tolist gives Python numbers, .*for row in x"):
        wx.trace(lambda x: sum(x.tolist()), X)
