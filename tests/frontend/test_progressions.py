"""Known positions in arithmetic progression: slices and windows, of NumPy's values; others are looked up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from waxeq.errors import TargetError
from waxeq.frontend.trace import trace
from waxeq.ir.interpret import interpret
from waxeq.ops.indexing import Gather
from waxeq.ops.window import Unfold

pytestmark = pytest.mark.quick

X = np.arange(210.0).reshape(5, 42)
FRAMES = np.arange(9)[:, None] * 4 + np.arange(8)
PROGRESSIONS = (
    *(np.arange(3), np.arange(41, 2, -3), np.arange(-5, 0), np.array([7]), np.array([-1]), np.arange(3, 30, 5)),
    *(
        FRAMES,
        FRAMES - 42,
        FRAMES.astype(np.uint8),
        FRAMES[:1],
        FRAMES[:, :1],
        np.arange(6) + 7 * np.arange(6)[:, None],
    ),
)
OTHERS = (
    *(np.array([3, 3, 3]), np.array([0, 1, 3]), np.array([40, -1, 0]), np.array([-1, 0, 1])),
    *(
        FRAMES[::-1],
        FRAMES[:, ::-1],
        FRAMES * [[1]] * 0,
        np.where(FRAMES == 12, 13, FRAMES),
        FRAMES[:, :, None],
        np.zeros((0, 3), np.int64),
    ),
)


def _ops(index: Any, how: Any) -> set[type]:
    """The ops of a reading, whose values are held against NumPy's."""
    traced = trace(lambda x: how(x, index), {"x": X})
    (got,) = interpret(traced.graph, {"x": X}).values()
    np.testing.assert_array_equal(got, how(X, index), strict=True)
    return {type(n.op) for n in traced.graph.nodes}


READINGS = (lambda x, i: x[:, i], lambda x, i: x.take(i, axis=1), lambda x, i: x.T[i], lambda x, i: x[2, None, i] * 2)


@pytest.mark.parametrize("how", READINGS)
@pytest.mark.parametrize("index", PROGRESSIONS, ids=str)
def test_positions_in_progression_are_slices_and_windows(index: np.ndarray, how: Any) -> None:
    ops = _ops(index, how)
    assert Gather not in ops
    assert (Unfold in ops) == (index.ndim == 2)


@pytest.mark.parametrize("how", READINGS)
@pytest.mark.parametrize("index", OTHERS, ids=str)
def test_other_positions_are_looked_up(index: np.ndarray, how: Any) -> None:
    assert Gather in _ops(index, how)


def test_what_is_read_at_positions_is_a_copy() -> None:
    def model(x: Any) -> Any:
        y = x * 1
        z = y[np.arange(3)]
        z[0] = -1.0
        return y + z.sum()

    traced = trace(model, {"x": X})
    (got,) = interpret(traced.graph, {"x": X}).values()
    np.testing.assert_array_equal(got, model(X))


CUBE = np.arange(210.0).reshape(5, 6, 7)
ROWS, COLUMNS = np.array([0, 4, 4, -2]), np.array([5, 0, 3])
OUTER: tuple[Any, ...] = (
    *(np.ix_(ROWS, COLUMNS), (slice(None), *np.ix_(COLUMNS, ROWS)), np.ix_(ROWS, COLUMNS, ROWS)),
    *(
        (ROWS[:, None], COLUMNS),
        (ROWS[:, None, None], COLUMNS[:, None]),
        (ROWS[:, None], 2, COLUMNS),
        (ROWS[:, None], slice(1, 5), COLUMNS),
    ),
    *((ROWS[:, None, None], None, COLUMNS[:, None]), (np.array([[1]]), COLUMNS), (ROWS[:, None], np.array([2]))),
    *((np.zeros((0, 1), np.int64), COLUMNS), (ROWS.reshape(2, 2, 1), COLUMNS), (np.array([3]), np.array([2]))),
)
TOGETHER: tuple[Any, ...] = (
    *((COLUMNS[:, None] % 5, ROWS), (ROWS[:3], COLUMNS), (ROWS, COLUMNS[:, None])),
    *((ROWS[:3, None], COLUMNS.reshape(3, 1)), (ROWS[:, None], COLUMNS, np.array([[0, 1, 2]]))),
)


@pytest.mark.parametrize("index", [*OUTER, *TOGETHER], ids=str)
def test_positions_of_several_axes(index: Any) -> None:
    traced = trace(lambda x: x[index], {"x": CUBE})
    (got,) = interpret(traced.graph, {"x": CUBE}).values()
    np.testing.assert_array_equal(got, CUBE[index], strict=True)


@pytest.mark.parametrize("index", OUTER[:4], ids=str)
def test_positions_of_axes_apart_are_no_table_of_all_pairs(index: Any) -> None:
    traced = trace(lambda x: x[index], {"x": CUBE})
    assert max(c.size for c in traced.graph.constants.values()) <= len(ROWS)


def test_positions_of_axes_apart_outside_of_theirs_are_refused() -> None:
    with pytest.raises(TargetError, match="out of bounds for axis with size 7"):
        trace(lambda x: x[0][np.ix_([0], [7])], {"x": CUBE})
