"""Functions that are given by samples: between them, their slopes, their jumps; and those that are given by pieces."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from waxeq.frontend.array import TracedArray, Tracer, holds_traced
from waxeq.frontend.explicit import axis_index

# -- between samples


def _interp(t: Tracer, x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Any:
    """In float64, as NumPy does; places that are data are taken to rise."""
    x = t.array(x).astype(np.float64)
    xp, fp = (_samples(t, a) for a in (xp, fp))
    if isinstance(period, TracedArray) and t.known(period) is None:
        raise t.refuse("np.interp with a period that is data", "make it an argument that is a Python number")
    if period is not None and period == 0:
        raise ValueError("period must be a non-zero value")
    if any(end is not None and np.ndim(end) for end in (left, right)):
        raise TypeError("left and right must be single numbers")
    if xp.ndim != 1 or fp.ndim != 1:
        raise ValueError("Data points must be 1-D sequences")
    if xp.shape != fp.shape:
        raise ValueError("fp and xp are not of the same length.")
    if not xp.size:
        raise ValueError("array of sample points is empty")
    if period is not None:
        x, xp, fp = _periodic(x, t.array(xp), t.array(fp), abs(period))
        left = right = None
    y = _between(t, x, xp, fp)
    y = np.where(x < xp[0], fp[0] if left is None else left, y)
    return np.where(x > xp[-1], fp[-1] if right is None else right, y)


def _samples(t: Tracer, a: Any) -> Any:
    """Samples as float64: a plain array where they are known, as what follows from them is then known too."""
    return t.array(a).astype(np.float64) if holds_traced(a) else np.asarray(a, np.float64)


def _periodic(x: Any, xp: Any, fp: Any, period: Any) -> tuple[Any, Any, Any]:
    """Places in one period, and samples of it in order, with one more on each side."""
    x, xp = x % period, xp % period
    order = np.argsort(xp)
    xp, fp = np.take(xp, order), np.take(fp, order)
    return (
        x,
        np.concatenate((xp[-1:] - period, xp, xp[:1] + period)),
        np.concatenate((fp[-1:], fp, fp[:1])),
    )


def _between(t: Tracer, x: Any, xp: Any, fp: Any) -> Any:
    """The value inside of the samples. What is no number one way is computed from the other end, as in NumPy."""
    n = xp.shape[0]
    if n == 1:
        return np.broadcast_to(fp[0], x.shape)
    place = np.searchsorted(xp, x, side="right") - 1
    low = np.clip(place, 0, n - 2)
    with np.errstate(all="ignore"):
        slopes = (fp[1:] - fp[:-1]) / (xp[1:] - xp[:-1])
    slope, x0, y0 = (np.take(t.array(a), low) for a in (slopes, xp, fp))
    y = slope * (x - x0) + y0
    if any(isinstance(a, TracedArray) or not np.isfinite(a).all() for a in (slopes, xp, fp)):
        x1, y1 = (np.take(t.array(a), low + 1) for a in (xp, fp))
        other = slope * (x - x1) + y1
        y = np.where(np.isnan(y), np.where(np.isnan(other) & (y0 == y1), y0, other), y)
        y = np.where(x0 == x, y0, y)
    return np.where(np.isnan(x), x, np.where(place >= n - 1, fp[-1], y))


# -- slopes


def _gradient(t: Tracer, f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    """Of any spacing; coordinates that are data are taken to be uneven. Slopes of bfloat16 are float64, as in NumPy."""
    x = t.array(f)
    axes: Any = np.lib.array_utils.normalize_axis_tuple
    axes = tuple(range(x.ndim)) if axis is None else axes(axis, x.ndim)
    steps = _spacings(t, x, axes, varargs)
    if edge_order > 2:
        raise ValueError("'edge_order' greater than 2 not supported")
    made = x.dtype if x.dtype.kind == "f" else np.dtype(np.float64)
    x = x.astype(np.float64) if x.dtype.kind in "iu" else x
    rows = []
    for i, step in zip(axes, steps, strict=True):
        if x.shape[i] < (2 if edge_order == 1 else 3):
            raise ValueError(
                "Shape of array too small to calculate a numerical gradient, "
                "at least (edge_order + 1) elements are required."
            )
        parts = _slopes(np.moveaxis(x, i, -1), step, edge_order)
        rows.append(np.moveaxis(np.concatenate([p.astype(made) for p in parts], axis=-1), -1, i))
    return rows[0] if len(rows) == 1 else tuple(rows)


def _spacings(t: Tracer, x: Any, axes: Sequence[int], given: Sequence[Any]) -> list[Any]:
    """For each axis the distance between neighbours: a number, or an array of one for each two of them."""
    if not given:
        return [1.0] * len(axes)
    if len(given) == 1 and np.ndim(given[0]) == 0:
        return [given[0]] * len(axes)
    if len(given) != len(axes):
        raise TypeError("invalid number of arguments")
    return [_spacing(t, d, x.shape[i]) for i, d in zip(axes, given, strict=True)]


def _spacing(t: Tracer, given: Any, n: int) -> Any:
    if np.ndim(given) == 0:
        return given
    if np.ndim(given) != 1:
        raise ValueError("distances must be either scalars or 1d")
    known = t.known(given)
    d: Any = t.array(given) if known is None else known
    if d.shape[0] != n:
        raise ValueError("when 1d, distances must match the length of the corresponding dimension")
    steps = np.diff(d.astype(np.float64) if d.dtype.kind in "iu" else d)
    return steps[0] if known is not None and (steps == steps[:1]).all() and len(steps) else steps


def _slopes(f: Any, step: Any, edge_order: int) -> tuple[Any, Any, Any]:
    """The slope along the last axis at its first place, inside of it, and at its last place."""
    even = np.ndim(step) == 0
    if even:
        inner = (f[..., 2:] - f[..., :-2]) / (2.0 * step)
    else:
        d1, d2 = step[:-1], step[1:]
        a, b, c = -d2 / (d1 * (d1 + d2)), (d2 - d1) / (d1 * d2), d1 / (d2 * (d1 + d2))
        inner = a * f[..., :-2] + b * f[..., 1:-1] + c * f[..., 2:]
    if edge_order == 1:
        first, last = (step, step) if even else (step[0], step[-1])
        return (f[..., 1:2] - f[..., :1]) / first, inner, (f[..., -1:] - f[..., -2:-1]) / last
    if even:
        start, end = (-1.5 / step, 2.0 / step, -0.5 / step), (0.5 / step, -2.0 / step, 1.5 / step)
    else:
        d1, d2 = step[0], step[1]
        start = (-(2.0 * d1 + d2) / (d1 * (d1 + d2)), (d1 + d2) / (d1 * d2), -d1 / (d2 * (d1 + d2)))
        d1, d2 = step[-2], step[-1]
        end = (d2 / (d1 * (d1 + d2)), -(d2 + d1) / (d1 * d2), (2.0 * d2 + d1) / (d2 * (d1 + d2)))
    head = start[0] * f[..., :1] + start[1] * f[..., 1:2] + start[2] * f[..., 2:3]
    tail = end[0] * f[..., -3:-2] + end[1] * f[..., -2:-1] + end[2] * f[..., -1:]
    return head, inner, tail


def _ediff1d(t: Tracer, ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    x = t.array(ary).reshape(-1)
    ends: list[Any] = []
    for name, value in (("to_begin", to_begin), ("to_end", to_end)):
        v = None if value is None else t.array(value)
        if v is not None and not np.can_cast(v.dtype, x.dtype, casting="same_kind"):
            raise TypeError(f"dtype of `{name}` must be compatible with input `ary` under the `same_kind` rule.")
        ends.append(None if v is None else v.reshape(-1).astype(x.dtype))
    parts = [p for p in (ends[0], x[1:] - x[:-1], ends[1]) if p is not None]
    return np.concatenate(parts) if len(parts) > 1 else parts[0]


# -- jumps and pieces


def _unwrap(t: Tracer, p: Any, discont: Any = None, axis: int = -1, *, period: Any = 2 * math.pi) -> Any:
    x = t.array(p)
    steps = t.array(np.diff(x, axis=axis))
    discont = period / 2 if discont is None else discont
    dtype = np.result_type(steps.dtype, period)
    if dtype.kind in "iu":
        high, rest = divmod(period, 2)
        ambiguous = rest == 0
    else:
        high, ambiguous = period / 2, True
    low = -high
    turned = np.mod(steps - low, period) + low
    if ambiguous:  # a step of half a period keeps its direction
        turned = np.where((turned == low) & (steps > 0), np.asarray(high, turned.dtype), turned)
    change = turned - steps
    change = np.where(abs(steps) < discont, np.zeros((), change.dtype), change)
    along = (slice(None),) * axis_index(axis, x.ndim)
    rest = x[(*along, slice(1, None))] + np.cumsum(change, axis=axis)
    return np.concatenate([x[(*along, slice(0, 1))].astype(dtype), rest.astype(dtype)], axis=axis)


def _piecewise(t: Tracer, x: Any, condlist: Any, funclist: Any, *args: Any, **kw: Any) -> Any:
    """By functions of each element: they are given those that a condition holds of, of which there may be none."""
    whole = t.array(x)
    rows = [t.array(c).astype(bool) for c in _conditions(condlist, whole.ndim)]
    if len(rows) == len(funclist) - 1:
        other = rows[0]
        for c in rows[1:]:
            other = other | c
        rows.append(~other)
    elif len(rows) != len(funclist):
        n = len(rows)
        raise ValueError(f"with {n} condition(s), either {n} or {n + 1} functions are expected")
    flat = whole.reshape(1) if whole.ndim == 0 else whole
    y = np.zeros_like(flat)
    for c, f in zip(rows, funclist, strict=True):
        mask = c.reshape(1) if whole.ndim == 0 else c
        y[mask] = f(flat[mask], *args, **kw) if isinstance(f, Callable) else f
    return np.copy(y.reshape(whole.shape))


def _conditions(given: Any, rank: int) -> Sequence[Any]:
    """The conditions as a list: a single one may be given alone."""
    if not isinstance(given, (list, tuple)) and np.ndim(given) == 0:
        return [given]
    first = given[0]
    one = not isinstance(first, (list, np.ndarray)) or (isinstance(first, TracedArray) and first.scalar)
    return [given] if one and rank != 0 else list(given)


HANDLERS: Mapping[str, Callable[..., Any]] = {
    "interp": _interp,
    "gradient": _gradient,
    "ediff1d": _ediff1d,
    "unwrap": _unwrap,
    "piecewise": _piecewise,
}
