"""Folds whose accumulators are numbers side by side: every kind, width and dtype, NaN, and the error of long sums."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest

from waxeq.backend.call import Call, View, operand
from waxeq.basis.typing import types
from waxeq.ir.term import Term
from waxeq.testing.conformance import check_call
from waxeq_native.loops import FastLoops, Loops

LOOPS = Loops()
WIDTHS = (1, 3, 4, 5, 7, 8, 13, 15, 16, 17, 63, 64, 65, 100, 127, 769, 1024, 1025, 2113)


def _call(make: str, width: int, dtype: str) -> Call:
    sizes = {"m": 3, "n": width}
    x = operand(0, "mn", dtype)
    meaning = Term("Sum", "n", x) if make == "sum" else Term("Red", make, "n", x)
    out = View.dense("m", sizes, types(meaning)[meaning].dtype)
    return Call("native.loops", meaning, sizes, (View.dense("mn", sizes, dtype),), out)


def _text(call: Call) -> str:
    work = LOOPS.of(call)
    assert work is not None
    return "".join(p.text for p in work.parts)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "int64", "bool"])
@pytest.mark.parametrize("kind", ["sum", "max", "min"])
def test_every_width(kind: str, dtype: str) -> None:
    _check_widths(kind, dtype)


@pytest.mark.parametrize("kind", ["prod", "any", "all"])
def test_other_kinds(kind: str) -> None:
    _check_widths(kind, "float64" if kind == "prod" else "bool")


def _check_widths(kind: str, dtype: str) -> None:
    calls = {width: _call(kind, width, dtype) for width in WIDTHS}
    LOOPS.prepare([(LOOPS, c) for c in calls.values()])  # a compiler is started once for all
    for width, call in calls.items():
        assert check_call(LOOPS, call, np.random.default_rng(width)) is None, width


def _run(call: Call, x: np.ndarray) -> np.ndarray:
    out = np.zeros(call.out.shape, call.out.dtype)
    for step in LOOPS.bind(call, (x,), out, np.empty(LOOPS.workspace(call), np.uint8)):
        step()
    return out


@pytest.mark.parametrize("width", [5, 15, 16, 65, 100, 131, 769])
@pytest.mark.parametrize("kind", ["max", "min"])
def test_one_nan_anywhere_is_found(kind: str, width: int) -> None:
    """Two numbers are looked at in one comparison, the last ones of a row in another loop."""
    call = _call(kind, width, "float32")
    for place in range(width):
        x = np.random.default_rng(place).standard_normal((3, width)).astype(np.float32)
        x[1, place] = np.nan
        got = _run(call, x)
        assert np.isnan(got[1]) and not np.isnan(got[[0, 2]]).any(), place


def test_lanes_are_put_together_in_pairs() -> None:
    text = _text(_call("sum", 768, "float32"))
    assert "reduction(" not in text
    assert text.count("lane + 32]") == 1 and "a1[0] = a1[0] + a1[1];" in text


def test_the_end_of_a_row_has_accumulators_of_its_own() -> None:
    """A core waits for what was written in part and is read as a whole: rows of 100 took 16 ns, of 10 with a maximum
    15; they take 6 and 2."""
    text = _text(_call("sum", 100, "float32"))
    assert re.findall(r"lane < (\d+); lane\+\+\) \{\n", text) == ["64", "32", "4"]
    assert "a1_end4[lane] = a1_end4[lane] + r0;" in text and "a1[0] = a1[0] + a1_end4[0];" in text
    text = _text(_call("max", 13, "float32"))
    assert re.findall(r"lane < (\d+); lane\+\+\) \{\n", text) == ["4", "4", "1"]  # NaN is looked for in two at once
    assert "n1[0] = n1[0] | n1_end1[0];" in text
    assert "_end" not in _text(_call("sum", 768, "float32"))


def test_few_elements_are_left_to_the_compiler() -> None:
    assert "lane" not in _text(_call("sum", 3, "float32"))


@pytest.mark.parametrize("width", [1025, 5000])
def test_long_sums_of_what_is_looked_up(width: int) -> None:
    """Their accumulators are left to the compiler: text of blocks with none side by side had no end."""
    sizes, x, i = {"m": 3, "n": width, "k": 40}, operand(0, "mk", "float32"), operand(1, "n", "int32")
    meaning = Term("Sum", "n", Term("Gather", "k", i, x))
    views = View.dense("mk", sizes, "float32"), View.dense("n", sizes, "int32")
    call = Call("native.loops", meaning, sizes, views, View.dense("m", sizes, "float32"))
    assert "lane" not in _text(call)
    assert check_call(LOOPS, call, np.random.default_rng(0)) is None


@pytest.mark.parametrize("function", ["sin", "cos", "tan"])
def test_long_sums_of_functions_that_end_somewhere(function: str) -> None:
    kernel, sizes = FastLoops(), {"m": 3, "n": 5000}
    meaning = Term("Sum", "n", Term("Map", function, operand(0, "mn", "float32")))
    views = View.dense("mn", sizes, "float32"), View.dense("m", sizes, "float32")
    call = Call("native.loops_fast", meaning, sizes, views[:1], views[1])
    work = kernel.of(call)
    assert work is not None and "far |= " in work.parts[0].text
    assert check_call(kernel, call, np.random.default_rng(0)) is None


def test_the_error_of_a_sum_is_that_of_pairs() -> None:
    """Of 768 numbers of one size: with lanes added one after another it was a third more."""
    x = np.random.default_rng(0).random((3, 768), np.float32)
    errors = []
    for seed in range(200):
        x = np.random.default_rng(seed).random((3, 768)).astype(np.float32)
        errors.append(_run(_call("sum", 768, "float32"), x) / x.sum(axis=1, dtype=np.float64) - 1)
    assert np.sqrt(np.mean(np.square(errors))) < 4.2e-8


def test_means_and_reciprocal_roots_of_rows_are_rounded_once() -> None:
    """What is computed once for a row is in all of its errors."""
    sizes = {"m": 8, "n": 768}
    x = operand(0, "mn", "float32")
    mean = Term("Mul", Term("Num", 1 / 768, "float32"), Term("Sum", "n", Term("Mul", x, x)))
    meaning = Term("Mul", x, Term("Map", "rsqrt", mean))
    whole = View.dense("mn", sizes, "float32")
    call = Call("native.loops", meaning, sizes, (whole,), whole)
    text = _text(call)
    assert " / (0x1.8000000000000p+9f)" in text and "__builtin_sqrt((double)r" in text
    assert check_call(LOOPS, call, np.random.default_rng(0)) is None


def _root(of: Term, root: str = "sqrt", more: float = 1e-5) -> tuple[str, Call]:
    """x (the root of the mean of something, and more), and its text."""
    sizes, x = {"m": 8, "n": 10}, operand(0, "mn", "float32")
    mean = Term("Mul", Term("Num", 1 / 10, "float32"), Term("Sum", "n", of))
    meaning = Term("Mul", x, Term("Map", root, Term("Add", mean, Term("Num", more, "float32"))))
    whole = View.dense("mn", sizes, "float32")
    call = Call("native.loops", meaning, sizes, (whole,), whole)
    return _text(call), call


@pytest.mark.parametrize("root", ["sqrt", "rsqrt"])
def test_a_mean_of_squares_is_not_rounded_before_its_root(root: str) -> None:
    x = operand(0, "mn", "float32")
    for of in (Term("Mul", x, x), Term("Map", "abs", x), Term("Map", "exp", x)):
        text, call = _root(of, root)
        assert re.search(r"__builtin_sqrt\(\(\(\(double\)r\d+ / 10\) \+ \(double\)\(0x1\.4f8b58", text), text
        assert check_call(LOOPS, call, np.random.default_rng(0)) is None
    assert "/ 10)" not in _root(Term("Mul", x, x), root, 3e38)[0], "what float32 is too small for is infinite"


@pytest.mark.parametrize("more", [0.1, -0.1])
def test_what_cancels_in_float32_cancels(more: float) -> None:
    """Regression: a mean of -0.1 and 0.1 is 0, and was 1e-9 under the root."""
    text, call = _root(operand(0, "mn", "float32"), more=more)
    assert "/ 10)" not in text
    x = np.zeros((8, 10), np.float32)
    x[:, 0] = -10 * more
    np.testing.assert_array_equal(_run(call, x), np.zeros_like(x))


@pytest.mark.parametrize("factor", [0.3, 1.5, 0.0, float("inf"), float("nan"), 1e-300])
def test_other_factors_of_rows_stay_factors(factor: float) -> None:
    sizes = {"m": 8, "n": 64}
    meaning = Term("Mul", Term("Num", factor, "float64"), Term("Sum", "n", operand(0, "mn", "float64")))
    whole, rows = (View.dense(axes, sizes, "float64") for axes in ("mn", "m"))
    call = Call("native.loops", meaning, sizes, (whole,), rows)
    assert " / (" not in _text(call).split("const double r1")[-1]
    assert check_call(LOOPS, call, np.random.default_rng(0)) is None


@pytest.mark.parametrize("rows", [1, 7, 8, 9, 64, 67])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "bool"])
def test_rows_are_added_in_pairs(dtype: str, rows: int) -> None:
    sizes = {"m": rows, "n": 300}
    squares = Term("Mul", operand(0, "mn", dtype), operand(0, "mn", dtype))
    x = operand(0, "mn", dtype) if dtype == "bool" else squares
    meaning = Term("Sum", "m", x)
    out = View.dense("n", sizes, types(meaning)[meaning].dtype)
    call = Call("native.loops", meaning, sizes, (View.dense("mn", sizes, dtype),), out)
    assert check_call(LOOPS, call, np.random.default_rng(rows)) is None


def test_the_error_of_a_sum_of_rows_is_that_of_pairs() -> None:
    """One after another 64 rows had an error of 1.2e-7."""
    sizes = {"m": 64, "n": 4096}
    x = np.random.default_rng(0).standard_normal((64, 4096)).astype(np.float32)
    square = Term("Mul", operand(0, "mn", "float32"), operand(0, "mn", "float32"))
    out = View.dense("n", sizes, "float32")
    call = Call("native.loops", Term("Sum", "m", square), sizes, (View.dense("mn", sizes, "float32"),), out)
    got, want = _run(call, x), (x.astype(np.float64) ** 2).sum(0)
    assert np.sqrt(np.mean((got / want - 1) ** 2)) < 6e-8


def _spread(meaning: Term, sizes: Mapping[str, int], views: Sequence[str], want: Callable[..., np.ndarray]) -> float:
    """The error of one number that a thread makes: root of the mean of its squares over draws."""
    shapes = [View.dense(axes, sizes, "float32") for axes in views]
    call = Call("native.loops", meaning, sizes, tuple(shapes), View.dense("", sizes, "float32"))
    found = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        xs = [rng.standard_normal(v.shape, np.float32) for v in shapes]
        out = np.zeros((), np.float32)
        for step in LOOPS.bind(call, xs, out, np.empty(LOOPS.workspace(call), np.uint8)):
            step()
        found.append((float(out) - want(*(x.astype(np.float64) for x in xs))) ** 2)
    return float(np.sqrt(np.mean(found)))


def test_the_error_of_a_sum_of_a_matrix_does_not_grow_along_its_rows() -> None:
    """Four million numbers of one size on one thread: lanes that took in two thousand blocks one after another had an
    error of 5e-3."""
    total = Term("Sum", "m", Term("Sum", "n", operand(0, "mn", "float32")))
    assert _spread(total, {"m": 2000, "n": 2000}, ("mn",), np.sum) < 5e-4


def test_the_error_of_a_sum_of_what_rows_come_to_is_that_of_one_rounding() -> None:
    """One number a row, added one after another: in as many digits as they have the error was 1.5e-6."""
    rows = Term("Sum", "n", operand(1, "mn", "float32"))
    total = Term("Sum", "m", Term("Mul", operand(0, "m", "float32"), rows))
    sizes = {"m": 3000, "n": 700}
    error = _spread(total, sizes, ("m", "mn"), lambda a, b: np.sum(a * b.sum(1)))
    assert error < 1.5e-7 * np.sqrt(3000 * 700)
