"""What is made of nothing: axes of size 1 have no names, so that an empty part of one would still be its element."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import waxeq as wx

MODELS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "a sum over none": lambda t: t[1:].sum(0),
    "a product over none": lambda t: np.prod(t[1:], 0),
    "all of none": lambda t: np.all(t[1:] > 5, axis=0),
    "any of none": lambda t: np.isnan(t[1:]).any(0),
    "differences of one": lambda t: (np.diff(t, axis=0) ** 2).sum(),
    "a product over an empty axis": lambda t: t[:, :0] @ t.T[:0],
    "a contraction of none": lambda t: np.einsum("ij,ij->j", t[1:], t[1:]),
    "an empty result": lambda t: t[1:] - t[:-1],
    "a border around none": lambda t: np.pad(t[1:], 1, constant_values=2.0),
    "joined with what there is": lambda t: np.concatenate([t[1:], t * 2]).sum(0),
    "the largest of a number": lambda t: t[:, 3:].max(initial=-3.0),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("tolerance", [0.0, 1e-5])
def test_nothing_is_read_of_an_empty_part(name: str, tolerance: float, tmp_path: Path) -> None:
    """`t[1:].sum(0)` of one row that is NaN was NaN."""
    ones = np.ones((1, 3), np.float32)
    options = wx.Options(table=tmp_path / "t.duckdb", trial=False, measure=False, tolerance=tolerance, threads=1)
    program = wx.optimize(MODELS[name], ones, options=options).program
    for value in (1.0, np.nan, np.inf, 0.0):
        with np.errstate(all="ignore"):
            want = MODELS[name](ones * np.float32(value))
        got = program(ones * np.float32(value))
        assert (got.dtype, got.shape) == (np.asarray(want).dtype, np.shape(want))
        np.testing.assert_array_equal(got, want)
