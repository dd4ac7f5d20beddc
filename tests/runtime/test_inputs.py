"""Arguments of a call: numbers at once, the structure of the example, and a sentence on what was a Python number."""

from __future__ import annotations

import copy
import pickle
from collections import namedtuple
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import pytest

import waxeq as wx
from waxeq.backend.kernel import Kernel
from waxeq.errors import TypeMismatch
from waxeq.ir.graph import Leaf
from waxeq.ir.types import TensorType
from waxeq.plan.plan import Plan
from waxeq.runtime import inputs, sized
from waxeq.runtime.arguments import ordered
from waxeq.runtime.inputs import Inputs
from waxeq.runtime.layout import reader
from waxeq.runtime.program import Program

X = np.ones(3, np.float32)
NUMBERS = ("a: float32[]", "b: float64[]", "c: int64[]", "d: bool[]")
GIVEN = (np.float32(1.5), 2.5, 3, True)
Pair = namedtuple("Pair", "left right")


def leaves(*texts: str) -> list[Leaf]:
    return [Leaf(n, TensorType.parse(t)) for n, t in (text.split(": ") for text in texts)]


@pytest.mark.quick
@pytest.mark.parametrize("named", [False, True])
def test_numbers_need_no_second_look(monkeypatch: pytest.MonkeyPatch, named: bool) -> None:
    def look(leaf: Leaf, value: Any) -> np.ndarray:
        raise AssertionError(f"{leaf.name} is looked at: {value!r}")

    monkeypatch.setattr(inputs, "fitted", look)
    rows = Inputs(leaves(*NUMBERS)).take(*(((), dict(zip("abcd", GIVEN, strict=True))) if named else (GIVEN, {})))
    assert [(a.dtype.name, a.shape, a[()]) for a in rows] == [
        ("float32", (), 1.5), ("float64", (), 2.5), ("int64", (), 3), ("bool", (), True),
    ]  # fmt: skip


@pytest.mark.quick
@pytest.mark.parametrize(
    ("at", "value", "said"),
    [
        (0, 1.5, r"input 'a' is float64\[\], the program takes float32\[\]"),
        (0, np.float64(1.5), r"input 'a' is float64\[\]"),
        (1, 2, r"input 'b' is int64\[\]"),
        (1, np.array([2.5]), r"input 'b' is float64\[1\]"),
        (1, np.str_("2.5"), "input 'b' is of class str_"),
        (1, None, "input 'b' is None"),
        (2, float("nan"), r"input 'c' is float64\[\]"),
        (2, 1 << 80, "input 'c' is of class int"),
        (2, 1 << 63, r"input 'c' is uint64\[\]"),
        (2, True, r"input 'c' is bool\[\]"),
        (2, np.int32(3), r"input 'c' is int32\[\]"),
        (3, 1, r"input 'd' is int64\[\]"),
    ],
)
def test_numbers_of_another_type_are_refused(at: int, value: Any, said: str) -> None:
    with pytest.raises(TypeMismatch, match=said):
        Inputs(leaves(*NUMBERS)).take([*GIVEN[:at], value, *GIVEN[at + 1 :]], {})


@pytest.mark.quick
def test_a_direct_call_takes_numbers(affine: Callable[..., Plan], kernels: Mapping[str, Kernel]) -> None:
    """As arrays, which is all that it lacked; nothing else of a call is done."""
    program = Program(affine(3, 4), kernels, {"w": np.ones(4, np.float32)})
    seen: list[tuple[Any, ...]] = []

    def direct(args: tuple[Any, ...]) -> Any:
        seen.append(args)
        return "results" if all(type(a) is np.ndarray for a in args) else None

    program._runner.direct, program._take = direct, None  # pyright: ignore
    assert program(np.float32(2)) == "results"
    assert [type(a) for (a,) in seen] == [np.float32, np.ndarray]


# -- the structure of the example


@pytest.fixture(scope="module")
def optimized(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """A program, made in a moment."""
    table = tmp_path_factory.mktemp("table") / "t.duckdb"

    def make(fn: Callable[..., Any], *examples: Any) -> Any:
        options = wx.Options.of(table=table, budget=0, trial=False, measure=False)
        return wx.optimize(fn, *examples, options=options)

    return make


def scaled(d: Any, x: Any, n: int = 1) -> Any:
    return (d["a"] + d["l"][1] * x) * d["k"] * n


D = {"a": X, "l": [X, 2 * X], "k": 4}


def test_arguments_come_as_the_example_did(optimized: Callable[..., Any]) -> None:
    program, want = optimized(scaled, D, 3 * X).program, scaled(D, 3 * X)
    calls = [program(D, 3 * X), program(d=D, x=3 * X), program(D, x=3 * X), program(X, X, 2 * X, 3 * X)]
    calls += [program({"a": X, "l": (X, 2 * X)}, 3 * X), program(x=3 * X, **{"d.a": X, "d.l.0": X, "d.l.1": 2 * X})]
    for found in calls:
        np.testing.assert_array_equal(found, want)
    one = optimized(lambda d: d["a"] + 1, {"a": X}).program
    np.testing.assert_array_equal([one({"a": X}), one(d={"a": X}), one(X)], [X + 1] * 3)
    pair = optimized(lambda p: p.left - p.right, Pair(X, 2 * X)).program
    np.testing.assert_array_equal([pair(Pair(X, 2 * X)), pair([X, 2 * X][0], 2 * X)], [-X] * 2)


def test_structures_for_all_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = wx.optimize(
        lambda d, x: d["a"] + x, examples=lambda T: {"d": {"a": np.ones((T, 3), "f4")}, "x": X}, dims={"T": (1, 4)},
        options=wx.Options.of(table=tmp_path / "t.duckdb", budget=0, trial=False, measure=False),
    ).program  # fmt: skip
    assert program({"a": np.ones((2, 3), "f4")}, X).shape == (2, 3)
    assert program({"a": np.ones((3, 3), "f4")}, X).shape == (3, 3)
    monkeypatch.setattr(sized, "ordered", lambda *args: pytest.fail("looked through"))
    for t in (2, 3):  # sizes that were met, in calls as the one before
        np.testing.assert_array_equal(program({"a": np.full((t, 3), t, "f4")}, 2 * X), np.full((t, 3), t) + 2 * X)


@pytest.mark.parametrize(
    ("args", "named", "said"),
    [
        (({**D, "k": 5}, X), {}, r"'d\.k' is no input .* the Python value 4 when .* is a constant of the plan"),
        (({**D, "z": X}, X), {}, r"no input 'd\.z'; it takes d\.a: float32\[3\], d\.l\.0"),
        (({"a": X}, X), {}, r"no array was given for input 'd\.l\.0' \(float32\[3\]\)"),
        ((D,), {}, r"no array was given for input 'x'"),
        ((D, X, X), {}, r"takes 2 arguments \(d\.a: .*\), 3 were given$"),
        ((D, X), {"d": D}, r"input 'd\.a' is given twice"),
    ],
)
def test_structures_that_do_not_fit(optimized: Callable[..., Any], args: tuple, named: dict, said: str) -> None:
    with pytest.raises(TypeMismatch, match=said) as e:
        optimized(scaled, D, X).program(*args, **named)
    assert "\n" not in str(e.value)


class Layer(NamedTuple):
    w: np.ndarray
    b: np.ndarray


@dataclass
class Config:
    scale: np.ndarray
    eps: float = 1e-5


TREE = leaves("p.0.w: float32[3]", "p.0.b: float32[3]", "c.scale: float32[]", "x: float32[3]")


def call(n: float, kind: type = list, eps: float = 1e-5) -> dict[str, Any]:
    a = X * np.float32(n)
    return {"p": kind([Layer(a, a + 1)]), "c": Config(np.asarray(n, np.float32), eps), "x": a + 2}


def rows(n: float) -> list[Any]:
    return [X * n, X * n + 1, np.float32(n), X * n + 2]


@pytest.mark.quick
def test_a_call_like_the_one_before_is_not_looked_through_again(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = Inputs(TREE, {"c.eps": "1e-05"})
    for named in (True, False):
        first, second = call(1), call(2)
        taken.take(*(((), first) if named else ((*first.values(),), {})))
        with monkeypatch.context() as m:
            m.setattr(inputs, "ordered", lambda *args: pytest.fail("looked through"))
            found = taken.take(*(((), second) if named else ((*second.values(),), {})))
            for g, w in zip(found, rows(2), strict=True):
                np.testing.assert_array_equal(g, w)
            second["c"] = Config(np.float32(2))  # pyright: ignore[reportArgumentType]  # a number where an array was
            taken.take((), second) if named else taken.take((*second.values(),), {})


@pytest.mark.quick
def test_as_many_arguments_as_inputs_are_looked_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are told from inputs in a row by what they are, not by how many there are."""
    taken = Inputs(leaves("x: float32[3]", "c.scale: float32[]"), {"c.eps": "1e-05"})
    taken.take((X, Config(np.asarray(1, np.float32))), {})
    monkeypatch.setattr(inputs, "ordered", lambda *args: pytest.fail("looked through"))
    found = taken.take((2 * X, Config(np.asarray(3, np.float32))), {})
    np.testing.assert_array_equal(found[0], 2 * X)
    assert found[1] == 3


@pytest.mark.quick
@pytest.mark.parametrize(
    "other",
    [
        ({"a": X, "b": [X]}, {}),
        ({"a": X, "c": [X, 2 * X]}, {}),
        ({"a": X, "b": (X, 2 * X)}, {}),
        ([X, [X, 2 * X]], {}),
        ({"a": X, "b": [X, 2 * X], "c": X}, {}),
        ({"a": X, "b": [X, 2 * X]}, {"y": X}),
    ],
)
def test_a_reader_takes_calls_of_its_form_alone(other: tuple[Any, dict[str, Any]]) -> None:
    d, found = {"a": X + 1, "b": [X + 2, X + 3]}, (X + 4, X + 5, X + 6)
    read = reader((d,), {}, (d["b"][1], d["a"], d["b"][0]))
    assert read is not None and read(({"b": [found[2], found[0]], "a": found[1]},), {}) == [*found]
    assert read((other[0],), other[1]) is None


@pytest.mark.quick
def test_what_is_no_input_and_no_python_value_has_no_reader() -> None:
    d = {"a": X, "f": len}
    assert reader((d,), {}, (X,)) is None
    assert reader(({"a": X, "b": X + 1},), {}, (X,)) is None
    assert reader(({"a": X},), {}, (X, X + 1)) is None


@pytest.mark.quick
def test_equal_python_values_are_of_one_form() -> None:
    """Each call whose values were made anew was looked through, and a function compiled for the next one."""
    for value, same, other in (
        (1e-5, float("1e-5"), 2e-5),
        (0.0, None, -0.0),
        ("tanh", "".join("tanh"), "relu"),
        (1000, int("1000"), 1000.0),
        (1, None, True),
        (True, True, 1),
        (None, None, 0),
    ):
        d = {"a": X, "v": value}
        read = reader((d,), {}, (X,))
        assert read is not None and read((d,), {}) == [X]
        assert same is None or read(({**d, "v": same},), {}) == [X]
        assert read(({**d, "v": other},), {}) is None


@pytest.mark.quick
def test_calls_of_two_forms_in_turns_compile_nothing_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = Inputs(TREE, {"c.eps": "1e-05"})
    forms = ((), call(1)), ((*call(2).values(),), {})
    for args, named in forms:
        taken.take(args, named)
    monkeypatch.setattr("waxeq.runtime.layout.compile", lambda *args: pytest.fail("compiled"), raising=False)
    for args, named in forms * 2:
        taken.take(args, named)


@pytest.mark.quick
def test_a_call_unlike_the_one_before_is_looked_through() -> None:
    taken = Inputs(TREE, {"c.eps": "1e-05"})
    taken.take((), call(1))
    for other in (call(2, tuple), dict(reversed(call(2).items())), {**call(2), "x": [2.0 + 2] * 3}):
        other["x"] = np.asarray(other["x"], np.float32)
        for g, w in zip(taken.take((), other), rows(2), strict=True):
            np.testing.assert_array_equal(g, w)
    for wrong, said in (
        (call(1, eps=2e-5), r"'c\.eps' is no input .* the Python value 1e-05"),
        ({**call(1), "p": [Layer(X, X), Layer(X, X)]}, r"no input 'p\.1\.w'"),
        ({**call(1), "x": X.astype(float)}, r"input 'x' is float64\[3\], the program takes float32\[3\]"),
        ({**call(1), "p": [Layer(X, cast(Any, [X]))]}, r"no input 'p\.0\.b\.0'|no array was given|input 'p\.0\.b'"),
        ({k: v for k, v in call(1).items() if k != "x"}, "no array was given for input 'x'"),
    ):
        with pytest.raises(TypeMismatch, match=said):
            taken.take((), wrong)
        taken.take((), call(3))


@pytest.mark.quick
def test_one_array_in_several_places_is_several_inputs() -> None:
    taken = Inputs(leaves("d.a: float32[3]", "d.b: float32[3]"))
    taken.take((), {"d": {"a": X, "b": X}})
    a, b = taken.take((), {"d": {"a": X, "b": 2 * X}})
    assert (a[0], b[0]) == (1, 2)


# -- Python numbers


def test_what_was_a_python_number_is_said(optimized: Callable[..., Any], tmp_path: Path) -> None:
    result = optimized(lambda x, s: x * s, X, 2.0)
    result.save(tmp_path / "p.plan.json")
    loaded = wx.load(tmp_path / "p.plan.json")
    surplus = r"takes 1 input \(x: float32\[3\]\), 2 were given; s = 2\.0 was a Python value .* constant of the plan"
    for program in (result.program, loaded, copy.copy(loaded), pickle.loads(pickle.dumps(loaded))):
        with pytest.raises(TypeMismatch, match=surplus):
            program(X, 2.0)
        with pytest.raises(TypeMismatch, match=r"'s' is no input of the program: it was the Python value 2\.0 when"):
            program(X, s=3.0)
    many = optimized(lambda x, a, b, c, d: x * a + b - c * d, X, 1.0, 2, 3, True).program
    with pytest.raises(TypeMismatch, match=r"; a = 1\.0, b = 2, c = 3, \.\.\. were Python values .*: leave them out"):
        many(X, 1.0)


def test_a_number_after_a_list_of_blocks_is_said(optimized: Callable[..., Any]) -> None:
    """As of nanoGPT: the list was taken for the first of `*blocks`, and an input 'blocks.0.0.w' was missed."""
    blocks = [{"w": X, "b": X}, {"w": 2 * X, "b": X}]
    program = optimized(lambda x, blocks, n: sum(x * b["w"] + b["b"] for b in blocks) * n, X, blocks, 2).program
    assert np.allclose(program(X, blocks), 6 * X * X + 4 * X)
    surplus = r"takes 2 arguments .*, 3 were given; n = 2 was a Python value .* constant of the plan: leave it out"
    with pytest.raises(TypeMismatch, match=surplus):
        program(X, blocks, 2)


@pytest.mark.quick
def test_rows_that_may_be_all_of_them_are_rows() -> None:
    """Regression: of rows that are lists of as many numbers as there are rows, and where the first is empty, the first
    was taken for all, and the others were too many."""
    d, pair, w = {"a": 1.0, "b": 2.0}, [[1.0, 2.0], [3.0, 4.0]], [5.0, 6.0]
    numbers = Inputs(leaves("d.a: float64[]", "d.b: float64[]", "rows.0: float64[2]", "rows.1: float64[2]"))
    np.testing.assert_array_equal(np.stack(numbers.take((d, *pair), {})[2:]), pair)
    blocks = Inputs(leaves("x: float64[2]", "blocks.1.w: float64[2]"))
    for first in ({}, [], ()):
        np.testing.assert_array_equal(blocks.take((w, first, {"w": w}), {})[1], w)
    with pytest.raises(TypeMismatch, match=r"no array was given for input 'rows\.2'"):
        Inputs(leaves("x: float64[2]", *(f"rows.{i}: float64[2]" for i in range(3)))).take((w, *pair), {})


def test_a_number_that_no_example_was_is_said_to_be_a_constant(optimized: Callable[..., Any]) -> None:
    program = optimized(lambda x, s=2.0: x * s, X).program
    for args, named in (((X, 2.0), {}), ((X,), {"s": 2.0})):
        with pytest.raises(TypeMismatch, match="what was a Python number when it was optimized is a constant"):
            program(*args, **named)


@pytest.mark.quick
def test_what_was_taken_apart_is_not_again() -> None:
    (a,) = Inputs(leaves("d.0: float64[3]")).take((), {"d": [[1.0, 2.0, 3.0]]})
    np.testing.assert_array_equal(a, [1.0, 2.0, 3.0])


@pytest.mark.quick
def test_what_is_no_array_in_a_structure_passes() -> None:
    """A trace goes through functions that a model is handed."""
    types = {"p.x": "float32[3]"}
    (row,) = ordered(({"x": X, "act": np.tanh},), {}, types)
    assert row is X
    for other in ({"x": X, "n": 3}, {"x": X, "y": X}):
        with pytest.raises(TypeMismatch, match=r"no input 'p\.[ny]'"):
            ordered((other,), {}, types)
