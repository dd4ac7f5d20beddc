"""Narrow floats between functions: rounded where it matters only, and float16 rows converted in pieces."""

from __future__ import annotations

import numpy as np
import pytest

from waxeq.backend.call import Call, View, operand
from waxeq.backend.discover import backends
from waxeq.backend.kernel import prepare
from waxeq.basis.typing import types
from waxeq.ir.term import Term
from waxeq.ir.types import numpy_dtype
from waxeq.testing.conformance import check_call
from waxeq_cfamily.excess import excess, spares
from waxeq_cfamily.resolved import resolve

KERNELS = backends(["native"])[0].kernels
EXACT, FAST = KERNELS["native.loops"], KERNELS["native.loops_fast"]
NARROW = ["float16", "bfloat16"]


def _ins(dtype: str, many: int = 2) -> list[Term]:
    return [operand(i, "ij", dtype) for i in range(many)]


def _call(meaning: Term, out: str, *xs: np.ndarray) -> Call:
    sizes = {"i": xs[0].shape[0], "j": xs[0].shape[1]}
    views = tuple(View(("i", "j"), x.shape, tuple(s // x.itemsize for s in x.strides), x.dtype.name) for x in xs)
    return Call("native.loops", meaning, sizes, views, View.dense("ij", sizes, out))


def _run(kernel, meaning: Term, *xs: np.ndarray, out: str = "") -> np.ndarray:
    call = _call(meaning, out or xs[0].dtype.name, *xs)
    assert kernel.accepts(call)
    made = np.empty(xs[0].shape, numpy_dtype(call.out.dtype))
    for step in kernel.bind(call, list(xs), made, np.empty(kernel.workspace(call), np.uint8)):
        step()
    return made


def _unrounded(meaning: Term, axes: str) -> set[str]:
    """The functions whose values need not be rounded."""
    sizes = {"i": 4, "j": 8}
    values = resolve(
        meaning, (View.dense("ij", sizes, "float16"),), View.dense(axes, sizes, types(meaning)[meaning].dtype), sizes
    )
    return {str(values.rows[n].name) for n in excess(values)}


@pytest.mark.parametrize("shape", [(1, 1), (3, 31), (2, 32), (5, 256), (4, 257), (1, 1000), (7, 515)])
@pytest.mark.parametrize("dtype", NARROW)
def test_a_chain_is_no_further_from_the_exact_value(dtype: str, shape: tuple[int, int]) -> None:
    x, y = _ins(dtype)
    meaning = Term("Mul", Term("Add", Term("Mul", x, y), x), Term("Map", "tanh", Term("Zip", "sub", x, y)))
    assert spares(meaning) and FAST.matches(meaning)
    rng = np.random.default_rng(0)
    apart = [rng.standard_normal((shape[0], 2 * shape[1])).astype(numpy_dtype(dtype))[:, ::2] for _ in range(2)]
    pairs = (apart, [x.copy() for x in apart])
    prepare([(k, _call(meaning, dtype, *pair)) for k in (EXACT, FAST) for pair in pairs])
    for a, b in pairs:
        u, v = a.astype(np.float64), b.astype(np.float64)
        want = (u * v + u) * np.tanh(u - v)
        error = [np.sum((_run(k, meaning, a, b).astype(np.float64) - want) ** 2) for k in (EXACT, FAST)]
        nearest = np.sum((want.astype(numpy_dtype(dtype)).astype(np.float64) - want) ** 2)
        assert error[1] <= min(1.01 * nearest + 1e-12, 1.01 * error[0] + 1e-12)


@pytest.mark.parametrize("dtype", NARROW)
def test_all_numbers_are_read_and_written_as_they_are(dtype: str) -> None:
    """Of every exponent, infinite, NaN, and -0; whole rows and what is left of them."""
    every = np.arange(1 << 16, dtype=np.uint16).view(numpy_dtype(dtype)).reshape(64, 1024)[:, :1021]
    x = operand(0, "ij", dtype)
    twice = _run(FAST, Term("Map", "neg", Term("Map", "abs", Term("Mul", x, Term("Num", 0.5, dtype)))), every)
    with np.errstate(all="ignore"):
        want = -np.abs(every * every.dtype.type(0.5))
    assert np.array_equal(np.isnan(twice), np.isnan(want))
    assert np.array_equal(twice[~np.isnan(want)].view(np.uint16), want[~np.isnan(want)].view(np.uint16))


def test_every_way_to_round_to_float16() -> None:
    """As NumPy rounds, to the bit: ties, subnormals, what becomes infinite."""
    halves = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)
    ties = (halves[:-1] + halves[1:]) / 2
    near = np.concatenate([np.nextafter(ties, np.float32(s * np.inf)) for s in (-1, 1)])
    bits = np.random.default_rng(0).integers(0, 1 << 32, 1 << 16, dtype=np.uint32).view(np.float32)
    odd = np.array([65519.99, 65520, 65536, 3e38, np.inf, np.nan, 1e-45], np.float32)
    x = np.concatenate([halves, ties, near, odd, bits])
    x = np.concatenate([x, -x])[None]
    got = _run(EXACT, Term("Cast", "float16", operand(0, "ij", "float32")), x, out="float16")
    with np.errstate(all="ignore"):
        want = x.astype(np.float16)
    nan = np.isnan(want)
    assert np.array_equal(np.isnan(got), nan) and np.array_equal(got[~nan].view(np.uint16), want[~nan].view(np.uint16))


@pytest.mark.parametrize("many", [31, 257, 300, 515, 1000, 1024, 3000])
@pytest.mark.parametrize("dtype", NARROW)
def test_rows_of_all_lengths_are_folded(dtype: str, many: int) -> None:
    """What filled no vector at the end of a row was read, and added, with each piece that the row was converted in."""
    x, sizes = operand(0, "ij", dtype), {"i": 5, "j": many}
    top = Term("Red", "max", "j", x)
    e = Term("Map", "exp", Term("Zip", "sub", x, top))
    meanings = (
        (Term("Sum", "j", x), "i"),
        (top, "i"),
        (Term("Red", "min", "j", Term("Mul", x, x)), "i"),
        (Term("Zip", "div", e, Term("Sum", "j", e)), "ij"),
    )
    given = View.dense("ij", sizes, dtype)
    calls = [Call("", meaning, sizes, (given,), View.dense(axes, sizes, dtype)) for meaning, axes in meanings]
    rows = [(k, c) for c in calls for k in (EXACT, FAST) if k.accepts(c) and (k is EXACT or k.matches(c.meaning))]
    prepare(rows)
    for kernel, call in rows:
        assert check_call(kernel, call, np.random.default_rng(0)) is None


@pytest.mark.parametrize("sizes", [{"i": 40, "j": 300}, {"i": 64, "j": 64}])
@pytest.mark.parametrize("dtype", NARROW)
def test_rows_that_are_folded_both_ways(dtype: str, sizes: dict[str, int]) -> None:
    """Several of them are read at a time."""
    x = Term("Cast", "float32", operand(0, "ij", dtype))
    meaning = Term("Mul", Term("Sum", "i", x), Term("Sum", "j", x))
    call = Call("", meaning, sizes, (View.dense("ij", sizes, dtype),), View.dense("ij", sizes, "float32"))
    assert EXACT.accepts(call) and check_call(EXACT, call, np.random.default_rng(0)) is None


def test_what_is_left_of_a_difference_is_compared() -> None:
    """A product that was the maximum was not found among products with more digits."""
    x, y = _ins("float16")
    product = Term("Mul", x, y)
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((4, 300)).astype(np.float16) for _ in range(2))
    m = np.full((4, 300), (a * b).max(), np.float16)
    meaning = Term("Zip", "eq", Term("Zip", "sub", product, operand(2, "ij", "float16")), Term("Num", 0.0, "float16"))
    counts = {k.name: _run(k, meaning, a, b, m, out="bool").sum() for k in (EXACT, FAST)}
    assert set(counts.values()) == {1}


@pytest.mark.parametrize("dtype", NARROW)
def test_what_is_compared_is_rounded_first(dtype: str) -> None:
    x, y = _ins(dtype)
    product = Term("Mul", x, y)
    for meaning in (
        Term("Select", Term("Zip", "gt", product, x), y, x),
        Term("Map", "floor", product),
        Term("Map", "sqrt", Term("Map", "abs", product)),
    ):
        rng = np.random.default_rng(1)
        a, b = (rng.standard_normal((64, 300)).astype(numpy_dtype(dtype)) for _ in range(2))
        exact = _run(EXACT, meaning, a, b)
        got = _run(FAST, meaning, a, b) if FAST.matches(meaning) else exact
        assert np.array_equal(got.view(np.uint16), exact.view(np.uint16))


@pytest.mark.parametrize("dtype", NARROW)
def test_what_was_cast_to_fewer_digits_has_fewer(dtype: str) -> None:
    """What is left of a number beside its first digits is not zero."""
    x = operand(0, "ij", "float32")
    rest = Term("Zip", "sub", x, Term("Cast", "float32", Term("Cast", dtype, x)))
    meaning = Term("Map", "tanh", rest)
    assert FAST.matches(meaning)
    a = np.random.default_rng(0).standard_normal((16, 400)).astype(np.float32)
    want = np.tanh(a - a.astype(numpy_dtype(dtype)).astype(np.float32))
    assert want.any() and np.allclose(_run(FAST, meaning, a), want, rtol=1e-6, atol=0)


def test_a_mean_of_squares_is_rounded_once() -> None:
    x = operand(0, "ij", "float16")
    square = Term("Map", "square", x)
    assert "square" in _unrounded(Term("Sum", "j", Term("Cast", "float32", square)), "i")
    assert "square" not in _unrounded(Term("Cast", "int32", square), "ij")
    assert "square" not in _unrounded(Term("Map", "arccos", square), "ij"), "it ends at 1"
    root = Term("Map", "sqrt", Term("Add", square, Term("Num", 1.0, "float16")))
    assert {"square", "Add", "sqrt"} & _unrounded(root, "ij") == {"square", "sqrt"}
