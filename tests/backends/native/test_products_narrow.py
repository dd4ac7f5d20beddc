"""Products of few columns that fill no whole panels, on tiles as wide as these are."""

from __future__ import annotations

import numpy as np
import pytest

from waxeq.backend.call import Call, View, operand
from waxeq.ir.term import Term
from waxeq.testing.conformance import check_call
from waxeq_native.products import Products
from waxeq_native.products_narrow import NarrowProducts

KERNEL = NarrowProducts()


def product(
    rows: int, columns: int, depth: int, *, turned: str = "mk kn", threads: int = 1, dtype: str = "float32"
) -> Call:
    """y - x b, the sides as they lie."""
    sizes, (left, right) = {"m": rows, "n": columns, "k": depth}, turned.split()
    x, b, y, out = (View.dense(axes, sizes, dtype) for axes in (left, right, "mn", "mn"))
    whole = Term("Sum", "k", Term("Mul", operand(0, left, dtype), operand(1, right, dtype)))
    meaning = Term("Zip", "sub", operand(2, "mn", dtype), whole)
    return Call(KERNEL.name, meaning, sizes, (x, b, y), out, threads=threads)


def right(call: Call) -> None:
    for seed in (1, 3, 0):
        assert check_call(KERNEL, call, np.random.default_rng(seed)) is None


@pytest.mark.parametrize(
    "rows, columns, depth, turned, threads",
    [
        *((2000, 50, 50, "mk kn", t) for t in (1, 2)),
        (16, 17, 16, "mk kn", 1),  # three vectors of eight, and one tile of fewer rows than are at hand
        (33, 33, 31, "km kn", 1),
        (50, 50, 60, "km nk", 2),
        (129, 23, 100, "mk nk", 3),
        (64, 127, 31, "mk kn", 1),
        (40, 41, 17, "mk kn", 2),
    ],
)
def test_columns_of_any_number_of_vectors(rows: int, columns: int, depth: int, turned: str, threads: int) -> None:
    right(product(rows, columns, depth, turned=turned, threads=threads))


def test_products_that_are_added() -> None:
    """Sums over an axis around the depth: rows that are left of a strip must not be added twice."""
    sizes = {"m": 35, "n": 50, "k": 20, "a": 3}
    x, b, out = (View.dense(axes, sizes, "float32") for axes in ("mak", "nka", "mn"))
    meaning = Term("Mul", operand(0, "mak", "float32"), operand(1, "nka", "float32"))
    c = Call(KERNEL.name, Term("Sum", "a", Term("Sum", "k", meaning)), sizes, (x, b), out)
    work = KERNEL.of(c)
    assert work is not None and "!= 0), scratch)" in work.parts[-1].text, "no product that is added"
    right(c)


def test_short_sums_round_less_than_those_of_panels() -> None:
    """X (V' V): one term of each sum is as large as the sum, and what comes after it is rounded as that is."""
    rng = np.random.default_rng(0)
    x, v = (rng.standard_normal((2000, 50), dtype=np.float32) for _ in range(2))
    b, y = v.T @ v, np.zeros((2000, 50), np.float32)
    exact, call, errors = -x.astype(np.float64) @ b.astype(np.float64), product(2000, 50, 50), {}
    for kernel in (KERNEL, Products()):
        out = np.empty_like(y)
        for run in kernel.bind(call, [x, b, y], out, np.empty(kernel.workspace(call), np.uint8)):
            run()
        errors[kernel.name] = np.sqrt(np.mean((out - exact) ** 2) / np.mean(exact**2))
    assert errors["products_narrow"] < 0.85 * errors["products"]


@pytest.mark.parametrize(
    "call",
    [
        product(2000, 64, 50),  # whole panels, on any machine
        product(2000, 16, 50),
        product(2000, 130, 30),
        product(15, 50, 50),
        product(2000, 50, 15),
        product(2000, 50, 70),
        product(2000, 50, 50, dtype="float64"),
    ],
)
def test_what_it_does_not_take(call: Call) -> None:
    """Columns that fill panels or are too few or many, few rows, and what is too shallow or too deep."""
    assert KERNEL.of(call) is None
