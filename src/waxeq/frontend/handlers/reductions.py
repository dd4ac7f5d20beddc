"""Folds over axes: sums, extremes, moments, norms."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from waxeq.frontend.array import TracedArray, Tracer
from waxeq.frontend.explicit import axes_tuple, axis_index
from waxeq.ir.types import HALVES, is_floating
from waxeq.ops.reduction import Reduce

Axis = Any
"""An axis, several, or None for all."""
_IDENTITY = {"sum": 0, "prod": 1, "any": False, "all": True}
_JOIN = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum, "any": np.logical_or,
         "all": np.logical_and}  # fmt: skip


def wide(x: TracedArray, dtype: Any) -> TracedArray:
    """An array in the dtype that NumPy sums it in: narrow integers and bool in 64 bits."""
    if dtype is None and x.dtype.kind in "biu":
        dtype = np.uint64 if x.dtype.kind == "u" else np.int64
    return x if dtype is None or x.dtype == dtype else x.astype(dtype)


def _fold(
    f: str, t: Tracer, a: Any, axis: Axis = None, dtype: Any = None, keepdims: bool = False,
    initial: Any = None, where: Any = None,
) -> TracedArray:  # fmt: skip
    x = t.array(a)
    if f in ("sum", "prod"):
        x = wide(x, dtype)
    elif f in ("any", "all"):
        x = x.astype(bool)
    if x.ndim == 0 and isinstance(axis, int) and axis in (0, -1):
        axis = None  # ufunc.reduce takes these of a scalar
    axes = axes_tuple(axis, x.ndim)
    if where is not None:
        fill = _IDENTITY.get(f, initial)  # `initial` counts once, however many elements are masked
        if fill is None:
            raise ValueError(f"np.{f} with where= needs initial=")
        mask = where if np.shape(where) == x.shape else np.broadcast_to(where, x.shape)
        x = t.array(np.where(mask, x, np.asarray(fill, x.dtype)))
        axes = axes_tuple(axis, x.ndim)
    if f in ("max", "min") and initial is None and any(x.shape[i] == 0 for i in axes):
        raise ValueError(f"zero-size array to reduction operation {f}imum which has no identity")
    op = {"max": "any", "min": "all"}.get(f, f) if x.dtype == bool else f
    if f in ("max", "min") and initial is not None and any(x.shape[i] == 0 for i in axes):
        return np.full_like(x.sum(axis=axis, keepdims=keepdims), initial, dtype=x.dtype)  # pyright: ignore
    y = t.wrap(t.builder(Reduce(op, axes, bool(keepdims)), x.value)) if axes else np.copy(x)
    return y if initial is None else _JOIN[f](y, np.asarray(initial, x.dtype))  # pyright: ignore[reportReturnType]


# those whose NumPy function takes no dtype
def _typeless(f: str, t: Tracer, a: Any, axis: Axis = None, keepdims: bool = False, **kw: Any) -> TracedArray:
    return _fold(f, t, a, axis, None, keepdims, **kw)


def _reduce(f: str, t: Tracer, array: Any, axis: Axis = 0, dtype: Any = None, *rest: Any, **kw: Any) -> TracedArray:
    """ufunc.reduce, whose axis is 0 unless told."""
    x = t.array(array)
    x = x if dtype is None or f not in ("max", "min") else x.astype(dtype)
    return _fold(f, t, x, axis, dtype, *rest, **kw)


def _pairs(
    f: np.ufunc, t: Tracer, array: Any, axis: Axis = 0, dtype: Any = None, keepdims: bool = False,
    initial: Any = None, where: Any = None,
) -> Any:  # fmt: skip
    """ufunc.reduce of what no fold is for, and may be joined in any order: pairs, pairs of these, and so on."""
    x = t.array(array)
    x = x.astype(f.resolve_dtypes((x.dtype, x.dtype, None))[-1] if dtype is None else dtype)
    axes = axes_tuple(axis, x.ndim)
    fill = initial if f.identity is None else f.identity
    if where is not None and where is not True:
        if fill is None:
            raise ValueError(f"np.{f.__name__}.reduce with where= needs initial=")
        x = t.array(np.where(np.broadcast_to(where, x.shape), x, np.asarray(fill).astype(x.dtype)))
    rest = tuple(n for i, n in enumerate(x.shape) if i not in axes)
    rows = np.moveaxis(x, axes, range(len(axes))).reshape(math.prod(x.shape[i] for i in axes), *rest)
    while (n := rows.shape[0]) > 1:
        joined = f(rows[: n // 2], rows[n // 2 : n // 2 * 2])
        rows = np.concatenate([joined, rows[-1:]]) if n % 2 else joined
    if not rows.shape[0] and fill is None:
        raise ValueError(f"zero-size array to reduction operation {f.__name__} which has no identity")
    y = rows[0] if rows.shape[0] else np.full(rest, np.asarray(fill).astype(x.dtype), x.dtype)
    y = y if initial is None else f(y, np.asarray(initial, x.dtype))
    if f is np.hypot and rows.shape[0] and math.prod(x.shape[i] for i in axes) == 1:
        y = np.abs(y)  # NumPy joins one element with the identity, 0
    return np.expand_dims(y, axes) if keepdims else y


def _subtracted(
    t: Tracer, array: Any, axis: Axis = 0, dtype: Any = None, keepdims: bool = False, initial: Any = None
) -> Any:  # fmt: skip
    """All others along one axis taken from the first, or from what `initial` says."""
    x = t.array(array)
    x = x if dtype is None else x.astype(dtype)
    axes = () if x.ndim == 0 and axis in (0, -1) else axes_tuple(axis, x.ndim)
    if len(axes) > 1:
        raise ValueError("reduction operation 'subtract' is not reorderable, so at most one axis may be specified")
    if initial is None and any(x.shape[i] == 0 for i in axes):
        raise ValueError("zero-size array to reduction operation subtract which has no identity")
    if not axes:
        return np.copy(x) if initial is None else np.asarray(initial, x.dtype) - x
    rows = np.moveaxis(x, axes[0], 0)
    first, rest = (rows[:1], rows[1:]) if initial is None else (np.full((1, *rows.shape[1:]), initial, x.dtype), rows)
    if is_floating(x.dtype):  # the sum of all others may overflow where no difference does
        y = np.add.reduce(np.concatenate([first, -rest]), axis=0)
    else:
        y = first[0] - np.add.reduce(rest, axis=0, dtype=x.dtype)
    return np.expand_dims(y, axes) if keepdims else y


def _pick(f: str, t: Tracer, a: Any, axis: int | None = None, keepdims: bool = False) -> Any:
    x = t.array(a)
    if axis is None:
        y = t.wrap(t.builder(Reduce(f, (0,), False), np.ravel(x).value))  # pyright: ignore
        return y.reshape((1,) * x.ndim) if keepdims else y
    if x.ndim == 0:
        axis_index(axis, 1)
        return np.zeros_like(x, dtype=np.int64)
    return t.wrap(t.builder(Reduce(f, (axis_index(axis, x.ndim),), bool(keepdims)), x.value))


def _count(x: TracedArray, axis: Axis, keepdims: bool, where: Any) -> Any:
    """How many elements go into each sum."""
    if where is None:
        return float(math.prod(x.shape[i] for i in axes_tuple(axis, x.ndim)))
    n = np.sum(np.broadcast_to(where, x.shape), axis=axis, keepdims=keepdims)
    return n.astype(x.dtype) if is_floating(x.dtype) else n  # narrow integers may not hold it


def _whole(dtype: Any) -> np.dtype | None:
    """The dtype that was asked for where it holds no fractions: NumPy sums in it, and cuts a mean to it."""
    return None if dtype is None or np.dtype(dtype).kind not in "biu" else np.dtype(dtype)


def _mean(t: Tracer, a: Any, axis: Axis = None, dtype: Any = None, keepdims: bool = False, where: Any = None) -> Any:
    x = t.array(a)
    axes_tuple(axis, x.ndim)
    made = whole = _whole(dtype)
    if whole == np.bool_:
        raise t.refuse("np.mean in bools", "give a dtype of numbers")
    if dtype is None:
        made = x.dtype if x.dtype.name in HALVES else None  # NumPy sums float16 in float32; bfloat16 cannot count far
        dtype = np.float32 if made else np.float64 if x.dtype.kind in "biu" else None
    x = x if dtype is None else x.astype(dtype)
    total = _fold("sum", t, x, axis, whole, keepdims, None, where)
    y = total / _count(x, axis, keepdims, where)
    return y if made is None else y.astype(made)


def _var(
    t: Tracer, a: Any, axis: Axis = None, dtype: Any = None, ddof: float = 0, keepdims: bool = False,
    where: Any = None, mean: Any = None, correction: float | None = None,
) -> Any:  # fmt: skip
    x = t.array(a)
    axes_tuple(axis, x.ndim)
    if _whole(dtype) is not None:
        raise t.refuse("a variance in whole numbers, whose mean NumPy cuts", "give a dtype of floats, and cast")
    made = None
    if dtype is None and x.dtype.name == "bfloat16":  # a number of Python's would make it float32 at each step
        made, dtype = x.dtype, np.float32
    dtype = np.float64 if dtype is None and x.dtype.kind in "biu" else dtype
    x = x if dtype is None else x.astype(dtype)
    if mean is None:
        mean = _fold("sum", t, x, axis, None, True, None, where) / _count(x, axis, True, where)
    d = x - mean
    free = _count(x, axis, keepdims, where) - (ddof if correction is None else correction)
    free = np.maximum(free, 0) if isinstance(free, TracedArray) else max(float(free), 0.0)  # a number gives no dtype
    y = _fold("sum", t, d * d, axis, None, keepdims, None, where) / free
    return y if made is None else y.astype(made)


def _std(t: Tracer, a: Any, *args: Any, **kw: Any) -> Any:
    return np.sqrt(_var(t, a, *args, **kw))


def _average(
    t: Tracer, a: Any, axis: Axis = None, weights: Any = None, returned: bool = False, keepdims: bool = False
) -> Any:
    x = t.array(a)
    if weights is None:
        y = np.mean(x, axis=axis, keepdims=keepdims)
        if y.size == 0:
            raise ZeroDivisionError("the average of nothing")
        n = _count(x, axis, keepdims, None)
        return (y, np.full_like(y, n)) if returned else y
    w = t.array(weights)
    if w.shape != x.shape:
        if not isinstance(axis, int) or w.ndim != 1:
            raise t.refuse("np.average with weights of another shape", "give weights of the array's shape")
        w = w.reshape((-1,) + (1,) * (x.ndim - 1 - axis_index(axis, x.ndim)))
    dtype = np.result_type(x.dtype, w.dtype, *([np.float64] if x.dtype.kind in "biu" else []))
    full = np.broadcast_to(w, x.shape).astype(dtype)
    total = np.sum(full, axis=axis, keepdims=keepdims)
    y = np.sum(x.astype(dtype) * full, axis=axis, keepdims=keepdims) / total
    return (y, np.broadcast_to(total, y.shape)) if returned else y


def _count_nonzero(t: Tracer, a: Any, axis: Axis = None, *, keepdims: bool = False) -> Any:
    return np.sum(t.array(a).astype(bool), axis=axis, keepdims=keepdims)


def _ptp(t: Tracer, a: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    x = t.array(a)
    return np.max(x, axis=axis, keepdims=keepdims) - np.min(x, axis=axis, keepdims=keepdims)


def _apply_over_axes(t: Tracer, func: Callable[..., Any], a: Any, axes: Any) -> Any:
    x = y = t.array(a)
    for axis in np.atleast_1d(np.asarray(axes)).tolist():
        axis = axis + x.ndim if axis < 0 else axis
        made = t.array(func(y, axis))
        made = made if made.ndim == y.ndim else np.expand_dims(made, axis)
        if made.ndim != y.ndim:
            raise ValueError("function is not returning an array of the correct shape")
        y = made
    return y


# -- NaN as absence. In sums and moments NumPy takes bfloat16 for no float, and leaves its NaN in: so do these


def _without_nan(f: Callable[..., Any], fill: Any, t: Tracer, a: Any, *args: Any, **kw: Any) -> Any:
    x = t.array(a)
    return f(np.where(np.isnan(x), np.asarray(fill, x.dtype), x) if x.dtype.kind == "f" else x, *args, **kw)


def _nan_extreme(f: str, t: Tracer, a: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    x, g = t.array(a), np.max if f == "max" else np.min
    if not is_floating(x.dtype):
        return g(x, axis=axis, keepdims=keepdims)
    least, absent = np.asarray(-math.inf if f == "max" else math.inf, x.dtype), np.isnan(x)
    best = g(np.where(absent, least, x), axis=axis, keepdims=keepdims)
    return np.where(absent.all(axis=axis, keepdims=keepdims), np.asarray(math.nan, x.dtype), best)


def _nan_moment(f: Callable[..., Any], t: Tracer, a: Any, axis: Axis = None, dtype: Any = None, **kw: Any) -> Any:
    x = t.array(a)
    axis = None if x.ndim == 0 and x.dtype.kind == "f" and axis in (0, -1) else axis
    if x.dtype.kind == "f" and _whole(dtype) is not None:
        raise TypeError("If a is inexact, then dtype must be inexact")
    there = {} if x.dtype.kind != "f" else {"where": ~np.isnan(x)}
    return f(x, axis=axis, dtype=dtype, **kw, **there)


def _nan_var(f: Callable[..., Any], t: Tracer, a: Any, axis: Axis = None, dtype: Any = None, ddof: float = 0,
             keepdims: bool = False) -> Any:  # fmt: skip
    x = t.array(a)
    y = _nan_moment(f, t, x, axis, dtype, ddof=ddof, keepdims=keepdims)
    axis = None if x.ndim == 0 else axis
    few = np.sum(~np.isnan(x), axis=axis, keepdims=keepdims) <= ddof  # NumPy gives NaN here, not x / 0
    return np.where(few, np.asarray(math.nan, y.dtype), y)


# -- norms, which of bfloat16 are in float64, as NumPy takes it for no float


def _vector_norm(t: Tracer, x: Any, *, axis: Axis = None, ord: Any = 2, keepdims: bool = False) -> Any:
    y = np.abs(x if x.dtype.kind == "f" else x.astype(np.float64))
    if ord is None or ord == 2:
        return np.sqrt(np.sum(y * y, axis=axis, keepdims=keepdims))
    if ord in (math.inf, -math.inf):
        return (np.max if ord > 0 else np.min)(y, axis=axis, keepdims=keepdims)
    if ord == 0:
        return np.sum((y != 0).astype(y.dtype), axis=axis, keepdims=keepdims)
    if ord == 1:
        return np.sum(y, axis=axis, keepdims=keepdims)
    return np.sum(y**ord, axis=axis, keepdims=keepdims) ** (1.0 / ord)


def _matrix_norm(t: Tracer, x: Any, *, axis: Any = (-2, -1), ord: Any = "fro", keepdims: bool = False) -> Any:
    rows, columns = (axis_index(a, x.ndim) for a in axis)
    if ord in (None, "fro", "f"):
        return _vector_norm(t, x, axis=(rows, columns), keepdims=keepdims)
    if ord not in (1, -1, math.inf, -math.inf):
        raise t.refuse(f"a matrix norm of order {ord!r} needs singular values", "use 'fro', 1, -1, inf or -inf")
    y = np.abs(x if x.dtype.kind == "f" else x.astype(np.float64))
    over, then = (rows, columns) if ord in (1, -1) else (columns, rows)
    z = (np.max if ord > 0 else np.min)(np.sum(y, axis=over, keepdims=True), axis=then, keepdims=True)
    return z if keepdims else np.squeeze(z, axis=(rows, columns))


def _norm(t: Tracer, x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    y = t.array(x)
    if axis is None and ord is None:
        return _vector_norm(t, y, axis=None, keepdims=keepdims)
    axes = axes_tuple(None, y.ndim) if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)
    if len(axes) == 2:
        return _matrix_norm(t, y, axis=axes, ord=ord, keepdims=keepdims)
    return _vector_norm(t, y, axis=axes, ord=ord, keepdims=keepdims)


def _trapezoid(t: Tracer, y: Any, x: Any = None, dx: float = 1.0, axis: int = -1) -> Any:
    rows = np.moveaxis(t.array(y), axis, -1)
    step = dx if x is None else np.diff(x) if np.ndim(x) == 1 else np.moveaxis(np.diff(x, axis=axis), axis, -1)
    return np.sum(step * (rows[..., 1:] + rows[..., :-1]) / 2.0, axis=-1)


HANDLERS: Mapping[str, Callable[..., Any]] = {
    **{n: partial(_fold, n) for n in ("sum", "prod")},
    **{n: partial(_typeless, n) for n in ("any", "all")},
    **{n: partial(_typeless, f) for n, f in (("max", "max"), ("amax", "max"), ("min", "min"), ("amin", "min"))},
    **{n: partial(_pick, n) for n in ("argmax", "argmin")},
    "add.reduce": partial(_reduce, "sum"),
    "multiply.reduce": partial(_reduce, "prod"),
    "maximum.reduce": partial(_reduce, "max"),
    "minimum.reduce": partial(_reduce, "min"),
    "logical_or.reduce": partial(_reduce, "any"),
    "logical_and.reduce": partial(_reduce, "all"),
    **{
        f"{f.__name__}.reduce": partial(_pairs, f)
        for f in (
            *(np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.logical_xor, np.logaddexp, np.logaddexp2),
            *(np.fmax, np.fmin, np.hypot),
        )
    },
    "subtract.reduce": _subtracted,
    "mean": _mean,
    "var": _var,
    "std": _std,
    "average": _average,
    "count_nonzero": _count_nonzero,
    "ptp": _ptp,
    "nansum": partial(_without_nan, np.sum, 0),
    "nanprod": partial(_without_nan, np.prod, 1),
    "nancumsum": partial(_without_nan, np.cumsum, 0),
    "nancumprod": partial(_without_nan, np.cumprod, 1),
    "nanmax": partial(_nan_extreme, "max"),
    "nanmin": partial(_nan_extreme, "min"),
    "nanmean": partial(_nan_moment, np.mean),
    "nanvar": partial(_nan_var, np.var),
    "nanstd": partial(_nan_var, np.std),
    "linalg.norm": _norm,
    "linalg.vector_norm": lambda t, x, **kw: _vector_norm(t, t.array(x), **kw),
    "linalg.matrix_norm": lambda t, x, **kw: _matrix_norm(t, t.array(x), **kw),
    "trapezoid": _trapezoid,
    "apply_over_axes": _apply_over_axes,
}
