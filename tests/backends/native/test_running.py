"""Places of extremes and running folds, inside larger nests and in every dtype."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import waxeq as wx
from waxeq.backend.call import Call, View, operand
from waxeq.backend.discover import backends
from waxeq.basis.scalar import SCANS
from waxeq.basis.typing import types
from waxeq.ir.term import Term
from waxeq.ir.types import is_float, numpy_dtype
from waxeq.testing.conformance import check_call
from waxeq_native.work import NativeKernel

(BACKEND,) = backends(["native"])
LOOPS = BACKEND.kernels["native.loops"]
DTYPES = ("float32", "float16", "bfloat16", "float64", "int8", "bool")
SHAPES = ((37, 129), (3, 1), (1, 100_000), (300, 50))


def _call(meaning: Term, shape: tuple[int, int], dtype: str, threads: int) -> Call:
    sizes = dict(zip("ij", shape, strict=True))
    kind = types(meaning)[meaning]
    out = View.dense(sorted(kind.axes), sizes, kind.dtype)
    return Call("native.loops", meaning, sizes, (View.dense("ij", sizes, dtype),), out, threads=threads)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("fold", ["argmax", "argmin"])
def test_the_first_place_of_an_extreme_or_of_nan(fold: str, dtype: str) -> None:
    rng, axes, x = np.random.default_rng(0), (("i", 1), ("j", 2)), operand(0, "ij", dtype)
    calls = {(s, k): _call(Term("Red", fold, k, x), s, dtype, threads) for s in SHAPES for k, threads in axes}
    LOOPS.prepare([(LOOPS, c) for c in calls.values()])
    for shape in SHAPES:
        x = rng.integers(-9, 9, shape).astype(np.float32)
        if is_float(dtype):
            x[rng.random(shape) < 0.05] = np.inf
            x[rng.random(shape) < (0.01 if shape[0] > 1 else 0.0)] = np.nan
        x = (x > 3 if dtype == "bool" else x).astype(numpy_dtype(dtype))
        for axis, _ in axes:
            call = calls[shape, axis]
            assert LOOPS.accepts(call)
            got = np.full(call.out.shape, -7, np.int64)
            (step,) = LOOPS.bind(call, [x], got, np.empty(LOOPS.workspace(call), np.uint8))
            step()
            np.testing.assert_array_equal(got, getattr(np, fold)(x, axis="ij".index(axis)))


def test_nothing_has_no_extreme() -> None:
    assert not LOOPS.accepts(_call(Term("Red", "argmax", "j", operand(0, "ij", "float32")), (3, 0), "float32", 1))


def _scans(f: str, k: str, x: Term) -> Iterator[Term]:
    """A scan alone, used twice, over another axis, folded, after a fold, over a scan, and with a function before it."""
    s, other = Term("Scan", f, k, x), "j" if k == "i" else "i"
    yield s
    yield Term("Add", Term("Mul", s, s), x)
    yield Term("Scan", f, other, s)
    yield Term("Sum", k, Term("Mul", s, x))
    yield Term("Zip", "sub", s, Term("Red", "max", k, s))
    yield Term("Scan", "max", k, Term("Mul", x, Term("Sum", k, x)))
    yield Term("Scan", f, k, Term("Scan", "min", k, x))
    yield Term("Scan", f, k, Term("Map", "neg", Term("Zip", "sub", x, Term("Red", "max", k, x))))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int8"])
@pytest.mark.parametrize("f", SCANS)
def test_running_folds(f: str, dtype: str) -> None:
    rng, ran = np.random.default_rng(1), 0
    calls = [
        _call(meaning, shape, dtype, 2)
        for shape in ((37, 129), (2, 1), *([(1, 4000)] if dtype == "float32" else []))
        for k in "ij"
        for meaning in _scans(f, k, operand(0, "ij", dtype))
    ]
    taken = [c for c in calls if LOOPS.accepts(c)]
    NativeKernel.prepare([(LOOPS, c) for c in taken])
    for call in taken:
        for _ in range(3):
            assert check_call(LOOPS, call, rng) is None, str(call.meaning)
        ran += 1
    assert ran > 0.8 * len(calls)


def test_what_a_scan_reads_is_made_before_it() -> None:
    """The loops of a scan and of the values that it reads had the same axes in another order, and ran too early."""
    sizes = {"i": 2, "j": 4, "k": 7}
    costly = Term("Mul", Term("Map", "exp", operand(0, "jk", "float64")), operand(1, "i", "float64"))
    s = Term("Scan", "sum", "j", Term("Zip", "div", costly, Term("Num", 3.0, "float64")))
    top = Term("Red", "max", "i", Term("Red", "max", "j", Term("Red", "max", "k", s)))
    for meaning in (Term("Zip", "sub", s, top), Term("Add", Term("Zip", "sub", s, top), costly)):
        views = (View.dense("jk", sizes, "float64"), View.dense("i", sizes, "float64"))
        call = Call("native.loops", meaning, sizes, views, View.dense("ijk", sizes, "float64"))
        assert LOOPS.accepts(call)
        for seed in range(5):
            assert check_call(LOOPS, call, np.random.default_rng(seed)) is None


def test_the_sign_of_a_first_zero_stays() -> None:
    call = _call(Term("Scan", "sum", "j", operand(0, "ij", "float32")), (2, 3), "float32", 1)
    x, got = np.full((2, 3), -0.0, np.float32), np.ones((2, 3), np.float32)
    (step,) = LOOPS.bind(call, [x], got, np.empty(0, np.uint8))
    step()
    assert np.signbit(got).all()


def test_what_no_loop_runs_along_is_refused() -> None:
    """Backwards, or longer than what may be kept."""
    x = operand(0, "ij", "float32")
    back = Term("Slice", "j", "b", 49, -1, Term("Scan", "sum", "j", x))
    sizes = {"i": 4, "j": 50, "b": 50}
    views = View.dense("ij", sizes, "float32"), View.dense("ib", sizes, "float32")
    assert not LOOPS.accepts(Call("native.loops", back, sizes, (views[0],), views[1]))
    assert not LOOPS.accepts(_call(Term("Scan", "sum", "j", x), (1, 1_000_000), "float32", 1))


def _model(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.cumsum(np.tanh(x) * 2, axis=1), np.argmax(x * x + 1, axis=1)


def test_plans_have_them_in_loops(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((64, 300)).astype(np.float32)
    result = wx.optimize(_model, x, options=wx.Options(table=tmp_path / "t.duckdb", trial=False, backends=("native",)))
    meanings = {str(s.call.meaning) for s in result.plan.steps if s.call.kernel.startswith("native.")}
    assert any("Scan" in m for m in meanings) and any("argmax" in m for m in meanings)
    total, place = result.program(x)
    np.testing.assert_allclose(total, _model(x)[0], rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(place, _model(x)[1])


def test_what_is_folded_from_pieces_is_not_cut_again() -> None:
    """A fold inside another has no points of its own, however often it is cut."""
    inner = Term("Map", "exp", Term("Sum", "j", operand(0, "ij", "float32")))
    call = _call(Term("Sum", "i", Term("Mul", inner, inner)), (20_000, 8), "float32", 2)
    assert LOOPS.accepts(call)
    assert check_call(LOOPS, call, np.random.default_rng(0)) is None


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("fold", ["max", "min"])
def test_no_nan_is_overlooked_wherever_it_stands(fold: str, dtype: str) -> None:
    """Long rows are folded in four pieces side by side, two of which share a comparison."""
    places = 201
    x = np.zeros((places + 1, places), numpy_dtype(dtype))
    x[np.arange(places), np.arange(places)] = np.nan
    call = _call(Term("Red", fold, "j", operand(0, "ij", dtype)), x.shape, dtype, 1)
    got = np.full(call.out.shape, 7, x.dtype)
    (step,) = LOOPS.bind(call, [x], got, np.empty(LOOPS.workspace(call), np.uint8))
    step()
    assert np.isnan(got[:places]).all() and got[places] == 0
