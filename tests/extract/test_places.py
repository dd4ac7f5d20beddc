"""Values that loops would compute at many places: each has its own text, and arrays beside parts of themselves multiply
them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from waxeq.basis.ways import places
from waxeq.egraph.kernels import patterns
from waxeq.egraph.lower import lower
from waxeq.egraph.rules import load_rules
from waxeq.egraph.saturate import Limits, Worker, saturate
from waxeq.frontend.trace import trace
from waxeq.ir.graph import expand
from waxeq.search.block import grow, make_space
from waxeq_native import backend


def test_joins_multiply_and_what_computes_does_not() -> None:
    rows = [("z", "Cat", ("y", "y")), ("y", "Add", ("a", "b")), ("b", "Map", ("a",)), ("a", "Cat", ("x", "x"))]
    assert places(rows) == {"z": 1, "y": 2, "b": 2, "a": 2, "x": 4}


def test_who_asks_elsewhere_asks_beside_those_who_do_not() -> None:
    rows = [("z", "Add", ("x", "y")), ("y", "Pad", ("x",))]
    assert places(rows) == {"z": 1, "y": 1, "x": 2}


@given(st.integers(1, 12), st.sampled_from(["Cat", "Gather"]))
def test_a_tower_of_joins(n: int, head: str) -> None:
    rows = [(i, head, (i + 1, i + 1)) for i in range(n)]
    assert places(rows)[n] == 2**n


@given(st.integers(1, 12))
def test_a_tower_of_joins_of_two_functions(n: int) -> None:
    rows = []
    for i in range(n):
        rows += [(i, "Cat", (f"f{i}", f"g{i}")), (f"f{i}", "Map", (i + 1,)), (f"g{i}", "Map", (i + 1,))]
    assert places(rows)[n] == 2**n


@given(st.integers(1, 60))
def test_what_only_computes_asks_once(n: int) -> None:
    """However many ways lead to it: gelu asks three times for its argument."""
    assert set(places([(i, "Mul", (i + 1, i + 1)) for i in range(n)]).values()) == {1}


def bordered(x):
    """Filters of filters, with borders: each looks at three places of the one before along an axis."""
    for _ in range(6):
        for axis in (0, 1):
            n, before = x.shape[axis], (slice(None),) * axis
            y = np.pad(x, [(1, 1) if a == axis else (0, 0) for a in (0, 1)], mode="edge")
            x = (
                0.25 * y[(*before, slice(n))]
                + 0.5 * y[(*before, slice(1, n + 1))]
                + 0.25 * y[(*before, slice(2, None))]
            )
    return x


@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (40, 50)])
def test_borders_of_borders_are_not_written_out(shape: tuple[int, int], worker: Worker) -> None:
    """Of one row nothing is cheaper than to compute all of it at once: the text of that had 3^12 loads, and the search
    did not end."""
    kernels = backend().kernels
    lowered = lower(expand(trace(bordered, {"x": np.ones(shape, np.float32)}).graph))
    rules = load_rules("reassociating", patterns(kernels))
    snapshot = saturate(lowered, rules, Limits(600, 60.0, 2 << 30), worker).snapshot
    space, roots = make_space(kernels, lowered, snapshot)
    calls = [c.call for c in grow(space, roots).rows if kernels[c.call.kernel].form == "loops"]
    lengths = [sum(len(p.source) for p in kernels[c.kernel].of(c).parts) for c in calls]  # type: ignore[attr-defined]
    assert len(calls) > 50 and max(lengths) < 100_000
