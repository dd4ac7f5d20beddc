"""Arrays made like others, or of others, and arrays of known content that a model may write to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from waxeq.frontend.array import TracedArray, Tracer
from waxeq.frontend.handlers.places import Flat
from waxeq.frontend.handlers.positions import counted
from waxeq.frontend.handlers.shapes import diagonal
from waxeq.ir.types import is_floating, numpy_name


def _like(
    value: Any, t: Tracer, a: Any, dtype: Any = None, order: Any = "K", subok: bool = True, shape: Any = None
) -> TracedArray:
    type_ = t.explicit.type(t.value(a))
    sizes = type_.shape if shape is None else (shape,) if isinstance(shape, int) else tuple(shape)
    return t.wrap(t.explicit.full(value, numpy_name(dtype) if dtype is not None else type_.dtype, sizes))


def _full_like(t: Tracer, a: Any, fill_value: Any, dtype: Any = None, order: Any = "K", subok: bool = True,
               shape: Any = None) -> Any:  # fmt: skip
    if type(fill_value) in (bool, int, float):
        return _like(fill_value, t, a, dtype, shape=shape)
    y = _like(0, t, a, dtype, shape=shape)
    return np.copy(np.broadcast_to(t.array(fill_value).astype(y.dtype), y.shape))


def _full(t: Tracer, shape: Any, fill_value: Any, dtype: Any = None, order: Any = "C", **_: Any) -> Any:
    sizes = (int(shape),) if np.ndim(shape) == 0 else tuple(int(s) for s in shape)
    if isinstance(fill_value, TracedArray) or np.ndim(fill_value):
        y = t.array(fill_value)
        return np.copy(np.broadcast_to(y if dtype is None else y.astype(dtype), sizes))
    name = numpy_name(np.asarray(fill_value).dtype if dtype is None else dtype)
    return t.wrap(t.explicit.full(np.asarray(fill_value).item(), name, sizes))


def _filled(value: float, t: Tracer, shape: Any, dtype: Any = float, order: Any = "C", **_: Any) -> Any:
    return _full(t, shape, value, float if dtype is None else dtype)


def _array(t: Tracer, x: Any, dtype: Any = None, copy: Any = True, ndmin: int = 0, order: Any = None, **_: Any) -> Any:
    if isinstance(x, Flat):  # of what lies in order NumPy makes no copy, even where it is asked to
        x, copy = x.copy().perhaps_shares(x.base), False
    if isinstance(x, TracedArray):
        y = x if not copy and order in (None, "K", "A") else np.copy(x)
        y = y if copy or (dtype is not None and y.dtype != dtype) else _perhaps(t, x, y)
    else:
        y = np.stack([_array(t, e) if isinstance(e, (list, tuple, TracedArray)) else t.array(e) for e in x])
    y = y if dtype is None or y.dtype == dtype else y.astype(dtype)
    return y[(None,) * max(ndmin - y.ndim, 0) + (...,)] if ndmin > y.ndim else y


def _perhaps(t: Tracer, x: TracedArray, y: Any) -> Any:
    """`y`, which NumPy makes in another order: it is `x` itself where that has the order already."""
    return y if y is x else y.perhaps_shares(x)


def _copy(t: Tracer, a: Any, order: Any = "K", subok: bool = False) -> TracedArray:
    return t.wrap(a.content if isinstance(a, TracedArray) else t.value(a))


# -- by position


def _below(t: Tracer, shape: tuple[int, ...], k: int) -> Any:
    """True on and below the k-th diagonal."""
    return counted(t, shape[-2])[:, None] >= counted(t, shape[-1]) - k


def _tril(t: Tracer, m: Any, k: int = 0) -> Any:
    x = t.array(m)
    x = np.broadcast_to(x, (x.shape[0], x.shape[0])) if x.ndim == 1 else x
    return np.where(_below(t, x.shape, k), x, np.zeros((), x.dtype))


def _triu(t: Tracer, m: Any, k: int = 0) -> Any:
    x = t.array(m)
    x = np.broadcast_to(x, (x.shape[0], x.shape[0])) if x.ndim == 1 else x
    return np.where(_below(t, x.shape, k - 1), np.zeros((), x.dtype), x)


def _diag(t: Tracer, v: Any, k: int = 0) -> Any:
    x = t.array(v)
    if x.ndim == 2:
        return diagonal(t, x, k)
    if x.ndim != 1:
        raise ValueError("Input must be 1- or 2-d.")
    n = x.shape[0] + abs(k)
    row = np.pad(x, (max(-k, 0), max(k, 0)))
    here = counted(t, n)[:, None] + k == counted(t, n)
    return np.where(here, row[:, None], np.zeros((), x.dtype))


def _meshgrid(t: Tracer, *xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> tuple[Any, ...]:
    rank = len(xi)
    order = [1, 0, *range(2, rank)] if indexing == "xy" and rank > 1 else list(range(rank))
    rows = [t.array(x).reshape(tuple(-1 if d == at else 1 for d in range(rank)))
            for x, at in zip(xi, order, strict=True)]  # fmt: skip
    shape = np.broadcast_shapes(*(x.shape for x in rows))
    full = rows if sparse else [np.broadcast_to(x, shape) for x in rows]
    made: tuple[Any, ...] = tuple(np.copy(x) for x in full)
    return made if copy else tuple(y.perhaps_shares(x) for y, x in zip(made, rows, strict=True))


def _vander(t: Tracer, x: Any, N: int | None = None, increasing: bool = False) -> Any:
    a = t.array(x)
    n = a.shape[0] if N is None else N
    a = a.astype(np.promote_types(a.dtype, int))
    if n == 0:
        return np.zeros((*a.shape, 0), a.dtype)
    powers = [np.ones_like(a)]
    for _ in range(n - 1):
        powers.append(powers[-1] * a)
    return np.stack(powers if increasing else powers[::-1], axis=-1)


HANDLERS: Mapping[str, Callable[..., Any]] = {
    "zeros_like": partial(_like, 0),
    "ones_like": partial(_like, 1),
    "empty_like": partial(_like, 0),
    "full_like": _full_like,
    "copy": _copy,
    "tril": _tril,
    "triu": _triu,
    "diag": _diag,
    "diagflat": lambda t, v, k=0: _diag(t, t.array(v).reshape(-1), k),
    "meshgrid": _meshgrid,
    "vander": _vander,
}


def _known(f: Callable[..., Any], t: Tracer, *args: Any, **kw: Any) -> Any:
    """What is known while tracing, as an array that a model may write to where there are tensors of its dtype."""
    made = f(*args, **kw)
    return t.array(made) if made.dtype.kind in "biu" or is_floating(made.dtype) else made


CREATORS: Mapping[str, Callable[..., Any]] = {
    "array": _array,
    "asarray": partial(_array, copy=False),
    "asanyarray": partial(_array, copy=False),
    "ascontiguousarray": partial(_array, copy=False, order="C", ndmin=1),
    "asfortranarray": partial(_array, copy=False, order="F", ndmin=1),
    "zeros": partial(_filled, 0.0),
    "ones": partial(_filled, 1.0),
    "empty": partial(_filled, 0.0),
    "eye": partial(_known, np.eye),
    "identity": partial(_known, np.identity),
    "full": _full,
}
