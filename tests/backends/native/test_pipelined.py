"""Walks whose stages work on rows one after another: the same to the last bit as others, wherever arrays begin."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from waxeq.backend.call import Call, View, operand
from waxeq.basis.typing import types
from waxeq.ir.term import Term
from waxeq.testing.conformance import check_call
from waxeq_cfamily.loops import Emitter
from waxeq_cfamily.overlapped import Overlapped
from waxeq_cfamily.stages import Space
from waxeq_native.loops import FastLoops

LOOPS = FastLoops()
Norm = Callable[[Term, int, str], Term]


class _Plain(FastLoops):
    """As walks of two rows at a time are written."""

    name = "loops_fast_plain"  # what is made of a call is kept by name

    def emitter(self, call: Call, s: Space, operands: Sequence[str], place: str, dtypes: Sequence[str],
                aliased: frozenset[int]) -> Emitter:  # fmt: skip
        e = super().emitter(call, s, operands, place, dtypes, aliased)
        return Overlapped(s, e.functions, operands, place, dtypes, aliased, e.limits, False, [], excess=e.excess)


def _layer_norm(x: Term, n: int, dtype: str) -> Term:
    def mean(below: Term) -> Term:
        return Term("Mul", Term("Sum", "n", below), Term("Num", 1 / n, dtype))

    centred = Term("Zip", "sub", x, mean(x))
    variance = Term("Add", mean(Term("Mul", centred, centred)), Term("Num", 2.0**-10, dtype))
    scaled = Term("Mul", Term("Mul", centred, operand(1, "n", dtype)), Term("Map", "rsqrt", variance))
    return Term("Add", scaled, operand(2, "n", dtype))


def _rms_norm(x: Term, n: int, dtype: str) -> Term:
    mean = Term("Mul", Term("Sum", "n", Term("Mul", x, x)), Term("Num", 1 / n, dtype))
    root = Term("Map", "rsqrt", Term("Add", mean, Term("Num", 2.0**-10, dtype)))
    return Term("Mul", Term("Mul", x, operand(1, "n", dtype)), root)


def _softmax(x: Term, n: int, dtype: str) -> Term:
    exponentials = Term("Map", "exp", Term("Zip", "sub", x, Term("Red", "max", "n", x)))
    return Term("Mul", exponentials, Term("Map", "recip", Term("Sum", "n", exponentials)))


_VECTORS: dict[Norm, int] = {_layer_norm: 2, _rms_norm: 1, _softmax: 0}
"""Operands that all rows have, by what is computed."""


def _call(
    rows: int, n: int, pitch: int = 0, dtype: str = "float32", threads: int = 1, norm: Norm = _layer_norm
) -> Call:
    """A norm of rows that are a pitch apart."""
    meaning = norm(operand(0, "mn", dtype), n, dtype)
    sizes = {"m": rows, "n": n}
    out = View.dense(["m", "n"], sizes, types(meaning)[meaning].dtype)
    wide = View.dense(["m", "n"], {"m": rows, "n": pitch or n}, dtype)
    given = View(("m", "n"), (rows, n), wide.strides, dtype)
    views = [given, *(View.dense(["n"], sizes, dtype) for _ in range(_VECTORS[norm]))]
    return Call("native.loops_fast", meaning, sizes, tuple(views), out, threads=threads)


def _pipelined(call: Call) -> bool:
    work = LOOPS.of(call)
    assert work is not None
    return "const int64_t after" in work.parts[-1].text


def _placed(a: np.ndarray, v: View, at: int) -> np.ndarray:
    """A copy as a view has it, beginning so many bytes after a line."""
    elements = 1 + sum((n - 1) * s for n, s in zip(v.shape, v.strides, strict=True))
    raw = np.full(elements * a.itemsize + 128, 255, np.uint8)  # NaN all around
    first = -raw.ctypes.data % 64 + at
    flat = raw[first : first + elements * a.itemsize].view(a.dtype)
    placed = np.lib.stride_tricks.as_strided(flat, v.shape, tuple(s * a.itemsize for s in v.strides))
    placed[...] = a
    return placed


def _result(kernel: FastLoops, c: Call, values: Sequence[np.ndarray], ats: Sequence[int], to: int = 0) -> np.ndarray:
    placed = [_placed(a, v, at) for a, v, at in zip(values, c.operands, ats, strict=True)]
    out = _placed(np.zeros(c.out.shape, c.out.dtype), c.out, to)
    for step in kernel.bind(c, placed, out, np.empty(kernel.workspace(c), np.uint8)):
        step()
    return out.copy()


def _values(c: Call) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(v.shape).astype(v.dtype) for v in c.operands]


def _bits(a: np.ndarray) -> bytes:
    """What an array holds; all NaN are one."""
    return np.where(np.isnan(a), np.float32(np.nan), a).tobytes()


@pytest.mark.parametrize(
    ("rows", "n", "pitch"),
    [(9, 512, 0), (11, 768, 0), (8, 1024, 1024 + 16), (13, 768, 771), (10, 832, 840), (9, 523, 0), (8, 1000, 1001)],
)
@pytest.mark.parametrize("norm", [_layer_norm, _rms_norm, _softmax])
def test_the_same_wherever_arrays_begin(rows: int, n: int, pitch: int, norm: Norm) -> None:
    """At each place within a line, of rows that all begin alike and of others, against walks without `after`."""
    c = _call(rows, n, pitch, norm=norm)
    values = _values(c)
    assert _pipelined(c)
    LOOPS.prepare([(_Plain(), c), (LOOPS, c)])
    expected = _result(_Plain(), c, values, [0] * len(values)).tobytes()
    for at in range(0, 64, 4):
        ats = [at, (at + 8) % 64, (3 * at) % 64][: len(values)]
        assert _result(LOOPS, c, values, ats, to=at // 8 * 4).tobytes() == expected


@pytest.mark.parametrize("at", [0, 4, 16, 60])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -0.0, 1e38, 1e-42])
def test_numbers_of_every_kind(value: float, at: int) -> None:
    """In the first and the last places of rows, and all along one: of no matter to others."""
    c = _call(11, 768)
    values = _values(c)
    x = values[0]
    x[1, 0] = x[3, 767] = x[5, 15] = x[5, 752] = value
    x[7], x[9] = value, 0
    expected = _result(_Plain(), c, values, [0, 0, 0])
    found = _result(LOOPS, c, values, [at, at, at])
    assert np.isfinite(value) or np.isnan(expected[[1, 3, 5, 7]]).any(1).all()
    assert _bits(found) == _bits(expected) and np.isfinite(found[[0, 2, 4, 6, 8, 10]]).all()


@pytest.mark.parametrize(("rows", "threads"), [(8, 1), (9, 2), (37, 2), (64, 2)])
def test_numbers_of_rows(rows: int, threads: int) -> None:
    """Of one thread and of two, which share out chunks of any number of rows."""
    c = _call(rows, 512, threads=threads)
    assert _pipelined(c) and check_call(LOOPS, c, np.random.default_rng(0)) is None


@pytest.mark.parametrize("norm", [_layer_norm, _rms_norm, _softmax])
@pytest.mark.parametrize("at", [0, 16, 36])
def test_rows_that_are_replaced(at: int, norm: Norm) -> None:
    """Each row is read by all of its stages before any of it is written."""
    c = _call(13, 768, norm=norm)
    assert 0 in LOOPS.in_place(c) and _pipelined(c)
    values = _values(c)
    x = _placed(values[0], c.out, at)
    for step in LOOPS.bind(c, (x, *values[1:]), x, np.empty(LOOPS.workspace(c), np.uint8)):
        step()
    assert x.tobytes() == _result(_Plain(), c, values, [at, *[0] * (len(values) - 1)]).tobytes()


@pytest.mark.parametrize("norm", [_layer_norm, _rms_norm, _softmax])
@pytest.mark.parametrize("n", [2048, 4032, 4096])
def test_long_rows(norm: Norm, n: int) -> None:
    """Whose sums are made in blocks, also of fewer numbers at the end."""
    c = _call(9, n, norm=norm)
    assert _pipelined(c) and check_call(LOOPS, c, np.random.default_rng(0)) is None


def _unit(x: Term) -> Term:
    return Term("Mul", x, Term("Map", "rsqrt", Term("Sum", "n", Term("Mul", x, x))))


@pytest.mark.parametrize("rows", [8, 9])
@pytest.mark.parametrize("n", [768, 4096])
def test_what_lies_where_the_result_will(rows: int, n: int) -> None:
    """Rows between a point and another, of length one, are made of three operands, each of which the result may replace
    that is read nowhere later."""
    x, a, h = (operand(i, "mn", "float32") for i in range(3))
    meaning = _unit(Term("Add", x, Term("Mul", a, Term("Zip", "sub", _unit(h), x))))
    sizes = {"m": rows, "n": n}
    view = View.dense(["m", "n"], sizes, "float32")
    c = Call("native.loops_fast", meaning, sizes, (view, view, view), view, threads=1)
    assert _pipelined(c) and check_call(LOOPS, c, np.random.default_rng(0)) is None
    values = _values(c)
    expected = _result(LOOPS, c, values, [0, 0, 0])
    for i in LOOPS.in_place(c):
        placed = [_placed(v, view, 16) for v in values]
        for step in LOOPS.bind(c, placed, placed[i], np.empty(LOOPS.workspace(c), np.uint8)):
            step()
        assert placed[i].tobytes() == expected.tobytes()


def _times_sum(x: Term, n: int, dtype: str) -> Term:
    return Term("Mul", x, Term("Sum", "n", x))


def _unit_and_sum(x: Term, n: int, dtype: str) -> Term:
    return Term("Add", _unit(x), Term("Sum", "n", Term("Mul", x, x)))


def _times_distance(x: Term, n: int, dtype: str) -> Term:
    away = Term("Zip", "sub", x, Term("Red", "max", "n", x))
    return Term("Mul", away, Term("Sum", "n", away))


@pytest.mark.parametrize("kernel", [LOOPS, _Plain()], ids=["staggered", "overlapped"])
@pytest.mark.parametrize(("rows", "n"), [(16, 2048), (64, 1281), (6, 1280), (32, 1536)])
@pytest.mark.parametrize("norm", [_times_sum, _unit_and_sum, _times_distance])
def test_long_sums_that_the_last_stage_takes(norm: Norm, rows: int, n: int, kernel: FastLoops) -> None:
    """What came of a row was written to an accumulator of the same name, and another number was taken for it."""
    sizes, meaning = {"m": rows, "n": n}, norm(operand(0, "mn", "float32"), n, "float32")
    view = View.dense(["m", "n"], sizes, "float32")
    c = Call("native.loops_fast", meaning, sizes, (view,), view, threads=1)
    assert check_call(kernel, c, np.random.default_rng(0)) is None


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_kept_for_the_last_stage(value: float) -> None:
    """Exponentials of a row with such numbers are of no matter to others."""
    c = _call(11, 768, norm=_softmax)
    values = _values(c)
    values[0][1, 0] = values[0][3, 767] = values[0][10, 752] = value
    found = _result(LOOPS, c, values, [16])
    assert _bits(found) == _bits(_result(_Plain(), c, values, [0])) and np.isfinite(found[::2][:5]).all()


@pytest.mark.parametrize(("n", "dtype"), [(320, "float32"), (768, "float64"), (768, "float16"), (8192, "float32")])
def test_where_it_is_not_worth_it(n: int, dtype: str) -> None:
    """Short rows, numbers of other widths, long rows."""
    assert not _pipelined(_call(16, n, dtype=dtype))


@pytest.mark.parametrize(("n", "gathers"), [(512, True), (523, False)])
def test_the_text_of_any_processor(n: int, gathers: bool) -> None:
    """What is gathered from lines has a text beside for where vectors are shorter, as have rows of any length."""
    work = LOOPS.of(_call(9, n))
    assert work is not None
    wide, narrow = work.parts[-1].text.split("#else")
    assert ("__builtin_shuffle" in wide) == gathers and "const int64_t after" in narrow
    assert "__builtin_shuffle" not in narrow and narrow.count("#endif") == 1
