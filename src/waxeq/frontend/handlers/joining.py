"""Putting arrays together, taking them apart and repeating them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import index
from typing import Any

import numpy as np

from waxeq.frontend.array import TracedArray, Tracer
from waxeq.frontend.explicit import axis_index
from waxeq.frontend.handlers.windows import stacked
from waxeq.ir.types import numpy_name
from waxeq.ops.movement import Concat


def _concatenate(t: Tracer, arrays: Any, axis: int | None = 0, *, dtype: Any = None, casting: Any = "same_kind") -> Any:
    xs = [t.array(a) for a in arrays]
    if not xs:
        raise ValueError("need at least one array to concatenate")
    if axis is None:
        xs, axis = [x.reshape(-1) for x in xs], 0
    _require_castable(xs, dtype, casting)
    common = t.explicit.common(*(x.value for x in xs))
    rows = common if dtype is None else tuple(t.explicit.cast(v, numpy_name(dtype)) for v in common)
    return t.wrap(t.builder(Concat(axis_index(axis, xs[0].ndim)), *rows))


def _stack(t: Tracer, arrays: Any, axis: int = 0, *, dtype: Any = None, casting: Any = "same_kind") -> Any:
    xs = [t.array(a) for a in arrays]
    if len({x.shape for x in xs}) != 1:
        raise ValueError("all input arrays must have the same shape")
    _require_castable(xs, dtype, casting)
    at = axis_index(axis, xs[0].ndim + 1)
    windows = stacked(t, xs, at)
    if windows is not None:
        return windows if dtype is None else windows.astype(dtype)
    return _concatenate(t, [np.expand_dims(x, at) for x in xs], at, dtype=dtype, casting=casting)


def _require_castable(xs: Sequence[TracedArray], dtype: Any, casting: Any) -> None:
    """Raises TypeError as NumPy does where arrays may not be made of a dtype that is asked for."""
    lost = next((x.dtype for x in xs if dtype is not None and not np.can_cast(x.dtype, dtype, casting)), None)
    if lost is not None:
        given = f"{lost!r} to {np.dtype(dtype)!r}"
        raise TypeError(f"Cannot cast array data from {given} according to the rule {casting!r}")


def _vstack(t: Tracer, tup: Any, **kw: Any) -> Any:
    return _concatenate(t, [np.atleast_2d(t.array(a)) for a in tup], 0, **kw)


def _hstack(t: Tracer, tup: Any, **kw: Any) -> Any:
    xs = [np.atleast_1d(t.array(a)) for a in tup]
    return _concatenate(t, xs, 0 if xs and xs[0].ndim == 1 else 1, **kw)


def _dstack(t: Tracer, tup: Any) -> Any:
    return _concatenate(t, [np.atleast_3d(t.array(a)) for a in tup], 2)


def _column_stack(t: Tracer, tup: Any) -> Any:
    xs = [t.array(a) for a in tup]
    return _concatenate(t, [x if x.ndim > 1 else x.reshape((-1, 1)) for x in xs], 1)


def in_brackets(t: Tracer, real: Any, key: Any) -> Any:
    """np.r_[key] and np.c_[key]. `real` says along which axis, and where new axes go in what has too few."""
    parts, weak = list[Any](), list[Any]()
    for p in key if isinstance(key, tuple) else (key,):
        if isinstance(p, str):
            raise t.refuse(f"np.r_ with the directive {p!r}", "use np.concatenate or np.stack")
        x = t.array(real[p] if isinstance(p, slice) else p)
        weak.append(p if type(p) in (bool, int, float) else x.dtype)
        more = real.ndmin - x.ndim
        after = 0 if real.trans1d == -1 or x.ndim == 0 or isinstance(p, slice) else more - real.trans1d
        parts.append(x[(*(None,) * (more - after), ..., *(None,) * after)] if more > 0 else x)
    dtype = np.result_type(*weak)
    for p in weak:
        if type(p) is int:
            np.asarray(p, dtype)  # raises OverflowError, as NumPy does, for one that the dtype does not hold
    return _concatenate(t, [x.astype(dtype) for x in parts], real.axis)


def _append(t: Tracer, arr: Any, values: Any, axis: int | None = None) -> Any:
    return _concatenate(t, (arr, values), axis)


def _block(t: Tracer, arrays: Any) -> Any:
    def depth(x: Any) -> int:
        return 1 + max(map(depth, x)) if isinstance(x, list) else 0

    def join(x: Any, axis: int, rank: int) -> Any:
        if isinstance(x, list):
            return _concatenate(t, [join(y, axis + 1, rank) for y in x], axis)
        a = t.array(x)
        return a[(None,) * (rank - a.ndim) + (...,)]

    def ranks(x: Any) -> int:
        return max(map(ranks, x)) if isinstance(x, list) else t.array(x).ndim

    levels = depth(arrays)
    rank = max(levels, ranks(arrays))
    return join(arrays, rank - levels, rank) if levels else np.copy(arrays)


# -- apart


def _split(t: Tracer, ary: Any, indices_or_sections: Any, axis: int = 0, *, even: bool = True) -> list[Any]:
    x = t.array(ary)
    axis = axis_index(axis, x.ndim)
    n = x.shape[axis]
    if isinstance(indices_or_sections, (int, np.integer)):
        parts = int(indices_or_sections)
        if even and n % parts:
            raise ValueError("array split does not result in an equal division")
        sizes = [n // parts + (i < n % parts) for i in range(parts)]
        cuts = np.cumsum(sizes)[:-1].tolist()
    else:
        cuts = [int(i) for i in indices_or_sections]
    ends = [*cuts, None]
    return [x[(slice(None),) * axis + (slice(a, b),)] for a, b in zip([0, *cuts], ends, strict=True)]


def _unstack(t: Tracer, x: Any, *, axis: int = 0) -> tuple[Any, ...]:
    a = t.array(x)
    at = (slice(None),) * axis_index(axis, a.ndim)
    return tuple(a[(*at, i)] for i in range(a.shape[axis]))


# -- more of the same


def _tile(t: Tracer, A: Any, reps: Any) -> Any:
    x = t.array(A)
    times = (int(reps),) if isinstance(reps, (int, np.integer)) else tuple(int(r) for r in reps)
    rank = max(x.ndim, len(times))
    times, shape = (1,) * (rank - len(times)) + times, (1,) * (rank - x.ndim) + x.shape
    spread = np.broadcast_to(
        x.reshape(tuple(s for n in shape for s in (1, n))),
        tuple(s for r, n in zip(times, shape, strict=True) for s in (r, n)),
    )
    return np.copy(spread.reshape(tuple(r * n for r, n in zip(times, shape, strict=True))))


def _resize(t: Tracer, a: Any, new_shape: Any) -> Any:
    x = np.ravel(t.array(a))
    sizes = (int(new_shape),) if isinstance(new_shape, (int, np.integer)) else tuple(int(n) for n in new_shape)
    if any(n < 0 for n in sizes):
        raise ValueError("all elements of `new_shape` must be non-negative")
    new = math.prod(sizes)
    if x.size == 0 or new == 0:
        return np.zeros_like(x, shape=sizes)
    times = -(-new // x.size)
    return np.copy((np.tile(x, times) if times > 1 else x)[:new].reshape(sizes))


def _repeat(t: Tracer, a: Any, repeats: Any, axis: int | None = None) -> Any:
    """Counts must be known while tracing: the shape depends on them."""
    x = t.array(a)
    counts = t.known(repeats)
    if counts is None:
        raise t.refuse("np.repeat by counts that are data has a shape that depends on content", "give plain numbers")
    if axis is None:
        x, axis = x.reshape(-1), 0
    axis = axis_index(axis, x.ndim)
    if counts.size != 1:
        return np.take(x, np.repeat(np.arange(x.shape[axis]), counts), axis=axis)
    n = int(counts.reshape(()))
    head, tail = x.shape[: axis + 1], x.shape[axis + 1 :]
    spread = np.broadcast_to(x.reshape((*head, 1, *tail)), (*head, n, *tail))
    return np.copy(spread.reshape((*head[:-1], head[-1] * n, *tail)))


def _roll(t: Tracer, a: Any, shift: Any, axis: Any = None) -> Any:
    x = t.array(a)
    if axis is None:
        return _roll(t, x.reshape(-1), shift, 0).reshape(x.shape)
    for by, at in np.broadcast(shift, axis):
        i = axis_index(int(at), x.ndim)
        n = x.shape[i]
        k = int(by) % n if n else 0
        if k:
            before = (slice(None),) * i
            x = _concatenate(t, [x[(*before, slice(n - k, None))], x[(*before, slice(None, n - k))]], i)
    return np.copy(x)


def _fftshift(back: bool, t: Tracer, x: Any, axes: Any = None) -> Any:
    a = t.array(x)
    along = range(a.ndim) if axes is None else (axes,) if isinstance(axes, (int, np.integer)) else [*axes]
    half = [-(a.shape[i] // 2) if back else a.shape[i] // 2 for i in along]
    return np.roll(a, half, [*along])


def _delete(t: Tracer, arr: Any, obj: Any, axis: int | None = None) -> Any:
    x = t.array(arr)
    if axis is None:
        x, axis = x.reshape(-1), 0
    which = t.known(obj) if isinstance(obj, TracedArray) else obj
    if which is None:
        raise t.refuse("np.delete of places that are data", "give plain numbers, or use np.where or np.take")
    kept = np.delete(np.arange(x.shape[axis]), which)
    return np.take(x, kept, axis=axis)


def _insert(t: Tracer, arr: Any, obj: Any, values: Any, axis: int | None = None) -> Any:
    x = t.array(arr)
    if axis is None:
        x, axis = x.reshape(-1), 0
    axis = axis_index(axis, x.ndim)
    n, at = x.shape[axis], (slice(None),) * axis
    places = _places(t, obj, n)
    v: Any = t.written(values, x.dtype)
    if places.size != 1:
        shape = (*x.shape[:axis], places.size, *x.shape[axis + 1 :])
        both = _concatenate(t, [x, np.broadcast_to(v, shape)], axis)
        return np.take(both, np.insert(np.arange(n), places, n + np.arange(places.size)), axis=axis)
    one = index(places.item())
    k = axis_index(one, n + 1) if one >= 0 else axis_index(one, n)
    v = v[(None,) * (x.ndim - v.ndim) + (...,)]
    v = np.moveaxis(v, 0, axis) if places.ndim == 0 else v  # as NumPy does for a single place
    new = np.broadcast_to(v, (*x.shape[:axis], v.shape[axis], *x.shape[axis + 1 :]))
    return _concatenate(t, [x[(*at, slice(None, k))], new, x[(*at, slice(k, None))]], axis)


def _places(t: Tracer, obj: Any, n: int) -> np.ndarray:
    """Where np.insert is told to insert along an axis of size n: one place, or several in an array."""
    if isinstance(obj, slice):
        return np.arange(*obj.indices(n))
    known = t.known(obj) if isinstance(obj, TracedArray) else np.asarray(obj)
    if known is None:
        raise t.refuse("np.insert at places that are data", "give plain numbers, or use np.where and np.take")
    known = np.flatnonzero(known) if known.dtype == bool else known
    return known if known.size else known.astype(np.int64)


HANDLERS: Mapping[str, Callable[..., Any]] = {
    "concatenate": _concatenate,
    "concat": _concatenate,
    "stack": _stack,
    "vstack": _vstack,
    "hstack": _hstack,
    "dstack": _dstack,
    "column_stack": _column_stack,
    "append": _append,
    "block": _block,
    "split": _split,
    "array_split": lambda t, ary, n, axis=0: _split(t, ary, n, axis, even=False),
    "vsplit": lambda t, ary, n: _split(t, ary, n, 0),
    "hsplit": lambda t, ary, n: _split(t, ary, n, 0 if t.array(ary).ndim == 1 else 1),
    "dsplit": lambda t, ary, n: _split(t, ary, n, 2),
    "unstack": _unstack,
    "tile": _tile,
    "repeat": _repeat,
    "resize": _resize,
    "roll": _roll,
    "fft.fftshift": partial(_fftshift, False),
    "fft.ifftshift": partial(_fftshift, True),
    "delete": _delete,
    "insert": _insert,
}
