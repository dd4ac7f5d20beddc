"""Systems of equations by BLAS, and Cholesky factors in blocks: NumPy's values and errors, however matrices lie."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.linalg import LinAlgError

import waxeq as wx
from waxeq.backend.call import Call, View, operand
from waxeq.backend.kernel import prepare
from waxeq.ir.term import Term
from waxeq_native.blas import SYSTEMS
from waxeq_native.cholesky import Cholesky
from waxeq_native.products_blas import usable
from waxeq_native.systems import Systems, Triangular
from waxeq_native.work import NativeKernel

DTYPES = ("float32", "float64")
blas = pytest.mark.skipif(
    (found := usable()) is None or set(found.systems) != set(SYSTEMS), reason="NumPy has no BLAS that can be called"
)


def matrices(dtype: str, count: int, n: int) -> np.ndarray:
    a = np.random.default_rng(n).standard_normal((count, n, n))
    return (a @ a.swapaxes(1, 2) + n * np.eye(n)).astype(dtype)


def laid(x: np.ndarray, names: str, order: str) -> np.ndarray:
    return np.ascontiguousarray(x.transpose([names.index(k) for k in order]))


Orders = tuple[str, str, str]


def system(kernel: NativeKernel, a: np.ndarray, b: np.ndarray, orders: Orders, threads: int, f: str = "") -> Call:
    """Matrices (c, k, l), right sides (c, k, m) and solutions (c, l, m) lie as `orders` say."""
    d, sizes = a.dtype.name, {"c": a.shape[0], "k": a.shape[1], "l": a.shape[1], "m": b.shape[2]}
    xs = operand(0, "ckl", d), operand(1, "ckm", d)
    meaning = Term("Triangular", f, "k", "l", *xs) if f else Term("Solve", "k", "l", *xs)
    views = tuple(View.dense(o, sizes, d) for o in orders)
    return Call(f"native.{kernel.name}", meaning, sizes, views[:2], views[2], threads=threads)


def solved(kernel: NativeKernel, a: np.ndarray, b: np.ndarray, orders: Orders, threads: int, f: str = "") -> np.ndarray:
    """The solutions (c, l, m) of a `system`."""
    call = system(kernel, a, b, orders, threads, f)
    out = np.full(call.out.shape, 77, a.dtype)
    run(kernel, call, [laid(a, "ckl", orders[0]), laid(b, "ckm", orders[1])], out)
    return out.transpose([orders[2].index(k) for k in "clm"])


def factor(a: np.ndarray, order: str, out_order: str, threads: int) -> Call:
    d, sizes = a.dtype.name, {"c": a.shape[0], "k": a.shape[1], "l": a.shape[1]}
    views = View.dense(order, sizes, d), View.dense(out_order, sizes, d)
    meaning = Term("Cholesky", "k", "l", operand(0, "ckl", d))
    return Call("native.cholesky_blocked", meaning, sizes, views[:1], views[1], threads=threads)


def factors(a: np.ndarray, order: str, out_order: str, threads: int) -> np.ndarray:
    call = factor(a, order, out_order, threads)
    out = np.full(call.out.shape, 77, a.dtype)
    run(Cholesky(), call, [laid(a, "ckl", order)], out)
    return out.transpose([out_order.index(k) for k in "ckl"])


def run(kernel: NativeKernel, call: Call, operands: list[np.ndarray], out: np.ndarray) -> None:
    """Twice, in a workspace full of NaN."""
    assert kernel.accepts(call)
    workspace = np.full(kernel.workspace(call), 255, np.uint8)
    for step in [*kernel.bind(call, operands, out, workspace)] * 2:
        step()


def near(got: np.ndarray, want: np.ndarray) -> None:
    eps = 500.0 * float(np.finfo(got.dtype).eps)
    np.testing.assert_allclose(got, want, rtol=eps, atol=eps * float(np.abs(want).max(initial=0.0)))


SHAPES = [(2, 5, 3, 2), (7, 1, 1, 1), (40, 3, 5, 2), (100, 1, 70, 2), (600, 1, 40, 2)]
"""Rows, matrices, right sides and threads."""
ORDERS = ("ckl", "ckm", "clm"), ("clk", "mkc", "cml"), ("ckl", "ckm", "cml"), ("clk", "mkc", "clm")


@blas
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n", "count", "m", "threads"), SHAPES)
def test_systems(dtype: str, n: int, count: int, m: int, threads: int) -> None:
    """A matrix of which rows must be exchanged is one among others: triangles are solved as they are."""
    a, b = matrices(dtype, count, n), np.random.default_rng(1).standard_normal((count, n, m)).astype(dtype)
    exchanged = a[:, np.random.default_rng(3).permutation(n)]
    each = np.tril(a), np.triu(a), a * np.eye(n, dtype=dtype), a, exchanged
    prepare((Systems(), system(Systems(), a, b, orders, threads)) for orders in ORDERS)
    for i, orders in enumerate(ORDERS):
        for x in each if n < 100 else each[i % 3 :: 3]:  # large ones meet each layout, each kind meets one and more
            near(solved(Systems(), x, b, orders, threads), np.linalg.solve(x, b))
    if count > 1:
        mixed = np.stack([each[i % len(each)][i] for i in range(count)])
        near(solved(Systems(), mixed, b, ORDERS[0], threads), np.linalg.solve(mixed, b))


@blas
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n", "count", "m", "threads"), SHAPES)
def test_triangles(dtype: str, n: int, count: int, m: int, threads: int) -> None:
    """What lies in the other triangle is not read. Matrices of any size and both triangles meet rows and columns."""
    a, b = matrices(dtype, count, n), np.random.default_rng(1).standard_normal((count, n, m)).astype(dtype)
    lower, upper = ("lower", np.tril, np.triu), ("upper", np.triu, np.tril)
    kinds = [*zip(ORDERS, (lower, lower, upper, upper), strict=True)]
    prepare((Triangular(), system(Triangular(), a, b, orders, threads, f)) for orders, (f, *_) in kinds)
    for orders, (f, part, other) in kinds:
        hidden = part(a) + other(np.full_like(a, np.nan), 1 if f == "lower" else -1)
        near(solved(Triangular(), hidden, b, orders, threads, f), np.linalg.solve(part(a), b))


@blas
@pytest.mark.parametrize("n", [3, 40, 200])
def test_a_zero_on_a_diagonal_is_singular(n: int) -> None:
    a, b = matrices("float64", 1, n), np.ones((1, n, 40))
    for f, part in (("lower", np.tril), ("upper", np.triu)):
        bad = part(a)
        bad[0, n - 1, n - 1] = 0
        for kernel, of in ((Systems(), ""), (Triangular(), f)):
            with pytest.raises(LinAlgError, match="Singular"):
                solved(kernel, bad, b, ORDERS[0], 2, of)
    with pytest.raises(LinAlgError, match="Singular"):
        solved(Systems(), np.zeros_like(a), b, ORDERS[0], 2)
    with pytest.raises(LinAlgError, match="Singular"):
        solved(Systems(), np.ones_like(a), b, ORDERS[0], 2)


@blas
def test_what_is_no_number_is_no_zero() -> None:
    a, b = np.tril(matrices("float64", 2, 9)), np.ones((2, 9, 1))
    a[1, 2, 5] = np.nan
    x = solved(Systems(), a, b, ORDERS[0], 1)
    near(x[0], np.linalg.solve(a[0], b[0]))
    assert np.isnan(x[1]).any()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n", "count", "threads"), [
    (2, 1, 1), (2, 5, 2), (15, 2, 2), (16, 1, 1), (17, 3, 2), (100, 1, 1), (127, 2, 2), (128, 1, 2), (129, 1, 2),
    (300, 1, 3), (513, 1, 2),
])  # fmt: skip
def test_factors(dtype: str, n: int, count: int, threads: int) -> None:
    """The lower triangle alone is read, and the upper one of the result is zero."""
    a = matrices(dtype, count, n)
    want, hidden = np.linalg.cholesky(a), np.tril(a) + np.triu(np.full_like(a, np.nan), 1)
    every = [*product(("ckl", "clk"), ("ckl", "clk", "klc"))]
    some = every if n < 17 else every[(n + threads) % 3 :: 3]
    prepare((Cholesky(), factor(a, *orders, threads)) for orders in some)
    for orders in some:
        got = factors(hidden, *orders, threads)
        near(got, want)
        assert not np.triu(got, 1).any()


@pytest.mark.parametrize(("n", "threads"), [(2, 1), (40, 1), (200, 2)])
def test_what_has_no_factor(n: int, threads: int) -> None:
    """No number is not positive, and no reason to raise, as LAPACK has it."""
    for at, value in product((0, n // 2, n - 1), (-1.0, 0.0)):
        a = matrices("float64", 1, n)
        a[0, at, at] = value
        with pytest.raises(LinAlgError, match="not positive definite"):
            factors(a, "ckl", "ckl", threads)
    for at in product((n // 2, n - 1), (0, 1)):
        a = matrices("float64", 1, n)
        a[0][at] = np.nan
        np.testing.assert_array_equal(np.isnan(factors(a, "ckl", "ckl", threads)), np.isnan(np.linalg.cholesky(a)))


def gaussian(k: Any, y: Any) -> Any:
    low = np.linalg.cholesky(k)
    return np.linalg.solve(low.T, np.linalg.solve(low, y))


@blas
@pytest.mark.parametrize("side", [(), (5,)])
def test_a_system_with_a_factor_is_substitution(tmp_path: Any, side: tuple[int, ...]) -> None:
    """Two general systems were solved, each by factors of its own."""
    k = matrices("float64", 1, 200)[0]
    y = np.random.default_rng(0).standard_normal((200, *side))
    options = wx.Options.of(budget="2", threads=1, trial=False, table=tmp_path / "t.duckdb")
    result = wx.optimize(gaussian, k, y, options=options)
    heads = [s.call.meaning.head for s in result.program.plan.steps]
    assert heads.count("Triangular") == 2 and "Solve" not in heads
    near(result.program(k, y), gaussian(k, y))
    with pytest.raises(LinAlgError, match="not positive definite"):
        result.program(-k, y)
