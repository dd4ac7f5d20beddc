"""Objects among the arguments of a program: what is a constant of the plan, and must not change unnoticed."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import waxeq as wx
from waxeq.errors import TargetError, TypeMismatch, UsageError
from waxeq.frontend.trace import trace
from waxeq.ir.interpret import interpret

pytestmark = pytest.mark.quick

X = np.arange(3, dtype=np.float32)
W = X + 1


class Mode(enum.Enum):
    ADD = 1
    SUB = 2


class Odd:
    def __init__(self, size: int) -> None:
        self.size = size


class Unequal:
    def __eq__(self, other: object) -> bool:
        raise RuntimeError


@dataclass
class P:
    w: Any
    act: Any = None

    @cached_property
    def doubled(self) -> Any:
        return 2 * self.w


def optimized(fn: Any, folder: Path, *examples: Any) -> Any:
    options = wx.Options(threads=1, budget=0, trial=False, table=folder / "t.duckdb")
    return wx.optimize(fn, *examples, options=options)


def scaled(p: Any, x: Any) -> Any:
    return x * p.w


@pytest.mark.parametrize(
    ("own", "same", "other"),
    [
        (np.tanh, np.tanh, np.sin),
        (Mode.ADD, Mode.ADD, Mode.SUB),
        (Odd(1), Odd(1), Odd(2)),
        (lambda v: v, None, lambda v: -v),
        (np.float32, np.float32, np.float64),
        (np.dtype("f4"), np.dtype("f4"), np.dtype("f8")),
        ([4, 4], [4, 4], [4]),
        (np.array(["a", "b"]), np.array(["a", "b"]), np.array(["a", "c"])),
        (np.array([None, "b"]), np.array([None, "b"]), np.array([1, "b"])),
        (partial(np.add, 1), None, partial(np.add, 2)),
        (Unequal(), None, Unequal()),
    ],
)
def test_a_changed_object_in_an_argument_is_refused(own: Any, same: Any, other: Any, tmp_path: Path) -> None:
    program = optimized(scaled, tmp_path, P(W, own), X).program
    for act in (own, own if same is None else same):
        np.testing.assert_array_equal(program(P(5 * W, act), X), X * 5 * W)
    for given in (P(W, other), {"w": W, "act": other}):
        with pytest.raises(TypeMismatch, match=r"'p\.act' is no input .* it was the Python value .*constant of the"):
            program(given, X)


def test_a_saved_plan_knows_objects_by_name(tmp_path: Path) -> None:
    optimized(scaled, tmp_path, P(W, np.tanh), X).save(tmp_path / "p.plan.json")
    program = wx.load(tmp_path / "p.plan.json")
    np.testing.assert_array_equal(program(P(2 * W, np.tanh), X), X * 2 * W)
    with pytest.raises(TypeMismatch, match=r"numpy\.tanh"):
        program(P(W, np.sin), X)


def test_cached_properties_are_computed_of_the_traced_fields() -> None:
    p = P(W)
    assert p.doubled is p.doubled
    traced = trace(lambda p, x: x * p.doubled, {"p": p, "x": X})
    (got,) = interpret(traced.graph, {**traced.inputs, "p.w": 5 * W}).values()
    np.testing.assert_array_equal(got, X * 10 * W)
    assert "doubled" in vars(p) and not traced.notes


def test_a_dtype_alone_is_a_constant() -> None:
    traced = trace(lambda dt, x: x.astype(dt), {"dt": np.float64, "x": X})
    assert {*traced.inputs} == {"x"}


def test_a_dataclass_that_holds_itself_is_refused() -> None:
    p = P(W)
    p.act = [p]
    with pytest.raises(TargetError, match=r"p\.act\.0 is an object that it lies in itself"):
        wx.trace(scaled, p, X)


def test_defaults_before_rows() -> None:
    def g(a: Any, b: float = 3.0, *rows: Any) -> Any:
        return a * b + sum(rows)

    (got,) = interpret(wx.trace(g, X).graph, {"a": X}).values()
    np.testing.assert_array_equal(got, X * 3)


@pytest.mark.parametrize("make", [P, lambda w: {"w": w}])
@pytest.mark.parametrize("n", [1, 2])
def test_rows_of_containers_are_given_by_position(make: Any, n: int, tmp_path: Path) -> None:
    def g(x: Any, *r: Any) -> Any:
        return x + sum(q["w"] if isinstance(q, dict) else q.w for q in r)

    program = optimized(g, tmp_path, X, *[make(W)] * n).program
    rows = [make((i + 2) * W) for i in range(n)]
    for got in (program(X, *rows), program(X, rows), program(X, r=rows)):
        np.testing.assert_array_equal(got, g(X, *rows))


def test_a_key_that_is_the_name_of_rows_is_refused() -> None:
    with pytest.raises(UsageError, match=r"'rows' is a key of \*\*kw and a parameter of f"):

        def f(*rows: Any, **kw: Any) -> Any:
            return rows[0] + kw["rows"]

        wx.trace(f, X, examples={"rows": W})


@pytest.mark.parametrize("more", [-1, 300])
def test_numbers_in_brackets_that_the_dtype_lacks(more: int) -> None:
    u = np.arange(3, dtype=np.uint8)
    with pytest.raises(TargetError, match="OverflowError"):
        wx.trace(lambda u: np.r_[u, more], u)


@pytest.mark.parametrize("place", [1.5, [1.5]])
def test_inserting_at_a_fraction(place: Any) -> None:
    with pytest.raises(TargetError, match="TypeError"):
        wx.trace(lambda x: np.insert(x, place, 1), X)


def _write(y: Any, index: Any) -> Any:
    y = y.copy()
    y[index] = 0
    return y


@pytest.mark.parametrize("act", [lambda y, m: y[m].sum(), lambda y, m: y[m] + 1, _write])
@pytest.mark.parametrize("mask", [lambda y: (y > 0)[:1], lambda y: np.ones(1, bool), lambda y: (..., np.ones(2, bool))])
def test_masks_of_other_sizes(act: Any, mask: Any) -> None:
    with pytest.raises(IndexError, match="boolean index did not match"):
        act(X, mask(X))
    with pytest.raises(TargetError, match="IndexError: boolean index did not match indexed array along axis 0; size"):
        wx.trace(lambda x: act(x, mask(x)), X)
