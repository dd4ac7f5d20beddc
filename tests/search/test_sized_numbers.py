"""Numbers of a model beside sizes that depend on dims: a plan is searched at sizes that are none of them."""

# ruff: noqa: F821  (axes and dtypes are names in quotes)

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import waxeq as wx


def least(n: wx.Input["i64", "T"]) -> Any:
    return np.minimum(n, 3)


def clipped(n: wx.Input["f32", "T", 5]) -> Any:
    return np.clip(n, -5, 3)


def larger(n: wx.Input["i64", "T"]) -> Any:
    return n > 5, n // 3


def folded(n: wx.Input["f32", "T", 9]) -> Any:
    return np.clip(n * 1.5 * 2, 0, 7) + n.mean(0)


def filled(n: wx.Input["f32", "T", 100]) -> Any:
    return np.minimum(n, np.full(100, np.float32(3))) + np.float32(0.5)


def mean(n: wx.Input["f32", "T"]) -> Any:
    return n.mean()


def spread(n: wx.Input["f32", "T", 9]) -> Any:
    return n.var(), np.sum(n * n) / 3, n[::-1]


MODELS = (least, clipped, larger, folded, filled, mean, spread)


@pytest.mark.parametrize("dims", [{"T": (1, 64)}, {"T": (4, 300)}, {"T": (1, 3)}, {"T": (3, 3)}], ids=str)
@pytest.mark.parametrize("model", MODELS)
def test_a_number_that_is_a_size_once_is_a_number_everywhere(model: Any, dims: Any, tmp_path: Path) -> None:
    """A bound of 3 was the size of an axis at other sizes, as the plan had been searched where T is 3; what is checked
    were small numbers that met no bound. A mean of everything ended in an IndexError."""
    o = wx.Options(threads=1, budget=0.5, trial=False, table=tmp_path / "t.duckdb")
    program = wx.optimize(model, options=o, dims=dims).program
    low, high = dims["T"]
    for t in {low, *(min(high, max(low, n)) for n in (3, 8)), high}:
        x = _input(model, t)
        found, wanted = program(x), model(x)
        for a, b in zip(*((r if isinstance(r, tuple) else (r,)) for r in (found, wanted)), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4)


def _input(model: Any, t: int) -> np.ndarray:
    """Numbers of both signs, far beyond all bounds."""
    shape = {clipped: (t, 5), folded: (t, 9), filled: (t, 100), spread: (t, 9)}.get(model, (t,))
    x = np.random.default_rng(t).standard_normal(shape) * 30
    return x.astype(np.int64 if model in (least, larger) else np.float32)
