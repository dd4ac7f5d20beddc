"""Arrays that a model names and is not given, indexed by what is traced."""

from __future__ import annotations

import functools
import pickle
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from waxeq.frontend.trace import trace
from waxeq.ir.interpret import interpret

TABLE = np.arange(12.0, dtype=np.float32).reshape(4, 3)
PARAMETERS = {"embedding": {"tokens": TABLE * 2}, "scales": [np.array([1.0, 2.0, 4.0], np.float32), 3]}


def around() -> Callable[[np.ndarray], Any]:
    import numpy as num

    table, half = TABLE / 2, 0.5

    def helper(y: np.ndarray) -> Any:
        return num.take(table, y, axis=0) + table[y]

    return lambda y: helper(y) * half


class Layer:
    def __init__(self) -> None:
        self.table = TABLE + 1
        self.parts = (TABLE, TABLE[::-1])

    def __call__(self, y: np.ndarray) -> Any:
        return self.table[y] * self.parts[1][y]

    def rows(self, y: np.ndarray) -> Any:
        return self.table[y, 1:]


def one_hot(y: np.ndarray) -> Any:
    return np.eye(4, dtype=np.float32)[y] @ TABLE


def steps(y: np.ndarray) -> Any:
    grid = np.linspace(0.0, 1.0, 4)
    return grid[y] - np.array([3.0, 2.0, 1.0, 0.0])[y] + np.arange(4)[::-1][y]


def written(y: np.ndarray) -> Any:
    table = TABLE.copy()
    table[0] = 7.0
    return table[y], TABLE[1:][y - 1], TABLE[1, y % 3], TABLE[y][:, None]


MODELS: dict[str, Callable[[np.ndarray], Any]] = {
    "of its module": lambda y: TABLE[y],
    "in containers": lambda y: PARAMETERS["embedding"]["tokens"][y] * PARAMETERS["scales"][0],
    "around it": around(),
    "an object's": Layer(),
    "a method's": Layer().rows,
    "one-hot": one_hot,
    "numbers": steps,
    "written": written,
}


@pytest.mark.parametrize("name", MODELS)
def test_elements_at_traced_positions_are_gathered(name: str) -> None:
    """np.eye(n)[labels] was refused, and so was a table of the module that tokens are looked up in."""
    y, model = np.array([1, 3, 2, 1]), MODELS[name]
    traced = trace(model, {"y": y})
    found, want = [*interpret(traced.graph, {**traced.graph.constants, "y": y}).values()], model(y)
    for a, b in zip(found, want if isinstance(want, tuple) else [want], strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.dtype == b.dtype


def test_names_are_what_they_were_afterwards() -> None:
    layer, table = Layer(), TABLE
    own = layer.table
    trace(layer, {"y": np.array([1])})
    trace(MODELS["in containers"], {"y": np.array([1])})
    assert TABLE is table and layer.table is own and type(own) is np.ndarray
    assert type(PARAMETERS["embedding"]["tokens"]) is np.ndarray  # pyright: ignore
    with pytest.raises(Exception, match="nothing of the kind"):
        trace(lambda y: _fails(TABLE[y]), {"y": np.array([1])})
    assert TABLE is table and type(TABLE) is np.ndarray


def _fails(x: Any) -> Any:
    raise ValueError(f"nothing of the kind {x.shape}")


def test_containers_that_hold_themselves_are_looked_through_once() -> None:
    """A list of 300 of itself took seven seconds: it was looked through at every depth."""
    numbers: list[Any] = [TABLE]
    numbers += [numbers] * 300
    many = [list(range(100)) for _ in range(3000)]
    begun = time.process_time()
    traced = trace(lambda y: numbers[0][y] + len(numbers[1]) + len(many), {"y": np.array([1])})
    assert traced.graph.nodes and time.process_time() - begun < 2


def test_what_a_model_puts_in_containers_stays_there_as_arrays() -> None:
    seen: list[Any] = [TABLE, 2 * TABLE]
    second = seen[1]
    known: dict[str, Any] = {"table": TABLE}

    def model(y: np.ndarray) -> Any:
        seen.insert(0, known["table"][y].shape)
        known["last"], known["grid"] = known.pop("table"), np.arange(3)
        return seen[1][y]

    trace(model, {"y": np.array([1])})
    assert seen[0] == (1, 3) and seen[1] is TABLE and seen[2] is second
    assert known["last"] is TABLE and type(known["grid"]) is np.ndarray and "table" not in known


def test_one_array_is_one_constant() -> None:
    """Under two names, and in a list, it was three: a model took another branch while it was traced."""
    other, rows, grid = TABLE, [TABLE], np.eye(3)

    def model(y: np.ndarray) -> Any:
        assert other is TABLE and rows[0] is TABLE and any(TABLE is r for r in rows)
        assert isinstance(TABLE, np.ndarray) and repr(grid) == repr(np.array(grid.tolist()))
        assert type(pickle.loads(pickle.dumps(grid))) is np.ndarray
        return other[y] + TABLE[y] + rows[0][y]

    traced = trace(model, {"y": np.array([1])})
    assert len(traced.graph.constants) == 1


def defaulted(y: np.ndarray, table: np.ndarray = TABLE, *, scale: np.ndarray = TABLE[0]) -> Any:
    return table[y] * scale[y % 3][:, None]


def test_defaults_and_what_partial_calls_are_named_too() -> None:
    y = np.array([1, 3])
    for model in (defaulted, functools.partial(one_hot)):
        traced = trace(model, {"y": y}, name="model")
        (found,) = interpret(traced.graph, {**traced.graph.constants, "y": y}).values()
        np.testing.assert_array_equal(found, model(y))
    assert defaulted.__defaults__ is not None and defaulted.__defaults__[0] is TABLE
