"""Points that go through their stages several at a time: numbers that are no multiple, results in place, where not."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import pytest

from waxeq.backend.call import Call, View, operand, operand_index
from waxeq.basis.typing import types
from waxeq.ir.term import Term, postorder
from waxeq.testing.conformance import check_call
from waxeq_native.loops import FastLoops

LOOPS = FastLoops()


def _mean(below: Term, n: int, dtype: str) -> Term:
    return Term("Mul", Term("Sum", "n", below), Term("Num", 1 / n, dtype))


def _meaning(kind: str, n: int, dtype: str) -> Term:
    x, eps = operand(0, "mn", dtype), Term("Num", 2.0**-10, dtype)
    top = Term("Red", "max", "n", x)
    e = Term("Map", "exp", Term("Zip", "sub", x, top))
    centred = Term("Zip", "sub", x, _mean(x, n, dtype))
    around = x if kind == "rms norm" else centred
    root = Term("Map", "rsqrt", Term("Add", _mean(Term("Mul", around, around), n, dtype), eps))
    return {
        "rms norm": Term("Mul", root, Term("Mul", x, operand(1, "n", dtype))),
        "unit": Term("Zip", "div", x, Term("Map", "sqrt", Term("Sum", "n", Term("Mul", x, x)))),
        "shifted": Term("Add", Term("Mul", Term("Mul", centred, operand(1, "n", dtype)), root), operand(2, "n", dtype)),
        "layer norm": Term("Mul", Term("Mul", centred, operand(1, "n", dtype)), root),
        "variance": _mean(Term("Mul", centred, centred), n, dtype),
        "softmax": Term("Zip", "div", e, Term("Sum", "n", e)),
        "log of sum": Term("Add", top, Term("Map", "log", Term("Sum", "n", e))),
    }[kind]


def _call(kind: str, rows: int, n: int, dtype: str = "float32", threads: int = 1) -> Call:
    meaning, sizes = _meaning(kind, n, dtype), {"m": rows, "n": n}
    kinds = types(meaning)
    out = View.dense([k for k in "mn" if k in kinds[meaning].axes], sizes, kinds[meaning].dtype)
    leaves = sorted({t for t in postorder(meaning) if t.head == "In"}, key=operand_index)
    views = tuple(View.dense([k for k in "mn" if k in t.args[1]], sizes, dtype) for t in leaves)
    return Call("native.loops_fast", meaning, sizes, views, out, threads=threads)


def _text(call: Call) -> str:
    work = LOOPS.of(call)
    assert work is not None
    return work.parts[-1].text


def _many(call: Call) -> int:
    """How many points are taken at a time."""
    found = re.findall(r"first \+= (\d+)\)", _text(call))
    return int(found[0]) if found else 1


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("kind", ["layer norm", "variance", "softmax", "log of sum"])
def test_numbers_of_rows_that_are_no_multiple(kind: str, dtype: str) -> None:
    """Of one thread and of two, which share out chunks of any number of rows."""
    calls = [_call(kind, rows, n, dtype, threads) for rows, n, threads in ((37, 20, 1), (41, 64, 2), (35, 100, 2))]
    LOOPS.prepare([(LOOPS, c) for c in calls])
    for c in calls:
        assert _many(c) in (2, 4) and check_call(LOOPS, c, np.random.default_rng(0)) is None


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_root_that_is_waited_for(dtype: str) -> None:
    n = 3000 // np.dtype(dtype).itemsize
    for rows, threads in ((37, 1), (27, 2)):
        c = _call("rms norm", rows, n, dtype, threads)
        assert _many(c) == 4 and check_call(LOOPS, c, np.random.default_rng(0)) is None


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", ["layer norm", "shifted"])
def test_a_last_stage_beside_the_next_first_one(kind: str, dtype: str) -> None:
    """Of rows whose elements fill no whole vectors or just so many, of even and odd numbers of them, in chunks."""
    size = np.dtype(dtype).itemsize
    calls = [_call(kind, rows, n // size, dtype, threads) for rows, n, threads in ((9, 3008, 1), (37, 2164, 2))]
    LOOPS.prepare([(LOOPS, c) for c in calls])
    for c in calls:
        assert _many(c) == 2 and "next" in _text(c) and check_call(LOOPS, c, np.random.default_rng(0)) is None


@pytest.mark.parametrize("rows", [8, 9, 10, 11])
def test_a_row_that_is_read_on_is_its_own(rows: int) -> None:
    """What the next points' first stage reads is of no matter to these, and the last ones have none after them."""
    c = _call("layer norm", rows, 400)
    x = np.random.default_rng(0).standard_normal((rows, 400)).astype(np.float32)
    x[rows // 2] = np.nan
    values, out = (x, np.ones(400, np.float32)), np.empty_like(x)
    for step in LOOPS.bind(c, values, out, np.empty(LOOPS.workspace(c), np.uint8)):
        step()
    centred = x - x.mean(1, keepdims=True)
    expected = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 2.0**-10)
    assert np.allclose(out, expected, equal_nan=True, atol=1e-5)


@pytest.mark.parametrize(("kind", "n"), [("layer norm", 70), ("layer norm", 300), ("softmax", 70), ("rms norm", 768)])
def test_rows_that_are_replaced(kind: str, n: int) -> None:
    """Each row is read by all of its stages before any of it is written, however many are taken at a time."""
    c = _call(kind, 13, n)
    assert 0 in LOOPS.in_place(c) and _many(c) in (2, 4)
    rng = np.random.default_rng(0)
    values = [rng.standard_normal(v.shape).astype(v.dtype) for v in c.operands]
    found = []
    for x in (values[0], values[0].copy()):
        out = x if x is not values[0] else np.empty_like(x)
        for step in LOOPS.bind(c, (x, *values[1:]), out, np.empty(LOOPS.workspace(c), np.uint8)):
            step()
        found.append(out)
    assert np.array_equal(*found)


@pytest.mark.parametrize("begin", [0, 1, 2, 3])
def test_every_row_is_its_own(begin: int) -> None:
    """What one row is, NaN among it, is of no matter to those that are taken with it."""
    c = _call("softmax", 11, 40)
    x = np.random.default_rng(0).standard_normal((11, 40)).astype(np.float32)
    x[begin, 3], x[begin + 5] = np.nan, np.inf
    out = np.empty_like(x)
    for step in LOOPS.bind(c, (x,), out, np.empty(LOOPS.workspace(c), np.uint8)):
        step()
    with np.errstate(all="ignore"):
        e = np.exp(x - x.max(1, keepdims=True))
        assert np.allclose(out, e / e.sum(1, keepdims=True), equal_nan=True, atol=1e-7)


@pytest.mark.parametrize(
    "where",
    [
        {"kind": "layer norm", "rows": 7, "n": 512},
        {"kind": "layer norm", "rows": 37, "n": 4096},
        {"kind": "softmax", "rows": 7, "n": 64},
        {"kind": "rms norm", "rows": 37, "n": 256},
        {"kind": "rms norm", "rows": 2000, "n": 768},
        {"kind": "unit", "rows": 37, "n": 768},
    ],
)
def test_where_it_is_not_worth_it(where: Mapping[str, int]) -> None:
    """Long rows, few, those whose next fold a core comes to by itself, far ones, those whose elements are divided."""
    assert _many(_call(**where)) == 1  # pyright: ignore[reportArgumentType]
