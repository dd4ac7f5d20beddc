"""Numbers in even steps between ends that are data. Between plain numbers they are constants, which NumPy makes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from operator import index
from typing import Any

import numpy as np

from waxeq.frontend.array import Tracer


def _dtype_of(t: Tracer, *ends: Any) -> np.dtype:
    """The float dtype of numbers between ends, where Python's are weak."""
    found = np.result_type(*(x if type(x) in (int, float) else t.array(x).dtype for x in ends))
    return np.dtype(np.float64) if found.kind in "biu" else found


def _number(num: Any) -> int:
    n = index(num)
    if n < 0:
        raise ValueError(f"Number of samples, {n}, must be non-negative.")
    return n


def _linspace(
    t: Tracer, start: Any, stop: Any, num: Any = 50, endpoint: bool = True, retstep: bool = False,
    dtype: Any = None, axis: int = 0,
) -> Any:  # fmt: skip
    """The last number is the end itself, as in NumPy."""
    n, made = _number(num), _dtype_of(t, start, stop)
    first, last = (t.array(x).astype(made) for x in (start, stop))
    delta, parts = last - first, n - 1 if endpoint else n
    step = delta / parts if parts > 0 else math.nan
    at = np.arange(n, dtype=made).reshape((-1,) + (1,) * delta.ndim)
    y = at * delta if parts <= 0 else np.where(step == 0, at / parts * delta, at * step)  # a step may be too small
    y = y + first
    if endpoint and n > 1:
        y = np.concatenate([y[:-1], np.broadcast_to(last, y.shape[1:])[None]])
    y = np.moveaxis(y, 0, axis) if axis else y
    if dtype is not None:
        y = (np.floor(y) if np.dtype(dtype).kind in "iu" else y).astype(dtype)
    return (y, step) if retstep else y


def _logspace(
    t: Tracer, start: Any, stop: Any, num: Any = 50, endpoint: bool = True, base: Any = 10.0, dtype: Any = None,
    axis: int = 0,
) -> Any:  # fmt: skip
    if np.ndim(base):
        rank = max(np.ndim(x) for x in (start, stop, base))
        start, stop, base = (t.array(x)[(None,) * (rank - np.ndim(x))] for x in (start, stop, base))
        base = np.expand_dims(base, axis)
    y = np.power(base, _linspace(t, start, stop, num, endpoint, axis=axis))
    return y if dtype is None else y.astype(dtype)


def _geomspace(
    t: Tracer, start: Any, stop: Any, num: Any = 50, endpoint: bool = True, dtype: Any = None, axis: int = 0
) -> Any:  # fmt: skip
    """Ends are taken to be none zero, and both of one sign, for others of which NumPy raises or gives NaN."""
    n, least = _number(num), np.float64 if dtype is None else dtype
    made = np.result_type(*(t.array(x).dtype for x in (start, stop)), least, 1.0)
    first, last = (t.array(x).astype(made) for x in (start, stop))
    sign = np.sign(first)
    low, high = np.log10(first * sign), np.log10(last * sign)
    y = _logspace(t, low, high, n, endpoint)
    if n > 0:  # the ends themselves, which powers of logarithms would miss
        ends = [np.broadcast_to(x * sign, y.shape[1:])[None] for x in (first, last)]
        inner = y[1:-1] if n > 1 and endpoint else y[1:]
        y = np.concatenate([ends[0], inner, *(ends[1:] if n > 1 and endpoint else ())])
    y = y * sign
    y = np.moveaxis(y, 0, axis) if axis else y
    return y.astype(made if dtype is None else dtype)


HANDLERS: Mapping[str, Callable[..., Any]] = {
    "linspace": _linspace,
    "logspace": _logspace,
    "geomspace": _geomspace,
}
