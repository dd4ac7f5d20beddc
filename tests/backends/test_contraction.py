"""What NumPy's einsum is said to take: by the loops that it makes of strides, not by products alone."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest

from waxeq.backend.call import Call, View, operand
from waxeq.ir.term import Term
from waxeq_numpy.contraction import Contract

WINDOWS = View(tuple("chiwj"), (4, 10, 3, 10, 3), (144, 12, 12, 1, 1), "float32")
WEIGHTS = View.dense("ocij", {"o": 5, "c": 4, "i": 3, "j": 3}, "float32")
LEFT, RIGHT = (View.dense(axes, {"m": 6, "k": 200, "n": 7}, "float32") for axes in ("mk", "nk"))


def contraction(a: View, b: View, summed: str, order: str) -> Call:
    sizes = {k: n for v in (a, b) for k, n in zip(v.axes, v.shape, strict=True)}
    product = Term("Mul", *(operand(i, v.axes, v.dtype) for i, v in enumerate((a, b))))
    meaning = reduce(lambda t, k: Term("Sum", k, t), summed, product)
    return Call("numpy.contract", meaning, sizes, (a, b), View.dense(order, sizes, "float32"))


@pytest.mark.parametrize(
    ("call", "inner"),
    [
        (contraction(WEIGHTS, WINDOWS, "jic", "ohw"), 3),
        (contraction(LEFT, RIGHT, "k", "mn"), 200),
        (contraction(View.dense("k", {"k": 200}, "float32"), LEFT, "k", "m"), 200),
    ],
)
def test_a_contraction_is_told_by_its_innermost_loop(call: Call, inner: int) -> None:
    """A convolution by windows of three takes ten times as long as as many products of rows: it was said to take 20 ms
    and took 250."""
    features = Contract().features(call)
    assert features["rows"] == features["slow_flops"] / 2 / inner


def test_nothing_has_a_loop_of_one() -> None:
    empty = View.dense("mk", {"m": 0, "k": 200}, "float32")
    call = contraction(empty, RIGHT, "k", "mn")
    assert Contract().features(call)["rows"] == 0


def test_what_is_told_reads_no_memory() -> None:
    """Views far larger than any memory are told like others."""
    sizes = {"m": 1 << 30, "k": 1 << 20, "n": 7}
    call = contraction(View.dense("mk", sizes, "float32"), View.dense("nk", sizes, "float32"), "k", "mn")
    assert np.isfinite(Contract().features(call)["rows"])
