"""Rows that several stages go through: what is known of their values, and what is asked for before it is read."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

import numpy as np
import pytest

from waxeq.backend.call import Call, View, operand, operand_index
from waxeq.basis.typing import types
from waxeq.ir.term import Term, postorder
from waxeq.testing.conformance import check_call
from waxeq_native.loops import FastLoops, Loops
from waxeq_native.products import Products
from waxeq_native.work import NativeKernel

LOOPS = FastLoops()
X = operand(0, "mn", "float32")
TOP = Term("Red", "max", "n", X)
SIZES = {"m": 37, "n": 301}


def _softmax(below: Term) -> Term:
    e = Term("Map", "exp", Term("Zip", "sub", X, below))
    return Term("Zip", "div", e, Term("Sum", "n", e))


def _call(meaning: Term, sizes: Mapping[str, int] = SIZES, axes: str = "mn", kernel: str = "loops_fast") -> Call:
    out = View.dense(axes, sizes, types(meaning)[meaning].dtype)
    leaves = sorted((t for t in postorder(meaning) if t.head == "In"), key=operand_index)
    operands = {operand_index(t): View.dense([k for k in axes if k in t.args[1]], sizes, t.args[2]) for t in leaves}
    return Call(f"native.{kernel}", meaning, sizes, tuple(operands.values()), out)


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


@pytest.mark.parametrize(
    ("meaning", "ahead"),
    [
        (Term("Sum", "m", Term("Mul", operand(0, "m", "float32"), operand(1, "mn", "float32"))), 8 * 1100),
        (Term("Sum", "m", operand(0, "mn", "float32")), 8 * 1100),
    ],
)
def test_the_next_rows_that_are_added_are_asked_for_into_the_second_cache(meaning: Term, ahead: int) -> None:
    """Piece by piece of the columns, of rows that no cache holds; and all columns are added, those after the last whole
    piece too."""
    axes = ["m", "mn"] if "Mul" in str(meaning) else ["mn"]
    for rows, asks in ((1000, True), (200, False)):
        sizes = {"m": rows, "n": 1100}
        views = tuple(View.dense(a, sizes, "float32") for a in axes)
        call = Call("native.loops", meaning, sizes, views, View.dense("n", sizes, "float32"))
        work = LOOPS.work(call)
        assert work is not None
        found = {int(n) for n in re.findall(r"__builtin_prefetch\(.*\+ (\d+), 0, 2\);", work.parts[0].text)}
        assert found == ({ahead} if asks else set())
        assert check_call(LOOPS, call, np.random.default_rng(0)) is None


def test_windows_that_slide_over_an_array_are_not_asked_for() -> None:
    """They are read from caches: of a rolling mean every second instruction asked for what lay there."""
    sizes = {"m": 64, "n": 40000}
    window = View(("m", "n"), (64, 40000), (50, 1), "float32")
    call = Call(
        "native.loops",
        Term("Sum", "m", operand(0, "mn", "float32")),
        sizes,
        (window,),
        View.dense("n", sizes, "float32"),
    )
    assert "prefetch" not in _text(call)
    assert check_call(LOOPS, call, np.random.default_rng(0)) is None


def test_a_stage_asks_for_what_it_reads_itself() -> None:
    """The maximum of one array asked for rows of the other, at a place along an axis that it does not go along."""
    a = operand(0, "mn", "float32")
    product = Term("Red", "max", "m", Term("Red", "max", "j", Term("Mul", operand(1, "mjn", "float32"), a)))
    meaning = Term("Zip", "sub", product, Term("Red", "max", "m", a))
    sizes = {"m": 64, "j": 16, "n": 1024}
    views = (View.dense("mn", sizes, "float32"), View.dense("mjn", sizes, "float32"))
    call = Call("native.loops_fast", meaning, sizes, views, View.dense("n", sizes, "float32"))
    assert LOOPS.accepts(call) and check_call(LOOPS, call, np.random.default_rng(0)) is None


def test_infinite_rows_are_as_numpy_has_them() -> None:
    x = np.float32([[-np.inf, -np.inf], [np.inf, 1], [np.nan, 1], [-200, 100], [-1e38, 1e38]])
    call = _call(_softmax(TOP), {"m": 5, "n": 2})
    out = np.empty_like(x)
    for step in LOOPS.bind(call, (x,), out, np.empty(LOOPS.workspace(call), np.uint8)):
        step()
    with np.errstate(all="ignore"):
        e = np.exp(x - x.max(1, keepdims=True))
        assert np.allclose(out, e / e.sum(1, keepdims=True), equal_nan=True, atol=1e-7)


# -- a value that is needed again lies where the result will be

PLAIN = Loops()


def _leaf(n: int, axes: str = "mn", dtype: str = "float32") -> Term:
    return operand(n, axes, dtype)


def _unit(below: Term) -> Term:
    """Of length one along the last axis."""
    return Term("Mul", below, Term("Map", "rsqrt", Term("Sum", "n", Term("Map", "square", below))))


def _centred(below: Term) -> Term:
    part = Term("Num", 1 / SIZES["n"], "float32")
    return Term("Zip", "sub", below, Term("Mul", part, Term("Sum", "n", below)))


BOTH = Term("Add", _leaf(0), _leaf(1))
AGAIN = {
    "unit": _unit(BOTH),
    "of many": Term("Mul", _unit(Term("Mul", BOTH, _leaf(2))), _leaf(3, "n")),
    "twice": _unit(_centred(BOTH)),
    "of a unit": _unit(Term("Add", _leaf(0), Term("Mul", _leaf(1), _unit(_leaf(2))))),
    "in double": _unit(Term("Add", _leaf(0, dtype="float64"), _leaf(1, dtype="float64"))),
}
ANEW = {
    "of one operand": _unit(Term("Map", "square", _leaf(0))),
    "what is read later": Term("Add", _unit(BOTH), _leaf(0)),
    "what is read later, elsewhere": Term("Add", _unit(BOTH), _leaf(2)),
    "of another dtype": Term("Cast", "float64", _unit(BOTH)),
    "of sixteen bits": _unit(Term("Add", _leaf(0, dtype="float16"), _leaf(1, dtype="float16"))),
}


def _read_back(call: Call) -> bool:
    work = PLAIN.of(call)
    assert work is not None
    return re.search(r"= out\[", work.parts[-1].text) is not None


@pytest.mark.parametrize("sizes", [SIZES, {"m": 1, "n": 301}, {"m": 5, "n": 1}, {"m": 3, "n": 2100}, {"m": 0, "n": 8}])
@pytest.mark.parametrize("name", AGAIN)
def test_a_value_waits_where_the_result_will_be(name: str, sizes: Mapping[str, int]) -> None:
    call = _call(AGAIN[name], sizes, kernel="loops")
    assert sizes != SIZES or _read_back(call)
    for seed in range(4):
        assert check_call(PLAIN, call, np.random.default_rng(seed)) is None


@pytest.mark.parametrize("name", ANEW)
def test_a_value_is_made_anew_where_the_result_may_not_be_written(name: str) -> None:
    call = _call(ANEW[name], kernel="loops")
    assert not _read_back(call)
    assert check_call(PLAIN, call, np.random.default_rng(0)) is None


def test_long_rows_leave_the_cache_before_they_are_read_again() -> None:
    assert _read_back(_call(AGAIN["unit"], {"m": 3, "n": 8192}, kernel="loops"))
    assert not _read_back(_call(AGAIN["unit"], {"m": 3, "n": 8193}, kernel="loops"))


@pytest.mark.parametrize("name", ["unit", "twice", "of a unit"])
def test_every_operand_that_may_be_replaced_can_be(name: str) -> None:
    call = _call(AGAIN[name], kernel="loops")
    rng = np.random.default_rng(1)
    shape = (SIZES["m"], SIZES["n"])
    arrays = [rng.standard_normal(shape, dtype=np.float32) for _ in call.operands]
    want = np.empty(shape, np.float32)
    scratch = np.empty(PLAIN.workspace(call), np.uint8)
    for step in PLAIN.bind(call, arrays, want, scratch):
        step()
    replaced = PLAIN.in_place(call)
    assert len(replaced) == len(arrays)
    for n in replaced:
        given = [a.copy() for a in arrays]
        for step in PLAIN.bind(call, given, given[n], scratch):
            step()
        np.testing.assert_array_equal(given[n], want)


@pytest.mark.parametrize(("kernel", "columns"), [(LOOPS, ""), (Products(), "j")])
def test_what_every_point_makes_anew_is_counted_so_many_times(kernel: NativeKernel, columns: str) -> None:
    """matrix_chain took 32 ms in place of 0.8 by a nest that was estimated as if its inner sums were made once."""
    sizes = {"m": 50, "n": 400, "k": 300, **dict.fromkeys(columns, 64)}
    inner = Term("Sum", "k", Term("Mul", operand(1, "nk", "float32"), operand(2, "k" + columns, "float32")))
    meaning = Term("Mul", operand(0, "m", "float32"), inner)
    views = [View.dense(axes, sizes, "float32") for axes in ("m", "nk", "k" + columns)]
    call = Call(f"native.{kernel.name}", meaning, sizes, tuple(views), View.dense("mn" + columns, sizes, "float32"))
    assert kernel.of(call) is not None
    features = kernel.features(call)
    assert features.get("flops", features["operations"]) >= 2 * math.prod(sizes.values())


@pytest.mark.parametrize("many", [0, 1, 2, 3, 5, 7, 9])
def test_a_few_rows_are_added_to_one(many: int) -> None:
    """None are nothing: of an axis without places a shift by -1 was made."""
    sizes = {"m": many, "n": 301}
    call = Call(
        "native.loops",
        Term("Sum", "m", X),
        sizes,
        (View.dense("mn", sizes, "float32"),),
        View.dense("n", sizes, "float32"),
    )
    assert Loops().accepts(call)
    assert check_call(Loops(), call, np.random.default_rng(many)) is None
