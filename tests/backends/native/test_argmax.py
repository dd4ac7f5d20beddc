"""Places of extremes: the first of equal ones, NaN before all, along any axis, from rows of any length."""

from __future__ import annotations

import numpy as np
import pytest

from waxeq.backend.call import Call, View, operand
from waxeq.backend.kernel import prepare
from waxeq.ir.term import Term
from waxeq.ir.types import is_float
from waxeq_native.argmax import Picks

DTYPES = ("float32", "float64", "int32", "int64", "uint32", "uint64")
SHAPES = ((1, 16), (3, 17), (5, 64), (5, 65), (70, 300), (2, 2049), (1, 40_001), (1, 70_000), (4, 5000), (300, 19))
PICKS = ("argmax", "argmin")


def called(kind: str, shape: tuple[int, int], dtype: str, threads: int = 1, order: str = "ij", fused: bool = False
           ) -> Call:  # fmt: skip
    sizes = dict(zip("ij", shape, strict=True))
    x = operand(0, "ij", dtype)
    meaning = Term("Red", kind, "j", Term("Add", x, x) if fused else x)
    views = (View.dense(order, sizes, dtype),)
    return Call("native.argmax", meaning, sizes, views, View.dense("i", sizes, "int64"), threads=threads)


def ran(call: Call, x: np.ndarray) -> np.ndarray:
    """The places in rows of an operand with axes i, j."""
    out, k = np.full(x.shape[0], -1), Picks()
    laid = np.ascontiguousarray(x if call.operands[0].axes == ("i", "j") else x.T)
    for step in k.bind(call, (laid,), out, np.empty(k.workspace(call), np.uint8)):
        step()
    return out


def ways(kind: str, shape: tuple[int, int], dtype: str) -> list[Call]:
    found = [called(kind, shape, dtype, t, o, f) for t in (1, 3) for o in ("ij", "ji") for f in (False, True)]
    assert all(Picks().accepts(c) for c in found)
    return found


def drawn(shape: tuple[int, int], dtype: str) -> np.ndarray:
    """With many equal elements, and of floats all that is special."""
    rng = np.random.default_rng(shape[1])
    if not is_float(dtype):
        return rng.integers(0, 1 << 30, shape).astype(dtype) // 1000
    x = np.round(rng.standard_normal(shape) * 50).astype(dtype)
    special = rng.integers(0, 40, shape)
    for i, value in enumerate((np.inf, -np.inf, 0.0, -0.0)):
        x[special == i] = value
    x[shape[0] // 2 :, shape[1] // 3] = np.nan
    return x


def rows_of(dtype: str, size: int) -> np.ndarray:
    """Rows of one length that are special each."""
    x = np.zeros((12, size), dtype)
    x[1, -1], x[2, 0], x[3, size // 2] = 1, 1, 1
    x[4] = 1
    x[5, size // 3 :: 2] = 7
    if is_float(dtype):
        x[6, ::2] = -0.0
        x[7], x[8] = -np.inf, np.inf
        x[9, -1] = np.nan
        x[10, 0] = x[10, 5] = np.nan
        x[11] = np.nan
        x[9, 2] = x[10, 3] = np.inf
    else:
        x[6], x[7] = np.iinfo(dtype).min, np.iinfo(dtype).max
        x[8, size // 2] = np.iinfo(dtype).max
    return x


@pytest.mark.parametrize("kind", PICKS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_places_are_those_that_numpy_finds(kind: str, dtype: str) -> None:
    """Of rows side by side and down columns, read and computed, on one thread and in pieces."""
    calls = [c for shape in SHAPES for c in ways(kind, shape, dtype)]
    prepare((Picks(), c) for c in calls)
    for c in calls:
        x = drawn((c.sizes["i"], c.sizes["j"]), dtype)
        y = x if c.meaning.args[2].head == "In" else x + x
        np.testing.assert_array_equal(ran(c, x), getattr(np, kind)(y, 1), str(c))


@pytest.mark.parametrize("kind", PICKS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_first_of_equal_elements_is_taken_and_nan_before_all(kind: str, dtype: str) -> None:
    """Zeros of both signs are equal; NaN comes first wherever it is, and of several the first; rows of the worst value
    only begin with it."""
    calls = [c for size in (16, 31, 128, 2050, 9001) for c in ways(kind, (12, size), dtype)]
    calls = [c for c in calls if c.meaning.args[2].head == "In"]
    prepare((Picks(), c) for c in calls)
    for c in calls:
        x = rows_of(dtype, c.sizes["j"])
        np.testing.assert_array_equal(ran(c, x), getattr(np, kind)(x, 1), str(c))


@pytest.mark.parametrize("order", ["ij", "ji"])
def test_pieces_of_a_long_row_keep_the_first_place(order: str) -> None:
    """Equal extremes and NaN in several pieces, which threads share out."""
    n = 200_003
    call = called("argmax", (1, n), "float32", 2, order)
    assert len(Picks().of(call).parts) == 2
    for places, value in (((50_000, 150_000), 1), ((199_999, 120_000, 3), np.nan), ((n - 1,), np.inf), ((), 0)):
        x = np.zeros((1, n), np.float32)
        x[0, list(places)] = value
        assert ran(call, x)[0] == min(places, default=0)


def test_short_rows_and_folds_inside_are_left_to_others() -> None:
    assert not Picks().accepts(called("argmax", (5, 15), "float32"))
    assert not Picks().accepts(called("argmax", (5, 1), "float32"))
    assert not Picks().accepts(called("argmax", (5, 64), "float16"))
    sizes, x = {"i": 5, "j": 40, "k": 3}, operand(0, "ijk", "float32")
    views = (View.dense("ijk", sizes, "float32"),)
    inside = Term("Red", "argmax", "j", Term("Sum", "k", x))
    assert not Picks().accepts(Call("native.argmax", inside, sizes, views, View.dense("i", sizes, "int64")))
