"""Products of whole numbers that are summed as int32: NumPy's to the last bit, whatever wraps around."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import waxeq as wx
from waxeq.backend.call import Call, View, operand
from waxeq.backend.discover import backends, kernels
from waxeq.ir.term import Term
from waxeq_native import library, products_integer
from waxeq_native.products_integer import FILES, KINDS, Table, table

pytestmark = pytest.mark.skipif("native.loops" not in kernels(backends()), reason="there is no C compiler")
NAME = "native.products_integer"
DTYPES = ("int8", "uint8", "int16", "int32")
SHAPES = ((1, 1, 1), (1, 2, 17), (3, 0, 4), (0, 3, 4), (5, 7, 0), (2, 3, 15), (6, 33, 16), (7, 1025, 33),
          (13, 2050, 40), (1, 9001, 18), (65, 130, 300))  # fmt: skip
GUARD = 64


@pytest.fixture(params=[(), ("-DWX_PORTABLE",)], ids=["vectors", "portable"])
def made(request: pytest.FixtureRequest) -> Table:
    return table(request.param)


def drawn(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Numbers of all sizes; many of the smallest and the largest that the dtype has."""
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    x = rng.integers(low, high, shape, endpoint=True, dtype=dtype)
    return np.where(rng.random(shape) < 0.3, rng.choice(np.array([low, high, 0], dtype), shape), x)


def wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.int32)


def place(x: np.ndarray) -> tuple[int, int, int]:
    first, second = x.strides
    return x.ctypes.data, first // x.itemsize, second // x.itemsize


def multiplied(t: Table, a: np.ndarray, b: np.ndarray, start: np.ndarray | None, packed: bool) -> np.ndarray:
    """a @ b (+ start) beside columns that must stay as they are, with scratch of just the bytes that were asked for."""
    (m, k), n = a.shape, b.shape[1]
    c = np.full((m, n + 3), 99, np.int32)
    c[:, :n] = 77 if start is None else start
    need = t.scratch(m, n, k)
    scratch = np.full(need + 2 * GUARD, 0xA5, np.uint8)
    kinds, sizes = (KINDS[str(a.dtype)], KINDS[str(b.dtype)]), (m, n, k)
    last = c.ctypes.data, n + 3, int(start is not None), scratch.ctypes.data + GUARD
    if packed:
        panels = np.full((-(-n // t.nr) * t.nr + 1, k + k % 2), 55, b.dtype)
        t.pack(kinds[1], k, n, *place(b), panels.ctypes.data)
        assert np.all(panels[-1] == 55), "panels are as large as is said"
        t.gemm(*kinds, *sizes, *place(a), panels.ctypes.data, *last)
    else:
        t.gemm_any(*kinds, *sizes, *place(a), *place(b), *last)
    assert np.all(c[:, n:] == 99) and np.all(scratch[:GUARD] == 0xA5) and np.all(scratch[-GUARD:] == 0xA5)
    return c[:, :n]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("left", DTYPES)
def test_products_are_those_of_numpy(made: Table, left: str, shape: tuple[int, int, int]) -> None:
    rng, (m, k, n) = np.random.default_rng(sum(shape)), shape
    for right in DTYPES:
        a, b = drawn(rng, (m, k), left), drawn(rng, (k, n), right)
        start = drawn(rng, (m, n), "int32")
        want = wide(a) @ wide(b)
        for packed in (False, True):
            np.testing.assert_array_equal(multiplied(made, a, b, None, packed), want)
            np.testing.assert_array_equal(multiplied(made, a, b, start, packed), start + want)


def test_matrices_lie_as_they_like(made: Table) -> None:
    rng = np.random.default_rng(0)
    for left, right in (("int8", "int8"), ("uint8", "int16"), ("int32", "int8"), ("int16", "int32")):
        a, b = drawn(rng, (37, 22), left), drawn(rng, (37, 70), right)
        for x, w in ((a.T[::-1], b[:, ::-1]), (a.T[:, ::-1], b[::-1, ::2]), (a[:, ::3].T, b)):
            for packed in (False, True):
                np.testing.assert_array_equal(multiplied(made, x, w, None, packed), wide(x) @ wide(w))


@pytest.mark.parametrize(
    ("left", "a", "right", "b"),
    [("int8", -128, "int8", -128), ("uint8", 255, "int8", 127), ("uint8", 255, "int8", -128),
     ("uint8", 255, "uint8", 255), ("int16", -(2**15), "int16", -(2**15)), ("int32", -(2**31), "int32", -1),
     ("int32", 2**31 - 1, "int16", 32767)],
)  # fmt: skip
def test_sums_of_extremes_neither_saturate_nor_lose_bits(made: Table, left: str, a: int, right: str, b: int) -> None:
    """An instruction for bytes saturates at 255 * 127 + 255 * 127; two products of -2^15 by itself are 2^31."""
    x, w = np.full((9, 1001), a, left), np.full((1001, 35), b, right)
    for packed in (False, True):
        np.testing.assert_array_equal(multiplied(made, x, w, None, packed), wide(x) @ wide(w))


@pytest.mark.skipif(platform.machine() != "x86_64", reason="flags of another machine")
def test_vectors_of_other_machines_compile() -> None:
    for flags in (("-mavx512f", "-mavx512bw"), ("-mavx512f", "-mavx512bw", "-mavx512vnni"), ("-march=x86-64",)):
        (built,) = library.units([(FILES, (*flags, "-O0", "-Dalways_inline=unused"))])
        made = Table()
        built.wx_fill_integer(ctypes.byref(made))
        assert made.nr == (32 if "-mavx512bw" in flags else 8)


# -- as a kernel


def run(c: Call, *xs: np.ndarray) -> np.ndarray:
    kernel = kernels(backends())[NAME]
    assert kernel.accepts(c)
    out = np.full(c.out.shape, 7, c.out.dtype)
    for f in kernel.bind(c, xs, out, np.zeros(max(1, kernel.workspace(c)), np.uint8)):
        f()
    return out


def cast(n: int, axes: str, dtype: str) -> Term:
    return Term("Cast", "int32", operand(n, axes, dtype))


def dequantized(product: Term) -> Term:
    """Scaled, clipped and narrowed again, on the tile."""
    scaled = Term("Map", "rint", Term("Mul", Term("Cast", "float32", product), operand(2, "n", "float32")))
    low = Term("Zip", "max", scaled, Term("Num", -128.0, "float32"))
    return Term("Cast", "int8", Term("Zip", "min", low, Term("Num", 127.0, "float32")))


@pytest.mark.parametrize("right", ["kn", "nk"])
@pytest.mark.parametrize("fixed", [(), (1, 2)])
@pytest.mark.parametrize("threads", [1, 2])
def test_what_follows_a_product_is_computed_with_it(right: str, fixed: tuple[int, ...], threads: int) -> None:
    sizes, rng = {"m": 45, "k": 77, "n": 150}, np.random.default_rng(0)
    x, w, s = drawn(rng, (45, 77), "uint8"), drawn(rng, (77, 150), "int8"), rng.random(150, dtype=np.float32) * 1e-4
    views = View.dense("mk", sizes, "uint8"), View.dense(right, sizes, "int8"), View.dense("n", sizes, "float32")
    product = Term("Sum", "k", Term("Mul", cast(0, "mk", "uint8"), cast(1, right, "int8")))
    out = View.dense("mn", sizes, "int8")
    c = Call(NAME, dequantized(product), sizes, views, out, fixed=fixed, threads=threads)
    want = np.clip(np.rint((wide(x) @ wide(w)).astype(np.float32) * s), -128, 127).astype(np.int8)
    np.testing.assert_array_equal(run(c, x, w if right == "kn" else np.ascontiguousarray(w.T), s), want)
    kernel = kernels(backends())[NAME]
    assert kernel.retained(c) == (78 * -(-150 // table().nr) * table().nr if fixed else 0), "a byte for each weight"


@pytest.mark.parametrize("fixed", [(), (1,)])
def test_stacks_of_matrices(fixed: tuple[int, ...]) -> None:
    sizes, rng = {"b": 3, "m": 20, "k": 31, "n": 40}, np.random.default_rng(1)
    x, w = drawn(rng, (3, 20, 31), "int8"), drawn(rng, (3, 31, 40), "int8")
    views = View.dense("bmk", sizes, "int8"), View.dense("bkn", sizes, "int8")
    product = Term("Sum", "k", Term("Mul", cast(0, "bmk", "int8"), cast(1, "bkn", "int8")))
    c = Call(NAME, product, sizes, views, View.dense("bmn", sizes, "int32"), fixed=fixed, threads=2)
    np.testing.assert_array_equal(run(c, x, w), wide(x) @ wide(w))


def test_rows_may_be_made_from_others_and_columns_lie_first() -> None:
    sizes, rng = {"m": 33, "k": 50, "n": 65}, np.random.default_rng(2)
    x, w = drawn(rng, (33, 50), "int8"), drawn(rng, (50, 65), "int8")
    views = View.dense("mk", sizes, "int8"), View.dense("kn", sizes, "int8")
    centred = Term("Add", cast(0, "mk", "int8"), Term("Num", 100000, "int32"))
    product = Term("Sum", "k", Term("Mul", centred, cast(1, "kn", "int8")))
    for axes in ("mn", "nm"):
        c = Call(NAME, product, sizes, views, View.dense(axes, sizes, "int32"), threads=1)
        got = run(c, x, w)
        np.testing.assert_array_equal(got if axes == "mn" else got.T, (wide(x) + 100000) @ wide(w))


@pytest.mark.parametrize("right", ["kn", "nk"])
@pytest.mark.parametrize("fixed", [(), (1,)])
def test_vectors_are_rows(right: str, fixed: tuple[int, ...]) -> None:
    """A batch of one: reading the weights is what takes the time, and loops read four bytes of each."""
    sizes, rng = {"k": 301, "n": 75}, np.random.default_rng(3)
    x, w = drawn(rng, (301,), "int8"), drawn(rng, (301, 75), "int8")
    for made in (cast(0, "k", "int8"), Term("Zip", "sub", cast(0, "k", "int8"), Term("Num", 3.0, "int32"))):
        product = Term("Sum", "k", Term("Mul", made, cast(1, right, "int8")))
        scaled = Term("Mul", Term("Cast", "float64", product), operand(2, "n", "float64"))
        views = View.dense("k", sizes, "int8"), View.dense(right, sizes, "int8"), View.dense("n", sizes, "float64")
        c = Call(NAME, scaled, sizes, views, View.dense("n", sizes, "float64"), fixed=fixed, threads=2)
        s, zero = rng.random(75), 0 if made.head == "Cast" else 3
        got = run(c, x, w if right == "kn" else np.ascontiguousarray(w.T), s)
        np.testing.assert_array_equal(got, ((wide(x) - zero) @ wide(w)) * s)


def linear(x: Any, w: Any, s: Any, b: Any) -> Any:
    return (x.astype(np.int32) @ w.astype(np.int32)).astype(np.float32) * s + b


def centred(x: Any, w: Any, s: Any, b: Any) -> Any:
    return ((x.astype(np.int32) - 7) @ w.astype(np.int32)).astype(np.float32) * s + b


def transposed(x: Any, w: Any, s: Any, b: Any) -> Any:
    return np.einsum("mk,nk->mn", x.astype(np.int32), w.astype(np.int32)).astype(np.float32) * s + b


@pytest.mark.parametrize(("model", "rows"), [(linear, 1), (linear, 64), (centred, 64), (transposed, 64)])
def test_a_search_multiplies_small_numbers_in_pairs(model: Callable[..., Any], rows: int, tmp_path: Path) -> None:
    """Loops had a seventh of the speed: weights were folded to int32, and nothing multiplied but one by one."""
    rng = np.random.default_rng(0)
    x, w = drawn(rng, (rows, 320), "int8"), drawn(rng, (320, 320), "int8")
    s, b = rng.random(320, dtype=np.float32), rng.random(320, dtype=np.float32)
    options = wx.Options(threads=1, table=tmp_path / "t.duckdb", trial=False)
    result = wx.optimize(model, x, w, s, b, weights=("w", "s", "b"), options=options)
    assert NAME in [step.call.kernel for step in result.plan.steps]
    np.testing.assert_allclose(result.program(x), model(x, w, s, b), rtol=1e-6, atol=1e-2)


def test_other_sums_are_left_to_others() -> None:
    kernel, sizes = kernels(backends())[NAME], {"m": 8, "k": 8, "n": 8}
    views = tuple(View.dense(a, sizes, "int64") for a in ("mk", "kn"))
    product = Term("Sum", "k", Term("Mul", operand(0, "mk", "int64"), operand(1, "kn", "int64")))
    assert not kernel.accepts(Call(NAME, product, sizes, views, View.dense("mn", sizes, "int64")))
    assert not kernel.matches(product) and products_integer.IntegerProducts().matches(
        Term("Sum", "k", Term("Mul", cast(0, "mk", "int8"), cast(1, "kn", "int8")))
    )
