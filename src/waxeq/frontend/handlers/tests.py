"""Questions about arrays: of their content, which are traced, and of their type, which are answered at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from waxeq.frontend.array import TracedArray, Tracer


def _isclose(t: Tracer, a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False) -> Any:
    x, y = (v if type(v) in (bool, int, float) else t.array(v) for v in (a, b))  # Python numbers stay weak
    if not isinstance(y, TracedArray):
        y = float(y)
    elif y.dtype.kind != "f":
        y = y.astype(np.float64)
    near = (abs(x - y) <= atol + rtol * abs(y)) & np.isfinite(y) | (x == y)
    return near | (np.isnan(x) & np.isnan(y)) if equal_nan else near


def _allclose(t: Tracer, a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False) -> Any:
    return np.all(_isclose(t, a, b, rtol, atol, equal_nan))


def _array_equal(t: Tracer, a1: Any, a2: Any, equal_nan: bool = False) -> Any:
    x, y = t.array(a1), t.array(a2)
    if x.shape != y.shape:
        return False
    return np.all((x == y) | (np.isnan(x) & np.isnan(y)) if equal_nan else x == y)


def _array_equiv(t: Tracer, a1: Any, a2: Any) -> Any:
    x, y = t.array(a1), t.array(a2)
    try:
        np.broadcast_shapes(x.shape, y.shape)
    except ValueError:
        return False
    return np.all(x == y)


def _isin(t: Tracer, element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False,
          *, kind: Any = None) -> Any:  # fmt: skip
    found = np.any(t.array(element)[..., None] == t.array(test_elements).reshape(-1), axis=-1)
    return ~found if invert else found


def _infinite(sign: int, t: Tracer, x: Any) -> Any:
    y = t.array(x)
    return np.isinf(y) & (y > 0 if sign > 0 else y < 0)


def _size(t: Tracer, a: Any, axis: Any = None) -> int:
    shape = t.array(a).shape
    return int(np.prod([shape[i] for i in np.atleast_1d(axis)] if axis is not None else shape, dtype=np.int64))


def _result_type(t: Tracer, *xs: Any) -> np.dtype:
    return np.result_type(*(x.dtype if isinstance(x, TracedArray) else x for x in xs))


def _can_cast(t: Tracer, from_: Any, to: Any, casting: Any = "safe") -> bool:
    return np.can_cast(from_.dtype if isinstance(from_, TracedArray) else from_, to, casting)


HANDLERS: Mapping[str, Callable[..., Any]] = {
    "isclose": _isclose,
    "allclose": _allclose,
    "array_equal": _array_equal,
    "array_equiv": _array_equiv,
    "isin": _isin,
    "isposinf": lambda t, x: _infinite(1, t, x),
    "isneginf": lambda t, x: _infinite(-1, t, x),
    "isreal": lambda t, x: np.ones_like(x, dtype=bool),
    "iscomplex": lambda t, x: np.zeros_like(x, dtype=bool),
    "isrealobj": lambda t, x: True,
    "iscomplexobj": lambda t, x: False,
    "shape": lambda t, a: t.array(a).shape,
    "ndim": lambda t, a: t.array(a).ndim,
    "size": _size,
    "result_type": _result_type,
    "can_cast": _can_cast,
}
