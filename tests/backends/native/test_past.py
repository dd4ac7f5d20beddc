"""Loops whose results go past the cache line by line."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from waxeq.backend.call import Call, View, operand
from waxeq.ir.term import Term
from waxeq.testing.conformance import check_call
from waxeq_cfamily import asked
from waxeq_native.loops import FastStreaming, Loops, Streaming

KERNEL = Streaming()


def _call(meaning: Term, sizes: dict[str, int], operands: list[str], out: str, dtype: str = "float32") -> Call:
    views = tuple(View.dense(axes, sizes, dtype) for axes in operands)
    return Call("native.loops_stream", meaning, sizes, views, View.dense(out, sizes, dtype))


def _text(call: Call) -> str:
    work = KERNEL.of(call)
    assert work is not None
    (part,) = work.parts
    return part.text


def _summed(many: int, columns: int, dtype: str = "float32") -> Call:
    """The sum of so many arrays."""
    total = operand(0, "ij", dtype)
    for n in range(1, many):
        total = Term("Add", total, operand(n, "ij", dtype))
    return _call(Term("Map", "neg", total), {"i": 7, "j": columns}, ["ij"] * many, "ij", dtype)


def _halves(width: int, dtype: str = "float32") -> Call:
    """Two arrays side by side, each made of both."""
    a, b = (tuple(operand(n + i, axes, dtype) for i in range(2)) for n, axes in ((0, "ik"), (2, "il")))
    meaning = Term("Cat", "k", "l", "j", Term("Zip", "sub", *a), Term("Mul", *b))
    sizes = {"i": 9, "k": width, "l": width, "j": 2 * width}
    views = tuple(View.dense(axes, sizes, dtype) for axes in ("ik", "ik", "il", "il"))
    return Call("native.loops_stream", meaning, sizes, views, View.dense("ij", sizes, dtype))


CASES = {
    "whole lines": _summed(2, 1024),
    "doubles": _summed(2, 1024, "float64"),
    "a last line that is not whole": _summed(2, 1000),
    "rows that begin within a line": _call(
        Term("Add", operand(0, "ij", "float32"), operand(1, "j", "float32")), {"i": 7, "j": 1003}, ["ij", "j"], "ij"
    ),
    "halves side by side": _halves(32),
    "halves of doubles": _halves(48, "float64"),
    "longer halves": _halves(208),
}


@pytest.mark.parametrize("name", CASES)
def test_results_are_as_the_meaning_has_them(name: str) -> None:
    assert check_call(KERNEL, CASES[name], np.random.default_rng(0)) is None


@pytest.mark.parametrize("name", ["whole lines", "doubles", "halves side by side", "halves of doubles"])
def test_whole_lines_are_written_from_registers(name: str) -> None:
    """Short rows went through memory of their own before: the halves of a rotary embedding took 1.3 of the time."""
    text = _text(CASES[name])
    assert "wx_stream_lines(" in text and "piece" not in text


def test_parts_of_lines_are_written_a_piece_at_a_time() -> None:
    text = _text(CASES["rows that begin within a line"])
    assert "wx_stream(" in text and "wx_stream_lines(" not in text


@pytest.mark.parametrize("off", range(0, 64, 4))
def test_a_result_may_begin_anywhere(off: int) -> None:
    call = CASES["halves side by side"]
    x, y = np.random.default_rng(1).standard_normal((2, 9, 32), np.float32)
    memory = np.zeros(9 * 64 * 4 + 128, np.uint8)
    first = -memory.ctypes.data % 64 + off
    out = memory[first : first + 9 * 64 * 4].view(np.float32).reshape(9, 64)
    for step in KERNEL.bind(call, [x, y, x, y], out, np.empty(0, np.uint8)):
        step()
    np.testing.assert_array_equal(out, np.concatenate([x - y, x * y], axis=1))
    assert not memory[:first].any() and not memory[first + out.nbytes :].any()


def test_lines_of_many_arrays_are_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays that begin at the same place of a page take each other's place in the first cache: with 4 KiB of each of
    four asked for, a product of two and two took 1.35 of the time."""
    monkeypatch.setattr(asked, "_CACHED", 0)
    counts = [_text(_summed(many, 4096)).count("__builtin_prefetch(") for many in range(1, 7)]
    assert counts == [1, 2, 3, 0, 0, 0]


def _priced(many: int) -> Call:
    """A formula that is long enough to be several loops, of so many arrays."""
    total = operand(0, "ij", "float32")
    for n in range(1, many):
        total = Term("Add", total, operand(n, "ij", "float32"))
    for name in ("exp", "tanh", "log", "exp", "tanh", "log"):
        total = Term("Map", name, Term("Mul", total, operand(0, "ij", "float32")))
    return _call(total, {"i": 7, "j": 4096}, ["ij"] * many, "ij")


def test_pieces_of_many_arrays_are_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A core follows them by itself: Black-Scholes prices of five arrays took 1.07 of the time, a long formula of four
    1.19. What is folded is read with nothing else in work, and is asked for."""
    monkeypatch.setattr(asked, "_CACHED", 0)
    kernel = FastStreaming()
    texts = [kernel.of(_priced(many)).parts[0].text for many in range(1, 6)]  # type: ignore[union-attr]
    assert all(re.search(r" k\d+\[128\];", t) and "wx_stream_lines(" not in t for t in texts)
    assert [t.count("__builtin_prefetch(") for t in texts] == [1, 2, 0, 0, 0]
    folded = replace(_summed(3, 4096), out=View.dense("i", {"i": 7}, "float32"), kernel="native.loops")
    folded = replace(folded, meaning=Term("Sum", "j", folded.meaning))
    assert Loops().of(folded).parts[0].text.count("__builtin_prefetch(") == 3  # type: ignore[union-attr]


def test_the_next_row_is_asked_for_while_one_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Into the second cache, as what is written line by line comes from the first one: an RMS norm of rows of 16 KiB
    took 1.35 of the time without."""
    monkeypatch.setattr(asked, "_CACHED", 0)
    x = operand(0, "ij", "float32")
    norm = Term("Map", "sqrt", Term("Sum", "j", Term("Mul", x, x)))
    text = _text(_call(Term("Zip", "div", x, norm), {"i": 7, "j": 4096}, ["ij"], "ij"))
    assert "wx_stream_lines(" in text and "i1 + 4096, 0, 2);" in text
