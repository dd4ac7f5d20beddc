"""What a user may give by mistake: no function, no example, options that are none, arrays that would lose something."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import waxeq as wx
from waxeq.errors import TypeMismatch, UnsupportedError, UsageError, WaxeqError

pytestmark = pytest.mark.quick

X = np.ones(3)
MASKED = np.ma.masked_array([1.0, 2.0, 3.0], [False, True, False])
MATRIX = np.ones((1, 3)).view(np.matrix)


def add(a: Any, b: Any) -> Any:
    return a + b


@pytest.mark.parametrize("front", [wx.optimize, wx.trace], ids=["optimize", "trace"])
@pytest.mark.parametrize(
    ("args", "named", "said"),
    [
        ((None, X), {}, "the model is None; give a function on arrays"),
        (("model.py", X), {}, r"the model is a str \('model\.py'\); give a function"),
        ((X,), {}, "the model is a ndarray"),
        ((add,), {}, r"what is 'a' of add\? Pass an example of it"),
        ((add, X), {}, r"what is 'b' of add\? Pass an example of it"),
        ((add, X, X, X), {}, "the examples do not fit add: too many"),
        ((add, X, X), {"c": X}, "the examples do not fit add: .*'c'"),
        ((add, X, X), {"weights": ("w",)}, "add has no parameter 'w' to be a weight or a state; it has a, b"),
        ((add, X, X), {"weights": "w1"}, "add has no parameter 'w1'"),
        ((dict, X), {}, "Python does not tell the parameters of dict; wrap it"),
        ((lambda threads: threads,), {"threads": X, "b": X}, "unexpected keyword argument 'b'$"),
        ((add, X, X), {"budget": 3}, r"'budget'; budget is an option: options=wx\.Options\(budget=3\)$"),
    ],
)
def test_what_is_no_model_or_no_example(front: Callable, args: tuple, named: dict[str, Any], said: str) -> None:
    with pytest.raises(WaxeqError, match=said) as e:
        front(*args, **named)
    assert "\n" not in str(e.value) and e.value.exit_code in (2, 3)


def test_parameters_may_be_called_as_arguments_of_optimize_are(tmp_path: Path) -> None:
    def model(fn: Any, weights: Any, options: Any, examples: Any) -> Any:
        return fn * weights["a"] + options * examples

    arrays = {"fn": X, "weights": {"a": 2 * X}, "options": 3 * X, "examples": 4 * X}
    options = wx.Options(table=tmp_path / "t.duckdb", trial=False, measure=False)
    rest = {n: a for n, a in arrays.items() if n != "fn"}
    assert {x.name for x in wx.trace(model, examples=arrays).graph.leaves} == {"fn", "weights.a", "options", "examples"}
    for result in (
        wx.optimize(model, *arrays.values(), weights=["weights"], options=options),
        wx.optimize(model, examples=arrays, weights=["weights"], options=options),
        wx.optimize(model, X, examples=rest, weights="weights", options=options),
        wx.optimize(model, fn=X, examples=rest, weights=("weights",), options=options),
    ):
        np.testing.assert_allclose(result.program(X, 3 * X, 4 * X), 14 * X)
    with pytest.raises(UsageError, match="the examples do not fit model: 'fn' is given twice"):
        wx.optimize(model, fn=X, examples=arrays)


@pytest.mark.parametrize("front", [wx.optimize, wx.trace], ids=["optimize", "trace"])
@pytest.mark.parametrize("given", [X, {"a": X}, 2.0], ids=["array", "dict", "number"])
@pytest.mark.parametrize("name", ["weights", "examples"])
def test_an_example_is_not_taken_for_another_argument(front: Callable, given: Any, name: str) -> None:
    texts = {"weights": "lambda x, weights: x", "examples": "lambda x, examples: x"}
    with pytest.raises(UsageError, match=rf"parameter of that name: .* or as examples={{'{name}': \.\.\.}}"):
        front(eval(texts[name]), X, **{name: given})


def test_other_arguments_that_are_examples() -> None:
    for name, fn in (("options", lambda x, options: x), ("events", lambda x, events: x)):
        with pytest.raises(UsageError, match=f"as examples={{'{name}'"):
            wx.optimize(fn, X, **{name: X})
    with pytest.raises(UsageError, match=r"as examples={'dims'"):
        wx.trace(lambda x, dims: x, X, dims=X)  # pyright: ignore[reportArgumentType]
    with pytest.raises(UsageError, match="examples is a mapping from names"):
        wx.optimize(add, examples=X)  # pyright: ignore[reportArgumentType]


def test_a_single_weight_may_be_a_text() -> None:
    def model(x: Any, w1: Any) -> Any:
        return x * w1

    assert [x.kind for x in wx.trace(model, X, X, weights="w1").graph.leaves] == ["input", "weight"]


@pytest.mark.parametrize("given", [{"budget": 1}, "fast", 3])
def test_options_that_are_none(given: Any) -> None:
    with pytest.raises(UsageError, match=r"pass wx\.Options\(budget="):
        wx.optimize(add, X, X, options=given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"threads": 0}, "option threads is 0; it should be greater than or equal to 1"),
        ({"cost": "guess"}, "option cost is 'guess'; it should be 'measured' or 'roofline'"),
        ({"budget": "soon"}, "option budget: 'soon' is not a time; write it as 30s"),
        ({"tolerance": 3}, "option tolerance: 3 is not a tolerance"),
        ({"seeds": 3}, "there is no option 'seeds'; there are budget, tolerance, seed"),
    ],
)
def test_options_that_make_no_sense(given: dict[str, Any], said: str) -> None:
    for make in (wx.Options, wx.Options.of):
        with pytest.raises(UsageError, match=said) as e:
            make(**given)
        assert "\n" not in str(e.value)


@pytest.mark.parametrize("how", [{}, {"weights": ("x",)}, {"states": ("x",)}], ids=["input", "weight", "state"])
@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: [x], lambda x: {"k": (x,)}], ids=["plain", "list", "nested"])
@pytest.mark.parametrize(("given", "said"), [(MASKED, r"masked array.*filled"), (MATRIX, r"np\.matrix.*asarray")])
def test_arguments_that_would_lose_something(how: Any, wrap: Callable, given: Any, said: str) -> None:
    with pytest.raises(TypeMismatch, match=rf"^(input|weight|state) 'x[\w.]*' is an? {said}"):
        wx.trace(lambda x: x, wrap(given), **how)


@pytest.mark.parametrize(
    "model",
    [
        lambda x: x + MASKED,
        lambda x: MASKED @ x,
        lambda x: np.where(x > 0, x, MASKED),
        lambda x: np.concatenate([MASKED, x]),
        lambda x: np.array([x, MASKED]),
        lambda x: np.full_like(x, MASKED),
        lambda x: x.sum(where=MASKED > 1),
        lambda x: (x, MASKED),
        lambda x: x * MATRIX,
    ],
)
def test_constants_that_would_lose_something(model: Callable) -> None:
    with pytest.raises(UnsupportedError, match=r"test_given\.py:\d+: (a masked array loses its mask|np\.matrix gives)"):
        wx.trace(model, X)


@pytest.mark.parametrize("model", [lambda x: MASKED + x, lambda x: np.ma.array(x), lambda x: np.ma.add(x, x)])
def test_masked_functions_are_not_traced(model: Callable) -> None:
    with pytest.raises(UnsupportedError, match=r"test_given\.py"):
        wx.trace(model, X)


def test_a_mask_that_is_filled_is_fine() -> None:
    (constant,) = wx.trace(lambda x: x + MASKED.filled(0), X).graph.constants.values()
    assert constant.tolist() == [1, 0, 3]
