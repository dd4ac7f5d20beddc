"""Index tuples of all that NumPy takes, in any order: shapes and values are NumPy's, read and written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from waxeq.errors import TargetError
from waxeq.frontend.trace import trace
from waxeq.ir.interpret import interpret

pytestmark = pytest.mark.quick

X = np.arange(30.0).reshape(5, 6)
CUBE = np.arange(210.0).reshape(5, 6, 7)
I = np.array([[0, 2, 1], [3, -1, 4]])  # noqa: E741

Case = Callable[..., Any]


def read(x: Any, index: Any) -> Any:
    return x[index]


def put(x: Any, index: Any) -> Any:
    y = x * 1
    y[index] = -np.arange(float(x[index].size)).reshape(x[index].shape)
    return y


def increased(x: Any, index: Any) -> Any:
    y = x * 1
    y[index] += 0.5
    return y


def added(x: Any, index: Any) -> Any:
    y = x * 1
    np.add.at(y, index, 2)
    return y


USES = (read, put, increased, added)


def run(use: Case, x: np.ndarray, index: tuple[Any, ...], inputs: list[int], sized: bool = False) -> np.ndarray:
    """What a use of an index gives of which those parts are inputs."""

    def model(x: Any, **given: Any) -> Any:
        return use(x, tuple(given.get(f"at{i}", p) for i, p in enumerate(index)))

    traced = trace(model, {"x": x, **{f"at{i}": index[i] for i in inputs}}, sized=sized)
    return next(iter(interpret(traced.graph, {**traced.inputs, **traced.tensors}).values()))


def check(use: Case, x: np.ndarray, index: tuple[Any, ...], inputs: list[int], sized: bool = False) -> None:
    want, got = use(x, index), run(use, x, index, inputs, sized)
    assert got.shape == np.shape(want)
    np.testing.assert_array_equal(got, want)


APART = [
    (X, (None, I, ..., 0)),
    (X, (None, I, ..., I)),
    (X, (None, 0, ..., I)),
    (X, (I, ..., None, 0)),
    (X, (slice(0, 2), None, ..., I)),
    (CUBE, (slice(None), I, ..., 0)),
    (CUBE, (slice(1, None), 0, ..., I)),
    (CUBE, (None, slice(None), I, ..., I, None)),
    (CUBE, (slice(None), np.arange(6) % 2 == 0, ..., 1)),
    (CUBE, (0, ..., np.arange(42).reshape(6, 7) % 3 == 0)),
    (CUBE, (..., I, 0, I)),
    (CUBE, (I, 0, I, ...)),
]


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("sized", [False, True])
@pytest.mark.parametrize("at", range(len(APART)))
def test_an_ellipsis_of_no_axes_lies_between_arrays_too(use: Case, sized: bool, at: int) -> None:
    x, index = APART[at]
    check(use, x, index, [], sized)


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("at", range(len(APART)))
def test_an_ellipsis_of_no_axes_lies_between_arrays_that_are_inputs(use: Case, at: int) -> None:
    x, index = APART[at]
    check(use, x, index, [i for i, p in enumerate(index) if isinstance(p, np.ndarray) and p.dtype != bool])


def test_new_axes_among_positions_that_are_inputs_are_written_by() -> None:
    at = I % 5
    for use in USES:
        check(use, X, (None, at, None), [1])
        check(use, X, (at, None, slice(1, 3)), [0])
        check(use, CUBE, (0, None, at[0]), [2])
        check(use, CUBE, (..., None, at, slice(None), None, at), [2, 5])


def test_two_ellipses_are_an_error() -> None:
    with pytest.raises(TargetError, match=r"IndexError: an index can only have a single ellipsis"):
        run(read, X, (..., I, ...), [])


def part(rng: np.random.Generator, sizes: tuple[int, ...]) -> tuple[Any, int]:
    """A part of an index and how many axes it covers, the first of which have these sizes."""
    n, kind = sizes[0], rng.integers(8)
    if kind < 2:
        return [slice(None), slice(0, 2), slice(None, None, -1), slice(1, None, 2)][rng.integers(4)], 1
    if kind == 2:
        return int(rng.integers(-n, n)), 1
    if kind < 5:
        return rng.integers(-n, n, [(2, 3), (3,), (1,), ()][rng.integers(4)]), 1
    if kind == 5:
        return None, 0
    covered = 2 if kind == 6 and len(sizes) > 1 else 1
    return rng.permutation(np.arange(int(np.prod(sizes[:covered]))) == 0).reshape(sizes[:covered]), covered


def drawn(rng: np.random.Generator) -> tuple[np.ndarray, tuple[Any, ...]]:
    """An array and an index of it that NumPy takes."""
    while True:
        sizes = tuple(int(n) for n in rng.integers(1, 5, rng.integers(1, 5)))
        x, parts, axis = np.arange(float(np.prod(sizes))).reshape(sizes), [], 0
        while axis < len(sizes) and rng.random() < 0.9:
            p, covered = part(rng, sizes[axis:])
            parts.append(p)
            axis += covered
        if rng.random() < 0.7:
            parts.insert(rng.integers(len(parts) + 1), ...)
        try:
            _ = x[tuple(parts)]
        except IndexError:  # arrays that do not fit each other, or masks that an ellipsis moved
            continue
        return x, tuple(parts)


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("seed", range(40))
def test_any_index_is_numpys(use: Case, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(5):
        x, index = drawn(rng)
        arrays = [i for i, p in enumerate(index) if isinstance(p, np.ndarray) and p.dtype != bool]
        check(use, x, index, [], sized=bool(rng.integers(2)))
        check(use, x, index, [i for i in arrays if rng.random() < 0.7])


@pytest.mark.parametrize("index", [range(3), (range(3), range(2, 5)), (range(1, 3), 0), (slice(1, 4), range(4, 0, -2))])
def test_ranges_are_indexes_as_lists_are(check: Callable[..., None], index: Any) -> None:
    def written(x: Any) -> Any:
        y = np.zeros_like(x)
        y[index] = x[index] + 1
        return y

    x = np.arange(25.0).reshape(5, 5)
    check(lambda x: x[index], x)
    check(written, x)
