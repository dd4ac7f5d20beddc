"""Axes of a few elements that lie side by side are written out: which are, and that what is computed is the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from waxeq.backend.call import Call, View, operand, operand_index
from waxeq.basis.typing import types
from waxeq.ir.term import Term, postorder
from waxeq.testing.conformance import check_call
from waxeq_native.apart import HELD
from waxeq_native.loops import FastLoops, Loops, NarrowLoops, Streaming

SIZES = {"m": 7, "n": 45, "c": 3, "d": 3, "p": 47, "q": 46, "r": 1, "s": 9}


def _call(
    meaning: Term, axes: str, sizes: Mapping[str, int] = SIZES, kernel: str = "loops", order: str = "mnpqrsdc"
) -> Call:
    leaves = sorted((t for t in postorder(meaning) if t.head == "In"), key=operand_index)
    views = {operand_index(t): View.dense(sorted(t.args[1], key=order.index), sizes, t.args[2]) for t in leaves}
    out = View.dense(axes, sizes, types(meaning)[meaning].dtype)
    return Call(f"native.{kernel}", meaning, sizes, tuple(views.values()), out)


def _loops(call: Call) -> list[str]:
    """The axes that a call's loops are over, the innermost ones, with what is in them: where nothing is taken apart."""
    work = Loops().of(call)
    assert work is not None
    text = work.parts[-1].text
    text = text.partition(HELD)[2].partition("#else")[2] or text
    return [x.partition("\n")[2] for x in text.split("#pragma omp simd")[1:]]


def _x(dtype: str = "float32", axes: str = "mnc") -> Term:
    return operand(0, axes, dtype)


def _channel(dtype: str = "float32", number: int = 1) -> Term:
    return operand(number, "c", dtype)


def _edges(x: Term) -> Term:
    """The first column again before all, the last one behind: positions that are known."""
    first, last = (Term("Gather", "n", Term("Num", float(at), "int64"), x) for at in (0, SIZES["n"] - 1))
    return Term("Cat", "q", "r", "p", Term("Cat", "r", "n", "q", first, x), last)


def _normed(dtype: str) -> Term:
    return Term("Zip", "sub", Term("Mul", _x(dtype), _channel(dtype)), operand(2, "c", dtype))


CASES = {
    "colours": (_normed("float32"), "mnc"),
    "doubles": (_normed("float64"), "mnc"),
    "halves": (_normed("float16"), "mnc"),
    "whole numbers": (_normed("int64"), "mnc"),
    "small whole numbers": (_normed("int8"), "mnc"),
    "length": (Term("Map", "sqrt", Term("Sum", "c", Term("Map", "square", _x()))), "mn"),
    "of its length": (Term("Zip", "div", _x(), Term("Sum", "c", Term("Map", "abs", _x()))), "mnc"),
    "range": (Term("Zip", "sub", Term("Red", "max", "c", _x()), Term("Red", "min", "c", _x())), "mn"),
    "range of doubles": (Term("Red", "max", "c", _x("float64")), "mn"),
    "largest of bytes": (Term("Red", "max", "c", _x("uint8")), "mn"),
    "product": (Term("Red", "prod", "c", _x()), "mn"),
    "sum of halves": (Term("Sum", "c", _x("float16")), "mn"),
    "any": (Term("Red", "any", "c", _x("bool")), "mn"),
    "turned": (Term("Sum", "d", Term("Mul", _x(axes="mnd"), operand(1, "cd", "float32"))), "mnc"),
    "distances": (
        Term("Sum", "c", Term("Map", "square", Term("Zip", "sub", _x(axes="mc"), operand(1, "nc", "float32")))),
        "mn",
    ),
    "shifted": (Term("Add", Term("Slice", "p", "s", 1, 2, Term("Pad", "n", "p", 1, 2.0, _x())), _channel()), "msc"),
    "padded": (Term("Mul", Term("Pad", "n", "p", 1, 0.0, _x()), _channel()), "mpc"),
    "edges": (Term("Mul", _edges(_x()), _channel()), "mpc"),
    "places": (Term("Mul", Term("Iota", "c", "float32"), _x()), "mnc"),
    "the same for all": (
        Term("Add", operand(0, "mn", "float32"), Term("Sum", "d", operand(1, "mnd", "float32"))),
        "mnc",
    ),
    "all of it": (Term("Sum", "m", Term("Sum", "n", Term("Red", "max", "c", _x()))), ""),
    "of its length, turned": (Term("Zip", "div", _x(), Term("Sum", "c", Term("Map", "abs", _x()))), "ncm"),
    "functions": (Term("Map", "exp", Term("Mul", _x(), _channel())), "mnc"),
    "pools": (Term("Sum", "m", Term("Sum", "c", _x(axes="mnc"))), "n"),
    "pools of pools": (Term("Red", "max", "d", Term("Sum", "c", _x(axes="dnc"))), "n"),
    "planes folded": (Term("Sum", "c", _x(axes="cmn")), "mn"),
    "planes of long rows": (Term("Sum", "c", Term("Map", "sqrt", Term("Sum", "n", _x(axes="cmn")))), "m"),
    "planes": (_normed("float32"), "cmn"),
    "planes of bytes": (Term("Mul", Term("Cast", "float32", _x("uint8")), _channel()), "cmn"),
    "planes of padded": (Term("Mul", Term("Pad", "n", "p", 1, 0.0, _x()), _channel()), "cmp"),
    "planes, turned": (_normed("float64"), "ncm"),
}


@pytest.mark.parametrize("kernel", [Loops, NarrowLoops, FastLoops])
@pytest.mark.parametrize("case", CASES)
def test_every_element_is_as_the_meaning_has_it(case: str, kernel: type[Loops]) -> None:
    meaning, axes = CASES[case]
    if "exp" in str(meaning) and kernel is not FastLoops:
        pytest.skip("compilers make no vectors of the library's")
    sizes = [{**SIZES, "c": c, "d": d} for c, d in ((3, 3), (2, 4), (4, 2), (1, 3), (5, 3))]
    if case == "edges":
        sizes = sizes[:3]
    sizes += [{**sizes[0], "m": 4}] * (case == "of its length, turned")
    sizes += [{**sizes[0], "m": 2, "n": 200}] * (case == "pools")
    sizes += [{**s, "n": 6, "p": 8, "q": 7} for s in sizes[:2]] if case == "padded" else []
    calls = [_call(meaning, axes, s, kernel.name) for s in sizes]
    kernel.prepare([(kernel(), c) for c in calls])
    for call in calls:
        for seed in range(3):
            assert check_call(kernel(), call, np.random.default_rng(seed)) is None, call.sizes


def test_both_axes_of_a_pool_are_chains() -> None:
    """Means of two by two took seven times as long: sums of rows in loops, and then sums of pairs of these."""
    (loop,) = _loops(_call(*CASES["pools"], {**SIZES, "m": 2, "n": 200}))
    assert "out[" in loop and loop.count("for (") == 1 and loop.count("= x0[") == 6
    text = str(Loops().of(_call(*CASES["planes of long rows"])).parts[-1].text)  # pyright: ignore
    assert text.count("for (int64_t i") < 8, "no loop over each of the planes of its own"


@pytest.mark.parametrize("case", ["planes", "planes of bytes"])
def test_planes_of_colours_are_made_in_one_loop(case: str) -> None:
    """A picture of bytes as planes of floats took six times as long as one that keeps its order."""
    (loop,) = _loops(_call(*CASES[case]))
    assert all(f"out{i}[" in loop for i in ("", 1, 2)) and loop.count("for (") == 1


@pytest.mark.parametrize("case", ["colours", "doubles", "whole numbers", "small whole numbers", "of its length"])
def test_results_of_all_places_are_made_in_one_loop(case: str) -> None:
    """Over an axis of three there are no vectors: four times as long as a copy."""
    (loop,) = _loops(_call(*CASES[case]))
    assert all(f"out{i}[" in loop for i in ("", 1, 2)) and loop.count("for (") == 1


@pytest.mark.parametrize("case", ["length", "range", "largest of bytes", "product", "distances"])
def test_folds_are_chains_of_functions(case: str) -> None:
    (loop,) = _loops(_call(*CASES[case]))
    assert "out[" in loop and loop.count("for (") == 1


def test_folds_that_are_more_than_numbers_stay() -> None:
    assert "reduction" in str(Loops().of(_call(*CASES["any"])).parts[-1].text)  # pyright: ignore


_LONGER = {
    "softmax": (5, 9, 12),
    "largest of doubles": (5, 8, 12),
    "mean and variance": (7, 12),
    "halves": (5, 8, 12),
    "functions": (5, 7),
    "argmax": (6, 10),
}


def _longer(case: str) -> tuple[Term, str]:
    x = _x("float64" if "doubles" in case else "float16" if case == "halves" else "float32")
    if case == "softmax":
        e = Term("Map", "exp", Term("Zip", "sub", x, Term("Red", "max", "c", x)))
        return Term("Zip", "div", e, Term("Sum", "c", e)), "mnc"
    if case == "mean and variance":
        d = Term("Zip", "sub", x, Term("Mul", Term("Sum", "c", x), Term("Num", 0.125, "float32")))
        return Term("Mul", d, Term("Sum", "c", Term("Map", "square", d))), "mnc"
    if case == "halves":
        return Term("Zip", "sub", x, Term("Sum", "c", x)), "mnc"
    if case == "functions":
        return Term("Map", "exp", Term("Mul", x, _channel())), "mnc"
    return (Term("Red", "argmax", "c", x), "mn") if case == "argmax" else (Term("Red", "max", "c", x), "mn")


@pytest.mark.parametrize("case", _LONGER)
def test_longer_axes_are_written_out_where_loops_of_them_are_slow(case: str) -> None:
    """A softmax of rows of five took four times as long as one of rows of four, the largest of five doubles ten times.
    Neighbours in groups of no power of two have pointers of their own: gcc makes no vectors of such groups."""
    meaning, axes = _longer(case)
    name, kernel = ("native.loops_fast", FastLoops()) if "exp" in str(meaning) else ("native.loops", Loops())
    for c in _LONGER[case]:
        call = _call(meaning, axes, {**SIZES, "c": c}, name.removeprefix("native."))
        assert check_call(kernel, call, np.random.default_rng(c)) is None
        text = kernel.of(call).parts[-1].text  # pyright: ignore[reportOptionalMemberAccess]
        assert not any(f"reduction({f}" in text for f in ("+", "max", "min"))
        assert ("wx_alone" in text) == (c not in (4, 8))


def test_longer_axes_stay_where_an_instruction_is_all_there_is() -> None:
    call = _call(Term("Zip", "div", _x(), Term("Sum", "c", _x())), "mnc", {**SIZES, "c": 9})
    assert "wx_alone" not in "".join(_loops(call))


def test_what_is_folded_in_pieces_makes_one_result() -> None:
    """Along one axis in registers, along the other in pieces that threads share."""
    x = operand(0, "nc", "float32")
    meaning = Term("Zip", "sub", Term("Zip", "sub", x, Term("Sum", "c", x)), Term("Sum", "n", x))
    for threads in (1, 2):
        call = replace(_call(meaning, "nc", {"n": 40_000, "c": 3}), threads=threads)
        assert check_call(Loops(), call, np.random.default_rng(0)) is None


def test_axes_of_what_is_not_asked_for_are_gone() -> None:
    """A result that replaces an operand was made anew for each element of an axis that nothing has any more."""
    sizes = {"n": 45, "m": 7, "r": 1, "s": 1, "q": 2}
    both = Term("Cat", "r", "s", "q", Term("Sum", "m", operand(0, "mn", "float32")), operand(1, "n", "float32"))
    second = Term("Gather", "q", Term("Num", 1.0, "int64"), both)
    call = _call(Term("Add", second, operand(2, "n", "float32")), "n", sizes)
    assert check_call(Loops(), call, np.random.default_rng(0)) is None
    assert "for (" not in Loops().of(call).parts[-1].text.partition("pragma")[0].partition("t++")[2]  # pyright: ignore


def test_longer_and_lone_axes_stay() -> None:
    for sizes in ({**SIZES, "c": 5}, {**SIZES, "m": 1, "n": 31}):
        assert "out1" not in "".join(_loops(_call(*CASES["colours"], sizes)))


@pytest.mark.parametrize("kernel", [Loops, NarrowLoops])
def test_rows_of_many_small_matrices_are_vectors(kernel: type[Loops]) -> None:
    """Products of 4096 pairs of four by four took 57 us with all columns made at once, and take 19."""
    left, right = operand(0, "mpc", "float32"), operand(1, "mcd", "float32")
    product = Term("Sum", "c", Term("Mul", left, right))
    for rows, across, columns in ((4, 4, 4), (3, 3, 3), (2, 3, 4), (7, 2, 3), (1, 4, 4)):
        call = _call(product, "mpd", {"m": 99, "p": rows, "c": across, "d": columns}, kernel.name, "mpcd")
        assert ("out1" in "".join(_loops(call))) is (rows == 1), call.sizes
        assert check_call(kernel(), call, np.random.default_rng(0)) is None, call.sizes
    once = _call(
        Term("Mul", operand(0, "mp", "float32"), operand(1, "md", "float32")), "mpd", {"m": 99, "p": 4, "d": 4}
    )
    assert "out1" in "".join(_loops(once)), "an outer product reads a row of it once"
    one = Term("Sum", "c", Term("Mul", operand(0, "mpc", "float32"), operand(1, "cd", "float32")))
    sizes = {"m": 4, "p": 99, "c": 3, "d": 3}
    assert "out1" in "".join(_loops(_call(one, "mpd", sizes, order="mpcd"))), "colours of pixels by one matrix"


def test_three_neighbours_that_are_masked_are_no_vectors() -> None:
    """gcc 12 gave the last of them the mask of the next element: found by a random program (640)."""
    short = {**SIZES, "n": 6, "p": 8}
    (loop,) = _loops(_call(*CASES["padded"], short))
    assert "volatile(" in loop and "out2[" in loop
    assert "volatile(" not in "".join(_loops(_call(*CASES["padded"])))  # in sections there are no masks


def test_what_can_be_merged_is() -> None:
    (loop,) = _loops(_call(Term("Map", "neg", _x()), "mnc"))
    assert "out1" not in loop


def test_a_fold_of_everything_is_one_loop() -> None:
    """Not one of every third element for each colour."""
    x = _x()
    for k in "cnm":
        x = Term("Sum", k, x)
    loops = [text for text in _loops(_call(x, "")) if "x0[" in text]
    assert loops and all(text.count("x0[") == 1 and "* 3" not in text for text in loops)


def test_results_of_several_places_are_not_written_past_the_cache() -> None:
    assert not Streaming().accepts(_call(*CASES["colours"], kernel="loops_stream"))


def test_positions_that_are_known_are_not_looked_at() -> None:
    work = Loops().of(_call(*CASES["edges"]))
    assert work is not None and not work.may_fail and "bad" not in work.parts[-1].text


def _reckoned(steps: int) -> Call:
    """Colours of the pixels of a picture at places that take two functions a step to find."""
    place = operand(1, "mn", "int64")
    for _ in range(steps):
        place = Term("Zip", "mod", Term("Add", place, Term("Num", 3.0, "int64")), Term("Num", 40.0, "int64"))
    sizes = {"m": 7, "n": 45, "k": 40, "c": 3}
    views = (View.dense("kc", sizes, "float32"), View.dense("mn", sizes, "int64"))
    meaning = Term("Gather", "k", place, operand(0, "kc", "float32"))
    return Call("native.loops", meaning, sizes, views, View.dense("mnc", sizes, "float32"))


def test_places_that_take_reckoning_are_found_once_for_all_colours() -> None:
    *_, loop = _loops(_reckoned(4))
    assert "out2[" in loop and loop.count("wx_within(") == 3
    assert all("out2[" not in text for text in _loops(_reckoned(1))), "what is read as it is lies side by side"
    assert check_call(Loops(), _reckoned(4), np.random.default_rng(0)) is None


def _resized(channels: int) -> Call:
    """Two pixels of each row at positions of the columns, by weights of these: half of a bilinear resize."""
    sizes = {"y": 9, "x": 50, "k": 40, "c": channels}
    pixels = (Term("Gather", "k", operand(i, "x", "int32"), operand(0, "ykc", "float32")) for i in (1, 2))
    weighted = (Term("Mul", p, operand(i, "x", "float32")) for p, i in zip(pixels, (3, 4), strict=True))
    operands = [("ykc", "float32"), ("x", "int32"), ("x", "int32"), ("x", "float32"), ("x", "float32")]
    views = tuple(View.dense(axes, sizes, dtype) for axes, dtype in operands)
    return Call("native.loops", Term("Add", *weighted), sizes, views, View.dense("yxc", sizes, "float32"))


def test_colours_that_are_computed_of_the_same_places_are_made_pixel_by_pixel() -> None:
    work = Loops().of(_resized(3))
    assert work is not None
    text = work.parts[-1].text
    assert "out2[" in text and "omp simd" not in text, "vectors look up each colour by itself"
    assert text.index(" i0 = ") < text.index("for (int64_t i1 ="), "pixels of a row follow each other"
    assert _loops(_resized(16)), "of many channels lie vectors side by side"
    for channels in (2, 3, 4, 16):
        assert check_call(Loops(), _resized(channels), np.random.default_rng(0)) is None


def test_elements_that_are_looked_up_each_at_a_place_of_its_own_are_vectors() -> None:
    sizes = {"n": 500, "k": 40}
    table = Term("Gather", "k", operand(1, "n", "int64"), operand(0, "k", "float64"))
    views = (View.dense("k", sizes, "float64"), View.dense("n", sizes, "int64"), View.dense("n", sizes, "float64"))
    meaning = Term("Mul", table, operand(2, "n", "float64"))
    call = Call("native.loops", meaning, sizes, views, View.dense("n", sizes, "float64"))
    assert _loops(call)


def test_positions_outside_their_axis_are_found_out() -> None:
    outside = Term("Gather", "n", Term("Num", 45.0, "int64"), _x())
    assert not Loops().accepts(_call(outside, "mc"))


@pytest.mark.parametrize(
    "values", [(np.nan, 1, 2), (1, np.nan, 2), (1, 2, np.nan), (np.inf, -np.inf, 0), (-0.0, 0.0, -0.0)]
)
def test_what_is_not_finite_is_met_at_every_place(values: tuple[float, float, float]) -> None:
    x = np.tile(np.float32(values), (7, 45, 1))
    for kind, fold in (("max", np.max), ("min", np.min)):
        call = _call(Term("Red", kind, "c", _x()), "mn")
        out = np.empty((7, 45), np.float32)
        (step,) = Loops().bind(call, [x], out, np.empty(0, np.uint8))
        step()
        np.testing.assert_array_equal(out, fold(x, -1))


def _states(many: int) -> Term:
    """A stack of states, each made of the one before it."""
    state, stack, axis = operand(0, "n", "float32"), None, "t1"
    for i in range(1, many + 1):
        state = Term("Add", Term("Mul", state, operand(i, "n", "float32")), operand(0, "n", "float32"))
        stack = state if stack is None else Term("Cat", axis, "one", axis := f"t{i}", stack, state)
    assert stack is not None
    return stack


@pytest.mark.parametrize("many", [2, 5, 16, 17])
def test_states_of_a_stack_are_made_in_one_loop(many: int) -> None:
    """Each row of a stack was made of all states before it again, by a loop for each."""
    sizes = {"n": 203, "one": 1, **{f"t{i}": i for i in range(1, many + 1)}}
    views = tuple(View.dense("n", sizes, "float32") for _ in range(many + 1))
    for axes in ((f"t{many}", "n"), ("n", f"t{many}")):
        call = Call("native.loops", _states(many), sizes, views, View.dense(axes, sizes, "float32"))
        assert check_call(Loops(), call, np.random.default_rng(many)) is None
        text = Loops().of(call).parts[-1].text  # pyright: ignore[reportOptionalMemberAccess]
        assert many == 2 or (f"out{many - 1}[" in text) == (many <= 16)


def test_arrays_that_are_only_stacked_are_read_one_by_one() -> None:
    stack: Term = operand(0, "n", "float32")
    for i in range(1, 6):
        stack = Term("Cat", f"t{i}", "one", f"t{i + 1}", stack, operand(i, "n", "float32"))
    sizes = {"n": 203, "one": 1, **{f"t{i}": i for i in range(1, 7)}}
    views = tuple(View.dense("n", sizes, "float32") for _ in range(6))
    call = Call("native.loops", stack, sizes, views, View.dense(("t6", "n"), sizes, "float32"))
    assert check_call(Loops(), call, np.random.default_rng(0)) is None
    assert "out5[" not in "".join(_loops(call))
