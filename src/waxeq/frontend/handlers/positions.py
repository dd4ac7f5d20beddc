"""Arrays that are known by position alone, for models that are traced at many sizes: `np.arange(x.shape[0])` is then no
constant, but a value whose size is that of x.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from waxeq.frontend.array import TracedArray, Tracer
from waxeq.ops.source import Iota


def counted(t: Tracer, n: int) -> Any:
    """0, 1, 2 ... as int64, of a size that may be that of a dim."""
    return t.wrap(t.builder(Iota(n, "int64")))


def _arange(t: Tracer, start: Any, stop: Any = None, step: Any = None, dtype: Any = None, **_: Any) -> Any:
    first, last = (0, start) if stop is None else (start, stop)
    by = 1 if step is None else step
    if not all(isinstance(n, (int, np.integer)) and not isinstance(n, TracedArray) for n in (first, last, by)):
        return np.arange(first, last, by, dtype=dtype)
    x = counted(t, len(range(int(first), int(last), int(by))))
    x = x if by == 1 else x * int(by)
    x = x if first == 0 else x + int(first)
    return x if dtype is None else x.astype(dtype)


def _tri(t: Tracer, N: int, M: int | None = None, k: int = 0, dtype: Any = float, **_: Any) -> Any:
    return (_arange(t, N)[:, None] >= _arange(t, N if M is None else M) - k).astype(dtype)


def _eye(t: Tracer, N: int, M: int | None = None, k: int = 0, dtype: Any = float, **_: Any) -> Any:
    return (_arange(t, N)[:, None] + k == _arange(t, N if M is None else M)).astype(dtype)


def _identity(t: Tracer, n: int, dtype: Any = None, **_: Any) -> Any:
    return _eye(t, n, dtype=float if dtype is None else dtype)


BY_POSITION: Mapping[str, Callable[..., Any]] = {"arange": _arange, "tri": _tri, "eye": _eye, "identity": _identity}
"""Handlers of creators, by NumPy name."""
