"""x.flat; positions by np.ix_; and functions of an array that are given lists of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import waxeq as wx
from waxeq.errors import TargetError, UnsupportedError

pytestmark = pytest.mark.quick

R = np.random.default_rng(0)
X = R.standard_normal((6, 5)).astype(np.float32)
V = R.standard_normal(6).astype(np.float32)
I = np.array([4, 0, 5, 1])  # noqa: E741


def flat(x: Any, v: Any, i: Any) -> Any:
    y, z, w = x.copy(), x.T.copy(), np.zeros((3, 2), np.float32)
    y.flat[::6] += v[0]
    y.flat[i] = 7
    y.flat[3] = v[2]
    y[:, 1].flat[0] = 9
    z.T.flat[2:4] = v[:2]
    w.flat = v  # pyright: ignore[reportAttributeAccessIssue]
    k = y.flat[:4]
    k += 1
    return y, z, w, k, y.flat[4] ** 2, x.flat[-1], np.sum(x.flat), sum(x.T.flat), len(x.flat) * v


def test_flat_is_read_and_written(check: Callable[..., None]) -> None:
    check(flat, X, V, I)
    check(lambda x: [a := x.T @ x, a.flat.__setitem__(slice(None, None, 6), 1)][0], X)


def test_flat_takes_as_many_values_as_there_are() -> None:
    def again(x: Any) -> Any:
        y = x.copy()
        y.flat[:] = y[0]
        return y

    with pytest.raises(
        UnsupportedError, match=r"test_flat\.py:\d+: 5 values are written to 30 elements of x\.flat; write"
    ):
        wx.trace(again, X)


def test_an_array_of_which_a_reshape_is_in_use_is_not_written_by_flat() -> None:
    def both(x: Any) -> Any:
        y = x.copy()
        row = y.reshape(-1)
        y.flat[0] = 1
        return row

    with pytest.raises(UnsupportedError, match=r"a reshape is in use"):
        wx.trace(both, X)


def test_positions_of_each_axis(check: Callable[..., None]) -> None:
    check(
        lambda x, i: (
            x[np.ix_(i, [0, -1])],
            x[np.ix_(i % 2 + 1, i % 3)],
            x[np.ix_([], i % 3)],
            x[np.ix_([True, False] * 3, i % 5)],
        ),
        X,
        I,
    )
    with pytest.raises(UnsupportedError, match=r"test_flat\.py:\d+: the number of elements a mask picks"):
        wx.trace(lambda x: x[np.ix_(x[:, 0] > 0, [1])], X)
    with pytest.raises(TargetError, match="Cross index must be 1 dimensional"):
        wx.trace(lambda x, i: x[np.ix_(i[None], [1])], X, I)


def test_lists_of_arrays(check: Callable[..., None]) -> None:
    check(lambda x, v: (np.sum([x, 2 * x], axis=0), np.max([v, -v], 0), np.mean([v, v * 3, 1 - v], axis=0),
                        np.all([x > 0, x < 1], axis=0), np.argmax([v[0], v[1], v[2]]), np.linalg.norm([v[0], v[1]]),
                        np.sort((v, -v), axis=0), np.median([v[0], 1, v[2]]), np.tile([v[0], 2.0], 2),
                        np.cumsum([v, v], axis=1)), X, V)  # fmt: skip


def test_what_is_made_of_known_lists_is_indexed_by_what_is_traced(check: Callable[..., None]) -> None:
    def tables(i: Any) -> Any:
        knots = np.concatenate([[0.0] * 2, np.linspace(0, 1, 4), [1.0]])
        return knots[i], np.cumsum([1, 2, 3, 4, 5, 6])[i], np.tile([1, 2], 3)[i], np.sort([6, 4, 2, 3, 1, 9])[i]

    check(tables, I)


def test_a_function_that_is_handed_on_is_the_one_that_the_model_knows(check: Callable[..., None]) -> None:
    def fold(x: Any, how: Any) -> Any:
        return how(x) * (2 if how is np.sum else 1)

    check(lambda x: (fold(x, np.sum), fold(x, np.mean)), X)


def test_windows_by_strides_and_branches_of_extremes_are_refused_with_the_way_out() -> None:
    with pytest.raises(UnsupportedError, match=r"ndarray\.strides is not traced; .*sliding_window_view"):
        wx.trace(lambda x: np.lib.stride_tricks.as_strided(x, (2, 3), x.strides), X)
    with pytest.raises(UnsupportedError, match=r"min, max\) needs .*np\.minimum"):
        wx.trace(lambda v: min(v[0], v[1]), V)
