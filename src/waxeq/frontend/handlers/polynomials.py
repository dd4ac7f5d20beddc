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


def _polymul(t: Tracer, a1: Any, a2: Any) -> Any:
    """Leading coefficients that are data are kept; NumPy leaves out those that are 0."""
    return np.convolve(*(_trimmed(t, a) for a in (a1, a2)))


def _trimmed(t: Tracer, a: Any) -> Any:
    x = np.atleast_1d(t.array(a))
    known = t.known(x)
    return x if known is None else np.trim_zeros(known, "f") if known.any() else known[:1] * 0


def _poly(t: Tracer, seq_of_zeros: Any) -> Any:
    """From zeros; of a matrix it would be from eigenvalues, and is refused."""
    zeros = np.atleast_1d(t.array(seq_of_zeros))
    if zeros.ndim == 2 and zeros.shape[0] == zeros.shape[1]:
        raise t.refuse("np.poly of a matrix", "compute its eigenvalues outside the model and pass them as an argument")
    if zeros.ndim != 1:
        raise ValueError("input must be 1d or non-empty square 2d array.")
    zeros = zeros if zeros.dtype == np.float32 else zeros.astype(np.float64)  # NumPy takes float16 for no float here
    y: Any = np.ones(1, zeros.dtype)
    for z in zeros:
        y = np.concatenate((y, y[:1] * 0)) - np.concatenate((y[:1] * 0, y)) * z
    return y if zeros.shape[0] else 1.0


def _polyfit(t: Tracer, x: Any, y: Any, deg: Any, rcond: Any = None, full: bool = False, w: Any = None,
             cov: Any = False) -> Any:  # fmt: skip
    """At places, and by weights, that are known while tracing: a product with what follows from them."""
    at, weights = t.known(x), None if w is None else t.known(w)
    if at is None or (weights is None and w is not None):
        raise t.refuse("np.polyfit at places or by weights that are data", _NORMAL)
    if cov or full:
        raise t.refuse("np.polyfit with cov or full", "ask for the coefficients alone")
    rows: Any = t.array(y)
    at = at + 0.0
    _require_samples(at, rows, weights, deg)
    lhs = np.vander(at, int(deg) + 1)
    lhs = lhs if weights is None else lhs * (weights + 0.0)[:, None]
    scale = np.sqrt((lhs * lhs).sum(axis=0))
    cut = len(at) * np.finfo(at.dtype).eps if rcond is None else rcond
    solving = np.linalg.pinv(lhs / scale, rcond=cut) / scale[:, None]
    return np.matmul(solving if weights is None else solving * weights, rows.astype(np.float64))


_NORMAL = "make them constants, or write v = np.vander(x, deg + 1) and np.linalg.solve(v.T @ v, v.T @ y)"


def _require_samples(at: np.ndarray, rows: Any, weights: np.ndarray | None, deg: Any) -> None:
    """Raises as NumPy does where these are no samples of a curve."""
    if deg < 0:
        raise ValueError("expected deg >= 0")
    if at.ndim != 1 or not at.size:
        raise TypeError("expected non-empty 1D vector for x")
    if rows.ndim not in (1, 2):
        raise TypeError("expected 1D or 2D array for y")
    if at.shape[0] != rows.shape[0]:
        raise TypeError("expected x and y to have same length")
    if weights is not None and weights.shape != at.shape:
        raise TypeError("expected a 1-d array of weights, as many as there are places")


HANDLERS: Mapping[str, Callable[..., Any]] = {
    "polyadd": partial(_joined, np.add),
    "polysub": partial(_joined, np.subtract),
    "polyder": _polyder,
    "polyint": _polyint,
    "polymul": _polymul,
    "poly": _poly,
    "polyfit": _polyfit,
}
