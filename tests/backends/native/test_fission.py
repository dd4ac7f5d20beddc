"""Loops too long for a core to look past their end are several over pieces in cache: which are, where, and that each
still has its meaning."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping

import numpy as np
import pytest

from waxeq.backend.call import Call, View, operand, operand_index
from waxeq.backend.discover import backends
from waxeq.basis.typing import types
from waxeq.ir.term import Term, postorder
from waxeq.testing.conformance import check_call
from waxeq_cfamily.fission import Fission
from waxeq_cfamily.nest import Loop
from waxeq_native.loops import FastLoops

LOOPS = FastLoops()
SIZES = {"m": 3, "n": 301}


def _x(n: int = 0, dtype: str = "float32", axes: str = "mn") -> Term:
    return operand(n, axes, dtype)


def _chain(x: Term, *names: str) -> Term:
    for name in names:
        x = Term("Map", name, x)
    return x


def _call(meaning: Term, sizes: Mapping[str, int] = SIZES, kernel: str = "loops_fast") -> Call:
    kinds = types(meaning)
    out = View.dense(sorted(kinds[meaning].axes), sizes, kinds[meaning].dtype)
    leaves = sorted((t for t in postorder(meaning) if t.head == "In"), key=operand_index)
    views = {operand_index(t): View.dense(sorted(t.args[1]), sizes, t.args[2]) for t in leaves}
    return Call(f"native.{kernel}", meaning, sizes, tuple(views.values()), out)


def _text(call: Call) -> str:
    work = LOOPS.of(call)
    assert work is not None
    return work.parts[-1].text


def _pieces(call: Call) -> int:
    """How many loops there are over a piece, where no function ends."""
    text = _text(call).partition("if (far)")[0]
    return len(re.findall(r"for \(int64_t (\w+) = \1_at; \1 < \1_to; \1\+\+\)", text))


def mish(x: Term) -> Term:
    return Term("Mul", x, _chain(x, "exp", "log1p", "tanh"))


@pytest.mark.parametrize(
    ("meaning", "pieces"),
    [
        (_chain(_x(), "exp", "tanh"), 2),
        (_chain(_x(), "exp", "tanh", "sin"), 3),
        (mish(_x()), 3),
        (_chain(_x(), "exp", "neg"), 0),
        (Term("Add", _chain(_x(), "exp"), _chain(_x(1), "sin")), 0),  # neither waits for the other
        (Term("Sum", "n", _chain(_x(), "exp", "tanh")), 0),
    ],
)
def test_long_chains_are_cut(meaning: Term, pieces: int) -> None:
    assert _pieces(_call(meaning)) == pieces


def test_many_functions_are_cut_though_none_waits_for_another() -> None:
    whole = _x()
    for i, name in enumerate(("exp", "tanh", "sin", "cos", "log1p"), 1):
        whole = Term("Add", whole, _chain(_x(i), name))
    assert _pieces(_call(whole)) == 2


def test_short_rows_are_left_whole() -> None:
    meaning = _chain(_x(axes="n"), "exp", "tanh", "sin")
    assert _pieces(_call(meaning, {"n": 63})) == 0
    assert _pieces(_call(meaning, {"n": 64})) == 3


def test_a_cut_falls_where_fewest_values_cross() -> None:
    """What is read from memory is read again, of what is computed only the chain itself goes on."""
    x, y = _x(axes="n"), _x(1, axes="n")
    a = _chain(Term("Mul", x, y), "exp")
    meaning = Term("Add", Term("Mul", _chain(a, "tanh"), y), x)
    work = LOOPS.of(_call(meaning, {"n": 1 << 15}))
    assert work is not None and work.walk is not None
    emitter = work.walk.emitter
    (stage,) = emitter.space.stages
    parts = Fission(Loop(emitter, stage)).parts
    assert [[emitter.values.rows[n].name for n in rows] for rows in parts] == [["Mul", "exp"], ["tanh", "Mul", "Add"]]
    assert len(re.findall(r"float k\d+\[", _text(_call(meaning, {"n": 1 << 15})))) == 1


def _padded(x: Term) -> Term:
    return Term("Pad", "n", "p", 2, 0.5, x)


CASES = {
    "chain": _chain(_x(), "exp", "tanh", "sin"),
    "mish": mish(_x()),
    "wide": mish(_x(0, "float64")),
    "half": mish(_x(0, "float16")),
    "a number for each row": Term("Mul", mish(Term("Add", _x(), _x(1, axes="m"))), _x(2, axes="n")),
    "a comparison crosses": Term(
        "Select",
        Term("Zip", "lt", _chain(_x(), "exp", "tanh"), _x(1)),
        _chain(_x(1), "tanh", "exp"),
        _chain(_x(), "sin", "tanh"),
    ),
    "where it is read": _chain(Term("Gather", "k", _x(0, "int64", "mn"), _x(1, axes="k")), "exp", "tanh", "sin"),
    "a place": _chain(Term("Mul", Term("Iota", "n", "float32"), _x(axes="m")), "sin", "tanh", "exp"),
    "after a fold": Term("Mul", mish(Term("Zip", "sub", _x(), Term("Red", "max", "n", _x()))), _x(1)),
}


@pytest.mark.parametrize("case", CASES)
def test_every_element_is_as_the_meaning_has_it(case: str) -> None:
    odd = ({"m": 1, "n": 64}, {"m": 2, "n": 127}, {"m": 2, "n": 129}, {"m": 5, "n": 1}, {"m": 0, "n": 8})
    calls = [_call(CASES[case], {**sizes, "k": 7}) for sizes in (SIZES, *odd)]
    LOOPS.prepare([(LOOPS, c) for c in calls])  # a compiler is started once for all
    for call, seed in itertools.product(calls, range(4)):
        assert check_call(LOOPS, call, np.random.default_rng(seed)) is None, call.sizes
    assert _pieces(_call(CASES[case], {**SIZES, "k": 7})) > 1


@pytest.mark.parametrize("kernel", ["loops_fast", "loops_fast_stream"])
def test_results_past_the_cache_are_cut_as_well(kernel: str) -> None:
    (native,) = backends(["native"])
    x = np.linspace(-9, 9, (1 << 23) + 5, dtype=np.float32)
    x[:5] = [np.nan, np.inf, -np.inf, 0.0, 100.0]
    k = native.kernels[f"native.{kernel}"]
    call = _call(mish(_x(axes="n")), {"n": x.size}, kernel)
    out = np.empty_like(x)
    assert k.accepts(call)
    for step in k.bind(call, (x,), out, np.empty(k.workspace(call), np.uint8)):
        step()
    with np.errstate(all="ignore"):
        y = x.astype(np.float64)
        want = y * np.tanh(np.log1p(np.exp(y)))
    np.testing.assert_allclose(out, want, rtol=2e-6, atol=1e-7)
