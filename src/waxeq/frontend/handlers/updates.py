"""Functions that write to an array: `f.at`, where each update counts, and those that put values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from waxeq.frontend.array import TracedArray, Tracer, holds_traced
from waxeq.frontend.explicit import axis_index
from waxeq.frontend.handlers.indexing import getitem, of_region, scattered, with_item, with_places
from waxeq.frontend.handlers.parts import is_array, parts_of
from waxeq.frontend.handlers.positions import counted
from waxeq.frontend.scalars import require_safe
from waxeq.frontend.selection import is_mask
from waxeq.ir.types import is_floating, promoted


def _own(t: Tracer, x: Any) -> TracedArray:
    """An array that a function writes to; one that was made outside of the model is refused."""
    if not isinstance(x, TracedArray):
        raise t.refuse("an array made outside of the model is written to", "write to a copy made in the model")
    return x


# -- ufunc.at

_SCATTERS = {"add": "add", "subtract": "add", "maximum": "max", "minimum": "min"}
_OF_BOOLS = {"add": "max", "maximum": "max", "minimum": "min"}


def _at(name: str, t: Tracer, a: Any, indices: Any, b: Any) -> None:
    """Every update counts, also of one place."""
    x, f = _own(t, a), getattr(np, name)
    v = _update(t, name, x.dtype, b)
    if is_mask(t, indices):  # no place is named twice
        x[indices] = f(getitem(t, x, indices), v)
        return
    there = getitem(t, x, indices)
    v: Any = v if v.shape == there.shape else np.broadcast_to(v, there.shape)
    parts = parts_of(t, x, indices)
    if not any(map(is_array, parts)):
        x.assign(with_item(t, x, indices, f(there, v).astype(x.dtype)))
    elif x.dtype == bool:
        bits = with_places(t, x.astype(np.uint8), parts, v.astype(np.uint8), _OF_BOOLS[name])
        x.assign(bits.astype(bool))
    else:
        wide = x if v.dtype == x.dtype else x.astype(v.dtype)
        x.assign(with_places(t, wide, parts, -v if name == "subtract" else v, _SCATTERS[name]).astype(x.dtype))


def _update(t: Tracer, name: str, dtype: np.dtype, b: Any) -> TracedArray:
    """The values of f.at in the dtype that it computes in. NumPy computes in the dtype of both and cuts each result to
    that of the array: floats are cut once here, after the last one, and whole numbers come out the same in the cases
    that are not refused. Of uint64 and signed integers NumPy computes in floats, where the sums here stay exact."""
    v = t.array(b)
    getattr(np, name)(np.zeros(0, dtype), np.zeros(0, v.dtype))  # raises TypeError for bools that are subtracted
    if is_floating(dtype) and isinstance(b, (np.ndarray, TracedArray)) and v.dtype != bool:
        return v.astype(promoted(dtype, v.dtype))
    same = v.dtype == dtype or is_floating(dtype) or v.dtype == bool
    if not same and dtype.kind in "iu" and v.dtype.kind in "iu":
        same = name in ("add", "subtract") or np.can_cast(v.dtype, dtype, "safe") or _holds(dtype, t.known(v))
    if not same:
        what = f"np.{name}.at of {v.dtype} on an array of {dtype}, which cuts each result,"
        raise t.refuse(what, f"cast the values first, by .astype(np.{dtype})")
    return v.astype(dtype)


def _holds(dtype: np.dtype, values: np.ndarray | None) -> bool:
    """Whether known whole numbers are all of a dtype."""
    span = np.iinfo(dtype)
    return values is not None and all(span.min <= n <= span.max for n in values.reshape(-1).tolist())


# -- functions


def _put(t: Tracer, a: Any, ind: Any, v: Any, mode: str = "raise") -> None:
    """At positions in the flattened array; values are taken again from the first where they are too few."""
    x = _own(t, a)
    require_safe(ind, np.int64)
    index, values = t.array(ind).astype(np.int64).reshape(-1), np.ravel(t.written(v, x.dtype))
    if mode not in ("raise", "wrap", "clip"):
        raise ValueError(f"clipmode must be one of 'clip', 'raise', or 'wrap' (got {mode!r})")
    if not index.size or not values.size:
        return
    if not x.size:
        raise IndexError("cannot replace elements of an empty array")
    if mode != "raise":
        index = index % x.size if mode == "wrap" else np.clip(index, 0, x.size - 1)
    flat, row = t.array(t.wrap(x.value).reshape(-1)), t.array(np.resize(values, index.size))
    new = with_places(t, flat, [index], row) if t.sized else with_item(t, flat, index, row)
    x.assign(t.array(new.reshape(x.shape)))


def _put_along_axis(t: Tracer, arr: Any, indices: Any, values: Any, axis: int | None) -> None:
    x, index = _own(t, arr), t.array(indices)
    if axis is None:
        raise t.refuse("np.put_along_axis with axis=None, which in NumPy writes to a copy", "use np.put")
    axis = axis_index(axis, x.ndim)
    if index.dtype.kind not in "iu":
        raise IndexError("`indices` must be an integer array")
    if index.ndim != x.ndim:
        raise ValueError("`indices` and `arr` must have the same number of dimensions")
    index = index.astype(np.int64)  # of uint64, what is beyond it counts from the end, as in NumPy
    n, known = x.shape[axis], t.known(index)
    if known is not None and known.size and not (-n <= known.min() and known.max() < n):
        raise IndexError(f"an index is out of bounds for axis {axis} with size {n}")
    index = np.where(index < 0, index + n, index)
    flat: Any = 0
    for d, size in enumerate(x.shape):
        row = counted(t, size).reshape((-1,) + (1,) * (x.ndim - 1 - d))
        flat = flat * size + (index if d == axis else row)
    flat = t.array(np.where((index < 0) | (index >= n), x.size, flat))  # found out where it is written
    v = of_region(t, t.written(values, x.dtype), flat.shape)
    x.assign(scattered(t, "set", t.wrap(x.value).reshape(-1), 0, flat, v).reshape(x.shape))


def _place(t: Tracer, arr: Any, mask: Any, vals: Any) -> None:
    """The values one after another where the mask is true, from the first again where they are too few."""
    x, m = _own(t, arr), t.array(mask).astype(bool)
    require_safe(vals, x.dtype)
    v = np.ravel(t.written(vals, x.dtype))
    if m.size != x.size:
        raise ValueError("place: mask and data must be the same size")
    if not v.size:
        known = t.known(m)
        if known is None:
            raise t.refuse("np.place of no values, which raises where a mask is true", "give a value")
        if known.any():
            raise ValueError("Cannot insert from an empty array!")
        return
    m = m.reshape(x.shape)
    if v.size > 1:
        rank = np.cumsum(m.reshape(-1)).reshape(x.shape) - 1
        v = np.take(v, rank % v.size)
    x.assign(t.array(np.where(m, v, x)))


def _copyto(t: Tracer, dst: Any, src: Any, casting: Any = "same_kind", where: Any = True) -> None:
    x = _own(t, dst)
    if not holds_traced(src):
        given, src = src, np.empty(np.shape(src), x.dtype)
        np.copyto(src, given, casting)  # raises as NumPy does for what may not be cast
    elif not np.can_cast(t.array(src).dtype, x.dtype, casting):
        raise TypeError(f"Cannot cast {t.array(src).dtype!r} to {x.dtype!r} according to the rule {casting!r}")
    require_safe(where, bool)
    v = np.broadcast_to(t.written(src, x.dtype), x.shape)
    x.assign(t.array(v if where is True else np.where(where, v, x)))


def _putmask(t: Tracer, a: Any, mask: Any, values: Any) -> None:
    x, m = _own(t, a), t.array(mask).astype(bool)
    require_safe(values, x.dtype)
    v = t.written(values, x.dtype)
    if m.size != x.size:
        raise ValueError("putmask: mask and data must be the same size")
    if v.ndim and v.shape != x.shape:
        raise t.refuse("np.putmask of values of another shape", "use np.where")
    x.assign(t.array(np.where(m.reshape(x.shape), v, x)))


def _fill_diagonal(t: Tracer, a: Any, val: Any, wrap: bool = False) -> None:
    x = _own(t, a)
    if wrap:
        raise t.refuse("np.fill_diagonal with wrap=True", "fill each block of x.shape[1] rows")
    if x.ndim < 2 or (x.ndim > 2 and len(set(x.shape)) > 1):
        raise ValueError("np.fill_diagonal takes two dimensions, or more that are all of one length")
    n, v = min(x.shape), np.ravel(t.array(val))
    if v.size:  # values are taken again from the first where they are too few
        x[(np.arange(n),) * x.ndim] = val if v.size == 1 else np.resize(v, n)


def _fill(t: Tracer, x: TracedArray, value: Any) -> None:
    x[...] = value


def _put_method(t: Tracer, x: TracedArray, indices: Any, values: Any, mode: str = "raise") -> None:
    """x.put, in which NumPy gives the arguments other names than in np.put."""
    _put(t, x, indices, values, mode)


HANDLERS: Mapping[str, Callable[..., Any]] = {
    **{f"{name}.at": partial(_at, name) for name in _SCATTERS},
    "put": _put,
    "put_along_axis": _put_along_axis,
    "place": _place,
    "copyto": _copyto,
    "putmask": _putmask,
    "fill_diagonal": _fill_diagonal,
}

METHODS: Mapping[str, Callable[..., Any]] = {"fill": _fill, "put": _put_method}
