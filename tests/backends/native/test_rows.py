"""Rows that several stages go through: what is known of their values, and what is asked for before it is read."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import pytest

from waxeq.backend.call import Call, View, operand
from waxeq.basis.typing import types
from waxeq.ir.term import Term
from waxeq.testing.conformance import check_call
from waxeq_native.loops import FastLoops

LOOPS = FastLoops()
X = operand(0, "mn", "float32")
TOP = Term("Red", "max", "n", X)
SIZES = {"m": 37, "n": 301}


def _softmax(below: Term) -> Term:
    e = Term("Map", "exp", Term("Zip", "sub", X, below))
    return Term("Zip", "div", e, Term("Sum", "n", e))


def _call(meaning: Term, sizes: Mapping[str, int] = SIZES, axes: str = "mn") -> Call:
    out = View.dense(axes, sizes, types(meaning)[meaning].dtype)
    return Call("native.loops_fast", meaning, sizes, (View.dense(axes, sizes, "float32"),), out)


def _text(call: Call) -> str:
    work = LOOPS.of(call)
    assert work is not None
    return work.parts[-1].text


def test_what_a_maximum_is_taken_from_is_zero_or_less() -> None:
    assert "wx_exp_below_f32" in _text(_call(_softmax(TOP)))


@pytest.mark.parametrize(
    "other",
    [
        Term("Red", "min", "n", X),
        Term("Mul", TOP, Term("Num", 0.5, "float32")),
        Term("Red", "max", "n", Term("Map", "abs", Term("Map", "sin", X))),
        Term("Select", Term("Map", "isnan", TOP), Term("Num", 0.0, "float32"), TOP),
    ],
)
def test_what_anything_else_is_taken_from_may_be_more(other: Term) -> None:
    call = _call(_softmax(other))
    assert "wx_exp_below_f32" not in _text(call)
    assert check_call(LOOPS, call, np.random.default_rng(0)) is None


@pytest.mark.parametrize("sizes", [SIZES, {"m": 1, "n": 1}, {"m": 3, "n": 2048}, {"m": 2, "n": 5000}, {"m": 0, "n": 8}])
def test_softmax_of_rows(sizes: Mapping[str, int]) -> None:
    for seed in range(6):
        assert check_call(LOOPS, _call(_softmax(TOP), sizes), np.random.default_rng(seed)) is None


def test_parts_of_the_next_row_are_asked_for_once() -> None:
    """By the stages after the first, each line of it in turn, in rows that the first cache has room for."""
    asked = re.findall(
        r"= (\d+); \w+ < (\d+); \w+ \+= 16\)\s+__builtin_prefetch", _text(_call(_softmax(TOP), {"m": 9, "n": 768}))
    )
    assert asked == [("0", "384"), ("384", "768")]
    assert "prefetch" not in _text(_call(_softmax(TOP), {"m": 9, "n": 2500}))
    assert "prefetch" not in _text(_call(_softmax(TOP), {"m": 9, "n": 16}))


def test_infinite_rows_are_as_numpy_has_them() -> None:
    x = np.float32([[-np.inf, -np.inf], [np.inf, 1], [np.nan, 1], [-200, 100], [-1e38, 1e38]])
    call = _call(_softmax(TOP), {"m": 5, "n": 2})
    out = np.empty_like(x)
    for step in LOOPS.bind(call, (x,), out, np.empty(LOOPS.workspace(call), np.uint8)):
        step()
    with np.errstate(all="ignore"):
        e = np.exp(x - x.max(1, keepdims=True))
        assert np.allclose(out, e / e.sum(1, keepdims=True), equal_nan=True, atol=1e-7)
