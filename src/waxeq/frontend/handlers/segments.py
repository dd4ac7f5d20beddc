"""Folds of parts of an axis: `f.reduceat`, with the places where parts begin known while tracing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from waxeq.frontend.array import TracedArray, Tracer
from waxeq.frontend.explicit import axis_index
from waxeq.frontend.handlers.reductions import wide

_FEW = 8
"""Parts up to which each is folded on its own."""
_SCATTERED = {"add": np.add, "maximum": np.maximum, "minimum": np.minimum}
"""Folds that are also made by going through all elements once, each to its part."""


def _reduceat(f: np.ufunc, t: Tracer, array: Any, indices: Any, axis: int = 0, dtype: Any = None) -> Any:
    """Of known indices."""
    x = _in_dtype(f, t.array(array), dtype)
    if x.ndim == 0:
        raise TypeError("cannot reduceat on a scalar")
    axis = axis_index(axis, x.ndim)
    starts = _starts(f, t, indices, x.shape[axis])
    stops = np.append(starts[1:], x.shape[axis])
    sizes = np.maximum(stops[: starts.size] - starts, 1)
    rows = np.moveaxis(x, axis, 0)
    if not starts.size:
        made = rows[:0]
    elif (sizes == sizes[0]).all() and (np.diff(starts) == sizes[0]).all():
        first = int(starts[0])
        end = first + int(sizes.sum())
        made = f.reduce(rows[first:end].reshape(starts.size, int(sizes[0]), *rows.shape[1:]), axis=1)
    elif starts.size <= _FEW:
        made = np.stack(
            [f.reduce(rows[a : a + n], axis=0) for a, n in zip(starts.tolist(), sizes.tolist(), strict=True)]
        )
    else:
        made = _many(f, t, rows, starts, sizes)
    return np.moveaxis(made, 0, axis)


def _in_dtype(f: np.ufunc, x: TracedArray, dtype: Any) -> Any:
    if f in (np.add, np.multiply):
        return wide(x, dtype)
    logical = f in (np.logical_or, np.logical_and)
    return x.astype(bool) if logical else x if dtype is None else x.astype(dtype)


def _starts(f: np.ufunc, t: Tracer, indices: Any, n: int) -> np.ndarray:
    known = t.known(indices)
    if known is None:
        raise t.refuse(
            f"np.{f.__name__}.reduceat of indices that are data",
            "give indices that are known while tracing, or number the part of each element and use np.add.at",
        )
    if known.ndim != 1:
        raise ValueError("object of too small depth for desired array" if known.ndim == 0 else "indices of one axis")
    if known.size and not (known.min() >= 0 and known.max() < n):
        wrong = known[(known < 0) | (known >= n)][0]
        raise IndexError(f"index {wrong} out-of-bounds in {f.__name__}.reduceat [0, {n})")
    return known.astype(np.int64)


def _many(f: np.ufunc, t: Tracer, rows: Any, starts: np.ndarray, sizes: np.ndarray) -> Any:
    """Parts of several lengths: where they lie one after another each element is sent to its part, else the elements
    of parts are read, with something at the ends of short ones that changes no result."""
    if (np.diff(starts) > 0).all() and f.__name__ in _SCATTERED and rows.dtype != bool:
        made = np.zeros_like(rows[starts]) if f is np.add else np.copy(rows[starts])
        _SCATTERED[f.__name__].at(made, np.repeat(np.arange(starts.size), sizes), rows[int(starts[0]) :])
        return made
    steps = np.arange(sizes.max())
    there = steps < sizes[:, None]
    read = np.take(rows, np.where(there, starts[:, None] + steps, starts[:, None]), axis=0)
    if f not in (np.maximum, np.minimum):  # of these the first element may come again
        fill = np.asarray(f.identity).astype(rows.dtype)
        read = np.where(there.reshape(there.shape + (1,) * (rows.ndim - 1)), read, fill)
    return f.reduce(read, axis=1)


_FOLDS = (np.add, np.multiply, np.maximum, np.minimum, np.logical_or, np.logical_and)

HANDLERS: Mapping[str, Callable[..., Any]] = {f"{f.__name__}.reduceat": partial(_reduceat, f) for f in _FOLDS}
