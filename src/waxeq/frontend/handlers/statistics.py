"""Covariances, and what is read off sorted rows where NaN is absence."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from waxeq.frontend.array import TracedArray, Tracer
from waxeq.frontend.handlers.ordering import (
    at_places,
    in_dtype_of_quantile,
    lined_up,
    places_of_quantile,
    shaped,
    whole_places,
)
from waxeq.ir.types import is_floating

# -- covariances


def _cov(t: Tracer, m: Any, y: Any = None, rowvar: Any = True, bias: Any = False, ddof: Any = None,
         fweights: Any = None, aweights: Any = None, *, dtype: Any = None) -> Any:  # fmt: skip
    """Weights that are data are taken to be none below zero, and of `fweights` whole numbers."""
    if ddof is not None and ddof != int(ddof):
        raise ValueError("ddof must be integer")
    rows = [t.array(a) for a in (m, y) if a is not None]
    for name, a in zip("my", rows, strict=False):
        if a.ndim > 2:
            raise ValueError(f"{name} has more than 2 dimensions")
    dtype = np.result_type(*(a.dtype for a in rows), np.float64) if dtype is None else dtype
    x = _variables(rows[0], dtype, not rowvar and rows[0].ndim != 1)
    if x.shape[0] == 0:
        return np.zeros((0, 0))
    if y is not None:
        other = _variables(rows[1], dtype, False)
        x = np.concatenate((x, other.T if not rowvar and other.shape[0] != 1 else other), axis=0)
    ddof = int(bias == 0) if ddof is None else ddof
    w = _weights(t, x, fweights, aweights)
    mean, total = np.average(x, axis=1, weights=w, returned=True)
    free = _freedom(t, x, w, total[0], aweights, ddof)
    x = (x - mean[:, None]).astype(dtype)
    c = np.dot(x, (x if w is None else x * w).T)
    return np.squeeze((c * np.true_divide(1, free)).astype(c.dtype))


def _variables(a: Any, dtype: Any, turned: bool) -> Any:
    """One variable a row."""
    x = np.atleast_2d(a.astype(dtype))
    return x.T if turned else x


def _weights(t: Tracer, x: Any, fweights: Any, aweights: Any) -> Any:
    """Both weights of each observation as one, or None."""
    w: Any = None
    for name, given in (("fweights", fweights), ("aweights", aweights)):
        if given is None:
            continue
        a, known = t.array(given).astype(np.float64), t.known(given)
        if name == "fweights" and known is not None and not np.all(known == np.around(known)):
            raise TypeError("fweights must be integer")
        if a.ndim > 1:
            raise RuntimeError(f"cannot handle multidimensional {name}")
        if a.shape[0] != x.shape[1]:
            raise RuntimeError(f"incompatible numbers of samples and {name}")
        if known is not None and np.any(known < 0):
            raise ValueError(f"{name} cannot be negative")
        w = a if w is None else w * a
    return w


def _freedom(t: Tracer, x: Any, w: Any, total: Any, aweights: Any, ddof: Any) -> Any:
    """What the sums of products are divided by, an array so that it may be of a dim; 0 where there is no freedom."""
    if w is None:
        return t.array(np.float64(max(x.shape[1] - ddof, 0)))
    if ddof == 0:
        free = total
    elif aweights is None:
        free = total - ddof
    else:
        free = total - ddof * np.sum(w * t.array(aweights).astype(np.float64)) / total
    return np.where(free <= 0, 0.0, free)


def _corrcoef(t: Tracer, x: Any, y: Any = None, rowvar: Any = True, *, dtype: Any = None) -> Any:
    c = t.array(_cov(t, x, y, rowvar, dtype=dtype))
    if c.ndim == 0:
        return c / c
    spread = np.sqrt(np.diag(c))
    return np.clip(c / spread[:, None] / spread[None, :], -1, 1)


# -- NaN as absence


def _nan_pick(f: str, t: Tracer, a: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """0 where all are NaN, for which NumPy raises. To NumPy bfloat16 is no float here: its NaN is an extreme."""
    x, pick = t.array(a), getattr(np, f)
    if x.dtype.kind == "f":
        x = np.where(np.isnan(x), np.asarray(-math.inf if f == "argmax" else math.inf, x.dtype), x)
    return pick(x, axis=axis, keepdims=keepdims)


def _nan_median(t: Tracer, a: Any, axis: Any = None, overwrite_input: bool = False, keepdims: bool = False) -> Any:
    x = t.array(a)
    if not x.size:
        return np.nanmean(x, axis, keepdims=keepdims)
    if not is_floating(x.dtype):
        return np.median(x, axis=axis, keepdims=keepdims)
    ordered, axes = lined_up(x, axis)
    n = np.sum(~np.isnan(ordered), axis=-1, keepdims=True)
    low = np.maximum((n - 1) // 2, 0)
    both = _taken(ordered, np.concatenate([low, np.minimum(n // 2, ordered.shape[-1] - 1)], axis=-1))
    y = np.where(n[..., 0] % 2 == 0, np.mean(both, axis=-1), both[..., 0])
    return shaped(y, x.shape, axes, keepdims)


def _taken(ordered: Any, index: Any) -> TracedArray:
    return np.take_along_axis(ordered, index, axis=-1)  # pyright: ignore[reportReturnType]


def _nan_quantile(
    t: Tracer, a: Any, q: Any, axis: Any = None, overwrite_input: bool = False, method: str = "linear",
    keepdims: bool = False, *, scale: float = 1.0,
) -> Any:  # fmt: skip
    """By the linear method, at places that are known while tracing."""
    x = t.array(a)
    if method != "linear":
        raise t.refuse(f"np.nanquantile by method {method!r}", "use method='linear'")
    places = places_of_quantile(t, x, q, method, scale)
    if not x.size:
        return np.nanmean(x, axis, keepdims=keepdims)
    if places.ndim > 1:  # NumPy does not always put their axes first
        raise t.refuse("np.nanquantile at places in several rows", "give them in one")
    if not is_floating(x.dtype):
        whole = np.quantile if scale == 1.0 else np.percentile
        return whole(x, q, axis=axis, method=method, keepdims=keepdims)  # pyright: ignore
    x = in_dtype_of_quantile(x, q, places)
    ordered, axes = lined_up(x, axis)
    last = np.maximum(np.sum(~np.isnan(ordered), axis=-1, keepdims=True) - 1, 0)
    return at_places(places, lambda p: shaped(_at_part(ordered, last, p), x.shape, axes, keepdims))


def _at_part(ordered: Any, last: Any, part: Any) -> Any:
    """The value so far on the way from the first number of each row to the one at `last`, which is found in the dtype
    of that part."""
    if whole_places(part):
        return _taken(ordered, last * int(part))[..., 0]
    at = last.astype(part.dtype) * part
    low = np.floor(at)
    gamma = (at - low)[..., 0].astype(ordered.dtype)
    rest = (1 - (at - low))[..., 0].astype(ordered.dtype)
    low = low.astype(np.int64)
    both = _taken(ordered, np.concatenate([low, np.minimum(low + 1, last)], axis=-1))
    a, b = both[..., 0], both[..., 1]
    return np.where((at - low)[..., 0] < 0.5, a + (b - a) * gamma, b - (b - a) * rest)


HANDLERS: Mapping[str, Callable[..., Any]] = {
    "cov": _cov,
    "corrcoef": _corrcoef,
    "nanargmax": partial(_nan_pick, "argmax"),
    "nanargmin": partial(_nan_pick, "argmin"),
    "nanmedian": _nan_median,
    "nanquantile": _nan_quantile,
    "nanpercentile": partial(_nan_quantile, scale=100.0),
}
