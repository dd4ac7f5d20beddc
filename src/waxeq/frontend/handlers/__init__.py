"""What NumPy's functions mean as ops: `HANDLERS` by NumPy name, `METHODS` of ndarray, `CREATORS` that do not dispatch.

Each module gives its own tables; a handler takes the tracer and then what the NumPy function takes. Many are written in
NumPy itself: applied to traced arrays, its functions come back here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from waxeq.frontend.handlers import (
    bits,
    contractions,
    counting,
    creation,
    elementwise,
    indexing,
    joining,
    linalg,
    ordering,
    padding,
    places,
    polynomials,
    reductions,
    rows,
    sampled,
    segments,
    shapes,
    spaced,
    special,
    statistics,
    tests,
    updates,
)

Handler = Callable[..., Any]

MODULES = (
    *(elementwise, reductions, ordering, contractions, shapes, joining, creation, indexing, tests, special),
    *(updates, counting, sampled, statistics, places, bits, polynomials, linalg, segments),
    *(padding, rows, spaced),
)


def _collect(table: str) -> Mapping[str, Handler]:
    found: dict[str, Handler] = {}
    for m in MODULES:
        own: Mapping[str, Handler] = getattr(m, table, {})
        twice = found.keys() & own.keys()
        assert not twice, f"{m.__name__} handles {twice} again"
        found |= own
    return MappingProxyType(found)


HANDLERS = _collect("HANDLERS")
"""Handlers of functions, and of ufuncs and ufunc methods that are not element-wise, by NumPy name."""

METHODS: Mapping[str, Handler] = MappingProxyType({**{n: HANDLERS[n] for n in (
    *("all", "any", "argmax", "argmin", "argsort", "astype", "clip", "copy", "cumprod", "cumsum", "diagonal", "dot"),
    *("max", "mean", "min", "prod", "ravel", "repeat", "round", "squeeze", "std", "sum", "swapaxes", "take", "trace"),
    *("var", "searchsorted", "argpartition"),
  )}, **_collect("METHODS")})  # fmt: skip
"""Methods of ndarray; those that take what the function of that name takes, and those of their own."""

CREATORS = _collect("CREATORS")
"""Functions that NumPy does not dispatch on their arguments, or that run on what they are given (scipy.special)."""

HALF_DISPATCHED = ("take",)
"""Functions that NumPy dispatches on some of their arguments alone: np.take on the array, and not on the indices."""

UFUNCS = elementwise.UFUNCS
"""Meanings of element-wise ufuncs by NumPy name."""

OF_LISTS = (
    *("sum", "prod", "mean", "std", "var", "median", "max", "min", "amax", "amin", "any", "all", "argmax", "argmin"),
    *("ptp", "average", "quantile", "percentile", "sort", "argsort", "cumsum", "cumprod", "count_nonzero", "diff"),
    *("linalg.norm", "transpose", "array_equal", "allclose", "tile", "repeat", "gradient", "trapezoid", "convolve"),
    *("correlate", "interp", "clip", "round", "flip", "roll", "nansum", "nanmean", "nanmax", "nanmin"),
)
"""Functions of arrays that are often given a list of arrays (`np.mean([f(x), g(x)], axis=0)`), on whose elements
NumPy does not dispatch."""

MUTABLE = frozenset({
    *("zeros", "ones", "empty", "full", "eye", "identity", "zeros_like", "ones_like", "empty_like", "full_like"),
})  # fmt: skip
"""Creators whose result a model may write to: traced even when nothing they are given is."""
