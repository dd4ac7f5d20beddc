"""What a mask that is data picks: its sums and means, parts of it, where it is written back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import waxeq as wx
from waxeq.errors import TargetError, TypeMismatch, UnsupportedError

pytestmark = pytest.mark.quick

R = np.random.default_rng(0)
X = R.standard_normal((12, 5)).astype(np.float32)
V = R.standard_normal(12)
I = R.integers(0, 12, 12)  # noqa: E741


def totals(x: Any, v: Any, i: Any) -> Any:
    m = v > 0
    some = np.any(v[m] > 1), np.all(i[m] > 3), np.count_nonzero(i[m] > 3)
    rows = x[m].mean(axis=0), np.std(x[m], axis=0, ddof=1), x[m].mean(0, keepdims=True), x[m].sum(keepdims=True)
    narrow = x.astype(np.float16)[m].mean(), i[m].sum(), i[m].mean(), x[m].sum(dtype=np.float64)
    largest = x[m].max(axis=0, initial=-np.inf), np.min(v[m], initial=3)
    sums = v[m].sum(), np.mean(v[m]), (v[m] * x[m, 0]).sum(), v[m].astype(np.float32).var()
    return *sums, *some, *rows, *narrow, *largest


def inside(x: Any, v: Any) -> Any:
    m = v > 0
    return x[m].max(axis=1).mean(), x[m].sum(-1).sum(), x[m, :][:, [4, 0]].mean(axis=0), x[x > 0][x[x > 0] < 1].sum()


def back(x: Any, y: Any, v: Any, i: Any) -> Any:
    m, z, w, k = v > 0, x.copy(), np.zeros(12), np.zeros_like(x)
    z[m, :] = y[m] * 2
    z[m, 0] = 7
    z[~m, 1:3] += 1
    z[m, -1] = v[m]
    w[m] = x[i[m], i[m] % 5]
    k[m] = x[i[m]]
    z[~m, :] = x[~m, :][:, [4, 3, 2, 1, 0]]
    return z, w, k, np.arange(12)[i[m]].sum()


def test_sums_and_means_of_what_a_mask_picks(check: Callable[..., None]) -> None:
    check(totals, X, V, I)
    check(inside, X, V)
    check(lambda x, g: np.array([x[g == k].mean(axis=0) for k in range(3)]), X, I % 3)


def test_a_sum_of_nothing_is_as_it_is_in_numpy(check: Callable[..., None]) -> None:
    with np.errstate(all="ignore"), pytest.warns(RuntimeWarning, match="empty slice"):
        check(lambda x, v: (x[v > 9].sum(), x[v > 9].mean(axis=0), np.all(v[v > 9] > 0), x[v > 9].prod()), X, V)


def test_what_is_picked_does_not_see_what_is_left(check: Callable[..., None]) -> None:
    v = np.where(V > 0, V, np.nan)
    check(lambda v: (v[v > 0].sum(), np.sqrt(v[v > 0]).mean()), v)


def test_what_a_mask_picks_is_written_back_in_parts_and_read_elsewhere(check: Callable[..., None]) -> None:
    check(back, X, X[::-1].copy(), V, I)


def test_positions_that_are_not_picked_may_be_anywhere(check: Callable[..., None]) -> None:
    def warp(x: Any, at: Any) -> Any:
        y, inside = np.zeros(12, np.float32), (at >= 0) & (at < 5)
        y[inside] = x[0, at[inside]] if x.ndim == 1 else x[at[inside], at[inside]]
        return y

    check(warp, X, I * 3 - 9)


@pytest.mark.parametrize(
    "fn", [lambda x: x[x > 0].max(), lambda x: np.min(x[x > 0]), lambda x: x[x[:, 0] > 0].max(axis=0)]
)
def test_an_extreme_of_perhaps_nothing_is_refused_with_the_way_out(fn: Callable[[Any], Any]) -> None:
    with pytest.raises(UnsupportedError, match=r"test_selection\.py:\d+: np\.m.. of what a mask.*initial=.*where=mask"):
        wx.trace(fn, X)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x[x[:, 0] > 0][0],
        lambda x: x[x[:, 0] > 0][:, [0, 1], 1:] if x.ndim == 3 else np.cumsum(x[x > 0]),
        lambda x: x[x[:, 0] > 0, [0, 1]],
        lambda x: x[[0], x[0] > 0],
        lambda x: x[x[:, 0] > 0].T,
        lambda x: x[0][x[0].astype(int)[x[0] > 0]] + x[0][x[0] < 0],
        lambda x: np.sum(x[x > 0], 0, np.float64),
    ],
)
def test_what_depends_on_how_many_there_are_is_refused(fn: Callable[[Any], Any]) -> None:
    with pytest.raises(UnsupportedError, match=r"test_selection\.py:\d+: the number of elements a mask picks"):
        wx.trace(fn, X)


# -- masks of other axes than the first

Y = R.standard_normal((3, 4, 5)).astype(np.float32)


def beside(y: Any) -> Any:
    """Writes by masks of the last axes, of the middle one, of all of one part, some of them read back."""
    last, middle, both = y[0, 0] > 0, y[0, :, 0] > 0, y[0] > 0
    z = y.copy()
    z[:, both] = 0
    z[..., last] *= -1
    z[1, middle] = 3
    z[0, :, last] = 1
    z[:, middle, 0] = 7
    z[::2, middle, 1:] = np.array([1, 2, 3, 4], np.float32)
    z[:, middle] += z[:, middle] ** 2
    z[:, middle] = y[:, :1]
    z[1, middle] = z[1, middle] * 2
    z[middle[:3], ...] = 5
    return z


def beside_folded(y: Any) -> Any:
    last, middle, both = y[0, 0] > 0, y[0, :, 0] > 0, y[0] > 0
    a = y[:, middle]
    sums = a.sum(1), a.sum(0).sum(0), a.sum(2).mean(1), a.sum(1, keepdims=True), a.sum(keepdims=True), a.mean()
    others = y[:, both].mean(1), y[..., last].std(-1), (a * 2 + 1).max(1, initial=0), y[1:, middle, ::2].sum(1)
    return *sums, *others, y[1, middle].sum(0), y[1, both].mean(), np.count_nonzero(a > 0), a.astype(float).prod()


def test_what_leaves_its_axis_leaves_the_mask_where_it_is(check: Callable[..., None]) -> None:
    """The mask was taken for one of the axis before: of a square array it picked others."""
    square = Y[:, :3]

    def running(y: Any, z: Any) -> Any:
        m, z = y[0, :, 0] > 0, z.copy()
        z[:, m] = np.cumsum(y[:, m], axis=0)
        return z, np.cumprod(y[:, m], axis=0).sum(1), np.sort(y[:, m], axis=0).sum(axis=1), y[:, m].sum(0).sum(0)

    check(running, square, square[::-1].copy())
    check(running, Y, Y[::-1].copy())


def test_masks_of_other_axes_than_the_first(check: Callable[..., None]) -> None:
    check(beside, Y)
    check(beside_folded, Y)


@pytest.mark.parametrize("axis", [1, -2, 2])
def test_an_axis_that_what_is_picked_has_not_is_none_of_it(axis: int) -> None:
    """It was taken for the first."""
    with pytest.raises(TypeMismatch, match=f"axis {axis} is out of bounds"):
        wx.trace(lambda y: y[0][y[0] > 0].sum(axis=axis), Y)


@pytest.mark.parametrize(
    ("fn", "said"),
    [
        (lambda y, m: y[:, m][0], UnsupportedError),
        (lambda y, m: y[:, m] + np.ones((3, 1, 5)), UnsupportedError),
        (lambda y, m: y[m[:3], m], UnsupportedError),
        (lambda y, m: y[0, :, y[0, 0] > 0].sum(0), UnsupportedError),
        (lambda y, m: y.__setitem__((slice(None), m), np.ones((2, 5), np.float32)), UnsupportedError),
        (lambda y, m: y.__setitem__((0, slice(None), y[0, 0] > 0), np.ones(4, np.float32)), UnsupportedError),
        (lambda y, m: y[:3, :3, 0].__setitem__(m[:3], y[:3, :3, 0][:, m[:3]]), UnsupportedError),
        (lambda y, m: y[..., m], TargetError),
        (lambda y, m: y[:, :, :, m], TargetError),
    ],
)
def test_masks_of_other_axes_that_are_refused(fn: Callable[[Any, Any], Any], said: type[Exception]) -> None:
    text = "number of elements a mask" if said is UnsupportedError else "boolean index did not match|too many indices"
    with pytest.raises(said, match=rf"test_selection\.py:\d+: .*({text})"):
        wx.trace(fn, Y, Y[0, :, 0] > 0)
