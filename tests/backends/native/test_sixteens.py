"""Loops cut at functions of sixteen elements at a time."""

from __future__ import annotations

import numpy as np
import pytest

from waxeq.backend.call import Call, View, operand
from waxeq.basis.typing import types
from waxeq.ir.term import Term
from waxeq.testing.conformance import check_call
from waxeq_cfamily.sixteens import in_sixteens
from waxeq_native.loops import FastLoops

LOOPS = FastLoops()
X, Y = operand(0, "mn", "float32"), operand(1, "mn", "float32")

LOOP = """  #pragma omp simd
  for (int64_t i = 0; i < n; i++) {
    const float r0 = x0[i];
    const float r1 = wx_exp_f32(r0);
    out[i] = r1;
  }
"""


def _exp(x: Term) -> Term:
    return Term("Map", "exp", x)


def _call(meaning: Term, many: int, m: int, n: int) -> Call:
    sizes = {"m": m, "n": n}
    out = View.dense("mn" if types(meaning)[meaning].axes else "", sizes, "float32")
    return Call("native.loops_fast", meaning, sizes, (View.dense("mn", sizes, "float32"),) * many, out)


MEANINGS = {
    "one": (_exp(X), 1),
    "of another": (_exp(Term("Zip", "sub", X, _exp(Y))), 2),
    "two beside": (Term("Mul", X, Term("Add", _exp(X), Term("Mul", _exp(Y), Y))), 2),
    "of what is not positive": (_exp(Term("Map", "neg", Term("Map", "abs", X))), 1),
    "logarithm": (Term("Map", "log", Term("Map", "abs", X)), 1),
    "normal distribution": (Term("Mul", X, Term("Map", "erf", Y)), 2),
    "several, one of another": (Term("Map", "erf", Term("Map", "log", Term("Add", _exp(X), _exp(Y)))), 2),
}


@pytest.mark.parametrize("n", [1, 15, 16, 17, 48, 100, 5003])
@pytest.mark.parametrize("name", MEANINGS)
def test_values_are_those_of_one_element_at_a_time(name: str, n: int) -> None:
    meaning, many = MEANINGS[name]
    for seed in range(3):
        assert check_call(LOOPS, _call(meaning, many, 3, n), np.random.default_rng(seed)) is None


def test_a_loop_is_there_in_both_ways() -> None:
    """What is left of a row, and all of it where there are no such vectors, is computed as it was."""
    made = in_sixteens(LOOP)
    cut, whole = made.split("#else\n")
    assert whole == f"{LOOP[:-1]}\n#endif\n"
    assert "wx_exp_sixteen(r1_of);" in cut and "wx_exp_f32" in cut.split("wx_exp_sixteen")[1]


@pytest.mark.parametrize(
    "line",
    [
        "const double r2 = r1;",
        "const uint8_t r2 = ((uint8_t)(r1 > 0));",
        "const float r2 = wx_widened_f16(x1[i]);",
        "if (r1 > 0) out[i] = 1;",
        "{ out[i] = 1; }",
    ],
)
def test_loops_of_other_vectors_stay_as_they_are(line: str) -> None:
    text = LOOP.replace("    out", f"    {line}\n    out")
    assert in_sixteens(text) == text


def test_loops_that_are_too_short_stay_as_they_are() -> None:
    text = LOOP.replace("i < n", "i < 15")
    assert in_sixteens(text) == text


def test_a_row_of_whole_vectors_leaves_nothing() -> None:
    made = in_sixteens(LOOP.replace("i < n", "i < 64")).split("#else\n")[0]
    assert "wx_exp_f32" not in made and made.count("for (") == 3


def test_sums_of_exponentials_go_through_vectors() -> None:
    top = Term("Red", "max", "n", X)
    e = _exp(Term("Zip", "sub", X, top))
    call = _call(Term("Zip", "div", e, Term("Sum", "n", e)), 1, 5, 2048)
    work = LOOPS.of(call)
    assert work is not None and "wx_exp_below_sixteen" in in_sixteens(work.parts[-1].source)
    assert check_call(LOOPS, call, np.random.default_rng(0)) is None
