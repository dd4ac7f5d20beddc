"""Sorting in the memory of the result, however it lies."""

from __future__ import annotations

import numpy as np
import pytest

from waxeq.backend.call import Call, View, operand
from waxeq.backend.discover import backends, kernels
from waxeq.ir.term import Term
from waxeq.ir.types import DTYPES
from waxeq.testing.conformance import check_call

SORT = dict(kernels(backends()))["numpy.sort"]
SIZES = {"i": 300, "j": 400}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("axis", ["i", "j"])
@pytest.mark.parametrize("order", ["ij", "ji"])
def test_rows_are_sorted_along_either_axis(dtype: str, axis: str, order: str) -> None:
    meaning = Term("Sort", axis, operand(0, "ij", dtype))
    views = View.dense("ij", SIZES, dtype), View.dense(order, SIZES, dtype)
    assert check_call(SORT, Call("numpy.sort", meaning, SIZES, views[:1], views[1]), np.random.default_rng(0)) is None


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_nan_is_last_and_zeros_are_kept(dtype: str) -> None:
    """Of zeros of both signs as many as there were, in any order."""
    x = np.random.default_rng(0).choice([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -2.5], 5000).astype(dtype)
    view = View.dense("i", {"i": x.size}, dtype)
    call, out = Call("numpy.sort", Term("Sort", "i", operand(0, "i", dtype)), {"i": x.size}, (view,), view), x.copy()
    for step in SORT.bind(call, (x,), out, np.empty(0, np.uint8)):
        step()
    np.testing.assert_array_equal(out, np.sort(x, kind="stable"))
    assert np.count_nonzero(np.signbit(out[out == 0])) == np.count_nonzero(np.signbit(x[x == 0]))
