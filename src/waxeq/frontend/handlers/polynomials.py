"""Polynomials as rows of coefficients, the highest power first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from waxeq.frontend.array import Tracer
from waxeq.frontend.handlers.positions import counted


def _joined(f: np.ufunc, t: Tracer, a1: Any, a2: Any) -> Any:
    x, y = (np.atleast_1d(t.array(a)) for a in (a1, a2))
    more = y.shape[0] - x.shape[0]
    if more > 0:
        x = np.concatenate((np.zeros(more, x.dtype), x))
    elif more < 0:
        y = np.concatenate((np.zeros(-more, y.dtype), y))
    return f(x, y)


def _powers(t: Tracer, n: int) -> Any:
    """n, n - 1 ... 1."""
    return n - counted(t, n) if t.sized else np.arange(n, 0, -1)


def _order(m: Any, what: str, other: str) -> int:
    if int(m) < 0:
        raise ValueError(f"Order of {what} must be positive (see {other})")
    return int(m)


def _polyder(t: Tracer, p: Any, m: int = 1) -> Any:
    x = t.array(p)
    for _ in range(_order(m, "derivative", "polyint")):
        x = x[:-1] * _powers(t, max(len(x) - 1, 0))
    return x


def _polyint(t: Tracer, p: Any, m: int = 1, k: Any = None) -> Any:
    x, m = t.array(p), _order(m, "integral", "polyder")
    given: Any = np.zeros(m) if k is None else np.atleast_1d(t.array(k))
    if len(given) == 1 and m > 1:
        given = given[0] * np.ones(m)
    if len(given) < m:
        raise ValueError("k must be a scalar or a rank-1 array of length 1 or >m.")
    for i in range(m):
        x = np.concatenate((x / _powers(t, len(x)), given[i : i + 1]))
    return x


HANDLERS: Mapping[str, Callable[..., Any]] = {
    "polyadd": partial(_joined, np.add),
    "polysub": partial(_joined, np.subtract),
    "polyder": _polyder,
    "polyint": _polyint,
}
