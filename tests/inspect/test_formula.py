from __future__ import annotations

from dataclasses import replace

import pytest

from waxeq.backend.call import Call, View, operand
from waxeq.inspect.formula import formula
from waxeq.inspect.show import places, time_
from waxeq.ir.term import Term

pytestmark = pytest.mark.quick
X, Y = operand(0, ("i", "k"), "float32"), operand(1, ("k",), "float32")
SIZES = {"i": 2, "k": 3}


def call(meaning: Term) -> Call:
    views = tuple(View.dense(a, SIZES, "float32") for a in (("i", "k"), ("k",)))
    return Call("some.kernel", meaning, SIZES, views, View.dense(("i",), SIZES, "float32"))


@pytest.mark.parametrize(
    ("meaning", "text"),
    [
        (Term("Sum", "k", Term("Mul", X, Y)), "sum_k(x * y)"),
        (Term("Mul", Term("Add", X, Y), Y), "(x + y) * y"),
        (Term("Add", Term("Add", X, Y), Term("Mul", X, Y)), "(x + y) + (x * y)"),
        (Term("Map", "exp", Term("Zip", "sub", X, Y)), "exp(x - y)"),
        (Term("Zip", "max", X, Term("Num", 0.0, "float32")), "max(x, 0)"),
        (Term("Red", "max", "k", X), "max_k(x)"),
        (Term("Select", X, Y, Term("Add", X, Y)), "where(x, y, x + y)"),
        (Term("Gather", "k", X, Y), "gather[k](x, y)"),
        (Term("Cast", "float64", X), "float64(x)"),
        (X, "x"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_formulas(meaning: Term, text: str) -> None:
    assert formula(call(meaning), ("x", "y")) == text


def test_long_formulas_are_cut() -> None:
    t = X
    for _ in range(300):
        t = Term("Add", t, Y)
    assert len(formula(call(t), ("x", "y"))) <= 200


def test_operands_without_names() -> None:
    assert formula(call(Term("Add", X, Y))) == "%0 + %1"


def test_places_in_one_buffer_are_told_apart() -> None:
    views = tuple(View(("i",), (4,), (1,), "float32", at) for at in (0, 3))
    c = replace(call(Term("Add", operand(0, "i", "float32"), operand(1, "i", "float32"))), operands=views)
    assert formula(c, ("b0.t4", "b0.t4")) == "b0.t4@0 + b0.t4@3"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(12.3456e-6, "12.3 us"), (1.5, "1.5 s"), (0.25, "250 ms"), (3e-8, "30 ns"), (0.0, "0 ns"), (5000.0, "5,000 s")],
)
def test_times(seconds: float, text: str) -> None:
    assert time_(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.99996, "1 s"), (0.9994, "999 ms"), (9.996e-4, "1 ms"), (9.996e-7, "1 us"), (999.7, "1,000 s"), (9e-9, "9 ns")],
)
def test_times_are_rounded_before_their_unit_is_chosen(seconds: float, text: str) -> None:
    assert time_(seconds) == text


def test_places_of_one_file_stand_together() -> None:
    assert places(["/a/m.py:9", "/a/m.py:10", "/b/n.py:2"]) == "m.py:9,10 n.py:2"
    assert places([]) == "-"
