"""Random numbers that a model draws would be constants of its plan: it is refused, wherever they come from."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

import numpy as np
import pytest
from numpy.random import default_rng, standard_normal

import waxeq as wx
from waxeq.errors import UnsupportedError
from waxeq.frontend.draws import Draws

pytestmark = pytest.mark.quick

X = np.arange(6.0)
RNG = default_rng(0)
NORMAL = default_rng(0).standard_normal
OLD = np.random.RandomState(0)
BITS = np.random.PCG64(0)
OWN = Random(0)
ROW = [{"rng": default_rng(0)}]
BEFORE = RNG.standard_normal(6)


def helper(x: Any) -> Any:
    return x + RNG.standard_normal(x.shape)


def from_default(x: Any, rng: Any = default_rng(0)) -> Any:  # noqa: B008
    return x * rng.random()


def from_named_default(x: Any, *, rng: Any = default_rng(0)) -> Any:  # noqa: B008
    return x * rng.random()


def around() -> Callable[..., Any]:
    rng = default_rng(0)

    def model(x: Any) -> Any:
        def inner(y: Any) -> Any:
            return y + rng.standard_normal(y.shape)

        return inner(x)

    return model


class Layer:
    shared = default_rng(0)

    def __init__(self) -> None:
        self.rng, self.parts = default_rng(0), [Inner()]

    def __call__(self, x: Any) -> Any:
        return x * self.rng.random()

    def of_part(self, x: Any) -> Any:
        return x * self.parts[0].rng.random()

    def of_class(self, x: Any) -> Any:
        return x * self.shared.random()


class Inner:
    __slots__ = ("rng",)

    def __init__(self) -> None:
        self.rng = default_rng(0)


@dataclass
class Options:
    rng: np.random.Generator


MODELS: dict[str, Callable[..., Any]] = {
    "a generator of the module": lambda x: x + RNG.standard_normal(x.shape),
    "one that a helper names": lambda x: helper(x),
    "a method of one": lambda x: x + NORMAL(6),
    "one of NumPy's old kind": lambda x: x + OLD.standard_normal(6),
    "a single normal number": lambda x: x + OLD.standard_normal(),
    "bits": lambda x: x + BITS.random_raw(),
    "one of Python's": lambda x: x + OWN.random(),
    "one in containers": lambda x: x + ROW[0]["rng"].random(),
    "Python's module": lambda x: x * random.random(),
    "a choice": lambda x: random.choice([x, -x]),
    "what is around": around(),
    "a default": from_default,
    "a default by name": from_named_default,
    "an object": Layer(),
    "an attribute of an attribute": Layer().of_part,
    "an attribute of a class": Layer().of_class,
    "a part of a call": partial(helper),
}


@pytest.mark.parametrize("name", MODELS)
def test_draws_are_refused_with_their_place_and_the_way_out(name: str) -> None:
    for _ in range(2):  # a normal number may be the second of two that were drawn
        with pytest.raises(UnsupportedError, match=r"draws random numbers \(from .*\).*argument") as e:
            wx.trace(MODELS[name], X)
    assert name in ("an object", "a part of a call") or str(e.value).startswith("test_draws.py:")


def test_what_is_drawn_from_is_named() -> None:
    with pytest.raises(UnsupportedError, match=r"test_draws\.py:\d+: .*\(from RNG\)"):
        wx.trace(helper, X)
    with pytest.raises(UnsupportedError, match=r"\(from random\)"):
        wx.trace(MODELS["Python's module"], X)


def test_a_generator_that_is_an_argument_is_not_drawn_from() -> None:
    for given in (default_rng(0), Options(default_rng(0)), {"rng": default_rng(0)}):
        with pytest.raises(UnsupportedError, match="draws random numbers"):
            wx.trace(lambda x, given: x + drawn_from(given), X, given)


def drawn_from(given: Any) -> Any:
    rng = given["rng"] if isinstance(given, dict) else getattr(given, "rng", given)
    return rng.random()


def test_functions_of_numpy_that_are_imported_by_name_are_refused_where_they_are_called() -> None:
    for model in (lambda x: x + standard_normal(6), lambda x: x + default_rng(0).random(6)):
        with pytest.raises(UnsupportedError, match=r"test_draws\.py:\d+: np\.random\.\w+ draws a number.*argument"):
            wx.trace(model, X)


def test_numbers_that_were_drawn_before_are_constants() -> None:
    weights = RNG.standard_normal(6)
    for model in (lambda x: x + BEFORE, lambda x: x + weights, lambda x: x if RNG is OLD else x * 2):
        assert wx.trace(model, X).graph.nodes


def test_looking_for_generators_takes_little() -> None:
    def took() -> float:
        start = time.thread_time()  # whoever else has the machine takes nothing of it
        Draws(helper, {"x": [X] * 1_000_000, "y": [{"z": [X]} for _ in range(900)]}).names()
        return time.thread_time() - start

    assert min(took() for _ in range(9)) < 0.02
