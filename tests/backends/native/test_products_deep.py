"""Products of which little comes and which are deep, in pieces of their depth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from waxeq.backend.call import Call, View, operand
from waxeq.ir.term import Term
from waxeq.testing.conformance import check_call
from waxeq_native.products_deep import DeepProducts

KERNEL = DeepProducts()


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


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(
    "rows, columns, depth, dtype, turned",
    [
        (8, 8, 512, "float32", "km"),
        (50, 50, 2000, "float32", "km"),
        (17, 129, 1031, "float32", "mk"),
        (200, 9, 4097, "float64", "km"),
        (31, 30, 6000, "float64", "mk"),
    ],
)
def test_pieces_make_the_product(rows: int, columns: int, depth: int, dtype: str, turned: str, threads: int) -> None:
    """The last piece is shorter; what follows the product comes after their sum."""
    assert check_call(KERNEL, product(rows, columns, depth, threads, dtype, turned), np.random.default_rng(0)) is None


@pytest.mark.parametrize("threads", [1, 2])
def test_a_covariance_is_cut_in_groups_of_pieces_that_are_summed_in_pairs(threads: int) -> None:
    c = covariance(50, 2000, threads)
    work = KERNEL.of(c)
    assert work is not None and [p.tasks for p in work.parts] == [24, 50]
    assert work.workspace == work.parts[0].tasks * 50 * 50 * 4
    assert check_call(KERNEL, c, np.random.default_rng(0)) is None


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    "columns, depth, dtype",
    [(33, 8192, "float32"), (64, 8200, "float64"), (129, 9001, "float32"), (255, 2100, "float32")],
)
def test_half_of_a_covariance_is_the_other_half_turned(columns: int, depth: int, dtype: str, threads: int) -> None:
    c = covariance(columns, depth, threads, dtype)
    work = KERNEL.of(c)
    assert work is not None and "panels" in work.parts[0].source
    assert check_call(KERNEL, c, np.random.default_rng(0)) is None


def test_other_products_of_a_matrix_are_no_covariance() -> None:
    """Of another buffer, of other columns of it, or where a piece is as soon made as turned."""
    for c in (covariance(33, 8192, 1, shared=False), covariance(33, 8192, 1, shift=1), covariance(33, 1024, 1)):
        work = KERNEL.of(c)
        assert work is not None and "panels" not in work.parts[0].source


def test_results_agree_for_one_thread_and_several_of_nan_and_infinity() -> None:
    c = covariance(16, 1024, 2)
    (step,) = KERNEL.bind(c, [x := np.ones((1024, 16), np.float32)] * 2, out := np.empty((16, 16), np.float32),
                          np.empty(KERNEL.workspace(c), np.uint8))  # fmt: skip
    x[3, 2], x[900, 5] = np.nan, np.inf
    step()
    bad = np.isnan(out)
    assert bad[2].all() and bad[:, 2].all() and bad.sum() == 31
    assert np.isinf(np.delete(out[5], 2)).all() and (np.delete(np.delete(out, [2, 5], 0), [2, 5], 1) == 1024).all()


@pytest.mark.parametrize("rows, columns, depth", [(7, 50, 4000), (50, 50, 511), (300, 300, 4000), (200, 8, 700)])
def test_what_it_does_not_take(rows: int, columns: int, depth: int) -> None:
    """Vectors, what is not deep, and results that leave the cache."""
    assert KERNEL.of(product(rows, columns, depth, 2)) is None
