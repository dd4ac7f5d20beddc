"""Arrays with more around them: numbers, what lies at their edges, or themselves again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from waxeq.frontend.array import TracedArray, Tracer, holds_traced
from waxeq.frontend.explicit import Value
from waxeq.ir.types import dtype_name
from waxeq.ops.movement import Pad

Widths = Sequence[tuple[int, int]]

_BY_INDEX = ("edge", "reflect", "symmetric", "wrap")
_OF_EDGES = {"maximum": np.max, "minimum": np.min, "mean": np.mean, "median": np.median}
_OPTIONS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("empty", "edge", "wrap"), ()),
    "constant": ("constant_values",),
    "linear_ramp": ("end_values",),
    **dict.fromkeys(_OF_EDGES, ("stat_length",)),
    **dict.fromkeys(("reflect", "symmetric"), ("reflect_type",)),
}
"""The options of each mode."""


def _pad(t: Tracer, array: Any, pad_width: Any, mode: Any = "constant", **kw: Any) -> Any:
    """By any mode that has a name. What `empty` leaves undefined is 0."""
    x = t.array(array)
    if callable(mode):
        raise t.refuse("np.pad by a function", f"use one of {', '.join(_OPTIONS)}, or np.concatenate")
    if mode not in _OPTIONS:
        raise ValueError(f"mode {mode!r} is not supported")
    if unknown := kw.keys() - _OPTIONS[mode]:
        raise ValueError(f"unsupported keyword arguments for mode {mode!r}: {unknown}")
    width = _widths(pad_width, x.ndim)
    if mode in ("constant", "empty"):
        return _constant(t, x, width, kw.get("constant_values", 0))
    if any(x.shape[i] == 0 and any(w) for i, w in enumerate(width)):
        raise ValueError("can't extend empty axis using modes other than 'constant' or 'empty'")
    if not x.size:  # nothing lies at its edges
        return _constant(t, x, width, 0)
    if mode == "linear_ramp":
        return _ramps(x, width, kw.get("end_values", 0))
    if mode in _OF_EDGES:
        return _stats(x, width, _OF_EDGES[mode], kw.get("stat_length"))
    if kw.get("reflect_type", "even") == "odd":
        return _odd(x, width, mode == "symmetric")
    for axis, (low, high) in enumerate(width):
        if low or high:
            x = _pad_again(x, axis, np.pad(np.arange(x.shape[axis]), (low, high), mode=mode), low)
    return np.copy(x)


def _widths(given: Any, rank: int) -> Widths:
    """How much goes before and after along each axis."""
    if isinstance(given, dict):
        given = [given.get(i, given.get(i - rank, 0)) for i in range(rank)]
        given = [(w, w) if isinstance(w, int) else w for w in given]
    return [(low, high) for low, high in np.broadcast_to(np.asarray(given), (rank, 2)).tolist()]


def _along(axis: int, *s: Any) -> tuple[slice, ...]:
    return (*(slice(None),) * axis, slice(*s))


def _as_long(x: Any, axis: int, n: int) -> tuple[int, ...]:
    """The shape of an array that is so long along an axis, and else as x."""
    return (*x.shape[:axis], n, *x.shape[axis + 1 :])


_PIECES = 8
"""Pieces that are put beside an array at most on each side; what would take more is looked up by index."""


def _pad_again(x: Any, axis: int, index: np.ndarray, low: int) -> Any:
    """`x` with more of itself around it, which are its elements at `index`, `low` of them before it. Loops run through
    pieces of it as through all else; what is looked up by index they must gather."""
    at, last = (slice(None),) * axis, low + x.shape[axis]
    before, after = _runs(index[:low]), _runs(index[last:])
    if before is None or after is None:
        return np.take(x, index, axis=axis)

    def piece(s: slice, times: int) -> Any:
        shown = x[(*at, s)]
        return np.broadcast_to(shown, _as_long(x, axis, shown.shape[axis] * times)) if times > 1 else shown

    return np.concatenate([*(piece(*r) for r in before), x, *(piece(*r) for r in after)], axis=axis)


def _runs(index: np.ndarray) -> list[tuple[slice, int]] | None:
    """Slices, and how many times each is there, that are one after another what is at `index`; more than once only
    where there is one element. None where there are too many."""
    found, start = list[tuple[slice, int]](), 0
    steps = np.diff(index)
    while start < len(index):
        step = int(steps[start]) if start < len(steps) and abs(steps[start]) <= 1 else 1
        other = np.flatnonzero(steps[start:] != step)
        n = int(other[0]) + 1 if len(other) else len(index) - start
        first, end = int(index[start]), int(index[start]) + n * step
        found.append((slice(first, first + 1), n) if not step else (slice(first, end if end >= 0 else None, step), 1))
        start += n
        if len(found) > _PIECES:
            return None
    return found


# -- by numbers


def _constant(t: Tracer, x: TracedArray, width: Widths, values: Any) -> Any:
    values = t.array(values) if holds_traced(values) else values
    known = t.known(values)
    if known is not None and x.dtype.kind in "iu" and not np.isfinite(known).all():
        raise ValueError(f"no {x.dtype} is {values}")
    if known is None or len(np.unique(known)) != 1:
        return _sides(t, x, width, values)
    value = np.asarray(known).astype(x.dtype).reshape(-1)[0].item()
    if x.dtype.kind in "iu" and int(float(value)) != value:  # the op holds a float
        return _sides(t, x, width, values)
    v = x.value
    for axis, (low, high) in enumerate(width):
        v = Value(t.builder(Pad(axis, low, high, float(value)), v)) if low or high else v
    return t.wrap(v)


def _sides(t: Tracer, x: Any, width: Widths, values: Any) -> Any:
    """By a number for each side, which may be data."""
    ends = np.broadcast_to(t.array(values), (x.ndim, 2))
    for axis, sizes in enumerate(width):
        low, high = (_full(t, x, axis, n, ends[axis, side]) for side, n in enumerate(sizes))
        x = np.concatenate([low, x, high], axis=axis) if any(sizes) else x
    return np.copy(x)


def _full(t: Tracer, x: Any, axis: int, n: int, value: Any) -> Any:
    """As x, n long along the axis, of one value."""
    shape, known = _as_long(x, axis, n), t.known(value)
    if known is None:
        return np.broadcast_to(value.astype(x.dtype), shape)
    return t.wrap(t.explicit.full(known.astype(x.dtype).item(), dtype_name(x.dtype), shape))


# -- by what lies at the edges


def _ramps(x: Any, width: Widths, ends: Any) -> Any:
    for axis, (sizes, values) in enumerate(zip(width, _pairs(ends, x.ndim), strict=True)):
        edges = (x[(*(slice(None),) * axis, at)] for at in (0, -1))
        low, high = (
            np.linspace(value, edge, n, endpoint=False, dtype=x.dtype, axis=axis)  # pyright: ignore
            for value, edge, n in zip(values, edges, sizes, strict=True)
        )
        x = np.concatenate([low, x, high[_along(axis, None, None, -1)]], axis=axis) if any(sizes) else x
    return np.copy(x)


def _pairs(given: Any, rank: int) -> Sequence[Any]:
    """A pair for each axis. Where one is for all of them NumPy has its numbers in an array, which are not weak."""
    a = np.asarray(given)
    if a.size == 1 or (a.size == 2 and a.shape != (2, 1)):
        row = a.ravel()
        return [(row[0], row[-1])] * rank
    return np.broadcast_to(a, (rank, 2)).tolist()


def _stats(x: Any, width: Widths, f: Callable[..., Any], length: Any) -> Any:
    pairs = [(None, None)] * x.ndim if length is None else np.broadcast_to(np.asarray(length), (x.ndim, 2)).tolist()
    for axis, (sizes, lengths) in enumerate(zip(width, pairs, strict=True)):
        n = x.shape[axis]
        low, high = (n if m is None else min(m, n) for m in lengths)
        if 0 in (low, high) and f in (np.max, np.min):
            raise ValueError("stat_length of 0 yields no value for padding")
        rows = [f(x[_along(axis, 0, low)], axis=axis, keepdims=True)]
        rows.append(rows[0] if low == high == n else f(x[_along(axis, n - high, n)], axis=axis, keepdims=True))
        low, high = (
            np.broadcast_to(_rounded(r, x.dtype), _as_long(x, axis, m)) for r, m in zip(rows, sizes, strict=True)
        )
        x = np.concatenate([low, x, high], axis=axis) if any(sizes) else x
    return np.copy(x)


def _rounded(y: Any, dtype: np.dtype) -> Any:
    return (np.rint(y) if dtype.kind in "iu" and y.dtype.kind == "f" else y).astype(dtype)


# -- by itself


def _odd(x: Any, width: Widths, with_edge: bool) -> Any:
    """Reflected at its edges both ways, so that slopes go on."""
    for axis, (low, high) in enumerate(width):
        n = x.shape[axis]
        if n == 1 and (low or high):
            x = np.pad(x, [(low, high) if i == axis else (0, 0) for i in range(x.ndim)], mode="edge")
            continue
        while low or high:
            m = x.shape[axis]
            m = m // n * n if with_edge else (m - 1) // (n - 1) * (n - 1)
            before, after = min(m, low), min(m, high)
            x = _turned(x, axis, before, after, int(with_edge))
            low, high = low - before, high - after
    return np.copy(x)


def _turned(x: Any, axis: int, before: int, after: int, with_edge: int) -> Any:
    """With so many of its elements again before and after it, in falling order and turned about the edge."""
    n = x.shape[axis]
    first, last = x[_along(axis, 0, 1)], x[_along(axis, n - 1, n)]
    head = np.flip(x[_along(axis, 1 - with_edge, 1 - with_edge + before)], axis)
    tail = np.flip(x[_along(axis, n - 1 + with_edge - after, n - 1 + with_edge)], axis)
    head, tail = ((2 * edge - part).astype(x.dtype) for edge, part in ((first, head), (last, tail)))
    return np.concatenate([head, x, tail], axis=axis)


HANDLERS: Mapping[str, Callable[..., Any]] = {"pad": _pad}
