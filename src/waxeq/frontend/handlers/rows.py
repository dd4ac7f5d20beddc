"""A function of rows at every row of an array, and the order of rows by several keys."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from waxeq.frontend.array import Tracer
from waxeq.frontend.explicit import axis_index

_MANY = 256
"""Rows that a function is followed through one by one at most."""

_ALONG_AXIS = (
    *("sum", "prod", "mean", "std", "var", "median", "max", "min", "any", "all", "argmax", "argmin", "ptp"),
    *("cumsum", "cumprod", "sort", "argsort", "nansum", "nanprod", "nanmean", "nanstd", "nanvar", "nanmax", "nanmin"),
    *("nanmedian", "count_nonzero", "average", "flip", "diff", "trapezoid", "nancumsum", "nancumprod"),
    *("unwrap",),
)
"""Functions of NumPy that do along an axis what they do to a row."""


def _apply_along_axis(t: Tracer, func1d: Any, axis: int, arr: Any, *args: Any, **kw: Any) -> Any:
    """A function of NumPy's that takes an axis is given it; another one is followed through at most 256 rows."""
    x = t.array(arr)
    at = axis_index(axis, x.ndim)
    lead = (*x.shape[:at], *x.shape[at + 1 :])
    count = math.prod(lead)
    if not count:
        raise ValueError("Cannot apply_along_axis when any iteration dimensions are 0")
    if not args and not kw and any(func1d is real or getattr(func1d, "__wrapped__", None) is real for real in _known()):
        return func1d(x, axis=at)
    if count > _MANY:
        what = f"np.apply_along_axis of a function to {count} rows, which it is followed through one by one"
        raise t.refuse(what, "write the function for all rows at once, with axis= or keepdims=True")
    rows = np.moveaxis(x, at, -1)
    made = [t.array(func1d(rows[i], *args, **kw)) for i in np.ndindex(*lead)]
    one = made[0]
    if any(y.shape != one.shape for y in made):
        raise ValueError("could not broadcast input array: the function gives arrays of several shapes")
    y = np.stack([y.astype(one.dtype) for y in made]).reshape((*lead, *one.shape))
    order = [*range(at), *range(len(lead), y.ndim), *range(at, len(lead))]
    return np.copy(np.transpose(y, order))


def _known() -> tuple[Callable[..., Any], ...]:
    return tuple(getattr(np, n) for n in _ALONG_AXIS)


def _lexsort(t: Tracer, keys: Any, axis: int = -1) -> Any:
    """By the last key first; equal ones keep their order."""
    rows = [t.array(k) for k in (keys if isinstance(keys, (list, tuple)) else t.array(keys))]
    if not rows:
        raise TypeError("need sequence of keys with len > 0 in lexsort")
    if any(k.shape != rows[0].shape for k in rows):
        raise ValueError("all keys need to be the same shape")
    if rows[0].ndim == 0:
        return np.zeros((), np.int64)
    at = axis_index(axis, rows[0].ndim)
    order: Any = np.argsort(rows[0], axis=at, stable=True)
    for key in rows[1:]:
        again = np.argsort(np.take_along_axis(key, order, axis=at), axis=at, stable=True)
        order = np.take_along_axis(order, again, axis=at)
    return order


HANDLERS: Mapping[str, Callable[..., Any]] = {"apply_along_axis": _apply_along_axis, "lexsort": _lexsort}
