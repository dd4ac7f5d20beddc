"""Sorting by digits: rows of any length, along any axis, all at once or in pieces that threads share out."""

from __future__ import annotations

import numpy as np
import pytest

from waxeq.backend.call import Call, View, operand
from waxeq.backend.discover import backends, kernels
from waxeq.backend.kernel import prepare
from waxeq.ir.term import Term
from waxeq.ir.types import numpy_dtype
from waxeq.ops import ordering
from waxeq.testing.ties import drawn
from waxeq_native import sort
from waxeq_native.sort import Argsort, Sort
from waxeq_native.sort_text import Sorted

SHAPES = ((1, 1), (3, 2), (5, 64), (5, 65), (70, 300), (2, 40_000), (1, 70_001))
DTYPES = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
FLOATS = ("float16", "bfloat16", "float32", "float64")


def called(kernel: Sort, shape: tuple[int, int], dtype: str, threads: int = 1, axis: str = "j", order: str = "ij",
           out: str = "ij") -> Call:  # fmt: skip
    sizes = dict(zip("ij", shape, strict=True))
    gives = "int64" if isinstance(kernel, Argsort) else dtype
    meaning = Term(kernel.pattern[1:].split()[0], axis, operand(0, "ij", dtype))
    views = View.dense(order, sizes, dtype), View.dense(out, sizes, gives)
    return Call(f"native.{kernel.name}", meaning, sizes, views[:1], views[1], threads=threads)


def ran(kernel: Sort, call: Call, x: np.ndarray) -> np.ndarray:
    """The result with axes i, j of an operand with axes i, j."""
    assert kernel.accepts(call)
    (view,), out = call.operands, np.empty([call.sizes[k] for k in call.out.axes], numpy_dtype(call.out.dtype))
    laid = np.ascontiguousarray(x if view.axes == ("i", "j") else x.T)
    for step in kernel.bind(call, (laid,), out, np.empty(kernel.workspace(call), np.uint8)):
        step()
    return out if call.out.axes == ("i", "j") else out.T


def expected(kernel: Sort, x: np.ndarray, axis: int) -> np.ndarray:
    """Through float64 or 64 bits, which hold every value: ml_dtypes sorts NaN anywhere."""
    wide = x.astype(np.float64) if x.dtype.kind not in "biu" else x
    if isinstance(kernel, Argsort):
        return np.argsort(wide, axis, kind="stable")
    return np.sort(wide, axis).astype(x.dtype)


@pytest.mark.parametrize("kernel", [Sort(), Argsort()])
@pytest.mark.parametrize("dtype", DTYPES + FLOATS)
def test_rows_are_sorted_as_numpy_does(kernel: Sort, dtype: str) -> None:
    """Along either axis, from any layout and to any; NaN comes last, and positions of equal elements keep their order,
    those of zeros of both signs too. Every other combination is met: the next dtype has those that this one has not."""
    ways = [(a, o, w) for a in "ij" for o, w in (("ij", "ij"), ("ji", "ij"), ("ij", "ji"))]
    first = (DTYPES + FLOATS).index(dtype)
    which = [(s, t, w) for i, s in enumerate(SHAPES) for t in (1, 3) for j, w in enumerate(ways)
             if (i + t // 2 + j + first) % 2 == 0]  # fmt: skip
    rows = [(s, a, called(kernel, s, dtype, t, a, o, w)) for s, t, (a, o, w) in which]
    prepare((kernel, call) for *_, call in rows)
    for shape, axis, call in rows:
        x = drawn(shape, dtype)
        found, meant = (y.astype(np.float64) for y in (ran(kernel, call, x), expected(kernel, x, "ij".index(axis))))
        np.testing.assert_array_equal(found, meant, err_msg=f"{shape} along {axis}")


@pytest.mark.parametrize("kernel", [Sort(), Argsort()])
def test_equal_rows_and_rows_in_order_stay(kernel: Sort) -> None:
    """Digits that a whole row has alike are passed over, an odd or an even number of them."""
    for size in (100, 1000):
        call = called(kernel, (4, size), "int64")
        n = np.arange(size)
        x = np.stack([np.zeros(size), n, n[::-1] << 40, n % 7 << 20]).astype(np.int64)
        np.testing.assert_array_equal(ran(kernel, call, x), expected(kernel, x, 1))


def test_few_long_rows_are_cut_in_pieces_and_others_are_not() -> None:
    def parts(shape: tuple[int, int], threads: int) -> int:
        work = Argsort().of(called(Argsort(), shape, "float32", threads))
        assert work is not None
        return len(work.parts)

    assert parts((1, 100_000), 1) == 1
    assert parts((1, 100_000), 2) == 8
    assert parts((1, 1000), 2) == 1
    assert parts((2, 100_000), 2) == 1


def test_long_rows_lie_in_the_workspace_one_for_each_thread() -> None:
    """What lies on the stack of whoever calls the program is a part of it."""
    most = sort._STACK // 32  # two times a key of 64 bits and a position
    short, long = (called(Argsort(), (100, n), "float64", 3) for n in (most, most + 1))
    assert Argsort().workspace(short) == 0
    assert Argsort().workspace(long) >= 3 * 2 * most * 16


def test_what_is_not_sorted_is_not_taken() -> None:
    x = operand(0, "ij", "float32")
    call = called(Sort(), (4, 5), "float32")
    assert Sort().accepts(call) and not Argsort().accepts(call)
    assert not Sort().accepts(Call("native.sort", Term("Map", "neg", x), call.sizes, call.operands, call.out))


def test_what_has_more_elements_than_positions_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sort, "_MOST", 1000)
    assert Argsort().accepts(called(Argsort(), (2, 999), "int8"))
    assert not Argsort().accepts(called(Argsort(), (2, 1000), "int32"))
    assert Sorted.of(called(Argsort(), (2, 1000), "int32")).rows == 2


def test_nan_of_bfloat16_comes_last_in_every_kernel_and_in_what_they_are_checked_against() -> None:
    """ml_dtypes has it anywhere: [nan, 0, 1, 2, nan]."""
    x = np.array([[np.nan, 2, np.nan, 0, 1]]).astype(numpy_dtype("bfloat16"))
    for kernel, op in ((Sort(), ordering.Sort(axis=1)), (Argsort(), ordering.Argsort(axis=1))):
        call = called(kernel, x.shape, "bfloat16")
        wanted = [[0, 1, 2, np.nan, np.nan]] if isinstance(op, ordering.Sort) else [[3, 4, 1, 0, 2]]
        numpy_kernel = kernels(backends(["numpy"]))[f"numpy.{kernel.name}"]
        by_numpy = np.empty(x.shape, numpy_dtype(call.out.dtype))
        for step in numpy_kernel.bind(call, (x,), by_numpy, np.empty(0, np.uint8)):
            step()
        for found in (ran(kernel, call, x), op.reference(x), by_numpy):
            np.testing.assert_array_equal(found.astype(np.float64), np.array(wanted, np.float64))
