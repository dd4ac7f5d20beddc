"""Functions that end at some size of their argument: nests that meet a larger one compute again with others."""

from __future__ import annotations

import numpy as np
import pytest

from waxeq.backend.call import Call, View, operand
from waxeq.backend.discover import backends
from waxeq.basis.scalar import SCALARS
from waxeq.ir.term import Term
from waxeq.ir.types import numpy_dtype
from waxeq_native.loops import limits

FAST = backends(["native"])[0].kernels["native.loops_fast"]
OF_ONE, OF_TWO = (sorted({name for name, _ in limits() if SCALARS[name].arity == many}) for many in (1, 2))


def _run(meaning: Term, dtype: str, *xs: np.ndarray) -> np.ndarray:
    sizes = {"i": xs[0].shape[0], "j": xs[0].shape[1]}
    view = View.dense("ij", sizes, dtype)
    call = Call("native.loops_fast", meaning, sizes, (view,) * len(xs), view)
    assert FAST.accepts(call) and FAST.in_place(call) == (), "what was read may be needed again"
    out = np.empty_like(xs[0])
    for step in FAST.bind(call, list(xs), out, np.empty(FAST.workspace(call), np.uint8)):
        step()
    return out


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("name", OF_ONE)
def test_large_arguments(name: str, dtype: str) -> None:
    """Near, far, both in one row, infinite and NaN."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((64, 100))
    x[20:40] *= 1e12
    x[30:50, ::7] *= 1e15
    x[60:] *= 10.0 ** rng.integers(-30, 38, (4, 100))
    x[1, :4] = np.nan, np.inf, -np.inf, -0.0
    with np.errstate(all="ignore"):
        x = x.astype(numpy_dtype(dtype))
        want = SCALARS[name](x.astype(np.float64))
    got = _run(Term("Map", name, operand(0, "ij", dtype)), dtype, x).astype(np.float64)
    finite = np.isfinite(want)
    assert np.array_equal(finite, np.isfinite(got)) and np.signbit(got[1, 3]) == np.signbit(want[1, 3])
    eps = {"float16": 2**-11, "bfloat16": 2**-8, "float32": 2**-23, "float64": 2**-51}[dtype]
    assert np.max(np.abs(got - want)[finite] / np.maximum(np.abs(want[finite]), 1e-3)) <= 1.5 * eps


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("name", OF_TWO)
def test_large_quotients(name: str, dtype: str) -> None:
    """As NumPy's to the last bit: near, far, both in one row, by zero, infinite and NaN."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(0, 100, (64, 100)), rng.normal(0, 3, (64, 100))
    x[20:40] *= 1e12
    x[30:50, ::7] *= 1e15
    y[50:60] *= 10.0 ** rng.integers(-30, 38, (10, 100))
    x[1, :9] = np.nan, np.inf, -np.inf, -0.0, 0, 5, -5, 5, 2
    y[1, 3:10] = 7, -7, np.inf, np.inf, 0, -0.0, np.nan
    with np.errstate(all="ignore"):
        x, y = x.astype(numpy_dtype(dtype)), y.astype(numpy_dtype(dtype))
        wide = "float32" if dtype in ("float16", "bfloat16") else dtype
        want = SCALARS[name](x.astype(wide), y.astype(wide)).astype(x.dtype)
    got = _run(Term("Zip", name, operand(0, "ij", dtype), operand(1, "ij", dtype)), dtype, x, y)
    got, want = got.astype(np.float64), want.astype(np.float64)
    np.testing.assert_array_equal(got, want)
    some = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got)[some], np.signbit(want)[some])


def test_zero_is_no_far_quotient() -> None:
    """A row with a divisor of zero was computed twice, one element at a time."""
    sizes = {"i": 4, "j": 100}
    view = View.dense("ij", sizes, "float32")
    meaning = Term("Zip", "mod", operand(0, "ij", "float32"), operand(1, "ij", "float32"))
    (part,) = FAST.of(Call("native.loops_fast", meaning, sizes, (view, view), view)).parts
    assert "& (wx_abs_f32(r1) > 0);" in part.source and "wx_far_mod_f32" in part.source


def test_folds_begin_anew() -> None:
    """A sum over a row that has one large argument, and a function of that sum."""
    x = np.random.default_rng(1).standard_normal((50, 300)).astype(np.float32)
    x[7, 11], x[9] = 3e30, 1e9
    s = Term("Map", "sin", operand(0, "ij", "float32"))
    got = _run(Term("Add", s, Term("Map", "cos", Term("Sum", "j", s))), "float32", x)
    sine = np.sin(x.astype(np.float64))
    np.testing.assert_allclose(got, sine + np.cos(sine.sum(1, keepdims=True)), atol=1e-4)
