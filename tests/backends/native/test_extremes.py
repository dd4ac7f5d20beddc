"""Networks of maxima and minima: they look for NaN once, and are NaN where it is."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from waxeq.backend.call import Call, View, operand
from waxeq.backend.discover import backends
from waxeq.ir.term import Term
from waxeq_cfamily.extremes import LARGER, SMALLER, UNLESS, checked_once
from waxeq_native.work import NativeKernel

(BACKEND,) = backends(["native"])
LOOPS = BACKEND.kernels["native.loops"]
SIZES = {"i": 100}


def _call(meaning: Term, many: int, dtype: str) -> Call:
    views = tuple(View.dense("i", SIZES, dtype) for _ in range(many))
    return Call("native.loops", meaning, SIZES, views, View.dense("i", SIZES, dtype))


def _chain(name: str, many: int, dtype: str) -> Term:
    made = operand(0, "i", dtype)
    for n in range(1, many):
        made = Term("Zip", name, made, operand(n, "i", dtype))
    return made


def _spread(many: int, dtype: str) -> Term:
    return Term("Zip", "sub", _chain("max", many, dtype), _chain("min", many, dtype))


def _network(dtype: str) -> Term:
    """The median of five."""
    s = [operand(n, "i", dtype) for n in range(5)]
    for a, b in ((0, 1), (3, 4), (0, 3), (1, 4), (1, 2), (2, 3), (1, 2)):
        s[a], s[b] = Term("Zip", "min", s[a], s[b]), Term("Zip", "max", s[a], s[b])
    return s[2]


def _functions(call: Call) -> list[str]:
    assert isinstance(LOOPS, NativeKernel)
    return [r.name for r in checked_once(LOOPS.values(call)).rows if r.op == "apply"]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("what", ["largest", "spread", "median"])
def test_they_are_nan_where_one_of_the_numbers_is(what: str, dtype: str) -> None:
    meaning = {"largest": _chain("max", 5, dtype), "spread": _spread(5, dtype), "median": _network(dtype)}[what]
    call, rng = _call(meaning, 5, dtype), np.random.default_rng(0)
    x = rng.standard_normal((5, 100)).astype(dtype)
    x[rng.integers(0, 5, 40), rng.integers(0, 100, 40)] = rng.choice([np.nan, np.inf, -np.inf, -0.0, 0.0], 40)
    out = np.empty(100, dtype)
    LOOPS.prepare([(LOOPS, call)])
    for step in LOOPS.bind(call, list(x), out, np.empty(LOOPS.workspace(call), np.uint8)):
        step()
    with np.errstate(invalid="ignore"):
        top, low = np.max(x, axis=0), np.min(x, axis=0)
        assert UNLESS in _functions(call)
        expected = {"largest": top, "spread": top - low, "median": np.where(np.isnan(top), top, np.median(x, axis=0))}
    assert np.array_equal(out, expected[what], equal_nan=True)


def test_what_is_looked_at_for_two_results_is_looked_at_once() -> None:
    found = _functions(_call(_spread(6, "float32"), 6, "float32"))
    assert [found.count(f) for f in (LARGER, SMALLER, UNLESS)] == [5, 5, 3]


def test_few_are_left_and_so_are_bounds_and_running_maxima() -> None:
    """Three instructions are as few as one and what looks at two numbers; of a bound it is one. Each of what is read on
    its own way would be looked at again."""
    x = operand(0, "i", "float32")
    pair = Term("Zip", "max", x, operand(1, "i", "float32"))
    bounded = Term("Zip", "min", Term("Zip", "max", x, Term("Num", 0.0, "float32")), Term("Num", 6.0, "float32"))
    running = [_chain("max", n, "float32") for n in range(2, 6)]
    total = running[0]
    for _, more in pairwise(running):
        total = Term("Add", total, more)
    for meaning, many in ((pair, 2), (bounded, 1), (total, 5)):
        assert UNLESS not in _functions(_call(meaning, many, "float32"))
    assert UNLESS not in _functions(_call(_chain("max", 5, "int32"), 5, "int32"))
