"""Systems of linear equations, inverses, determinants and factors of square matrices."""

from __future__ import annotations

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


HANDLERS: Mapping[str, Callable[..., Any]] = {
    "linalg.solve": _solve,
    "linalg.inv": _inv,
    "linalg.det": partial(_determinant, "det"),
    "linalg.slogdet": _slogdet,
    "linalg.cholesky": _cholesky,
}
