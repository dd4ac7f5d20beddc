"""Systems of linear equations, inverses, determinants and factors of square matrices."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from waxeq.frontend.array import TracedArray, Tracer
from waxeq.ops.linalg import Cholesky, Determinant, Solve

_SlogdetResult: Any = type(np.linalg.slogdet(np.eye(1)))
"""NumPy's named tuple of a sign and the logarithm of a magnitude."""


def _inexact(t: Tracer, a: Any) -> TracedArray:
    """A matrix in the dtype that NumPy factors it in: float64 for what it takes for no float, bfloat16 among it. Raises
    TypeError for float16."""
    x = t.array(a)
    if x.dtype == np.float16:
        raise TypeError("NumPy has no linear algebra on float16: cast to float32 or float64 first")
    return x if x.dtype.kind == "f" else x.astype(np.float64)


def _square(t: Tracer, a: Any) -> TracedArray:
    """Raises LinAlgError, as NumPy does, for what is no stack of square matrices."""
    x = t.array(a)
    if x.ndim < 2:
        raise np.linalg.LinAlgError(f"{x.ndim}-dimensional array given. Array must be at least two-dimensional")
    if x.shape[-1] != x.shape[-2]:
        raise np.linalg.LinAlgError(f"matrices must be square, not of {x.shape[-2]} rows and {x.shape[-1]} columns")
    return _inexact(t, x)


def _solve(t: Tracer, a: Any, b: Any) -> Any:
    """A right side is a vector where it has one dimension, and elsewhere a stack of matrices."""
    m, right = _square(t, a), _inexact(t, b)
    dtype = np.result_type(m.dtype, right.dtype)
    vector = right.ndim == 1
    rows: Any = right[:, None] if vector else right
    if rows.ndim < 2 or rows.shape[-2] != m.shape[-1]:
        raise ValueError(f"np.linalg.solve: matrices of {m.shape} do not fit right sides of {right.shape}")
    np.broadcast_shapes(m.shape[:-2], rows.shape[:-2])
    x: Any = t.wrap(t.builder(Solve(), m.astype(dtype).value, rows.astype(dtype).value))
    return x[..., 0] if vector else x


def _inv(t: Tracer, a: Any) -> Any:
    m = _square(t, a)
    return _solve(t, m, np.eye(m.shape[-1], dtype=m.dtype))


def _determinant(f: str, t: Tracer, a: Any) -> TracedArray:
    """A scalar where there is one matrix."""
    m = _square(t, a)
    return t.wrap(t.builder(Determinant(f), m.value), m.ndim == 2)


def _slogdet(t: Tracer, a: Any) -> Any:
    return _SlogdetResult(_determinant("sign", t, a), _determinant("logabs", t, a))


def _cholesky(t: Tracer, a: Any, /, *, upper: bool = False) -> Any:
    """The upper factor is made of the upper triangle."""
    m: Any = _square(t, a)
    m = np.swapaxes(m, -1, -2) if upper else m
    x: Any = t.wrap(t.builder(Cholesky(), m.value))
    return np.swapaxes(x, -1, -2) if upper else x


# -- what follows from them


def _tensorsolve(t: Tracer, a: Any, b: Any, axes: Any = None) -> Any:
    x, y = t.array(a), t.array(b)
    if axes is not None:
        order = [i for i in range(x.ndim) if i not in axes]
        x = np.transpose(x, [*order, *axes])
    shape = x.shape[y.ndim :]
    n = math.prod(shape)
    if x.size != n**2:
        raise np.linalg.LinAlgError("prod(a.shape[b.ndim:]) and prod(a.shape[:b.ndim]) must be equal")
    return np.linalg.solve(x.reshape((n, n)), y.reshape(-1)).reshape(shape)


def _tensorinv(t: Tracer, a: Any, ind: int = 2) -> Any:
    x = t.array(a)
    if ind <= 0:
        raise ValueError("Invalid ind argument.")
    n = math.prod(x.shape[ind:])
    return np.linalg.inv(x.reshape((n, -1))).reshape((*x.shape[ind:], *x.shape[:ind]))


def _cond(t: Tracer, x: Any, p: Any = None) -> Any:
    """By norms of the matrix and its inverse, infinite of singular ones; that by singular values is refused."""
    if p in (None, 2, -2, "nuc"):
        raise t.refuse("a condition number by singular values", "use 'fro', 1, -1, inf or -inf")
    if 0 in np.shape(x)[-2:]:
        raise np.linalg.LinAlgError("cond is not defined on empty arrays")
    m: Any = _square(t, x)
    singular = np.linalg.slogdet(m).sign == 0
    other = np.where(singular[..., None, None], np.eye(m.shape[-1], dtype=m.dtype), m)  # the inverse would raise
    y = np.linalg.norm(m, p, axis=(-2, -1)) * np.linalg.norm(np.linalg.inv(other), p, axis=(-2, -1))
    infinite = singular | (np.isnan(y) & ~np.isnan(m).any(axis=(-2, -1)))
    return np.where(infinite, np.asarray(np.inf, y.dtype), y)[()]


# -- least squares


def _lstsq(t: Tracer, a: Any, b: Any, rcond: Any = None) -> Any:
    """By a matrix that is known while tracing: a product with its pseudo-inverse."""
    known, right = t.known(a), t.array(b)
    if known is None:
        raise t.refuse("np.linalg.lstsq by a matrix that is data", _NORMAL.format("a.T @ b"))
    if known.ndim != 2 or right.ndim not in (1, 2):
        raise np.linalg.LinAlgError("least squares are of a matrix, and of a right side of one or two dimensions")
    if known.shape[0] != right.shape[0]:
        raise np.linalg.LinAlgError("Incompatible dimensions")
    dtype = np.result_type(_inexact(t, a).dtype, _inexact(t, b).dtype)
    wide, rows = known.astype(np.float64), right.astype(np.float64)
    m, n = known.shape
    least = np.finfo(np.float64).eps
    cut = least * max(m, n) if rcond is None else least if rcond < 0 else rcond
    _, _, rank, values = np.linalg.lstsq(wide, np.zeros(m), rcond=rcond)
    x: Any = np.matmul(np.linalg.pinv(wide, rcond=cut), rows)
    left: Any = np.zeros(0)
    if rank == n and m > n:
        left = np.sum(np.square(rows - np.matmul(wide, x)), axis=0, keepdims=right.ndim == 1)
    return x.astype(dtype), left.astype(dtype), rank, values.astype(dtype)


def _pinv(t: Tracer, a: Any, rcond: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Any:
    """Of a matrix that is known while tracing."""
    known = t.known(a)
    if known is None:
        raise t.refuse("np.linalg.pinv of a matrix that is data", _NORMAL.format("a.T"))
    return np.linalg.pinv(known, rcond=rcond, hermitian=hermitian, **({} if rtol is None else {"rtol": rtol}))


_NORMAL = "where it is well conditioned and has more rows than columns write np.linalg.solve(a.T @ a, {})"


HANDLERS: Mapping[str, Callable[..., Any]] = {
    "linalg.solve": _solve,
    "linalg.inv": _inv,
    "linalg.det": partial(_determinant, "det"),
    "linalg.slogdet": _slogdet,
    "linalg.cholesky": _cholesky,
    "linalg.tensorsolve": _tensorsolve,
    "linalg.tensorinv": _tensorinv,
    "linalg.cond": _cond,
    "linalg.lstsq": _lstsq,
    "linalg.pinv": _pinv,
}
