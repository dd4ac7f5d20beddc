"""Arrays that a model names and is not given, indexed by what is traced."""

from __future__ import annotations

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


def test_arrays_that_hold_themselves_and_large_lists_are_left() -> None:
    numbers: list[Any] = [TABLE]
    numbers.append(numbers)
    traced = trace(lambda y: numbers[0][y] + len(numbers[1]), {"y": np.array([1])})
    assert traced.graph.nodes


def test_what_a_model_puts_in_containers_stays_there() -> None:
    seen: list[Any] = [TABLE]
    known: dict[str, Any] = {"table": TABLE}

    def model(y: np.ndarray) -> Any:
        seen.append(known["table"][y].shape)
        known["last"] = seen[0][y] is None
        del known["table"]
        return seen[0][y]

    trace(model, {"y": np.array([1])})
    assert seen[0] is TABLE and seen[1:] == [(1, 3)] and known == {"last": False}
