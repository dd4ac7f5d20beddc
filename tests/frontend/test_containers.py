"""Objects among the arguments: dataclasses are containers as dicts are; of others it is said that they are constant."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import waxeq as wx
from waxeq.errors import TypeMismatch
from waxeq.frontend.trace import Traced, trace
from waxeq.ir.interpret import interpret
from waxeq.symbolic.family import _alike  # pyright: ignore[reportPrivateUsage]

pytestmark = pytest.mark.quick

X = np.arange(3, dtype=np.float32)
W = X + 1


@dataclass(frozen=True, slots=True)
class Layer:
    w: np.ndarray
    b: np.ndarray
    name: str = "layer"


@dataclass
class Model:
    layers: list[Layer]
    scale: Any = 2.0
    made: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.made = len(self.layers)
        assert not self.layers or isinstance(self.layers[0].w, np.ndarray)

    def __call__(self, x: Any) -> Any:
        for layer in self.layers:
            x = np.tanh(x * layer.w + layer.b)
        return x * self.scale


class Slotted:
    __slots__ = ("w",)

    def __init__(self, w: Any) -> None:
        self.w = w


def outcome(traced: Traced, **more: Any) -> np.ndarray:
    (got,) = interpret(traced.graph, {**traced.inputs, **traced.tensors, **more}).values()
    return got


def optimized(fn: Any, folder: Path, *examples: Any) -> Any:
    options = wx.Options(threads=1, budget=0, trial=False, table=str(folder / "t.duckdb"))
    return wx.optimize(fn, *examples, options=options).program


def test_a_dataclass_is_a_container_of_inputs() -> None:
    traced = trace(lambda p, x: x * p.w + p.b, {"p": Layer(W, X), "x": X})
    assert [x.name for x in traced.graph.leaves] == ["p.w", "p.b", "x"]
    assert traced.fixed == {"p.name": "'layer'"} and not traced.notes
    np.testing.assert_array_equal(outcome(traced, **{"p.w": 5 * W}), X * 5 * W + X)


def test_dataclasses_in_lists_and_methods_of_them() -> None:
    m = Model([Layer(W, X), Layer(X, W)], np.float32(3))
    traced = trace(lambda m, x: m(x), {"m": m, "x": X})
    assert {*traced.inputs} == {"m.layers.0.w", "m.layers.0.b", "m.layers.1.w", "m.layers.1.b", "m.scale", "x"}
    np.testing.assert_allclose(outcome(traced), m(X))
    assert m.layers[0].w is W, "the argument itself stays as it is"


def test_a_dataclass_of_weights() -> None:
    traced = trace(lambda p, x: x * p.w + p.b, {"p": Layer(W, X), "x": X}, weights=("p",))
    assert {*traced.tensors} == {"p.w", "p.b"} and {*traced.inputs} == {"x"}


@pytest.mark.parametrize("p", [SimpleNamespace(w=W), Slotted(W), SimpleNamespace(deep={"rows": [Slotted(W)]}, w=W)])
def test_arrays_in_other_objects_are_constants_and_it_is_said(p: Any) -> None:
    traced = trace(lambda p, x: x * p.w, {"p": p, "x": X})
    (note,) = traced.notes
    assert note.startswith(f"argument p is of class {type(p).__name__}: ") and ".w" in note and "constants" in note
    assert traced.fixed == {"p": f"<{type(p).__name__}>"}


def test_arrays_of_a_dataclass_that_are_no_fields_are_told_of() -> None:
    m = Model([Layer(W, X)])
    m.cache = [W]  # pyright: ignore[reportAttributeAccessIssue]
    traced = trace(lambda m, x: x * m.cache[0] + m.layers[0].w, {"m": m, "x": X})
    assert "(m.cache.0)" in traced.notes[0] and "m.layers.0.w" in traced.inputs


def test_objects_without_arrays_are_not_told_of() -> None:
    traced = trace(lambda p, x: p.f(x) * p.n, {"p": SimpleNamespace(f=np.tanh, n=3), "x": X})
    assert not traced.notes


@pytest.mark.parametrize(
    ("p", "said"),
    [({}, "p = {}"), ((0, 1), "p = (0, 1)"), (SimpleNamespace(w=W), "p = <SimpleNamespace>"), (np.tanh, "p = <ufunc>")],
)
def test_what_holds_no_inputs_is_named_when_it_is_passed_again(p: Any, said: str, tmp_path: Path) -> None:
    program = optimized(lambda p, x: x * (p.w if hasattr(p, "w") else 2), tmp_path, p, X)
    with pytest.raises(TypeMismatch) as e:
        program(p, X)
    assert f"{said} was a Python value when it was optimized, and is a constant of the plan" in str(e.value)


def test_an_object_in_a_dict_is_named_when_it_is_passed_again(tmp_path: Path) -> None:
    d = {"o": SimpleNamespace(w=W), "x": X}
    program = optimized(lambda d: d["x"] * d["o"].w, tmp_path, d)
    with pytest.raises(TypeMismatch, match=r"'d\.o' is no input of the program: it was the Python value"):
        program(d)


def test_dataclasses_of_other_shapes_are_not_alike() -> None:
    assert _alike(Layer(W, X), Layer(X, W)) and not _alike(Layer(W, X), Layer(W[:2], X))


def test_a_program_takes_the_dataclasses_it_was_optimized_for(tmp_path: Path) -> None:
    def model(m: Any, x: Any) -> Any:
        return m(x)

    given = Model([Layer(W, X), Layer(X, W)], np.float32(3))
    other = Model([Layer(5 * W, X), Layer(X, 2 * W)], np.float32(2))
    program = optimized(model, tmp_path, given, X)
    for got in (program(other, X), program(m=other, x=X), program(x=X, m=other)):
        np.testing.assert_allclose(got, model(other, X), rtol=1e-5)
    shorter = Model([Layer(W, X)], np.float32(3))
    shorter.made = 2
    with pytest.raises(TypeMismatch, match=r"no array was given for input 'm\.layers\.1\.w'"):
        program(shorter, X)
    with pytest.raises(TypeMismatch, match="was the Python value 'layer'"):
        program(Model([Layer(W, X), Layer(X, W, "other")], np.float32(3)), X)
