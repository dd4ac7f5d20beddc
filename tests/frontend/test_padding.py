"""Arrays with more of themselves around them: pieces of them beside each other, as loops can run through."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from waxeq.frontend.handlers.padding import _runs
from waxeq.frontend.trace import trace
from waxeq.ir.interpret import interpret
from waxeq.ops.indexing import Gather
from waxeq.ops.movement import Concat

MODES = ("edge", "reflect", "symmetric", "wrap")


@given(st.lists(st.integers(0, 9), max_size=30))
def test_runs_are_what_they_were_made_of(index: list[int]) -> None:
    runs = _runs(np.array(index, np.int64))
    if runs is None:
        assert len(index) > 8
    else:
        assert [k for s, times in runs for k in [*range(10)[s]] * times] == index


@given(st.sampled_from(MODES), st.integers(1, 6), st.integers(0, 14), st.integers(0, 14))
def test_padding_is_as_numpy_has_it(mode: str, size: int, low: int, high: int) -> None:
    x = np.arange(3 * size, dtype=np.float32).reshape(3, size)

    def model(x):
        return np.pad(x, ((0, 0), (low, high)), mode=mode)

    traced = trace(model, {"x": x})
    (got,) = interpret(traced.graph, traced.inputs).values()
    np.testing.assert_array_equal(got, model(x))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("width", [1, 3, 19])
def test_borders_are_pieces(mode: str, width: int) -> None:
    """No element is looked up by index."""
    x = np.ones((20, 30), np.float32)
    traced = trace(lambda x: np.pad(x, width, mode=mode), {"x": x})
    ops = {type(n.op) for n in traced.graph.nodes}
    assert Concat in ops and Gather not in ops


def test_what_is_many_pieces_is_looked_up() -> None:
    x = np.arange(2, dtype=np.float32)
    traced = trace(lambda x: np.pad(x, 40, mode="reflect"), {"x": x})
    assert Gather in {type(n.op) for n in traced.graph.nodes}


def test_a_long_border_takes_no_time() -> None:
    """Nothing grows with it but what NumPy does."""
    x = np.arange(3, dtype=np.float32)
    traced = trace(lambda x: np.pad(x, 1_000_000, mode="edge"), {"x": x})
    (got,) = interpret(traced.graph, traced.inputs).values()
    np.testing.assert_array_equal(got, np.pad(x, 1_000_000, mode="edge"))
