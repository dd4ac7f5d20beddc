"""Rows of a few neighbours that loops take apart: every element is as it was, and none beside is read."""

from __future__ import annotations

import ctypes
import mmap
import re
from collections.abc import Mapping

import numpy as np
import pytest

from waxeq.backend.call import Call, View, operand
from waxeq.basis.typing import types
from waxeq.ir.term import Term
from waxeq.testing.conformance import check_call
from waxeq_native.apart import HELD
from waxeq_native.loops import FastLoops, Loops, NarrowLoops, Streaming

_PIECE = 128
_LENGTHS = (32, 39, _PIECE - 1, _PIECE, _PIECE + 1, 5 * _PIECE + 11)


def _call(meaning: Term, axes: str, sizes: Mapping[str, int], first: View | None = None) -> Call:
    """Of operands of which the first has the axes n and c, and another only c."""
    x = first or View.dense(("n", "c"), sizes, "float32")
    others = (View.dense(("c",), sizes, x.dtype),) if "%1" in str(meaning) else ()
    out = View.dense(tuple(axes), sizes, types(meaning)[meaning].dtype)
    return Call("native.loops", meaning, sizes, (x, *others), out)


def _text(call: Call, kernel: type[Loops] = Loops) -> str:
    work = kernel().of(call)
    assert work is not None
    return work.parts[-1].text


def _fold(kind: str, dtype: str = "float32") -> Term:
    x = operand(0, "nc", dtype)
    return Term("Sum", "c", x) if kind == "sum" else Term("Red", kind, "c", x)


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint32"])
@pytest.mark.parametrize("kind", ["sum", "max", "argmin"])
@pytest.mark.parametrize("columns", [3, 4, 5, 6, 7, 8, 11])
def test_narrow_rows_are_folded_as_they_are(columns: int, kind: str, dtype: str) -> None:
    meaning = _fold(kind, dtype)
    sizes = [{"n": n, "c": columns} for n in _LENGTHS]
    calls = [_call(meaning, "n", s, View.dense(("n", "c"), s, dtype)) for s in sizes]
    Loops.prepare([(Loops(), c) for c in calls])
    for call in calls:
        assert HELD in _text(call)
        for seed in range(2):
            assert check_call(Loops(), call, np.random.default_rng(seed)) is None


@pytest.mark.parametrize("kernel", [Loops, NarrowLoops, FastLoops, Streaming])
def test_what_is_computed_of_neighbours_is_the_same(kernel: type[Loops]) -> None:
    x, w = operand(0, "nc", "float32"), operand(1, "c", "float32")
    length = Term("Map", "sqrt", Term("Sum", "c", Term("Map", "square", x)))
    meanings = (
        (length, "n"),
        (Term("Zip", "div", x, length), "nc"),
        (Term("Zip", "div", x, length), "cn"),
        (Term("Add", Term("Mul", x, w), Term("Sum", "c", x)), "nc"),
        (Term("Map", "exp", Term("Zip", "sub", x, Term("Red", "max", "c", x))), "nc"),
    )
    calls = [_call(meaning, axes, {"n": 531, "c": n}) for meaning, axes in meanings for n in (3, 4, 7)]
    kernel.prepare([(kernel(), c) for c in calls])
    taken = 0
    for call in calls:
        if kernel().of(call) is None:
            assert kernel is Streaming or "exp" in str(call.meaning)
            continue
        taken += HELD in _text(call, kernel)
        assert check_call(kernel(), call, np.random.default_rng(call.sizes["c"])) is None
    assert taken >= 3


@pytest.mark.parametrize("kernel", [Loops, Streaming])
def test_what_was_taken_apart_is_what_loops_read(kernel: type[Loops]) -> None:
    """Lines that go past the cache were made of the array itself: what had been taken apart was for nothing."""
    call = _call(_fold("sum"), "n", {"n": 5_000_000, "c": 3})
    held = _text(call, kernel).partition(HELD)[2].partition("#else")[0]
    assert ("wx_stream_lines" in held) == (kernel is Streaming)
    assert "apart0[0][" in held and not re.search(r"= x0\[", held)


def test_rows_that_lie_apart_and_rows_of_several_axes() -> None:
    """Five columns of nine, and the same in each of some planes, whose rows begin anywhere."""
    meaning = _fold("max")
    sizes = {"n": 301, "c": 5}
    wide = View(("n", "c"), (301, 5), (9, 1), "float32", 3)
    assert HELD in _text(call := _call(meaning, "n", sizes, wide))
    assert check_call(Loops(), call, np.random.default_rng(0)) is None
    planes = Term("Red", "max", "c", operand(0, "mnc", "float32"))
    sizes = {"m": 5, "n": 77, "c": 6}
    view = View(("m", "n", "c"), (5, 77, 6), (77 * 6 + 1, 6, 1), "float32")
    assert HELD in _text(call := Call("native.loops", planes, sizes, (view,), View.dense("mn", sizes, "float32")))
    assert check_call(Loops(), call, np.random.default_rng(1)) is None


def test_what_compilers_take_apart_as_fast_is_left_to_them() -> None:
    for dtype, columns in (("float32", 2), ("float64", 4), ("uint8", 4)):
        sizes = {"n": 1000, "c": columns}
        call = _call(_fold("sum", dtype), "n", sizes, View.dense(("n", "c"), sizes, dtype))
        assert HELD not in _text(call)


@pytest.mark.parametrize("columns", [3, 4, 5, 7])
def test_nothing_is_read_behind_the_last_row(columns: int) -> None:
    """The array ends where memory ends that may be read."""
    page = mmap.PAGESIZE
    room = mmap.mmap(-1, 8 * page)
    begin = ctypes.addressof(ctypes.c_char.from_buffer(room))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(begin + 7 * page), ctypes.c_size_t(page), 0) == 0
    for n in (32, 127, 128, 136, 259):
        call = _call(_fold("sum"), "n", {"n": n, "c": columns})
        assert HELD in _text(call)
        end = 7 * page // 4
        x = np.frombuffer(room, np.float32)[end - n * columns : end].reshape(n, columns)
        x[:] = np.arange(n * columns).reshape(n, columns)
        out = np.empty(n, np.float32)
        for step in Loops().bind(call, [x], out, np.empty(0, np.uint8)):
            step()
        np.testing.assert_array_equal(out, x.sum(1))


@pytest.mark.parametrize("step", [3, 4, 8])
def test_columns_that_are_operands_of_their_own_are_neighbours(step: int) -> None:
    order, n = (0, 2, 1), 1003
    x = operand(0, "n", "float32")
    for i in range(1, len(order)):
        x = Term("Add", Term("Mul", x, x), operand(i, "n", "float32"))
    views = tuple(View(("n",), (n,), (step,), "float32", offset) for offset in order)
    call = Call("native.loops", x, {"n": n}, views, View.dense("n", {"n": n}, "float32"), (0,) * len(order))
    assert HELD in _text(call)
    assert check_call(Loops(), call, np.random.default_rng(0)) is None
