"""Products of which little comes and which are deep, in pieces of their depth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from waxeq.backend.call import Call, View, operand
from waxeq.ir.term import Term
from waxeq.testing.conformance import check_call
from waxeq_native.products_deep import DeepProducts, GramProducts

KERNEL, GRAM = DeepProducts(), GramProducts()


def right(kernel: DeepProducts, call: Call) -> None:
    """On numbers above 0, with many zeros, and with some that are not finite."""
    finite: list[bool] = []
    for seed in (1, 3, 0):
        rng = np.random.default_rng(seed)
        assert check_call(kernel, call, rng, lambda _, out: finite.append(bool(np.isfinite(out).any()))) is None
    assert finite == [True, True, True]


def product(rows: int, columns: int, depth: int, threads: int, dtype: str = "float32", turned: str = "km") -> Call:
    """x' y / depth + y's first row."""
    sizes = {"m": rows, "n": columns, "k": depth}
    x, y, b, out = (View.dense(axes, sizes, dtype) for axes in (turned, "kn", "n", "mn"))
    whole = Term("Sum", "k", Term("Mul", operand(0, turned, dtype), operand(1, "kn", dtype)))
    meaning = Term("Add", Term("Mul", Term("Num", 1 / depth, dtype), whole), operand(2, "n", dtype))
    return Call("native.products_deep", meaning, sizes, (x, y, b), out, threads=threads)


def covariance(
    columns: int, depth: int, threads: int, dtype: str = "float32", *, shift: int = 0, shared: bool = True
) -> Call:
    """x' x, of one buffer or of two; the second x may begin so many elements later."""
    sizes = {"m": columns, "n": columns, "k": depth}
    x, y, out = (View.dense(axes, sizes, dtype) for axes in ("km", "kn", "mn"))
    meaning = Term("Sum", "k", Term("Mul", operand(0, "km", dtype), operand(1, "kn", dtype)))
    y = replace(y, offset=shift)
    return Call("native.products_deep", meaning, sizes, (x, y), out, (0, 0) if shared else (), threads=threads)


@pytest.mark.parametrize(
    "rows, columns, depth, dtype, turned, threads",
    [
        *((8, 8, 512, "float32", "km", t) for t in (1, 2, 3)),
        *((50, 50, 2000, "float32", "km", t) for t in (1, 3)),
        *((17, 129, 1031, "float32", "mk", t) for t in (1, 2, 3)),
        (200, 9, 4097, "float64", "km", 2),
        *((31, 30, 6000, "float64", "mk", t) for t in (1, 3)),
    ],
)
def test_pieces_make_the_product(rows: int, columns: int, depth: int, dtype: str, turned: str, threads: int) -> None:
    """The last piece is shorter; what follows the product comes after their sum."""
    right(KERNEL, product(rows, columns, depth, threads, dtype, turned))


@pytest.mark.parametrize("threads", [1, 2])
def test_a_covariance_is_cut_in_groups_of_pieces_that_are_summed_in_pairs(threads: int) -> None:
    c = covariance(50, 2000, threads)
    work = KERNEL.of(c)
    assert work is not None and [p.tasks for p in work.parts] == [24, 50]
    assert work.workspace == work.parts[0].tasks * 50 * 50 * 4
    assert KERNEL.features(c)["bytes"] == c.bytes_read + c.out.bytes + 2 * work.workspace
    right(KERNEL, c)


@pytest.mark.parametrize(
    "columns, depth, dtype, threads",
    [
        *((33, 8192, "float32", t) for t in (1, 2)),
        *((64, 4200, "float64", t) for t in (1, 2)),
        (129, 5001, "float32", 2),  # three layers a piece, and a band of one row
        (127, 2100, "float32", 1),
    ],
)
def test_half_of_a_covariance_is_the_other_half_turned(columns: int, depth: int, dtype: str, threads: int) -> None:
    c = covariance(columns, depth, threads, dtype)
    assert GRAM.of(c) is not None and KERNEL.of(c) is not None
    assert GRAM.features(c)["flops"] < KERNEL.features(c)["flops"]
    right(GRAM, c)


@pytest.mark.parametrize("kernel", [KERNEL, GRAM])
def test_a_covariance_is_the_same_on_any_threads_and_of_nan_and_infinity(kernel: DeepProducts) -> None:
    x = np.random.default_rng(0).standard_normal((4100, 37)).astype(np.float32)
    x[3, 2], x[4000, 35] = np.nan, np.inf
    outs = []
    for threads in (1, 2):
        c = covariance(37, 4100, threads)
        outs.append(np.empty((37, 37), np.float32))
        (step,) = kernel.bind(c, [x, x], outs[-1], np.empty(kernel.workspace(c), np.uint8))
        step()
    np.testing.assert_array_equal(*outs)
    if kernel is GRAM:  # tiles at an edge may add in another order than those of the other half
        np.testing.assert_array_equal(outs[0], outs[0].T)
    assert np.isnan(outs[0][2]).all() and not np.isfinite(outs[0][35]).any()
    usual = np.delete(np.arange(37), [2, 35])
    wide = x[:, usual].astype(np.float64)
    np.testing.assert_allclose(outs[0][np.ix_(usual, usual)], wide.T @ wide, rtol=1e-5, atol=1e-3)


def test_other_products_of_a_matrix_are_no_covariance() -> None:
    """Of another buffer, of other columns of it, or where a piece is as soon made as turned."""
    others = covariance(33, 8192, 1, shared=False), covariance(33, 8192, 1, shift=1), covariance(33, 1023, 1)
    for c in (*others, covariance(32, 8192, 1)):
        assert GRAM.of(c) is None
        right(KERNEL, c)


def test_depth_over_two_axes_that_are_one_in_memory() -> None:
    sizes = {"a": 40, "b": 60, "m": 16, "n": 20}
    x, y, out = (View.dense(axes, sizes, "float32") for axes in ("abm", "abn", "mn"))
    meaning = Term("Mul", operand(0, "abm", "float32"), operand(1, "abn", "float32"))
    c = Call("native.products_deep", Term("Sum", "a", Term("Sum", "b", meaning)), sizes, (x, y), out)
    right(KERNEL, c)


def test_what_follows_row_by_row_has_a_share_for_every_thread() -> None:
    """A softmax of each row of the product."""
    sizes = {"m": 128, "n": 128, "k": 4096}
    x, y, out = (View.dense(axes, sizes, "float32") for axes in ("km", "kn", "mn"))
    s = Term("Sum", "k", Term("Mul", operand(0, "km", "float32"), operand(1, "kn", "float32")))
    e = Term("Map", "exp", Term("Zip", "sub", s, Term("Red", "max", "n", s)))
    c = Call("native.products_deep", Term("Zip", "div", e, Term("Sum", "n", e)), sizes, (x, y), out, threads=2)
    work = KERNEL.of(c)
    assert work is not None and work.parts[1].tasks >= 2
    right(KERNEL, c)


@pytest.mark.parametrize("rows, columns, depth", [(7, 50, 4000), (50, 50, 511), (300, 300, 4000), (200, 8, 700)])
def test_what_it_does_not_take(rows: int, columns: int, depth: int) -> None:
    """Vectors, what is not deep, and results that leave the cache."""
    assert KERNEL.of(product(rows, columns, depth, 2)) is None
