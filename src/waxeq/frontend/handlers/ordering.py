"""Running folds, differences, sorting and what is read off sorted arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from waxeq.frontend.array import TracedArray, Tracer
from waxeq.frontend.explicit import axes_tuple, axis_index
from waxeq.frontend.handlers.ranks import Ranks
from waxeq.frontend.handlers.reductions import wide
from waxeq.ir.types import is_floating, promoted
from waxeq.ops.ordering import Argsort, Scan, Sort

_SHORT = 32
"""Elements of a table up to which comparing with all of them, in vectors, takes less than halving it."""


def _scan(f: str, t: Tracer, a: Any, axis: int | None = None, dtype: Any = None) -> TracedArray:
    x = t.array(a)
    x = wide(x, dtype) if f in ("sum", "prod") else x if dtype is None else x.astype(dtype)
    if x.dtype == bool:
        return _scan(f, t, x.astype(np.uint8), axis).astype(bool)
    if axis is None or x.ndim == 0:
        x, axis = x.reshape(-1), axis or 0
    return t.wrap(t.builder(Scan(f, axis_index(axis, x.ndim)), x.value))


def _accumulate(f: str, t: Tracer, array: Any, axis: int = 0, dtype: Any = None) -> TracedArray:
    return _scan(f, t, array, axis, dtype)


def _logical(f: str, t: Tracer, array: Any, axis: int = 0) -> TracedArray:
    return _scan(f, t, t.array(array).astype(bool), axis)


def _cumulative(f: str, t: Tracer, x: Any, *, axis: int | None = None, dtype: Any = None,
                include_initial: bool = False) -> Any:  # fmt: skip
    a = t.array(x)
    if axis is None and a.ndim > 1:
        raise ValueError("for arrays of more than one dimension, axis must be given")
    axis = 0 if axis is None else axis_index(axis, max(a.ndim, 1))
    y = _scan(f, t, a, axis, dtype)
    if not include_initial:
        return y
    first = np.full_like(y[(slice(None),) * axis + (slice(0, 1),)], int(f == "prod")) if y.shape[axis] else None
    start = np.full((*y.shape[:axis], 1, *y.shape[axis + 1 :]), int(f == "prod"), y.dtype) if first is None else first
    return np.concatenate([start, y], axis=axis)


def _diff(t: Tracer, a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Any:
    x = t.array(a)
    axis = axis_index(axis, x.ndim)
    edge = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    ends = [None if e is None else np.broadcast_to(e, edge) if np.ndim(e) == 0 else e for e in (prepend, append)]
    if n and (prepend is not None or append is not None):
        x = np.concatenate([p for p in (ends[0], x, ends[1]) if p is not None], axis=axis)
    for _ in range(n):
        later, earlier = (x[(slice(None),) * axis + (s,)] for s in (slice(1, None), slice(None, -1)))
        x = later != earlier if x.dtype == bool else later - earlier
    return x


def _sort(t: Tracer, a: Any, axis: int | None = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> Any:
    """0.0 and -0.0, which are equal, may come in any order, whatever `kind` is."""
    x = t.array(a)
    if axis is None:
        x, axis = x.reshape(-1), 0
    return t.wrap(t.builder(Sort(axis_index(axis, x.ndim)), x.value))


def _argsort(
    t: Tracer, a: Any, axis: int | None = -1, kind: Any = None, order: Any = None, *, stable: Any = None
) -> Any:
    """Equal elements keep their order, whatever `kind` is."""
    x = t.array(a)
    if axis is None or x.ndim == 0:
        x, axis = x.reshape(-1), axis or 0
    return t.wrap(t.builder(Argsort(axis_index(axis, x.ndim)), x.value))


def lined_up(x: TracedArray, axis: Any) -> tuple[TracedArray, tuple[int, ...]]:
    """The array with the axes to be reduced merged into a sorted last one, and those axes."""
    axes = axes_tuple(axis, x.ndim)
    rest = [i for i in range(x.ndim) if i not in axes]
    rows = np.transpose(x, (*rest, *axes))
    count = int(np.prod([x.shape[i] for i in axes], dtype=np.int64))
    return np.sort(rows.reshape((*(x.shape[i] for i in rest), count)), axis=-1), axes  # pyright: ignore


def shaped(y: Any, shape: tuple[int, ...], axes: tuple[int, ...], keepdims: bool) -> Any:
    """The result of a reduction of an array of that shape, with the axes kept where they are to be."""
    return y.reshape(tuple(1 if i in axes else s for i, s in enumerate(shape))) if keepdims else y


def _partition(t: Tracer, a: Any, kth: Any, axis: int | None = -1, kind: Any = None, order: Any = None) -> Any:
    """All in rising order, which is one of the orders that NumPy allows."""
    x = t.array(a)
    x, axis = (x.reshape(-1), 0) if axis is None else (x, axis_index(axis, x.ndim))
    _require_places(t, kth, x.shape[axis])
    return np.sort(x, axis=axis)


def _argpartition(t: Tracer, a: Any, kth: Any, axis: int | None = -1, kind: Any = None, order: Any = None) -> Any:
    """The positions that sort, which are one of the orders that NumPy allows."""
    x = t.array(a)
    if axis is None or x.ndim == 0:
        x, axis = x.reshape(-1), axis or 0
    _require_places(t, kth, x.shape[axis_index(axis, x.ndim)])
    return np.argsort(x, axis=axis, kind="stable")


def _require_places(t: Tracer, kth: Any, n: int) -> None:
    """Raises as NumPy does where the places that elements are parted at are none of a row of n."""
    known = t.known(kth)
    if known is None:
        raise t.refuse("np.partition at places that are data", "use np.sort, of which all elements are in order")
    if known.dtype == bool:
        raise ValueError("Booleans unacceptable as partition index")
    if known.dtype.kind not in "iu":
        raise TypeError("Partition index must be integer")
    for k in known.reshape(-1).tolist():
        if n and not -n <= k < n:
            raise ValueError(f"kth(={k + n if k < 0 else k}) out of bounds ({n})")


def _median(t: Tracer, a: Any, axis: Any = None, overwrite_input: bool = False, keepdims: bool = False) -> Any:
    x = t.array(a)
    ranks = Ranks(t, x, axis)
    n = ranks.size
    if n == 0:
        raise t.refuse("the median of nothing", "give an axis that is not empty")
    y = np.mean(ranks.between((n - 1) // 2, n // 2), axis=-1)
    return shaped(ranks.settled(y), x.shape, ranks.axes, keepdims)


def places_of_quantile(t: Tracer, x: TracedArray, q: Any, method: str, scale: float) -> np.ndarray:
    """The places of quantiles from 0 to 1 in the dtype that NumPy computes with; refused where they are data."""
    places = t.known(q)
    if places is None:
        raise t.refuse(f"np.quantile at {q!r}", "give its place as a number")
    if method not in PLACES:
        raise ValueError(f"{method!r} is not a valid method. Use one of: {', '.join(PLACES)}")
    at = places if scale == 1.0 else np.asarray(places / scale)
    if x.dtype == bool and not (whole_places(at) or method in _ELEMENTS):
        raise TypeError("np.quantile takes numbers, not bool")
    if not ((at >= 0) & (at <= 1)).all():
        raise ValueError(f"places of quantiles lie between 0 and {scale:g}")
    return at


def whole_places(places: np.ndarray) -> bool:
    """Whether they are 0 and 1 as integers or bools: what is there are elements, with nothing between them."""
    return places.dtype.kind in "iub"


def in_dtype_of_quantile(x: TracedArray, q: Any, places: np.ndarray) -> TracedArray:
    """An array in the dtype of its quantiles: its own where they are elements, else that of it and the places, which
    is weak where they are one Python number. What a product of both is in says so, as promotion alone makes float64 of
    bfloat16 and a Python number."""
    if whole_places(places):
        return x
    other = float if type(q) in (int, float) else places.dtype
    return x.astype(np.multiply.resolve_dtypes((x.dtype, other, None))[0])  # pyright: ignore[reportArgumentType]


def _quantile(
    t: Tracer, a: Any, q: Any, axis: Any = None, overwrite_input: bool = False, method: str = "linear",
    keepdims: bool = False, *, scale: float = 1.0,
) -> Any:  # fmt: skip
    """By any method, at places that are known while tracing."""
    x = t.array(a)
    places = places_of_quantile(t, x, q, method, scale)
    elements = method in _ELEMENTS or (method == "linear" and whole_places(places))
    if not elements and method != "linear":  # by which alone places at the ends need nothing between them
        places = places.astype(np.result_type(places, 1.0))
    made = x if elements else in_dtype_of_quantile(x, q, places)
    ranks, dtype = Ranks(t, x if _rising(x.dtype, made.dtype) else made, axis), made.dtype
    last = ranks.size - 1

    def at_place(p: Any) -> Any:
        k = int(np.floor(np.clip(p, 0, last)))
        part = float(np.clip(p, 0, last) - k)
        part = (1.0 if part else 0.5) if method == "averaged_inverted_cdf" and 0 <= p < last else part
        if elements:
            y = ranks[k].astype(dtype)
        else:  # neighbours are found together; beyond an end its element is both
            pair = ranks.between(k, k if p < 0 else min(k + 1, last)).astype(dtype)
            y = _between(pair[..., 0], pair[..., -1], part)
        return shaped(ranks.settled(y), x.shape, ranks.axes, keepdims)

    return at_places(np.asarray(PLACES[method](last + 1, places)), at_place)


def _plotted(a: float, b: float, n: int, q: Any) -> Any:
    """The place of a quantile by the two numbers that name a method among those of Hyndman and Fan."""
    return n * q + (a + q * (1 - a - b)) - 1


def _step(n: int, q: Any, shift: float, stays: Callable[[Any], Any]) -> Any:
    """The element at a place, or where that is not to stay the one after it."""
    at = n * q - 1 - shift
    low = np.floor(at)
    return np.maximum(np.where(stays(at) & (at == low), low, low + 1), 0)


PLACES: Mapping[str, Callable[[int, Any], Any]] = {
    "inverted_cdf": lambda n, q: _step(n, q, 0.0, lambda at: True),
    "averaged_inverted_cdf": lambda n, q: n * q - 1,
    "closest_observation": lambda n, q: _step(n, q, 0.5, lambda at: np.floor(at) % 2 == 1),
    "interpolated_inverted_cdf": partial(_plotted, 0, 1),
    "hazen": partial(_plotted, 0.5, 0.5),
    "weibull": partial(_plotted, 0, 0),
    "linear": lambda n, q: (n - 1) * q,
    "median_unbiased": partial(_plotted, 1 / 3.0, 1 / 3.0),
    "normal_unbiased": partial(_plotted, 3 / 8.0, 3 / 8.0),
    "lower": lambda n, q: np.floor((n - 1) * q),
    "higher": lambda n, q: np.ceil((n - 1) * q),
    "midpoint": lambda n, q: 0.5 * (np.floor((n - 1) * q) + np.ceil((n - 1) * q)),
    "nearest": lambda n, q: np.around((n - 1) * q),
}
"""Where among so many sorted elements a quantile lies, by each of NumPy's methods."""

_ELEMENTS = ("inverted_cdf", "closest_observation", "lower", "higher", "nearest")
"""Methods that give elements, with nothing between them."""


def at_places(places: np.ndarray, result: Callable[[Any], Any]) -> Any:
    """The result for each place, as an array with the dimensions of the places first."""
    if places.ndim == 0:
        return result(places[()])
    rows = [result(p) for p in places.ravel()] or [result(places.dtype.type(0))]  # of none there are no rows of it
    return np.stack(rows)[: places.size].reshape((*places.shape, *rows[0].shape))


def _rising(given: np.dtype, made: np.dtype) -> bool:
    """Whether elements can be put in order before they are cast, at less cost: theirs is the same there."""
    return is_floating(given) and given.itemsize < made.itemsize


def _between(a: Any, b: Any, part: float) -> Any:
    near, far = (np.asarray(p, a.dtype) for p in (part, 1 - part))
    return a + (b - a) * near if part < 0.5 else b - (b - a) * far


def _searchsorted(t: Tracer, a: Any, v: Any, side: str = "left", sorter: Any = None) -> Any:
    """By halving the table; all of it is compared where it is short, or of a size that a dim may change."""
    if side not in ("left", "right"):
        raise ValueError(f"side must be 'left' or 'right', not {side!r}")
    table, x = t.array(a if sorter is None else np.take(a, sorter)), t.array(v)
    if table.ndim != 1:
        raise ValueError(f"searchsorted takes a table of one dimension, not of {table.ndim}")
    dtype = promoted(table.dtype, x.dtype)
    rows, x = table.astype(dtype), x.astype(dtype)
    before = np.less if side == "left" else np.less_equal
    halve = table.size > _SHORT and _fixed(t, table)
    place = _halved(rows, x, before) if halve else np.sum(before(rows, x[..., None]), axis=-1)
    if not is_floating(dtype):
        return place
    numbers = ~np.isnan(rows) if side == "left" else np.ones_like(rows, bool)
    return np.where(np.isnan(x), np.sum(numbers), place)  # NaN sorts last


def _fixed(t: Tracer, table: TracedArray) -> bool:
    """Whether the table has one size in all traces of the model: weights and constants have no dims."""
    graph = t.builder.finish([("table", table.value)])
    return not t.sized or (not graph.nodes and graph.leaves[0].kind != "input")


def _halved(rows: Any, x: Any, before: Callable[..., Any]) -> Any:
    """Places in a table, found in halves of what is left of it: sorted or not, it is read only inside."""
    half = rows.shape[0] // 2
    place, left = np.where(before(rows[half - 1], x), half, 0), rows.shape[0] - half
    while left > 1:
        half = left // 2
        place = np.where(before(np.take(rows, place + (half - 1)), x), place + half, place)
        left -= half
    return place + before(np.take(rows, place), x)


def _in_place(t: Tracer, x: TracedArray, axis: int = -1, kind: Any = None, order: Any = None, **kw: Any) -> None:
    x.assign(_sort(t, x, axis))


def _parted_in_place(t: Tracer, x: TracedArray, kth: Any, axis: int = -1, kind: Any = None, order: Any = None) -> None:
    x.assign(_partition(t, x, kth, axis))


HANDLERS: Mapping[str, Callable[..., Any]] = {
    "cumsum": partial(_scan, "sum"),
    "cumprod": partial(_scan, "prod"),
    "cumulative_sum": partial(_cumulative, "sum"),
    "cumulative_prod": partial(_cumulative, "prod"),
    "add.accumulate": partial(_accumulate, "sum"),
    "multiply.accumulate": partial(_accumulate, "prod"),
    "maximum.accumulate": partial(_accumulate, "max"),
    "minimum.accumulate": partial(_accumulate, "min"),
    "logical_or.accumulate": partial(_logical, "max"),
    "logical_and.accumulate": partial(_logical, "min"),
    "diff": _diff,
    "sort": _sort,
    "argsort": _argsort,
    "median": _median,
    "quantile": _quantile,
    "percentile": partial(_quantile, scale=100.0),
    "searchsorted": _searchsorted,
    "partition": _partition,
    "argpartition": _argpartition,
}

METHODS: Mapping[str, Callable[..., Any]] = {"sort": _in_place, "partition": _parted_in_place}
