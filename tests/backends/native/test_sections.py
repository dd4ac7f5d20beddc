"""Loops over what is padded or put side by side are written in sections: which are, and that each has its meaning."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

import numpy as np
import pytest

from waxeq.backend.call import Call, View, operand, operand_index
from waxeq.basis.typing import types
from waxeq.ir.term import Term, postorder
from waxeq.testing.conformance import check_call
from waxeq_cfamily import sections
from waxeq_cfamily.overlapped import Lined
from waxeq_native.loops import FastLoops, Loops, NarrowLoops, Streaming

ROWS = {"a": 42, "b": 2, "c": 44, "d": 40, "e": 2, "f": 30, "g": 70}
SIZES = {**ROWS, "m": 5, "n": 300, "p": 303, "q": 7, "r": 101, "s": 401, "t": 502}
X, Y, Z = operand(0, "mn", "float32"), operand(1, "mn", "float32"), operand(2, "mr", "float32")


def _call(meaning: Term, axes: Iterable[str], sizes: Mapping[str, int] = SIZES, kernel: str = "loops") -> Call:
    leaves = sorted((t for t in postorder(meaning) if t.head == "In"), key=operand_index)
    views = {operand_index(t): View.dense(sorted(t.args[1]), sizes, t.args[2]) for t in leaves}
    out = View.dense(axes, sizes, types(meaning)[meaning].dtype)
    return Call(f"native.{kernel}", meaning, sizes, tuple(views.values()), out)


def _text(call: Call) -> str:
    with pytest.MonkeyPatch.context() as changed:  # vectors that begin with lines have more loops
        changed.setattr(Lined, "lined", 0)
        found = Loops().of(call)
        assert found is not None
        return found.parts[-1].text


def columns(x: Term, low: int = 1, value: float = 0.5) -> Term:
    return Term("Pad", "n", "p", low, value, x)


def rows(x: Term) -> Term:
    return Term("Pad", "m", "q", 1, -2.0, x)


def beside(x: Term, y: Term) -> Term:
    return Term("Cat", "n", "r", "s", x, y)


def _loops(text: str) -> int:
    return text.count("#pragma omp simd")


def bordered(x: Term, low: Term, high: Term) -> Term:
    """Two rows before and after: at most of its places none of them is read."""
    return Term("Cat", "a", "b", "c", Term("Cat", "e", "d", "a", low, x), high)


def around(x: Term) -> Term:
    """A row and those above and below it, by two."""
    at = [Term("Slice", "c", "d", n, 1, x) for n in (0, 2, 4)]
    return Term("Add", Term("Add", at[0], at[1]), at[2])


BORDERS = bordered(operand(0, "dn", "float32"), operand(1, "en", "float32"), operand(2, "bn", "float32"))
CASES = {
    "columns": (columns(Term("Add", X, Y)), "mp", 3),
    "at the beginning": (columns(X, 3), "mp", 2),
    "at the end": (columns(X, 0), "mp", 2),
    "rows": (rows(Term("Mul", X, Y)), "qn", 2),
    "rows and columns": (columns(rows(Term("Add", X, Y))), "qp", 6),
    "padded twice": (Term("Mul", columns(X, 1), columns(Y, 2)), "mp", 5),
    "side by side": (beside(Term("Map", "neg", X), operand(1, "mr", "float32")), "ms", 2),
    "rows with a border": (BORDERS, "cn", 2),
    "around rows with a border": (around(BORDERS), "dn", 2),
    "half of the rows of each": (
        Term("Cat", "f", "d", "g", operand(0, "fn", "float32"), operand(1, "dn", "float32")),
        "gn",
        2,
    ),
    "a row of each": (Term("Cat", "m", "q", "k", X, operand(1, "qn", "float32")), "kn", 3),
    "of a fold": (columns(Term("Zip", "sub", X, Term("Red", "max", "n", X))), "mp", 7),
    "wide": (columns(rows(operand(0, "mn", "float64"))), "qp", 6),
    "half": (columns(rows(operand(0, "mn", "float16"))), "qp", 6),
    "whole numbers": (columns(rows(operand(0, "mn", "int32")), 1, 3.0), "qp", 6),
}


@pytest.mark.parametrize("case", CASES)
def test_each_section_is_a_loop(case: str) -> None:
    meaning, axes, loops = CASES[case]
    assert _loops(_text(_call(meaning, axes, {**SIZES, "k": 12}))) == loops


@pytest.mark.parametrize("kernel", [Loops, NarrowLoops, FastLoops, Streaming])
@pytest.mark.parametrize("case", CASES)
def test_every_element_is_as_the_meaning_has_it(case: str, kernel: type[Loops]) -> None:
    meaning, axes, _ = CASES[case]
    sizes = ({**SIZES, "n": n, "p": n + 3, "s": n + 101, "k": 12} for n in (300, 1, 29, 33, 1500))
    calls = [_call(meaning, axes, s, kernel.name) for s in sizes]
    calls = [c for c in calls if kernel().accepts(c)]
    kernel.prepare([(kernel(), c) for c in calls])  # a compiler is started once for all
    for call, seed in itertools.product(calls, range(3)):
        assert check_call(kernel(), call, np.random.default_rng(seed)) is None, call.sizes


def test_inside_there_is_no_mask() -> None:
    """Each vector of a stencil asked whether it lies inside, twice for each array: 5.5 ms where all else took 2.4."""
    text = _text(_call(columns(rows(Term("Add", X, Y))), "qp"))
    inside = text.partition("for (int64_t i1 = i1_1; i1 < i1_2; i1++) {")[2].partition("}")[0]
    assert "x0[" in inside and "x1[" in inside and "?" not in inside
    assert text.count("uint64_t") == 1  # asked once for a row


@pytest.mark.parametrize(("many", "written"), [(48, 2), (32, 2), (40, 1)])
def test_sections_past_the_cache_end_with_its_lines(many: int, written: int) -> None:
    """A line that is written there in two parts takes twenty times as long; a mask for each vector is less."""
    meaning, sizes = beside(X, operand(1, "mr", "float32")), {**SIZES, "n": many, "r": 64, "s": many + 64}
    call = _call(meaning, "ms", sizes, Streaming.name)
    found = Streaming().of(call)
    assert found is not None and found.parts[-1].text.count("wx_stream") == written + 1
    assert check_call(Streaming(), call, np.random.default_rng(0)) is None


def test_short_rows_are_one_loop() -> None:
    assert _loops(_text(_call(columns(X), "mp", {**SIZES, "n": 28, "p": 31}))) == 1
    assert _loops(_text(_call(columns(X), "mp", {**SIZES, "n": 29, "p": 32}))) == 3


def test_many_sections_are_left_in_one_loop_where_each_is_a_long_text(monkeypatch: pytest.MonkeyPatch) -> None:
    def call(value: float) -> Call:
        x = Term("Mul", Term("Mul", columns(X, 1), columns(X, 2)), columns(Y, 3))
        return _call(Term("Mul", columns(X, 0, value), x), "mp")

    assert _loops(_text(call(0.5))) == 7
    assert check_call(Loops(), call(0.5), np.random.default_rng(0)) is None
    monkeypatch.setattr(sections, "_ROWS", 20)
    assert _loops(_text(call(0.25))) == 1
    assert check_call(Loops(), call(0.25), np.random.default_rng(0)) is None


@pytest.mark.parametrize("n", [300, 16])
def test_each_of_many_arrays_that_are_stacked_is_read_in_a_part_of_its_own(n: int) -> None:
    """The states of a recurrence of 64 steps were looked for in all of them, for each element: 1.1 ms, not 0.01."""
    many, x = 64, operand(0, ("a1", "n"), "float32")
    for i in range(1, many):
        x = Term("Cat", f"a{i}", "one", f"a{i + 1}", x, operand(i, ("one", "n"), "float32"))
    sizes = {"one": 1, "n": n} | {f"a{i}": i for i in range(1, many + 1)}
    text = _text(_call(x, (f"a{many}", "n"), sizes))
    assert _loops(text) == many and "?" not in text


def test_most_rows_of_what_has_a_border_are_read_without_masks() -> None:
    """What is before them, and after, is not asked for: no vectors were made of rows where it was (a tenth of the
    speed)."""
    first, _, _ = _text(_call(around(BORDERS), "dn")).partition("} else {")
    assert first.count("if (") == 1 and "?" not in first.rpartition("#pragma omp simd")[2]


def test_what_is_put_side_by_side_is_counted_where_it_is_read() -> None:
    """Both halves of a rotary embedding were counted for all of the row: one loop of it, 1.1 ms, was taken for 3 ms,
    and two were chosen that take 3.4."""
    both = Loops().features(_call(Term("Cat", "n", "r", "s", Term("Mul", X, Y), Z), "ms"))["operations"]
    assert both == SIZES["m"] * (3 * SIZES["n"] + SIZES["r"])
    padded = Loops().features(_call(columns(Term("Mul", X, Y)), "mp"))["operations"]
    assert padded == pytest.approx(SIZES["m"] * 3 * SIZES["n"])
    assert padded < Loops().features(_call(Term("Mul", columns(X), columns(Y)), "mp"))["operations"]


def test_many_arrays_side_by_side_have_parts_of_their_own() -> None:
    """Along the slowest axis a row is one array's, along the fastest a stretch; of fewer than thirty each element was
    looked for in all of them, and a call of thirty was taken to have 30! places."""
    for axes, inner in (("sn", "n"), ("ns", "n")):
        sizes, meaning = {"n": 300, "s0": 1}, operand(0, "n", "float32")
        for i in range(1, 30):
            sizes |= {f"a{i}": 1, f"s{i}": i + 1}
            meaning = Term("Cat", f"s{i - 1}", f"a{i}", f"s{i}", meaning, operand(i, "n", "float32"))
        views = tuple(View.dense("n", sizes, "float32") for _ in range(30))
        order = tuple("s29" if a == "s" else a for a in axes)
        call = Call("native.loops", meaning, sizes, views, View.dense(order, sizes, "float32"))
        features = Loops().features(call)
        assert features["operations"] == pytest.approx(30 * 300, rel=0.01) and features["rows"] <= 300, inner
        assert " ? " not in "".join(x for x in _text(call).splitlines() if "= x" in x)
        assert check_call(Loops(), call, np.random.default_rng(0)) is None
