"""How many elements fall into each bin."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from operator import index
from typing import Any

import numpy as np

from waxeq.frontend.array import TracedArray, Tracer
from waxeq.frontend.constant import Constant
from waxeq.frontend.handlers.indexing import scattered
from waxeq.frontend.handlers.reductions import wide
from waxeq.frontend.scalars import require_safe
from waxeq.ir.types import is_floating, promoted

_RANGE = "give range=(low, high) as plain numbers, or the edges of the bins"


def _counts(t: Tracer, bins: int, place: Any, weights: Any) -> Any:
    """What falls into each of so many bins: the sum of the weights, or the number where there are none. What is put
    beyond the last bin is left out."""
    w = t.wrap(t.explicit.full(1, "int64", place.shape)) if weights is None else weights
    none = t.wrap(t.explicit.full(0, w.type.dtype, (bins + 1,)))
    return scattered(t, "add", none, 0, place, w)[:bins]


# -- histograms


def _histogram(
    t: Tracer, a: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None
) -> tuple[Any, Any]:
    """In a range of plain numbers, or between edges, which are taken to rise where they are data.

    NumPy sums weights between edges over all bins and takes differences, so that one that is not finite spoils the bins
    after its own; here it is in its own alone."""
    x, w = _flat(t, a, weights)
    uniform = np.ndim(bins) == 0
    edges, ends = _edges(t, x, bins, range)
    n = edges.shape[0] - 1
    if n < 0:
        counts: Any = np.zeros(0, np.int64 if w is None else w.dtype)
    else:
        place = _uniform_place(t, x, edges, ends) if uniform else _place_between(x, edges)
        counts = _counts(t, n, place, None if w is None else _summed(w, uniform))
    if w is not None:
        whole = w.dtype.kind in "iu" and counts.dtype.kind == "f"  # NumPy cuts to 64 bits, then to fewer
        counts = (counts.astype(np.int64) if whole else counts).astype(w.dtype)
    if not density:
        return counts, edges
    width = np.asarray(np.diff(edges), float) if not isinstance(edges, TracedArray) else np.diff(edges).astype(float)
    return counts / width / np.sum(counts), edges


def _flat(t: Tracer, a: Any, weights: Any) -> tuple[Any, Any]:
    """Elements and their weights in a row; bools are counted as uint8."""
    x = t.array(a)
    x = x.astype(np.uint8) if x.dtype == bool else x
    w = None if weights is None else t.array(weights)
    if w is not None and w.shape != x.shape:
        raise ValueError("weights should have the same shape as a.")
    return x.reshape(-1), None if w is None else w.reshape(-1)


def _edges(t: Tracer, x: Any, bins: Any, range: Any) -> tuple[Any, Any]:
    """The edges, constant where they are known, and the ends of the range where it is divided evenly. NumPy itself
    makes and checks them: of an array it asks no more than the dtype where a range is given."""
    if not isinstance(bins, str) and np.ndim(bins):
        return _given_edges(t, bins), None
    data, number = t.known(x), _as_given(t, bins)
    if isinstance(bins, str) and data is None and x.size:
        raise t.refuse(f"bins={bins!r}, of which the data says how many they are", "give a number of bins")
    ends: Any = None if range is None else [_as_given(t, end) for end in range]
    unknown = (data is None and x.size) if ends is None else any(end is None for end in ends)
    if unknown or number is None:
        raise t.refuse("a range of bins that the data is asked for", _RANGE)
    data = np.zeros(0, x.dtype) if data is None else data
    edges = np.histogram_bin_edges(data, number, ends)
    low, high = ends or ((data.min(), data.max()) if data.size else (0, 1))
    return edges.view(Constant), (low - 0.5, high + 0.5) if low == high else (low, high)


def _as_given(t: Tracer, x: Any) -> Any:
    """A number as NumPy is to have it: one that is traced as a scalar of its dtype, as Python numbers have none; None
    where it is data."""
    if not isinstance(x, TracedArray):
        return x
    known = t.known(x)
    return None if known is None else known[()]


def _given_edges(t: Tracer, bins: Any) -> Any:
    known = t.known(bins)
    if known is None and np.ndim(bins) == 1:
        return bins
    edges = np.histogram_bin_edges(np.zeros(0), np.zeros((1, 1)) if known is None else known)
    if is_floating(edges.dtype) and np.isnan(edges).any():
        raise t.refuse("an edge of bins that is not a number", "leave it out")
    return edges.view(Constant)


def _uniform_place(t: Tracer, x: Any, edges: np.ndarray, ends: tuple[Any, Any]) -> Any:
    """The bin of each element, found by division as NumPy does, and set right where rounding put it beside; the number
    of bins for those that are outside."""
    n, (low, high) = len(edges) - 1, ends
    inside = (x >= low) & (x <= high)
    y = x.astype(edges.dtype)
    f = np.subtract(y, low) / _width(low, high) * n
    small = n < 2**31 - 1  # machines have vectors that numbers of so many bits come from
    place = np.clip(np.where(inside, f, 0).astype(np.int32 if small else np.int64), 0, n - 1)
    table = t.array(edges)
    place = place - (y < np.take(table, place))
    return np.where(inside, place + ((y >= np.take(table, place + 1)) & (place != n - 1)), n)


def _width(low: Any, high: Any) -> Any:
    """high - low, which of integers is an unsigned number of their size."""
    dtype = np.result_type(low, high)
    if dtype.kind != "i":
        return np.subtract(high, low, dtype=dtype)
    unsigned = np.dtype(f"u{dtype.itemsize}")
    return np.subtract(np.asarray(high, dtype), np.asarray(low, dtype), casting="unsafe", dtype=unsigned)


def _place_between(x: Any, edges: Any) -> Any:
    """The bin of each element between edges that rise; the last one has both its edges."""
    n, dtype = edges.shape[0] - 1, promoted(x.dtype, edges.dtype)
    x, edges = x.astype(dtype), edges.astype(dtype)
    right = np.searchsorted(edges, x, side="right") - 1
    if n == 0:
        return np.zeros_like(right)
    last = edges[-1]
    return np.where(x == last, n - 1, np.where((right < 0) | ~(x < last), n, right))


def _summed(w: Any, uniform: bool) -> Any:
    """Weights in the dtype that they are summed in."""
    if uniform:
        return w.astype(np.float64)
    if w.dtype == bool and w.size:
        raise TypeError("Cannot cast ufunc 'add' output from dtype('int64') to dtype('bool') with casting 'same_kind'")
    return wide(w, np.float64 if is_floating(w.dtype) else None)


def _histogram_bin_edges(t: Tracer, a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> Any:
    """Where they follow from a range of plain numbers."""
    return _edges(t, _flat(t, a, weights)[0], bins, range)[0]


def _histogramdd(
    t: Tracer, sample: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None
) -> tuple[Any, Any]:
    """Between edges that are known, or in ranges of plain numbers."""
    if isinstance(sample, (np.ndarray, TracedArray)):
        sample = sample.T if sample.ndim == 2 else np.atleast_2d(sample)
    rows: list[Any] = [t.array(x) for x in sample]
    edges = _edges_of_each(t, len(rows), bins, range)
    sizes = [len(e) - 1 for e in edges]
    places = [_place_between(x, e) for x, e in zip(rows, edges, strict=True)]
    inside, total, at = np.ones(rows[0].shape, bool), math.prod(sizes), np.zeros(rows[0].shape, np.int64)
    for place, n in zip(places, sizes, strict=True):
        inside, at = inside & (place < n), at * n + place
    w = None if weights is None else t.array(weights).astype(np.float64)
    counts = _counts(t, total, np.where(inside, at, total), w).astype(np.float64).reshape(tuple(sizes))
    if density:
        whole_sum = np.sum(counts)
        for i, e in enumerate(edges):
            counts = counts / np.diff(e).reshape(tuple(-1 if i == j else 1 for j in np.arange(len(edges))))
        counts = counts / whole_sum
    return counts, edges


def _edges_of_each(t: Tracer, rank: int, bins: Any, range: Any) -> list[Any]:
    """The edges along each axis, as NumPy makes them for no samples at all."""
    each = [*bins] if isinstance(bins, (list, tuple)) or np.ndim(bins) else [bins] * rank
    ends = [None] * rank if range is None else [*range]
    if len(each) != rank or len(ends) != rank:
        raise ValueError("The dimension of bins and ranges must be equal to the dimension of the sample x.")
    known: list[Any] = [t.known(b) if isinstance(b, TracedArray) else b for b in each]
    ends: list[Any] = [None if r is None else [_as_given(t, end) for end in r] for r in ends]
    for b, r in zip(known, ends, strict=True):
        if b is None or (np.ndim(b) == 0 and (r is None or any(end is None for end in r))):
            raise t.refuse("a range of bins that the data is asked for", _RANGE)
    found = np.histogramdd(np.zeros((0, rank)), known, [(0, 1) if r is None else r for r in ends])[1]
    return [e.view(Constant) for e in found]


def _histogram2d(
    t: Tracer, x: Any, y: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None
) -> tuple[Any, Any, Any]:
    """Between edges that are known, or in ranges of plain numbers."""
    rows = [t.array(a) for a in (x, y)]
    if rows[0].shape != rows[1].shape:
        raise ValueError("x and y must have the same length.")
    bins = [bins, bins] if (isinstance(bins, (list, tuple)) or np.ndim(bins)) and len(bins) not in (1, 2) else bins
    counts, edges = _histogramdd(t, rows, bins, range, density, weights)
    return counts, edges[0], edges[1]


# -- others


def _digitize(t: Tracer, x: Any, bins: Any, right: bool = False) -> Any:
    """Between edges that are known while tracing, rising or falling."""
    edges = t.known(bins)
    if edges is None:
        raise t.refuse("np.digitize by bins that are data, which may rise or fall", "use np.searchsorted(bins, x)")
    falls = np.digitize(-np.inf, edges, right=True) > 0  # raises ValueError where they do neither
    if falls and is_floating(edges.dtype) and np.isnan(edges[1:]).any():  # to NumPy they fall, out of order
        raise t.refuse("np.digitize by an edge that is not a number", "leave it out")
    side = "left" if right else "right"
    if falls:
        return len(edges) - np.searchsorted(edges[::-1].copy(), t.array(x), side=side)
    return np.searchsorted(edges, t.array(x), side=side)


def _bincount(t: Tracer, x: Any, /, weights: Any = None, minlength: Any = 0) -> Any:
    """Of integers below minlength: as many counts as that, and an IndexError of the call where one is not below it."""
    if minlength is None:
        raise TypeError("use 0 instead of None for minlength")
    a, n = t.array(x), index(minlength)
    if n < 0:
        raise ValueError("'minlength' must not be negative")
    if a.ndim != 1:
        raise ValueError(f"object {'too deep' if a.ndim else 'of too small depth'} for desired array")
    if a.dtype != np.uint64:
        require_safe(x, np.int64)
    w = None if weights is None else t.array(weights)
    if not a.size:
        return np.zeros(n, np.int64)
    if w is not None and w.shape != a.shape:
        raise ValueError("The weights and list don't have the same length.")
    known = t.known(a)
    if known is not None:
        n = np.bincount(known.astype(np.int64), minlength=n).size
    elif n == 0:
        what = "np.bincount without minlength: the largest number says how long it is"
        raise t.refuse(what, "give minlength, as many as numbers can be")
    place = a.astype(np.int64)
    if a.dtype.kind == "i" or a.dtype == np.uint64:  # those beyond int64 are below 0 there
        place = np.where(place < 0, n, place)
    w = t.wrap(t.explicit.full(1, "int64", place.shape)) if w is None else w.astype(np.float64)
    return scattered(t, "add", t.wrap(t.explicit.full(0, w.type.dtype, (n,))), 0, place, w)


HANDLERS: Mapping[str, Callable[..., Any]] = {
    "histogram": _histogram,
    "histogram_bin_edges": _histogram_bin_edges,
    "histogramdd": _histogramdd,
    "histogram2d": _histogram2d,
    "digitize": _digitize,
    "bincount": _bincount,
}
