"""Arrays to be sorted."""

from __future__ import annotations

import numpy as np

from waxeq.ir.types import is_float, numpy_dtype


def drawn(shape: tuple[int, int], dtype: str) -> np.ndarray:
    """With many equal elements, and of floats all that is special."""
    rng = np.random.default_rng(shape[1])
    if not is_float(dtype):
        return rng.integers(-(1 << 62), 1 << 62, shape).astype(dtype) >> (dtype == "int64")
    x = np.round(rng.standard_normal(shape) * 50, 1).astype(numpy_dtype(dtype))
    special = rng.integers(0, 60, shape)
    for i, value in enumerate((np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1e-45)):
        x[special == i] = value
    return x
