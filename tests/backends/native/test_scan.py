"""Running folds along rows and down columns, in blocks and in pieces that threads share out."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import waxeq as wx
from waxeq.backend.call import Call, View, operand
from waxeq.backend.kernel import prepare
from waxeq.basis.scalar import SCANS, load
from waxeq.ir.term import Term
from waxeq.ir.types import numpy_dtype
from waxeq.testing.conformance import check_call
from waxeq_cfamily.scans import Scan
from waxeq_native import library
from waxeq_native.compiler import find
from waxeq_native.scan import FastScans, Scans, StreamingScans, Way

KERNEL = Scans()
SHAPES = ((1, 5), (3, 2049), (1, 70_001), (700, 3), (4099, 40), (60, 9001))


def called(shape: tuple[int, int], axis: str, kind: str, dtype: str, threads: int, order: str = "ij") -> Call:
    sizes = dict(zip("ij", shape, strict=True))
    x, out = View.dense(order, sizes, dtype), View.dense("ij", sizes, dtype)
    return Call("native.scan", Term("Scan", kind, axis, operand(0, "ij", dtype)), sizes, (x,), out, threads=threads)


def ran(call: Call, x: np.ndarray, kernel: Scans = KERNEL) -> np.ndarray:
    assert kernel.accepts(call)
    out = np.full(x.shape, 7, x.dtype)
    for step in kernel.bind(call, (x,), out, np.empty(kernel.workspace(call), np.uint8)):
        step()
    return out


def runs(kind: str, dtype: str) -> list[tuple[tuple[int, int], int, Call]]:
    """Calls of many shapes along either axis, compiled at once."""
    rows = [(s, "ij".index(a), called(s, a, kind, dtype, t)) for s in SHAPES for a in "ij" for t in (1, 3)]
    prepare((KERNEL, call) for *_, call in rows)
    return rows


@pytest.mark.parametrize("kind", SCANS)
@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "bool"])
def test_whole_numbers_are_what_numpy_has(kind: str, dtype: str) -> None:
    """Sums and products wrap around."""
    rng = np.random.default_rng(0)
    for shape, axis, call in runs(kind, dtype):
        x = rng.integers(-(1 << 40), 1 << 40, shape).astype(dtype)
        np.testing.assert_array_equal(ran(call, x), load(SCANS[kind]).accumulate(x, axis=axis, dtype=x.dtype))


@pytest.mark.parametrize("kind", ["max", "min"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_extremes_so_far_are_exact_and_nan_from_nan_on(kind: str, dtype: str) -> None:
    rng = np.random.default_rng(1)
    for shape, axis, call in runs(kind, dtype):
        x = rng.standard_normal(shape).astype(dtype)
        x[rng.random(shape) < 0.3 / max(shape)] = np.nan
        x[rng.random(shape) < 0.1] = np.inf if kind == "min" else -np.inf
        np.testing.assert_array_equal(ran(call, x), load(SCANS[kind]).accumulate(x, axis=axis))


@pytest.mark.parametrize("dtype, most", [("float32", 5e-8), ("float64", 1e-13), ("float16", 1e-3), ("bfloat16", 8e-3)])
def test_long_sums_keep_their_digits(dtype: str, most: float) -> None:
    """NumPy's float32 sums of 70,001 normal numbers are off by 4e-6 of their size. Down columns ours are the same where
    they are not cut in pieces."""
    rng = np.random.default_rng(2)
    for shape, axis, call in runs("sum", dtype):
        x = rng.standard_normal(shape).astype(numpy_dtype(dtype))
        got, want = ran(call, x), np.cumsum(x.astype(np.longdouble), axis=axis)
        error = np.sqrt(np.mean((got.astype(np.longdouble) - want) ** 2) / np.mean(want**2))
        assert error < (most if axis or dtype != "float32" else 4e-6)
        if axis == 0 and call.threads == 1 and dtype in ("float32", "float64"):
            np.testing.assert_array_equal(got, np.cumsum(x, axis=0))


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_signs_of_zero_and_what_is_not_finite_stay(dtype: str) -> None:
    """Of -0 where a row is not cut in pieces: folds of these begin with 0."""
    largest = np.finfo(dtype).max
    for shape in ((2, 40), (1, 3000), (1, 70_001)):
        n = shape[1]
        x = np.full(shape, -0.0, dtype)
        assert np.all(np.signbit(ran(called(shape, "j", "sum", dtype, 1), x)))
        for value in (np.inf, -np.inf, np.nan):
            x = np.ones(shape, dtype)
            x[:, n // 2] = value
            for threads in (1, 2):
                got = ran(called(shape, "j", "sum", dtype, threads), x)
                np.testing.assert_array_equal(got, np.cumsum(x, axis=1))
        x = np.zeros(shape, dtype)
        x[:, n // 3], x[:, n // 2] = largest, largest
        for threads in (1, 2):
            got = ran(called(shape, "j", "sum", dtype, threads), x)
            np.testing.assert_array_equal(got, np.cumsum(x, axis=1))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_products_neither_overflow_nor_vanish_where_those_of_all_before_do_not(dtype: str) -> None:
    """Parts of them would: the second half of the row comes to infinity, and 0 times that to NaN."""
    tens, growth = np.full((1, 100_000), 10.0, dtype), np.full((1, 100_000), 1.0, dtype)
    tens[0, 0] = 0
    growth[0, 0], growth[0, 1::2], growth[0, 2::2] = 1e30, 1e-25, 1e25
    near_one = np.random.default_rng(5).uniform(0.999, 1.001, (1, 100_000)).astype(dtype)
    for x in (tens, growth, near_one):
        for threads in (1, 2):
            got = ran(called(x.shape, "j", "prod", dtype, threads), x)
            np.testing.assert_array_equal(got, np.cumprod(x, axis=1))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_of_what_is_not_below_0_never_fall(dtype: str) -> None:
    """And stay where 0 is added, as who looks a number up in a distribution needs it."""
    rng = np.random.default_rng(6)
    for shape in ((50, 4099), (3, 70_001)):
        for x in (rng.random(shape) ** 8, np.where(rng.random(shape) < 0.01, rng.random(shape), 0)):
            x = x.astype(dtype)
            steps = np.diff(ran(called(shape, "j", "sum", dtype, 1), x), axis=1)
            assert np.all(steps >= 0) and np.all(steps[x[:, 1:] == 0] == 0)


def test_what_a_narrow_scan_comes_to_is_rounded_before_it_is_used() -> None:
    sizes = {"i": 40, "j": 500}
    x = operand(0, "ij", "bfloat16")
    view = View.dense("ij", sizes, "bfloat16")
    given = np.random.default_rng(7).standard_normal((40, 500)).astype(numpy_dtype("bfloat16"))
    for axis in "ij":
        meaning = Term("Add", Term("Scan", "sum", axis, x), x)
        got = ran(Call("native.scan", meaning, sizes, (view,), view), given)
        sums = np.cumsum(given.astype(np.float64), axis="ij".index(axis)).astype(given.dtype)
        np.testing.assert_array_equal(got, sums + given)


def test_what_is_padded_or_put_together_is_run_through(tmp_path: Path) -> None:
    """Guards of loads are told apart in sections of the loop."""
    x = np.random.default_rng(8).standard_normal((40, 3000)).astype(np.float32)
    options = wx.Options(threads=2, budget=2, trial=False, table=str(tmp_path / "t.duckdb"))
    for fn in (
        lambda x: np.cumsum(np.pad(x, ((0, 0), (3, 2))), axis=1),
        lambda x: np.cumsum(np.concatenate([x, -x], axis=1), axis=1),
    ):
        result = wx.optimize(fn, x, options=options)
        np.testing.assert_allclose(result.program(x), fn(x.astype(np.float64)), rtol=1e-4, atol=5e-4)


def beside(call: Call, kernel: Scans, at: tuple[int, int], *, replaced: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """What a call read and what it came to, in rows that begin so many elements after lines of a cache, with a gap
    between them; nothing is written there."""
    (rows, n), dtype = call.out.shape, numpy_dtype(call.out.dtype)
    step = call.out.strides[0]
    memory = [np.zeros(rows * step * dtype.itemsize + 4096, np.uint8) for _ in at]
    size = rows * step
    begins = [-m.ctypes.data % 64 + k * dtype.itemsize for m, k in zip(memory, at, strict=True)]
    flat = [m[b : b + size * dtype.itemsize].view(dtype) for m, b in zip(memory, begins, strict=True)]
    flat[0][:] = (np.random.default_rng(n).standard_normal(size) * 1000).astype(dtype)
    flat[1][:] = 7
    given = flat[0].copy().reshape(rows, step)
    out = flat[0] if replaced else flat[1]
    shown = [
        np.lib.stride_tricks.as_strided(x, (rows, n), (step * dtype.itemsize, dtype.itemsize)) for x in (flat[0], out)
    ]
    for run in kernel.bind(call, (shown[0],), shown[1], np.empty(kernel.workspace(call), np.uint8)):
        run()
    np.testing.assert_array_equal(out.reshape(rows, step)[:, n:], given[:, n:] if replaced else 7)
    for m, b in zip(memory, begins, strict=True):
        assert not m[:b].any() and not m[b + size * dtype.itemsize :].any()
    return given[:, :n], out.reshape(rows, step)[:, :n]


def rows_of(n: int, gap: int, dtype: str, threads: int, many: int = 3) -> Call:
    sizes, rows = {"i": many, "j": n}, View(("i", "j"), (many, n), (n + gap, 1), dtype)
    return Call("native.scan", Term("Scan", "sum", "j", operand(0, "ij", dtype)), sizes, (rows,), rows, threads=threads)


def check_whole_rows(dtype: str, lengths: Sequence[int], many: int = 3, gap: int = 3) -> None:
    kernels = (KERNEL, StreamingScans())
    calls = [rows_of(n, gap, dtype, t, many) for n in lengths for t in (1, 4)]
    prepare((k, call) for k in kernels for call in calls)
    for call in calls:
        for i, kernel in enumerate(kernels):
            assert kernel.accepts(call)
            for k, at in enumerate(((0, 0), (4, 1), (1, 15))):
                x, got = beside(call, kernel, at, replaced=k == 1 and i == 0)
                if dtype.startswith("int"):
                    np.testing.assert_array_equal(got, np.cumsum(x, axis=1, dtype=dtype))
                    continue
                want = np.cumsum(x.astype(np.longdouble), axis=1)
                scale = np.maximum.accumulate(np.abs(want), axis=1)
                assert np.all(np.abs(got - want) <= (6e-8 if dtype == "float32" else 1e-13) * scale)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_rows_are_run_through_whole_wherever_they_begin(dtype: str) -> None:
    """Of any length, from any address to any other or in place, with what lies between them left alone."""
    check_whole_rows(dtype, (2, 31, 63, 64, 65, 127, 128, 4099, 70_001))


@pytest.mark.parametrize("many, gap", [(19, 0), (300, 5)])
def test_several_rows_are_run_through_at_once(many: int, gap: int) -> None:
    """And those left over one after the other, to the same sums."""
    check_whole_rows("float32", (1, 16, 47, 1003), many, gap)


@pytest.mark.parametrize("kernel", [KERNEL, StreamingScans()])
def test_several_rows_come_to_what_each_comes_to(kernel: Scans) -> None:
    """In order, each added to the float64 sum of all before: what is not finite stays in its row, and -0 as it is."""
    call = rows_of(96, 0, "float32", 1, 17)
    x = np.random.default_rng(8).standard_normal((17, 96)) * 100.0 ** (np.arange(17) % 5)[:, None]
    x = x.astype("f")
    x[2, 40], x[5, 0], x[11, 95], x[14], x[13, 3:5] = np.inf, np.nan, -np.inf, -0.0, np.finfo("f").max
    memory = np.zeros(17 * 96 + 16, "f")
    out = memory[-memory.ctypes.data % 64 // 4 :][: 17 * 96].reshape(17, 96)
    with np.errstate(over="ignore"):
        want = np.cumsum(x.astype(np.float64), axis=1).astype("f")
    for step in kernel.bind(call, (x,), out, np.empty(0, np.uint8)):
        step()
    np.testing.assert_allclose(out, want, rtol=1e-5)
    np.testing.assert_array_equal(out[:14], want[:14])
    assert np.all(np.signbit(out[14]))


@pytest.mark.parametrize("wide", [True, False])
def test_several_rows_that_no_cache_holds_go_at_once_past_it_or_where_vectors_are_short(
    wide: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waxeq_native.scan.wide", lambda: wide)
    call = rows_of(4096, 0, "float32", 1, 4096)
    (past,), (plain,) = (k.work(call).parts for k in (StreamingScans(), KERNEL))  # pyright: ignore
    assert "wx_rows_past_float32" in past.source and ("wx_rows_" in plain.source) is not wide
    assert past.grain % 8 == 0


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the flag is one of x86")
@pytest.mark.parametrize("dtype", ["float32", "int64"])
@pytest.mark.parametrize("without", ["-mno-avx512f", "-mno-avx2"])
def test_whole_rows_where_vectors_are_short(
    dtype: str, without: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through blocks, or where a vector is half a line several at once."""
    compiler = find()
    short = library.Library(tmp_path, replace(compiler, flags=(*compiler.flags, without)))
    monkeypatch.setattr(library, "shared", lambda: short)
    check_whole_rows(dtype, (5, 1000, 4099))
    check_whole_rows(dtype, (1, 16, 47, 1003), 19, 3)


def test_only_sums_with_nothing_around_them_need_no_blocks() -> None:
    x, sizes = operand(0, "ij", "float32"), {"i": 4, "j": 900}

    def through(meaning: Term, dtype: str = "float32", order: str = "ij") -> bool:
        views = View.dense(order, sizes, dtype), View.dense("ij", sizes, dtype)
        (part,) = KERNEL.work(Call("native.scan", meaning, sizes, views[:1], views[1])).parts  # pyright: ignore
        return "wx_through" in part.source

    assert through(Term("Scan", "sum", "j", x))
    assert through(Term("Scan", "sum", "j", operand(0, "ij", "int64")), "int64")
    assert not through(Term("Scan", "sum", "i", x)) and not through(Term("Scan", "max", "j", x))
    assert not through(Term("Scan", "sum", "j", operand(0, "ij", "float16")), "float16")
    assert not through(Term("Scan", "sum", "j", Term("Map", "neg", x)))
    assert not through(Term("Map", "neg", Term("Scan", "sum", "j", x)))
    assert not through(Term("Add", x, Term("Scan", "sum", "j", x)))


@pytest.mark.parametrize("order", ["ij", "ji"])
@pytest.mark.parametrize("axis", ["i", "j"])
def test_an_operand_may_lie_either_way(axis: str, order: str) -> None:
    shapes = (37, 4100), (4100, 37)
    calls = [called(shape, axis, "sum", "float32", threads, order) for shape in shapes for threads in (1, 3)]
    KERNEL.prepare([(KERNEL, c) for c in calls])
    for call in calls:
        assert check_call(KERNEL, call, np.random.default_rng(4)) is None


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("kernel", [FastScans(), StreamingScans()])
def test_what_comes_before_and_after_is_made_beside(kernel: Scans, threads: int) -> None:
    """A product of weights and of what came so far, as a ray through a volume has it."""
    for sizes in ({"i": 300, "j": 200}, {"i": 2, "j": 50_000}):
        x = operand(0, "ij", "float32")
        passed = Term("Map", "exp", Term("Scan", "sum", "j", Term("Map", "neg", Term("Map", "square", x))))
        meaning = Term("Mul", Term("Map", "tanh", x), Term("Mul", passed, operand(1, "j", "float32")))
        views = View.dense("ij", sizes, "float32"), View.dense("j", sizes, "float32")
        call = Call("native.scan", meaning, sizes, views, View.dense("ij", sizes, "float32"), threads=threads)
        assert kernel.accepts(call) and kernel.matches(meaning)
        for seed in range(4):
            assert check_call(kernel, call, np.random.default_rng(seed)) is None


def test_few_long_rows_are_cut_in_pieces_and_others_are_not() -> None:
    def pieces(shape: tuple[int, int], axis: str, threads: int) -> int:
        call = called(shape, axis, "sum", "float32", threads)
        return Way.of(Scan.of(KERNEL.values(call)), threads, 1).pieces

    assert pieces((1, 1_000_000), "j", 1) == 1
    assert pieces((1, 1_000_000), "j", 2) > 8
    assert pieces((2, 1_000_000), "j", 2) == 1
    assert pieces((100_000, 20), "i", 2) > 8
    assert pieces((4000, 4096), "i", 2) == 1


def test_what_has_other_folds_or_several_scans_is_for_other_kernels() -> None:
    sizes = {"i": 40, "j": 300}
    x = operand(0, "ij", "float32")
    scan = Term("Scan", "sum", "j", x)
    view = View.dense("ij", sizes, "float32")
    for meaning in (
        Term("Zip", "div", scan, Term("Sum", "j", x)),
        Term("Scan", "sum", "i", scan),
        Term("Add", scan, Term("Scan", "max", "j", x)),
    ):
        assert not KERNEL.accepts(Call("native.scan", meaning, sizes, (view,), view))
    assert not KERNEL.matches(Term("Map", "exp", x))
