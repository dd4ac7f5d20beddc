"""Batches of small matrices: NumPy's values and NumPy's errors, however matrices lie and whatever lies beside them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.linalg import LinAlgError

import waxeq as wx
from waxeq.backend.call import Call, View, axes_in, operand
from waxeq.ir.term import Term
from waxeq_native.factored import Cholesky, Determinant, Solve
from waxeq_native.work import NativeKernel

L = np.linalg
DTYPES = ("float32", "float64")


def called(kernel: NativeKernel, a: np.ndarray, f: str = "", order: str = "ckl", threads: int = 1) -> Call:
    """One right side for each row of the first axis of `a`, which lies along the axes `order` of (c, k, l)."""
    d, sizes = a.dtype.name, {"c": a.shape[0], "k": a.shape[1], "l": a.shape[2]}
    x, right = operand(0, "ckl", d), operand(1, "ck", d)
    views, out = [View.dense(order, sizes, d)], "cl" if f == "" else "c"
    if f:
        meaning = Term("Det", f, "k", "l", x)
    elif isinstance(kernel, Solve):
        meaning = Term("Solve", "k", "l", x, right)
        views.append(View.dense("ck", sizes, d))
    else:
        meaning, out = Term("Cholesky", "k", "l", x), "ckl"
    sizes = {k: n for k, n in sizes.items() if k in axes_in(meaning)}
    return Call(f"native.{kernel.name}", meaning, sizes, tuple(views), View.dense(out, sizes, d), threads=threads)


def ran(kernel: NativeKernel, call: Call, *operands: np.ndarray) -> np.ndarray:
    assert kernel.accepts(call)
    out = np.full(call.out.shape, 77, call.out.dtype)
    laid = [
        np.ascontiguousarray(x.transpose(["ckl".index(k) for k in v.axes])) if x.ndim == 3 else x
        for x, v in zip(operands, call.operands, strict=True)
    ]
    steps = kernel.bind(call, laid, out, np.empty(kernel.workspace(call), np.uint8))
    for _ in range(2):
        for step in steps:
            step()
    return out


def matrices(dtype: str, count: int, n: int, seed: int = 0) -> np.ndarray:
    a = np.random.default_rng(seed).standard_normal((count, n, n))
    return (a @ a.swapaxes(1, 2) + n * np.eye(n)).astype(dtype)


def near(got: np.ndarray, want: np.ndarray, within: float = 200.0) -> None:
    eps = within * float(np.finfo(got.dtype).eps)
    np.testing.assert_allclose(got, want, rtol=eps, atol=eps * float(np.abs(want).max(initial=0.0)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n", "count", "threads"), [
    (1, 17, 1), (2, 130, 3), (3, 1, 2), (7, 40, 2), (16, 17, 1), (32, 20, 2),
])  # fmt: skip
def test_numpy_has_the_same_values(dtype: str, n: int, count: int, threads: int) -> None:
    a, b = matrices(dtype, count, n), np.random.default_rng(1).standard_normal((count, n)).astype(dtype)
    kinds = (Solve(), ""), (Cholesky(), ""), *((Determinant(), f) for f in ("sign", "logabs", "det"))
    every = [(k, called(k, a, f, order, threads)) for order in ("ckl", "klc") for k, f in kinds]
    NativeKernel.prepare(every)  # a compiler is started once for all
    for order in ("ckl", "klc"):
        x = ran(Solve(), called(Solve(), a, "", order, threads), a, b)
        near(x, L.solve(a, b[..., None])[..., 0])
        near(ran(Cholesky(), called(Cholesky(), a, "", order, threads), a), L.cholesky(a))
        sign, logabs = L.slogdet(a)
        for f, want in (("sign", sign), ("logabs", logabs)):
            near(ran(Determinant(), called(Determinant(), a, f, order, threads), a), want)
        near(ran(Determinant(), called(Determinant(), a / n, "det", order, threads), a / n), L.det(a / n), 2000.0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_are_exchanged_where_they_must_be(dtype: str) -> None:
    """Permutations have no pivots in place; each matrix of a vector has its own."""
    rng = np.random.default_rng(0)
    a = np.stack([np.eye(5)[rng.permutation(5)] * rng.choice([-2.0, 3.0], 5) for _ in range(40)]).astype(dtype)
    b = rng.standard_normal((40, 5)).astype(dtype)
    near(ran(Solve(), called(Solve(), a), a, b), L.solve(a, b[..., None])[..., 0])
    near(ran(Determinant(), called(Determinant(), a, "det"), a), L.det(a))
    np.testing.assert_array_equal(ran(Determinant(), called(Determinant(), a, "sign"), a), L.slogdet(a)[0])
    near(ran(Solve(), called(Solve(), a), a * np.finfo(dtype).tiny / 4, b * np.finfo(dtype).tiny), 4 * L.solve(
        a, b[..., None])[..., 0], 1e6)  # fmt: skip


@pytest.mark.parametrize("at", [0, 7, 39])
def test_one_matrix_without_a_value_is_reported_once(at: int) -> None:
    a, b = matrices("float64", 40, 3), np.ones((40, 3))
    bad = a.copy()
    bad[at] = 1.0
    with pytest.raises(LinAlgError, match="Singular matrix"):
        ran(Solve(), called(Solve(), a, threads=2), bad, b)
    with pytest.raises(LinAlgError, match="not positive definite"):
        ran(Cholesky(), called(Cholesky(), a), np.where(bad == 1.0, -1.0, bad))
    assert ran(Determinant(), called(Determinant(), a, "det"), bad)[at] == 0.0
    assert ran(Determinant(), called(Determinant(), a, "sign"), bad)[at] == 0.0
    assert ran(Determinant(), called(Determinant(), a, "logabs"), bad)[at] == -np.inf
    near(ran(Solve(), called(Solve(), a), a, b), L.solve(a, b[..., None])[..., 0])


def test_what_is_no_number_stays_in_its_matrix() -> None:
    a, b = matrices("float32", 20, 4), np.ones((20, 4), np.float32)
    odd = a.copy()
    odd[3, 2, 1], odd[8, 0, 0] = np.nan, np.inf
    x = ran(Solve(), called(Solve(), a), odd, b)
    assert np.isnan(x[3]).any()
    rest = [i for i in range(20) if i not in (3, 8)]
    near(x[rest], L.solve(a, b[..., None])[rest, :, 0])


def test_determinants_do_not_overflow_between() -> None:
    a = np.broadcast_to(np.diag([1e30, 1e30, 1e-30, -1e-30]), (3, 4, 4)).astype(np.float32)
    near(ran(Determinant(), called(Determinant(), a, "det"), a), np.full(3, -1.0, np.float32))
    wide = np.broadcast_to(np.diag([1e300, -1e300, 1e300]), (3, 3, 3)).copy()
    near(ran(Determinant(), called(Determinant(), wide, "logabs"), wide), L.slogdet(wide)[1])
    assert np.isposinf(-ran(Determinant(), called(Determinant(), wide, "det"), wide)).all()


def test_large_matrices_and_many_right_sides_are_left_to_lapack() -> None:
    assert not Solve().accepts(called(Solve(), matrices("float64", 2, 33)))
    d, sizes = "float64", {"k": 3, "l": 3, "m": 65}
    meaning = Term("Solve", "k", "l", operand(0, "kl", d), operand(1, "km", d))
    views = View.dense("kl", sizes, d), View.dense("km", sizes, d)
    assert not Solve().accepts(Call("native.solve", meaning, sizes, views, View.dense("lm", sizes, d)))


def model(a: Any, b: Any) -> Any:
    return np.tanh(np.linalg.solve(a, b)), np.linalg.inv(a), np.linalg.det(a)


def test_a_plan_raises_and_goes_on(tmp_path: Any) -> None:
    a, b = matrices("float64", 3000, 3), np.ones((3000, 3, 1))
    options = wx.Options.of(budget="0", threads=1, trial=False, table=tmp_path / "t.duckdb")
    result = wx.optimize(model, a, b, options=options)
    assert "native.solve" in {s.call.kernel for s in result.program.plan.steps}
    for given in (a, a[::-1].copy(), matrices("float64", 3000, 3, 5)):
        for g, w in zip(result.program(given, b), model(given, b), strict=True):
            near(g, w)
        bad = given.copy()
        bad[17] = 0
        with pytest.raises(LinAlgError, match="Singular"):
            result.program(bad, b)


@pytest.mark.parametrize("dtype", DTYPES)
def test_whole_numbers_that_are_singular_are_so_as_numpy_has_it(dtype: str) -> None:
    """A product that was not rounded before it was subtracted left 1e-16 where a pivot is zero: half of the matrices
    with a column twice another were solved. In float32 OpenBLAS and plain steps disagree on some, either way."""
    rng = np.random.default_rng(5)
    a = rng.integers(-9, 10, (300, 2, 2)).astype(dtype)
    a[:, :, 1] = a[:, :, 0] * rng.integers(-4, 5, (300, 1))
    known = np.array([[[-2, -4], [3, 6]], [[1, 3], [3, 9]]], dtype)
    a = np.concatenate([known, a])
    sign = L.slogdet(a)[0]
    got = ran(Determinant(), called(Determinant(), a, "sign"), a)
    assert (sign == 0).sum() > 250 and (got == 0).sum() > 250
    if dtype == "float64":
        np.testing.assert_array_equal(got, sign)
    for x in known:
        with pytest.raises(LinAlgError, match="Singular"):
            ran(Solve(), called(Solve(), x[None], "", "ckl"), x[None], np.ones((1, 2), dtype))
