"""Medians and quantiles of short rows, by exchanges of pairs: with NaN, of any dtype, of arrays that were stacked."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from waxeq.frontend.handlers.ranks import _MEDIAN_OF_9, merge_exchange
from waxeq.frontend.trace import trace
from waxeq.ir.interpret import interpret
from waxeq.ops.movement import Concat, Slice
from waxeq.ops.ordering import Sort


def exchanged(n: int, pairs: tuple[tuple[int, int], ...]) -> tuple[np.ndarray, np.ndarray]:
    """All rows of n zeros and ones, which tell for all rows, and what they come to."""
    rows = np.arange(1 << n)[:, None] >> np.arange(n) & 1
    new = rows.copy()
    for i, j in pairs:
        new[:, i], new[:, j] = np.minimum(new[:, i], new[:, j]), np.maximum(new[:, i], new[:, j])
    return rows, new


@pytest.mark.parametrize("n", range(1, 14))
def test_exchanges_sort(n: int) -> None:
    rows, new = exchanged(n, tuple(merge_exchange(n)))
    np.testing.assert_array_equal(new, np.sort(rows, axis=1))


def test_the_median_of_nine_comes_to_its_place() -> None:
    rows, new = exchanged(9, _MEDIAN_OF_9)
    np.testing.assert_array_equal(new[:, 4], np.median(rows, axis=1))


def sorts(fn: Callable[[np.ndarray], np.ndarray], x: np.ndarray) -> bool:
    """Whether rows are sorted for a function, of which a trace gives what NumPy does, of the same dtype."""
    traced = trace(lambda x: fn(x), {"x": x})
    (found,), meant = interpret(traced.graph, {"x": x}).values(), np.asarray(fn(x))
    assert found.dtype == meant.dtype
    np.testing.assert_allclose(found, meant, rtol=1e-6)
    return any(isinstance(node.op, Sort) for node in traced.graph.nodes)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint16", "int64"])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 8, 9, 10])
def test_short_rows_are_not_sorted(dtype: str, size: int) -> None:
    rng = np.random.default_rng(size)
    x = rng.integers(0, 100, (6, size, 5)).astype(dtype)
    if dtype.startswith("float"):
        x[rng.random(x.shape) < 0.1] = np.nan
        x[rng.random(x.shape) < 0.1] = np.inf
        x[rng.random(x.shape) < 0.1] = -0.0
    short = 1 < size < 10
    with np.errstate(invalid="ignore"):
        assert sorts(lambda x: np.median(x, axis=1), x) != short
        assert sorts(lambda x: np.median(x, axis=1, keepdims=True), x) != short
        assert sorts(lambda x: np.percentile(x, [0, 30, 50, 100], axis=1, method="lower"), x) != short
        assert sorts(lambda x: np.quantile(x.astype(np.float64), [0.0, 0.3, 1.0], axis=1), x) != short


def test_rows_along_several_axes() -> None:
    x = np.random.default_rng(0).standard_normal((4, 2, 6, 3))
    assert not sorts(lambda x: np.median(x, axis=(1, 3)), x)
    assert sorts(lambda x: np.median(x, axis=(1, 2)), x)


def test_of_arrays_that_were_stacked_no_stack_is_read() -> None:
    x = np.random.default_rng(0).standard_normal((6, 7)).astype(np.float32)

    def smooth(x: np.ndarray) -> np.ndarray:
        return np.median(np.stack([x[i : i + 4, j : j + 5] for i in range(3) for j in range(3)]), axis=0)

    graph = trace(lambda x: smooth(x), {"x": x}).graph
    np.testing.assert_array_equal(next(iter(interpret(graph, {"x": x}).values())), smooth(x))
    assert not any(isinstance(n.op, Concat) and len(n.inputs) > 1 for n in graph.nodes)


def test_quantiles_of_narrow_floats_are_found_before_they_are_cast() -> None:
    x = np.random.default_rng(0).standard_normal((3, 100)).astype(np.float32)
    x[1, 5] = np.nan
    graph = trace(lambda x: np.percentile(x, [25, 50], axis=1), {"x": x}).graph
    (ordered,) = [n for n in graph.nodes if isinstance(n.op, Sort)]
    assert ordered.type.dtype == "float32"
    assert sorts(lambda x: np.percentile(x, [25, 50], axis=1), x)


def test_neighbours_that_a_quantile_lies_between_are_read_together() -> None:
    """One selection finds both; each of several quantiles has its own."""
    x = np.random.default_rng(0).standard_normal((3, 100))
    graph = trace(lambda x: np.percentile(x, [5, 50, 95], axis=1), {"x": x}).graph
    pairs = [n for n in graph.nodes if isinstance(n.op, Slice) and n.type.shape[-1] == 2]
    assert len(pairs) == 3
    assert sorts(lambda x: np.percentile(x, [5, 50, 95], axis=1), x)
