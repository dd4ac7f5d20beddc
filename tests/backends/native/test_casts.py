"""Floats that an integer cannot hold become what NumPy makes of them, and are no floats when they come back."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import waxeq as wx

BEYOND = [300.0, -300.0, 7e4, 3e9, -3e9, 1e20, np.inf, -np.inf, np.nan, 5.7, -5.7, 0.5, -0.5, -0.0, 127.0, -129.0]

MODELS: dict[str, Callable[[np.ndarray, str], np.ndarray]] = {
    "there and back": lambda x, to: x.astype(to).astype(x.dtype),
    "does it fit": lambda x, to: x.astype(to) == x,
    "what is left": lambda x, to: x - x.astype(to),
    "and on": lambda x, to: (x.astype(to) * np.float32(2)).astype(x.dtype),
}


@pytest.mark.parametrize("to", ["int8", "int16", "int32", "int64"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("model", MODELS)
def test_casts_are_as_numpy_has_them(model: str, dtype: str, to: str, tmp_path: Path) -> None:
    def fn(x: np.ndarray) -> np.ndarray:
        return MODELS[model](x, to)

    options = wx.Options.of(table=tmp_path / "t.duckdb", budget=0, trial=False, threads=1)
    x = np.resize(np.array(BEYOND), 1000).astype(dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = wx.optimize(fn, np.linspace(-90, 90, 1000).astype(dtype), options=options)
        got, want = found.program(x), fn(x)
    assert all(s.call.kernel.startswith("native.") for s in found.plan.steps)
    np.testing.assert_array_equal(got, want)
    if got.dtype.kind == "f":
        np.testing.assert_array_equal(np.signbit(got), np.signbit(want))
