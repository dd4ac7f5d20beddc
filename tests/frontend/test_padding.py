"""Arrays with more of themselves around them: pieces of them beside each other, as loops can run through."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from waxeq.frontend.handlers.joining import _runs
from waxeq.frontend.trace import trace
from waxeq.ir.interpret import interpret
from waxeq.ops.indexing import Gather
from waxeq.ops.movement import Concat

MODES = ("edge", "reflect", "symmetric", "wrap")


@given(st.lists(st.integers(0, 9), max_size=30))
def test_runs_are_what_they_were_made_of(index: list[int]) -> None:
    slices = _runs(np.array(index, np.int64))
    assert [k for s in slices for k in range(10)[s]] == index
    assert len(slices) <= len(index)


@given(st.sampled_from(MODES), st.integers(1, 6), st.integers(0, 14), st.integers(0, 14))
def test_padding_is_as_numpy_has_it(mode: str, size: int, low: int, high: int) -> None:
    x = np.arange(3 * size, dtype=np.float32).reshape(3, size)

    def model(x):
        return np.pad(x, ((0, 0), (low, high)), mode=mode)

    traced = trace(model, {"x": x})
    (got,) = interpret(traced.graph, traced.inputs).values()
    np.testing.assert_array_equal(got, model(x))


@pytest.mark.parametrize("mode", MODES)
def test_narrow_borders_are_pieces_and_wide_ones_are_looked_up(mode: str) -> None:
    """A border of one element takes no index; that of an edge of nine elements would be nine pieces."""
    x = np.ones((20, 30), np.float32)

    def ops(width: int) -> set[type]:
        traced = trace(lambda x: np.pad(x, width, mode=mode), {"x": x})
        return {type(n.op) for n in traced.graph.nodes}

    assert Concat in ops(1) and Gather not in ops(1)
    assert (Gather in ops(9)) == (mode == "edge")
