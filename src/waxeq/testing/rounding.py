"""How far rounding may move each element of a result: Monte Carlo arithmetic (D. S. Parker, UCLA CSD-970002, 1997).

The term is evaluated in float64, many times at once, and the result of every step is moved at random by what rounding
it in its own dtype may do. What the results differ by is what any order of the same steps may differ by, element by
element: little where the term is well-conditioned, much where it cancels or decides.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from waxeq.basis.evaluate import Ideal, NamedArray
from waxeq.basis.typing import types
from waxeq.ir.term import Term, postorder
from waxeq.ir.types import is_float, numpy_dtype
from waxeq.testing.values import Canonical, Leaves

_DRAW, _DRAWS = "%draw", 8
"""The axis of the evaluations at once; a chance deviation under a tenth of the usual one in all is 1 in 10^9."""
_UNITS = 4.0
"""Units in the last place that one step may be off: what the functions of a C library are."""
_FAR = 8.0
"""How many times the largest deviation seen is allowed: both of two results may be off, further than was seen."""
_ROUNDED = frozenset({"Map", "Zip", "Add", "Mul", "Sum", "Scan", "Cast", "Scatter"})
"""Heads that compute with floats, as products along an axis do; others move them or choose among them."""
_FOLDED = {"Sum": 0, "Red": 1, "Scan": 1, "Scatter": 2}
"""Where the axis stands that is folded: each of n terms may come first, and errors are of their magnitudes."""


def deviations(
    root: Term, leaves: Leaves, sizes: Mapping[str, int], error: float, rng: np.random.Generator
) -> NamedArray:
    """Bounds on what two evaluations of a float term may differ by, at least 0 and infinite where one of them had no
    finite value, on the term's axes or some of them. `error`: the relative error that each step may make besides."""
    if not is_float(types(root)[root].dtype):
        return NamedArray((), np.zeros(()))
    e = Canonical({**sizes, _DRAW: _DRAWS}, Ideal())
    kinds, done = types(root), {}
    for t in postorder(root):
        args = [done[a] if isinstance(a, Term) else a for a in t.args]
        x = e.apply(t.head, args, {n: _widened(a) for n, a in leaves.items()})
        rounded = t.head in _ROUNDED or t.args[0] == "prod" or (error and not t.terms)
        if rounded and is_float(kinds[t].dtype):
            x = _moved(e, t, args, x, kinds[t].dtype, error, rng)
        done[t] = x
    x = done[root]
    if _DRAW not in x.axes:
        return NamedArray((), np.zeros(()))
    order = tuple(k for k in x.axes if k != _DRAW)
    data = x.aligned((*order, _DRAW))
    with np.errstate(all="ignore"):
        spread = _FAR * (np.max(data, axis=-1) - np.min(data, axis=-1))
    return NamedArray(order, np.where(np.isfinite(spread), spread, np.inf))


def _widened(x: NamedArray) -> NamedArray:
    return NamedArray(x.axes, x.data.astype(np.float64)) if x.data.dtype.kind not in "biu" else x


def _moved(
    e: Canonical, t: Term, args: list[Any], x: NamedArray, dtype: str, error: float, rng: np.random.Generator
) -> NamedArray:
    """The value with what rounding may add, another in every draw and never nothing, so that no two steps cancel."""
    info = _finfo(dtype)
    eps, least = float(info.eps), float(info.smallest_subnormal if dtype == "float16" else info.tiny)
    x, unit, size = e.present(x, _DRAW), _UNITS * eps, x
    if t.head in _FOLDED:
        n = e.sizes[t.args[_FOLDED[t.head]]]
        unit, size = eps * math.sqrt(n), e.apply(t.head, [_magnitude(a) for a in args])
    by = rng.random(x.data.shape, np.float32) - np.float32(0.5)
    by += np.copysign(np.float32(0.5), by)  # half to one, of either sign
    with np.errstate(all="ignore"):
        return NamedArray(x.axes, x.data + by * ((unit + error) * np.abs(size.aligned(x.axes)) + least))


def _magnitude(x: Any) -> Any:
    return NamedArray(x.axes, np.abs(x.data)) if isinstance(x, NamedArray) and x.data.dtype.kind == "f" else x


def _finfo(dtype: str) -> Any:
    """What NumPy knows of a float; bfloat16 alone needs ml_dtypes, which is not everywhere that kernels are checked."""
    if dtype != "bfloat16":
        return np.finfo(numpy_dtype(dtype))
    from ml_dtypes import finfo

    return finfo(numpy_dtype(dtype))
