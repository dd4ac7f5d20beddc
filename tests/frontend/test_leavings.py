"""What a model leaves of what it computed: its next trace does not find it, and its user is told."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
import pytest

import waxeq as wx
from waxeq.errors import UnsupportedError
from waxeq.frontend import leavings
from waxeq.ir.interpret import interpret

pytestmark = pytest.mark.quick

X = np.arange(6, dtype=np.float32).reshape(2, 3)
LAST: dict[str, Any] = {}


class Recurrent:
    def __init__(self) -> None:
        self.h = np.zeros(3, np.float32)

    def __call__(self, x: Any) -> Any:
        self.h = 0.5 * self.h + x[0]
        return self.h


class Cache:
    def __init__(self) -> None:
        self.kept: list[Any] = []
        self.recent: deque[Any] = deque(maxlen=2)

    def __call__(self, x: Any) -> Any:
        self.kept.append(x)
        self.recent.append(x)
        return np.concatenate(self.kept)


class Lazy:
    weights: Any = None

    def __call__(self, x: Any) -> Any:
        if self.weights is None:
            self.weights = np.ones(x.shape[1], x.dtype) * x.mean()
        return x * self.weights


class Layer:
    def __call__(self, x: Any) -> Any:
        self.x = x
        self.mask = {"positive": x > 0}
        return x * self.mask["positive"]


class Positions:
    @cached_property
    def table(self) -> Any:
        return np.zeros(3, np.float32) + self.first

    first = 2

    def __call__(self, x: Any) -> Any:
        return x * self.table


@cache
def lower(n: int) -> Any:
    return np.tril(np.ones((n, n), np.float32))


class Network:
    def __init__(self) -> None:
        self.layers = [Layer(), Layer()]

    def __call__(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x


class OfClass:
    last: Any = None


@dataclass
class Parameters:
    w: np.ndarray
    seen: Any = None


def in_globals(x: Any) -> Any:
    LAST["x"] = x
    return x + 1


def around() -> Callable[[Any], Any]:
    last = None

    def model(x: Any) -> Any:
        nonlocal last
        y = x if last is None else x + last
        last = y
        return y

    return model


USES: tuple[Callable[[Any, Any], Any], ...] = (
    lambda x, old: old * 2,
    lambda x, old: x + old,
    lambda x, old: np.concatenate([x, old]),
    lambda x, old: x[old.astype(int) % 2],
    lambda x, old: x[old > 1].sum(),
    lambda x, old: x * float(old[0, 0]),
    lambda x, old: np.array([old[0, 0], x[0, 0]]),
    lambda x, old: old,
)

MODELS = {
    "h": Recurrent(),
    "kept, recent": Cache(),
    "weights": Lazy(),
    "layers.0.x, layers.0.mask, layers.1.x, ...": Network(),
    "LAST.x": in_globals,
    "last": around(),
}


@pytest.mark.parametrize("names", MODELS)
def test_each_trace_finds_what_the_first_one_found(names: str) -> None:
    model = MODELS[names]
    for _ in range(2):
        traced = wx.trace(model, X)
        assert any(n.startswith(f"the model leaves what it computed in {names}: ") for n in traced.notes)
        found = [*interpret(traced.graph, traced.inputs).values()]
    np.testing.assert_array_equal(found[0], model(X))


def test_what_is_computed_once_is_computed_by_each_trace() -> None:
    """Arrays of the first trace were in the second, and stayed where the user's own calls found them."""

    class Outer:
        def __init__(self) -> None:
            self.inner = Positions()

        def __call__(self, x: Any) -> Any:
            return self.inner(x)

    def written(x: Any) -> Any:
        lower(2)[0] += 1  # a cached array is the same array in the next line
        return lower(2) @ x

    for model in (Positions(), Outer(), lambda x: lower(2) @ x, written):
        for _ in range(2):
            traced = wx.trace(model, X)
            assert not traced.notes
            (found,) = interpret(traced.graph, traced.inputs).values()
            np.testing.assert_array_equal(found, model(X))
            lower.cache_clear()


def test_large_containers_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """All elements were copied, of dictionaries of millions too, before they were said to be too many."""
    copied: list[int] = []
    real = leavings._contents
    monkeypatch.setattr(leavings, "_contents", lambda x: copied.append(len(x)) or real(x))
    many = list(range(100_000))
    wx.trace(lambda x: x + len(many), X)
    assert copied and max(copied) < 50_000


def test_an_object_is_as_it_was() -> None:
    model, h = Recurrent(), np.ones(3, np.float32)
    model.h = h
    wx.trace(model, X)
    assert model.h is h
    network = Network()
    wx.trace(network, X)
    assert not any(vars(layer) for layer in network.layers)


def test_what_is_returned_may_be_what_is_left() -> None:
    def model(x: Any, d: dict[str, Any]) -> Any:
        d["b"] = x + d["a"]
        return d

    traced = wx.trace(model, X, {"a": X})
    assert {*traced.structure} == {"a", "b"}
    assert any("d.b" in n for n in traced.notes)


def test_a_field_of_an_argument_that_is_written_is_told() -> None:
    def model(x: Any, p: Parameters) -> Any:
        p.seen = x * p.w
        return p.seen + 1

    assert any(" p.seen: " in n for n in wx.trace(model, X, Parameters(X)).notes)


def test_no_note_where_nothing_is_left() -> None:
    def model(x: Any, d: dict[str, Any]) -> Any:
        mine = {**d, "c": x}
        return mine["c"] + d["a"]

    assert not wx.trace(model, X, {"a": X}).notes


@pytest.mark.parametrize("use", USES)
def test_what_another_trace_left_elsewhere_is_refused(use: Callable[[Any, Any], Any]) -> None:
    """In lists, as positions and in other places its values were taken for those of the same number."""

    def model(x: Any) -> Any:
        y = x * 2 if OfClass.last is None else use(x, OfClass.last)
        OfClass.last = y
        return y

    try:
        wx.trace(model, X)
        with pytest.raises(UnsupportedError, match=r"test_leavings\.py:\d+: an array is used that an earlier call"):
            wx.trace(model, X)
    finally:
        OfClass.last = None


def test_a_model_that_raises_leaves_nothing() -> None:
    class Broken:
        def __call__(self, x: Any) -> Any:
            self.x = x
            raise ValueError

    model = Broken()
    with pytest.raises(wx.WaxeqError):
        wx.trace(model, X)
    assert not vars(model)
