"""What a model catches: a refusal is none of NumPy's errors, and is not to change what is traced."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import waxeq as wx
from waxeq.errors import TargetError, UnsupportedError

pytestmark = pytest.mark.quick

X = np.array([[1.0, 2.0], [0.0, -3.0]], np.float32)


def branches(x: Any) -> Any:
    try:
        if x.sum() > 0:
            return x * 2
    except Exception:
        pass
    return x * 3


def suppresses(x: Any) -> Any:
    with contextlib.suppress(Exception):
        return x * x.item(0)
    return x


def returns_at_last(x: Any) -> Any:
    y = x
    try:
        y = np.linalg.svd(x)[1]
    finally:
        return y  # noqa: B012


def counts_in_complex_numbers(x: Any) -> Any:
    try:
        return (x * 1j).imag
    except Exception:
        return x * 2


def casts(x: Any) -> Any:
    try:
        return x.astype(complex).real
    except Exception:
        return x * 2


def raises_another(x: Any) -> Any:
    try:
        return x * float(x.sum())
    except Exception as e:
        raise RuntimeError("no such model") from e


def catches_what_numpy_raises(x: Any) -> Any:
    try:
        return x @ np.ones((3, 3), np.float32)
    except Exception:
        return x * 2


def catches_its_own(x: Any) -> Any:
    try:
        return {"a": x}["b"]
    except KeyError:
        return x * 2


def divides(x: Any) -> Any:
    with np.errstate(divide="raise"):
        try:
            return 1 / x
        except FloatingPointError:
            return x


def divides_by_warnings(x: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return 1 / x


def divides_quietly(x: Any) -> Any:
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return 1 / x


@pytest.mark.parametrize(
    ("fn", "said"),
    [
        (branches, "a Python branch"),
        (suppresses, "ndarray.item"),
        (returns_at_last, "np.linalg.svd"),
        (raises_another, r"float\(\)"),
        (counts_in_complex_numbers, "dtype complex"),
        (casts, "dtype complex"),
    ],
)
def test_a_refusal_that_the_model_catches_is_told(fn: Callable[..., Any], said: str) -> None:
    with pytest.raises(UnsupportedError, match=rf"^test_caught\.py:\d+: {said}.*the model catches this error"):
        wx.trace(fn, X)


@pytest.mark.parametrize("fn", [catches_what_numpy_raises, catches_its_own])
def test_what_numpy_and_python_raise_is_caught_as_it_was(fn: Callable[..., Any], check: Callable[..., None]) -> None:
    check(fn, X)


def test_errors_of_the_model_itself_stay_these() -> None:
    def missing(x: Any) -> Any:
        return {"a": x}["b"]

    with pytest.raises(TargetError, match="the model raises KeyError"):
        wx.trace(missing, X)


@pytest.mark.parametrize(
    ("fn", "said"), [(divides, r"np\.errstate\(divide='raise'\)"), (divides_by_warnings, "RuntimeWarning")]
)
def test_errors_that_depend_on_numbers_are_refused(fn: Callable[..., Any], said: str) -> None:
    """A plan raises none of them: it gave an infinity where the model has something else."""
    with warnings.catch_warnings(), pytest.raises(UnsupportedError, match=rf"py:\d+: an error .*{said}.*np\.where"):
        warnings.simplefilter("default")
        wx.trace(fn, X)


def test_a_model_may_ignore_such_errors(check: Callable[..., None]) -> None:
    check(divides_quietly, X)


def test_what_is_set_around_the_model_is_told_of() -> None:
    with np.errstate(over="raise"):
        assert any("FloatingPointError" in note for note in wx.trace(np.exp, X).notes)
    assert not wx.trace(np.exp, X).notes


def test_np_vectorize_is_named() -> None:
    def half(x: Any) -> Any:
        return x / 2

    for f in (np.vectorize(half), np.vectorize(half, otypes=[float]), np.vectorize(half, signature="(n)->(n)")):
        with pytest.raises(UnsupportedError, match=r"py:\d+: .*np\.vectorize calls its function for one element"):
            wx.trace(lambda x, f=f: f(x), X)
