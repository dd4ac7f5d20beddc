"""Functions that are not traced are refused with what to write instead, and what that says is what NumPy gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import waxeq as wx
from waxeq.errors import UnsupportedError
from waxeq.frontend.calls import instead_of
from waxeq.frontend.instead import _INSTEAD, LIST

Case = Callable[..., Any]
REFUSED: dict[str, tuple[Case, str]] = {
    "gcd": (lambda a, k: np.gcd(k, 6), "Euclid"),
    "lcm.reduce": (lambda a, k: np.lcm.reduce(k), "Euclid"),
    "i0": (lambda a, k: np.i0(a), "np.polyval"),
    "frexp": (lambda a, k: np.frexp(a), "np.log2"),
    "nextafter": (lambda a, k: np.nextafter(a, 1), "finfo"),
    "spacing": (lambda a, k: np.spacing(a), "finfo"),
    "poly of a matrix": (lambda a, k: np.poly(a), "eigenvalues outside"),
    "polydiv": (lambda a, k: np.polydiv(a[0], a[1, :2]), "steps of the division"),
    "unique": (lambda a, k: np.unique(k), "np.sort"),
    "nonzero": (lambda a, k: np.nonzero(a), "np.where"),
    "setdiff1d": (lambda a, k: np.setdiff1d(a, a), "np.isin"),
    "svd": (lambda a, k: np.linalg.svd(a), "outside the model"),
    "rfft": (lambda a, k: np.fft.rfft(a), "np.cos"),
    "divide.reduce": (lambda a, k: np.divide.reduce(a), "np.prod"),
    "power.accumulate": (lambda a, k: np.power.accumulate(a), "loop"),
}


def test_a_ufunc_of_a_python_function_is_named_as_it_is() -> None:
    def half(x: Any) -> Any:
        return x / 2

    with pytest.raises(UnsupportedError, match=r"py:\d+: half \(vectorized\) is not traced; call the function itself"):
        wx.trace(lambda x: np.frompyfunc(half, 1, 1)(x), np.ones(3))


@pytest.mark.parametrize("name", REFUSED)
def test_the_way_out_is_named(name: str) -> None:
    fn, said = REFUSED[name]
    with pytest.raises(UnsupportedError, match=rf"^test_instead\.py:\d+: np\..*; .*{said}"):
        wx.trace(fn, np.ones((4, 4)), np.ones((4, 4), np.int64))


def test_functions_with_a_way_out_of_their_own_are_not_traced() -> None:
    from waxeq.frontend.coverage import traced

    assert not [n for n in _INSTEAD if traced(n)]
    assert instead_of("busday_count") == LIST


def test_the_steps_of_euclid_give_the_greatest_common_divisor(check: Callable[..., None]) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 1 << 15, (2, 50))

    def euclid(a: Any, b: Any) -> Any:
        for _ in range(24):
            a, b = np.where(b, b, a), np.where(b, a % b, 0)
        return a

    np.testing.assert_array_equal(euclid(x, y), np.gcd(x, y))
    check(euclid, x, y)


INTERPOLATING = ("averaged_inverted_cdf", "interpolated_inverted_cdf", "hazen", "weibull", "linear", "midpoint",
                 "median_unbiased", "normal_unbiased")  # fmt: skip


@pytest.mark.parametrize("method", INTERPOLATING)
@pytest.mark.filterwarnings("ignore:invalid value")
def test_quantiles_of_infinities_beyond_an_end_are_its_element(method: Any, check: Callable[..., None]) -> None:
    """There both neighbours are the element at the end: the one after it, where that is infinite, has no part."""
    rows = np.array([[1.5, np.inf, np.inf], [-np.inf, -np.inf, 2.0], [1.0, 2.0, np.inf], [-np.inf, 0.0, np.inf]])
    for q in (0, 0.0, 0.01, 0.1, 0.3, 0.5, 0.9, 0.99, 1.0):
        check(lambda x, q=q: np.quantile(x, q, axis=1, method=method), rows)
        check(lambda x, q=q: np.percentile(x, 100 * q, axis=1, method=method), np.tile(rows, 5))


def test_subtract_reduce_takes_all_others_from_the_first(check: Callable[..., None]) -> None:
    a = np.random.default_rng(0).integers(-9, 9, (3, 4)).astype(np.int8)
    for x in (a, a.astype(np.float64)):
        check(np.subtract.reduce, x)
        check(lambda x: np.subtract.reduce(x, axis=-1, keepdims=True), x)
        check(lambda x: np.subtract.reduce(x, axis=1, initial=5), x)
    for fn in (lambda x: np.subtract.reduce(x, axis=None), lambda x: np.subtract.reduce(x[:0])):
        with pytest.raises((wx.WaxeqError, ValueError), match=r"axis|identity"):
            wx.trace(fn, a)


@pytest.mark.filterwarnings("ignore:overflow")
def test_subtract_reduce_overflows_and_cancels_where_numpy_does(check: Callable[..., None]) -> None:
    """The sum of all but the first is infinite, or loses the last, where no difference is or does."""
    for x in (np.full(3, 3e38, np.float32), np.full(3, 6e4, np.float16), np.array([1e30, 1e30, 1])):
        assert np.isfinite(np.subtract.reduce(x))
        check(np.subtract.reduce, x)
        check(lambda x: np.subtract.reduce(x, axis=(0,), keepdims=True), x)
        check(lambda x: np.subtract.reduce(x, initial=1), x)
    for x in (np.uint8([3, 200, 99]), np.int64([1, -(2**63), 5])):
        check(np.subtract.reduce, x)


def test_subtract_reduce_takes_an_axis_in_a_tuple_or_none(check: Callable[..., None]) -> None:
    for x in (np.arange(6.0).reshape(2, 3), np.arange(6).reshape(2, 3)):
        for axis in ((), (0,), (-1,)):
            check(lambda x, a=axis: np.subtract.reduce(x, axis=a), x)
            check(lambda x, a=axis: np.subtract.reduce(x, axis=a, keepdims=True, initial=5), x)
        with pytest.raises((wx.WaxeqError, ValueError), match="at most one axis"):
            wx.trace(lambda x: np.subtract.reduce(x, axis=(0, 1)), x)
    check(lambda x: np.subtract.reduce(x[0, 1], axis=None), np.ones((2, 2)))
    check(lambda x: np.subtract.reduce(x[:0], axis=0, initial=2), np.ones((2, 2)))


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_hypot_reduce_of_one_element_has_no_sign(dtype: str, check: Callable[..., None]) -> None:
    """NumPy joins it with the identity, 0."""
    x = np.array([[-3.0, 4.0, -0.0]], dtype)
    for axis in (0, (), (0,)):
        check(lambda x, a=axis: np.hypot.reduce(x, axis=a), x)
    check(lambda x: np.hypot.reduce(x, axis=0, initial=4), x)
    check(lambda x: np.hypot.reduce(x[:0], axis=0), x)
