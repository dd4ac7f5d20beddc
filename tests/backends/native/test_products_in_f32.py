"""Products of float16 and bfloat16 in float32: what is converted when, and what comes of it."""

from __future__ import annotations

import numpy as np
import pytest

from waxeq.backend.call import Call, View, operand
from waxeq.backend.discover import backends
from waxeq.ir.term import Term
from waxeq.ir.types import numpy_dtype
from waxeq_cfamily.excess import in_float32

NATIVE = backends(["native"])[0].kernels
WHOLE = NATIVE["native.products_in_f32"]
SIZES = {"m": 40, "k": 70, "n": 130}


def _call(meaning: Term, dtype: str, fixed: tuple[int, ...] = (), step: int = 1) -> Call:
    left, right = View.dense("mk", SIZES, dtype), View.dense("kn", SIZES, dtype)
    apart = View(right.axes, right.shape, tuple(step * s for s in right.strides), dtype)
    return Call("native.products_in_f32", meaning, SIZES, (left, apart), View.dense("mn", SIZES, dtype), fixed=fixed)


def _product(dtype: str) -> Term:
    return Term("Sum", "k", Term("Mul", operand(0, "mk", dtype), operand(1, "kn", dtype)))


def _converted(call: Call) -> list[int]:
    """Operands that are converted in each run."""
    work = WHOLE.of(call)  # pyright: ignore[reportAttributeAccessIssue]
    return [i for i in (0, 1) if any(f"*from = (const uint16_t *)args[{3 + i}]" in p.text for p in work.parts)]


def _run(call: Call, *xs: np.ndarray) -> np.ndarray:
    out = np.empty((SIZES["m"], SIZES["n"]), numpy_dtype(call.out.dtype))
    steps = WHOLE.bind(call, xs, out, np.empty(WHOLE.workspace(call), np.uint8))
    for _ in range(2):
        for s in steps:
            s()
    return out


@pytest.mark.parametrize("fixed", [(), (1,), (0, 1)])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_weights_are_converted_once(dtype: str, fixed: tuple[int, ...]) -> None:
    rng, t = np.random.default_rng(0), numpy_dtype(dtype)
    x, w = rng.standard_normal((40, 70)).astype(t), rng.standard_normal((130, 70)).astype(t).T[::-1]
    call = _call(Term("Map", "tanh", _product(dtype)), dtype, fixed)
    right = View(("k", "n"), w.shape, tuple(s // w.itemsize for s in w.strides), dtype)
    call = Call(call.kernel, call.meaning, SIZES, (call.operands[0], right), call.out, fixed=fixed)
    assert _converted(call) == ([0] if 1 in fixed else [0, 1])
    want = np.tanh(x.astype(np.float64) @ w.astype(np.float64))
    assert np.max(np.abs(_run(call, x, w).astype(np.float64) - want)) <= 0.6 * np.finfo(np.float32).eps * 2 ** (
        13 if dtype == "float16" else 16
    )


def test_a_weight_that_is_read_elsewhere_too_is_converted_in_each_run() -> None:
    w = operand(1, "kn", "float16")
    call = _call(Term("Add", _product("float16"), Term("Sum", "k", w)), "float16", fixed=(1,))
    assert _converted(call) == [0, 1]
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s).astype(np.float16) for s in ((40, 70), (70, 130)))
    want = x.astype(np.float64) @ w.astype(np.float64) + w.astype(np.float64).sum(axis=0)
    assert np.max(np.abs(_run(call, x, w) - want)) <= 2**-6


def test_what_lies_far_apart_is_not_taken() -> None:
    assert WHOLE.accepts(_call(_product("float16"), "float16"))
    assert not WHOLE.accepts(_call(_product("float16"), "float16", step=5))


def test_loops_leave_products_of_matrices_to_kernels_of_products() -> None:
    for dtype in ("float16", "bfloat16", "float32"):
        assert not NATIVE["native.loops_fast"].accepts(_call(_product(dtype), dtype))


def test_the_meaning_is_rounded_where_it_matters() -> None:
    product = _product("float16")
    whole = in_float32(Term("Map", "tanh", product))
    assert str(whole).count("Cast") == 1, "at the end alone"
    compared = in_float32(Term("Select", Term("Zip", "gt", product, Term("Num", 0.1, "float16")), product, product))
    assert str(compared).count('(Cast "float16"') == 4, "the sum, wherever it is read, and the result"
    assert "0.0999755859375" in str(compared), "numbers are those of the dtype"


def test_numbers_beside_products_are_those_of_the_dtype() -> None:
    padded = in_float32(Term("Pad", "k", "p", 0, 70000.0, operand(0, "mk", "float16")))
    assert "inf" in str(padded)
    cast = in_float32(Term("Mul", Term("Cast", "float16", operand(0, "mk", "float64")), operand(1, "mk", "float16")))
    assert '(Cast "float16" (In "%0" {k m} "float64"))' in str(cast), "rounded once"
