"""np.linalg.solve, inv, det, slogdet and cholesky, traced: values, dtypes, shapes and errors are NumPy's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.linalg import LinAlgError

import waxeq as wx
from waxeq.errors import WaxeqError
from waxeq.frontend.trace import trace
from waxeq.ir.interpret import MatrixError, interpret
from waxeq.ir.types import numpy_dtype

L = np.linalg
Case = Callable[..., Any]
ONE: dict[str, Case] = {
    "inv": L.inv,
    "det": L.det,
    "slogdet": L.slogdet,
    "cholesky": L.cholesky,
    "upper": lambda a: L.cholesky(a, upper=True),
}
DTYPES = ("float32", "float64", "int64", "int8", "uint8", "bool")


def matrices(dtype: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Matrices whose symmetric parts, and whose triangles, are positive definite; bools are identities."""
    n, rng = shape[-1], np.random.default_rng(seed)
    eye = np.broadcast_to(np.eye(n), shape)
    if dtype == "bool":
        return eye.astype(bool)
    if np.dtype(dtype).kind in "iu":
        return (rng.integers(0, 2, shape) + 2 * n * eye).astype(dtype)
    return (rng.standard_normal(shape) + 3 * n * eye).astype(dtype)


def run(fn: Case, *arrays: Any) -> list[np.ndarray]:
    traced = trace(lambda **kw: fn(*kw.values()), {f"x{i}": a for i, a in enumerate(arrays)})
    return list(interpret(traced.graph, traced.inputs).values())


def check(fn: Case, *arrays: Any) -> None:
    want = fn(*arrays)
    rows = list(want) if isinstance(want, tuple) else [want]
    got = run(fn, *arrays)
    assert len(got) == len(rows)
    for g, w in zip(got, map(np.asarray, rows), strict=True):
        assert (g.dtype, g.shape) == (w.dtype, w.shape)
        eps = np.finfo(w.dtype).eps
        np.testing.assert_allclose(g, w, rtol=100 * eps, atol=100 * eps * float(np.abs(w).max(initial=0.0)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ONE)
@pytest.mark.parametrize("shape", [(3, 3), (1, 1), (0, 0), (5, 4, 4), (2, 3, 2, 2), (0, 3, 3), (2, 0, 0), (4, 1, 1)])
def test_of_one_matrix(name: str, dtype: str, shape: tuple[int, ...]) -> None:
    check(ONE[name], matrices(dtype, shape))


@pytest.mark.parametrize("name", ONE)
def test_of_bfloat16_is_float64(name: str) -> None:
    check(ONE[name], matrices("float64", (2, 3, 3)).astype(numpy_dtype("bfloat16")))


@pytest.mark.parametrize("other", ["bfloat16", "float32", "int64"])
def test_solve_with_bfloat16_on_either_side_is_in_float64(other: str) -> None:
    half, rest = (matrices("float64", (3, 3)).astype(numpy_dtype(d)) for d in ("bfloat16", other))
    check(L.solve, half, rest[:, 0])
    check(L.solve, rest, half)


RIGHT = [
    ((3, 3), (3,)), ((3, 3), (3, 1)), ((3, 3), (3, 5)), ((3, 3), (3, 0)), ((1, 1), (1,)), ((1, 1), (1, 4)),
    ((0, 0), (0,)), ((0, 0), (0, 2)), ((4, 3, 3), (3,)), ((4, 3, 3), (4, 3, 2)), ((4, 3, 3), (3, 2)),
    ((3, 3), (4, 3, 2)), ((2, 1, 3, 3), (4, 3, 2)), ((4, 1, 1), (2, 1, 1, 3)), ((0, 3, 3), (3,)),
    ((0, 3, 3), (0, 3, 2)),
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "right"), RIGHT)
def test_solve(dtype: str, shape: tuple[int, ...], right: tuple[int, ...]) -> None:
    b = np.random.default_rng(1).integers(-5, 6, right)
    check(L.solve, matrices(dtype, shape), b.astype(dtype))
    check(L.solve, matrices(dtype, shape), b.astype(np.float32))


def test_one_side_may_be_known() -> None:
    a, b = matrices("float64", (3, 3)), np.arange(3.0)
    check(lambda b: L.solve(a, b), b)
    check(lambda a: L.solve(a, [1.0, 2.0, 3.0]), a)
    check(lambda a: L.solve(a, np.eye(3))[1], a)
    check(lambda a: L.solve([[2.0, 1.0], [0.0, 1.0]], a[:2]), a)


def test_negative_powers() -> None:
    for n in (-1, -3):
        check(lambda a, n=n: L.matrix_power(a, n), matrices("float32", (2, 3, 3)))


def test_a_determinant_that_overflows_has_a_logarithm() -> None:
    a = np.diag(np.array([1e200, -1e200, 1e-3]))
    check(L.slogdet, a)
    assert np.isinf(run(L.det, a)[0]) and run(L.slogdet, a)[0] == -1.0
    sign, logabs = run(L.slogdet, np.zeros((2, 2)))
    assert sign == 0.0 and logabs == -np.inf
    check(L.det, np.ones((3, 3)))


def test_slogdet_is_the_named_tuple_of_numpy() -> None:
    def model(a: Any) -> Any:
        r = L.slogdet(a)
        assert r._fields == ("sign", "logabsdet") and isinstance(r, type(L.slogdet(np.eye(1))))
        return r.sign * np.exp(r.logabsdet)

    check(model, matrices("float32", (5, 4, 4)))
    check(model, matrices("float64", (4, 4)))


def test_what_one_matrix_gives_is_a_scalar() -> None:
    """`d += 1` gives the name another value, and writes to nothing."""

    def model(a: Any) -> Any:
        d = first = L.det(a)
        d += 1
        s = L.slogdet(a)[1]
        s += 1
        return d, first, s

    check(model, matrices("float64", (3, 3)))


def test_cholesky_reads_one_triangle() -> None:
    a = matrices("float64", (2, 4, 4))
    check(L.cholesky, np.tril(a) + np.triu(np.full_like(a, np.nan), 1))
    check(lambda a: L.cholesky(a, upper=True), np.triu(a) + np.tril(np.full_like(a, np.nan), -1))
    with pytest.raises(MatrixError, match="not positive definite"):
        run(L.cholesky, -a)


@pytest.mark.parametrize("fn", [L.inv, lambda a: L.solve(a, a[0])])
def test_a_singular_matrix_is_refused_as_numpy_does(fn: Case) -> None:
    for a in (np.zeros((2, 2)), np.zeros((1, 1)), np.ones((3, 3), np.float32)):
        with pytest.raises(LinAlgError, match=r"Singular matrix; give inputs"):
            run(fn, a)


@pytest.mark.parametrize("p", ["fro", 1, -1, np.inf, -np.inf])
def test_the_condition_number_of_a_singular_matrix_is_infinite(p: Any) -> None:
    check(lambda a: L.cond(a, p), np.stack([np.ones((3, 3)), matrices("float64", (3, 3)), np.full((3, 3), np.nan)]))
    check(lambda a: L.cond(a, p), np.array([[1.0, 2.0], [2.0, 4.0]]))
    check(lambda a: L.cond(a, p), matrices("float64", (3, 3)))


@pytest.mark.parametrize("fn", [*ONE.values(), lambda a: L.solve(a, a)])
def test_what_is_not_square_is_refused_while_tracing(fn: Case) -> None:
    for shape in ((2, 3), (4, 3, 2)):
        a = np.ones(shape)
        with pytest.raises(LinAlgError, match="square"):
            fn(a)
        with pytest.raises((WaxeqError, LinAlgError), match="square"):
            run(fn, a)
    with pytest.raises((WaxeqError, LinAlgError), match="two-dimensional"):
        run(fn, np.ones(3))
    with pytest.raises((WaxeqError, TypeError), match=r"float16.*float32 or float64"):
        run(fn, np.eye(2, dtype=np.float16))


@pytest.mark.parametrize(("shape", "right"), [
    ((3, 3), (2,)), ((3, 3), (2, 3)), ((3, 3), ()), ((4, 3, 3), (4, 3)), ((4, 3, 3), (2, 3, 1)),
])  # fmt: skip
def test_right_sides_that_do_not_fit_are_refused(shape: tuple[int, ...], right: tuple[int, ...]) -> None:
    a, b = matrices("float64", shape), np.ones(right)
    with pytest.raises(ValueError):
        L.solve(a, b)
    with pytest.raises((WaxeqError, ValueError)):
        run(L.solve, a, b)


@pytest.mark.parametrize("name", ["pinv", "lstsq", "eigh", "svd", "qr", "eigvalsh", "matrix_rank"])
def test_other_factorizations_are_refused(name: str) -> None:
    a = np.eye(3)
    with pytest.raises(WaxeqError, match=rf"np\.linalg\.{name}"):
        run(lambda a: getattr(L, name)(a, *([a[0]] if name == "lstsq" else [])), a)


def whole(a: Any, b: Any) -> Any:
    r = L.slogdet(a)
    return L.solve(a, b), L.inv(a) @ b, L.cholesky(a @ np.swapaxes(a, -1, -2)), r.sign * r.logabsdet, L.det(a[0])


@pytest.mark.parametrize("n", [1, 2, 5, 20])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_plan_gives_what_numpy_gives(n: int, dtype: str, tmp_path: Any) -> None:
    a, b = matrices(dtype, (6, n, n)), np.random.default_rng(2).standard_normal((6, n, 3)).astype(dtype)
    options = wx.Options.of(budget="0", threads=1, table=tmp_path / "t.duckdb")
    program = wx.optimize(whole, a, b, options=options).program
    for g, w in zip(program(a, b), map(np.asarray, whole(a, b)), strict=True):
        assert (g.dtype, g.shape) == (w.dtype, w.shape)
        np.testing.assert_allclose(g, w, rtol=1e-4 if dtype == "float32" else 1e-12, atol=1e-5)
    a[2] = 0
    with pytest.raises(LinAlgError):
        program(a, b)
    a[2] = np.eye(n)
    program(a, b)
