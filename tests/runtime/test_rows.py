"""A reference of some rows: those of the whole one, and a plan that is wrong in any other row is found."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from waxeq.errors import AccuracyError
from waxeq.frontend.trace import trace
from waxeq.ir.interpret import interpret
from waxeq.runtime import rows
from waxeq.runtime.rows import STEP, sampled, some_rows
from waxeq.runtime.verify import Truth, require

RNG = np.random.default_rng(5)
A, B, C = (RNG.standard_normal((40, 40)).astype(np.float32) for _ in range(3))
V, TALL = RNG.standard_normal(40).astype(np.float32), RNG.standard_normal((40, 3)).astype(np.float32)


@pytest.fixture(autouse=True)
def any_product(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_WORTH", 0.0)


@given(st.integers(1, 2000))
def test_rows_are_of_every_group_and_of_every_place_in_it(size: int) -> None:
    found = sampled(size)
    assert found[0] == 0 and found[-1] == size - 1 and np.diff(found).max(initial=0) < 2 * STEP
    assert {*(found // STEP)} == {*range(-(-size // STEP))}
    assert size < STEP * STEP or {*(found % STEP)} == {*range(STEP)}


@pytest.mark.parametrize(
    "model",
    [
        lambda a, b, c, v, tall: a @ b + a @ c,
        lambda a, b, c, v, tall: np.maximum(a @ b + v, 0) @ c,
        lambda a, b, c, v, tall: a @ a @ tall,
        lambda a, b, c, v, tall: a @ v + 1,
        lambda a, b, c, v, tall: (np.tanh(a @ tall) * 2, np.where(b @ c > a, 1 / v, b)),
    ],
)
def test_they_are_those_of_the_whole(model) -> None:
    traced = trace(model, {"a": A, "b": B, "c": C, "v": V, "tall": TALL})
    some = some_rows(traced.graph)
    assert some is not None
    arrays = {**traced.graph.constants, **traced.inputs}
    whole = interpret(traced.graph, arrays, oracle=True)
    for name, got in interpret(some.graph, some.given(arrays), oracle=True).items():
        np.testing.assert_allclose(got, whole[name][sampled(40)], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "model",
    [
        lambda a, b: a.T @ b,
        lambda a, b: (a @ b).sum(axis=0),
        lambda a, b: a @ b / (a @ b).sum(),
        lambda a, b: np.stack([a @ b, b]) @ a,
        lambda a, b: a + b,
    ],
)
def test_no_rows_where_there_is_no_making_some_without_all(model) -> None:
    assert some_rows(trace(model, {"a": A, "b": B}).graph) is None


def test_a_product_that_takes_no_time_has_a_whole_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_WORTH", 4e9)
    assert some_rows(trace(lambda a, b: a @ b, {"a": A, "b": B}).graph) is None


@pytest.mark.parametrize("row", range(40))
def test_a_plan_that_is_wrong_in_any_row_is_found(row: int) -> None:
    traced = trace(lambda a, b: a @ b, {"a": A, "b": B})
    truth = Truth.of(traced.graph, traced.inputs, traced.tensors)
    assert truth.given is not None and len(truth.oracle["out"]) < 12
    right = truth.written["out"]
    (sound,) = truth.accuracy({"out": right})
    assert sound.rows == STEP and sound.plan == sound.written and 0 < sound.plan[1] < 1e-6
    require((sound,), 1e-5)
    for wrong in (right[row] * 1.01, np.nan, np.inf):
        got = right.copy()
        got[row] = wrong
        with pytest.raises(AccuracyError):
            require(truth.accuracy({"out": got}), 1e-5)
    with pytest.raises(AccuracyError):
        require(truth.accuracy({"out": right[sampled(40)]}), 1e-5)


def test_a_long_model() -> None:
    """Regression: it was gone through by calls in calls."""

    def model(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        for _ in range(1200):
            a = np.cos(a) * 0.5
        return a @ b

    some = some_rows(trace(model, {"a": A, "b": B}).graph)
    assert some is not None and len(some.graph.nodes) == 2402


def test_an_output_without_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: the last of no rows was row -1."""
    none = np.zeros((0, 3), np.float32)
    traced = trace(lambda a, b, z: (a @ b, z * 2), {"a": A, "b": B, "z": none})
    truth = Truth.of(traced.graph, traced.inputs, traced.tensors)
    rows = truth.accuracy(truth.written)
    assert [r.rows for r in rows] == [STEP, STEP] and rows[1].plan == (0.0, 0.0)


def cancelling(row: int, size: float) -> tuple[np.ndarray, np.ndarray]:
    """Factors whose product is made of differences of large numbers in one row."""
    a = RNG.standard_normal((80, 80)).astype(np.float32)
    a[row] = size * np.where(np.arange(80) % 2, -1, 1)
    mixed = RNG.permutation(80)
    return a[:, mixed], np.repeat(RNG.standard_normal((40, 80)).astype(np.float32), 2, axis=0)[mixed]


@pytest.mark.parametrize("row", [0, 1])
def test_rows_that_do_not_speak_for_all(row: int) -> None:
    """Regression: a model that is far off in a row that was looked at excused wrong results in others; one that is far
    off in another row made its own results look wrong."""
    a, b = cancelling(row, 1e7)
    assert (row in sampled(80)) == (row == 0)
    traced = trace(lambda a, b: a @ b, {"a": a, "b": b})
    truth = Truth.of(traced.graph, traced.inputs, traced.tensors)
    right = sum(a[:, i : i + 16] @ b[i : i + 16] for i in range(0, 80, 16))
    require(truth.accuracy({"out": right}), 1e-5)
    wrong = truth.written["out"].copy()
    wrong[np.setdiff1d(np.arange(80), sampled(80))] = 0
    (found,) = truth.accuracy({"out": wrong})
    assert found.rows == 1 and found.plan[1] > found.written[1]


def test_all_rows_are_looked_at_where_a_number_overflows() -> None:
    a = A.copy()
    a[3] = 1e38
    traced = trace(lambda a, b: a @ b, {"a": a, "b": B * 100})
    truth = Truth.of(traced.graph, traced.inputs, traced.tensors, apart=True)
    assert truth.given is None and truth.oracle["out"].shape == (40, 40)
