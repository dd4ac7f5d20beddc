"""What a model asks about classes: stand-ins answer as arrays, scalars and dtypes of NumPy do."""

from __future__ import annotations

import collections.abc
import numbers
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import waxeq as wx

pytestmark = pytest.mark.quick

X = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
TABLE = np.ones(3, np.float32)


def of_values(x: Any) -> list[Any]:
    s, v, d, n, b = x.sum(), x[0, 0], x.astype(np.float64).sum(), x.argmax(), x.sum() > 0
    whole, no_axes, rows = x[0], x[0, 0, ...], [x[0], s]
    return [
        *(np.isscalar(s), np.isscalar(whole), np.isscalar(no_axes), isinstance(no_axes, np.ndarray)),
        *(
            isinstance(s, np.ndarray),
            isinstance(s, np.generic),
            isinstance(s, np.floating),
            isinstance(s, numbers.Real),
        ),
        *(isinstance(v, np.float32), isinstance(v, np.float64), isinstance(s, float), isinstance(d, float)),
        *(isinstance(n, (int, np.integer)), isinstance(b, np.bool_), isinstance(s * 2 + 1, np.floating)),
        *(isinstance(x, np.ndarray), isinstance(x, np.generic), isinstance(x, collections.abc.Iterable)),
        *(isinstance(TABLE[0], np.float32), [isinstance(r, np.ndarray) for r in rows]),
    ]


def of_dtypes(x: Any) -> list[Any]:
    kind = x.dtype.type
    return [
        *(kind == np.float32, np.float32 == kind, kind != np.float64, x.dtype == np.float32),
        *(x.dtype in (np.float32, np.float64), x.dtype in (np.int8, np.int64), np.float32 in (np.float64, kind)),
        *(np.issubdtype(x.dtype, np.float32), np.issubdtype(x.dtype, np.float64), issubclass(kind, np.float32)),
        *(issubclass(np.float64, float), {np.float32: 1}.get(kind), {kind: 1}.get(np.float32), str(np.float32)),
        *(np.dtype(np.float32), np.finfo(np.float32).eps, np.float32 is np.float32, type(np.float32(3)).__name__),
    ]


@pytest.mark.parametrize("asked", [of_values, of_dtypes])
def test_models_are_answered_as_numpy_answers(asked: Callable[[Any], list[Any]]) -> None:
    """Scalars said that they are arrays and of no class of numbers, and np.float32 was no class of float32."""
    told: list[list[Any]] = []

    def model(x: Any) -> Any:
        told.append(asked(x))
        return x

    model(X)
    wx.trace(model, X)
    assert told[0] == told[1]


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: np.stack([np.full(3, s) if np.isscalar(s) else s for s in (x.sum(), x[:, 0])]),
        lambda x: x[x[0].argmax() - 1] if isinstance(x[0].argmax(), np.integer) else x,
        lambda x: x[:, x[0].argmax()] * 2,
        lambda x: x.var(where=x > 2) + x.std(axis=0, ddof=np.float64(1)).sum(),
        lambda x: np.arange(3) * x.sum(),
    ],
)
def test_scalars_go_where_they_went(fn: Callable[..., Any], check: Callable[..., None]) -> None:
    check(fn, X)


class Units:
    """A quantity with a unit, which knows ufuncs."""

    def __init__(self, value: Any, unit: str) -> None:
        self.value, self.unit = value, unit

    def __array_ufunc__(self, f: np.ufunc, method: str, *args: Any, **kw: Any) -> Any:
        return Units(getattr(f, method)(*(x.value if isinstance(x, Units) else x for x in args), **kw), self.unit)


class Node:
    """A node of a graph of somebody's own, which goes first, and knows no ufuncs."""

    __array_priority__ = 100

    def __init__(self, value: Any) -> None:
        self.value = value

    def __radd__(self, other: Any) -> Any:
        return Node(other + self.value)

    def __rmatmul__(self, other: Any) -> Any:
        return Node(other @ self.value)


class Weights:
    """Of another library of arrays, which goes first, and can be had as an array."""

    __array_priority__ = 100
    shape, dtype = X.shape, X.dtype

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return X.astype(dtype or X.dtype)

    def __radd__(self, other: Any) -> Any:
        return np.asarray(other) + X

    def __rmul__(self, other: Any) -> Any:
        return np.asarray(other) * X


def test_arrays_of_other_libraries_are_constants(check: Callable[..., None]) -> None:
    """Operators left it to jax to add its weights, which cannot trace."""
    check(lambda x: ((x + Weights()) * 2, x.sum() * Weights()), X)


def test_operands_of_other_classes_answer_themselves(check: Callable[..., None]) -> None:
    multiply: Any = np.multiply
    check(lambda x: (multiply(x, Units(x, "m")).value, (x / Units(np.float32(2), "s")).value), X)
    check(lambda x: ((x + Node(x)).value, (x @ Node(x.T)).value, (x.sum() + Node(x)).value), X)
