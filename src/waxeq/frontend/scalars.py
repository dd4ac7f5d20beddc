"""Which results without axes are scalars in NumPy and which are arrays. `s += 1` gives the name of a scalar to another
one and writes to an array, so that it matters to all others who hold it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from waxeq.frontend.array import TracedArray, Tracer

_ARRAYS = frozenset({
    *("array", "asarray", "asanyarray", "zeros", "ones", "empty", "full"),
    *("zeros_like", "ones_like", "empty_like", "full_like", "copy", "real_if_close"),
    *("block", "broadcast_arrays", "broadcast_to", "expand_dims", "sliding_window_view"),
    *("cov", "isin", "piecewise", "resize", "roll", "select", "tensordot", "tile", "where"),
})  # fmt: skip
"""Functions that give an array without axes for a scalar, too."""

_FOLLOWERS = frozenset({"astype", "diff", "imag", "permute_dims", "real", "reshape", "squeeze", "transpose"})
"""Functions whose result without axes is a scalar where what they are given is one. All others give scalars."""

_METHODS = _FOLLOWERS | {"conj", "conjugate", "copy"}


def of_function(t: Tracer, name: str, args: Sequence[Any], result: Any) -> Any:
    """What a function gives, as the scalar or the array that NumPy gives."""
    follows = name in _FOLLOWERS and not (args and _is_scalar(args[0]))
    return _as(t, result, not (follows or name in _ARRAYS))


def of_method(x: TracedArray, name: str, result: Any) -> Any:
    """What a method of ndarray gives, as the scalar or the array that NumPy gives."""
    return _as(x.tracer, result, name not in _METHODS or x.scalar)


def _is_scalar(x: Any) -> bool:
    return x.scalar if isinstance(x, TracedArray) else not isinstance(x, np.ndarray)


def _as(t: Tracer, result: Any, scalar: bool) -> Any:
    if type(result) in (tuple, list):
        return type(result)(_as(t, r, scalar) for r in result)
    if not isinstance(result, TracedArray) or result.ndim or result.scalar is scalar:
        return result
    return t.wrap(result.value, scalar)


def require_safe(x: Any, dtype: Any) -> None:
    """Raises TypeError, as NumPy does, for an array that a dtype may not hold; NumPy's scalars, Python's numbers and
    lists of them are cut to it."""
    scalar = isinstance(x, TracedArray) and x.scalar
    if isinstance(x, np.ndarray) and not scalar and not np.can_cast(x.dtype, dtype, "safe"):
        to = np.dtype(dtype)
        raise TypeError(f"Cannot cast array data from {x.dtype!r} to {to!r} according to the rule 'safe'")
