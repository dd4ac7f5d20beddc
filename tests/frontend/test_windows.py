"""Stacks of slices that begin in progression are sliding windows, of NumPy's values; others are put together."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from waxeq.errors import TargetError
from waxeq.frontend.trace import trace
from waxeq.ir.interpret import interpret
from waxeq.ops.movement import Concat
from waxeq.ops.window import Unfold

pytestmark = pytest.mark.quick

X = np.arange(2 * 9 * 11.0).reshape(2, 9, 11)
WINDOWS = {
    "along one axis": lambda x: np.stack([x[:, i : i + 5] for i in range(4)]),
    "of a convolution": lambda x: np.stack([x[:, i : i + 7, j : j + 8] for i in range(3) for j in range(4)], axis=1),
    "the last axis first": lambda x: np.stack([x[:, i : i + 7, j : j + 8] for j in range(4) for i in range(3)], -1),
    "of a pool": lambda x: np.stack([x[:, i:8:2, j:10:2] for i in range(2) for j in range(2)]).max(0),
    "of a step, apart": lambda x: np.stack([x[..., 2 * i + 1 : 2 * i + 5 : 3] for i in range(4)]),
    "of sums": lambda x: np.stack([(x + 1)[:, i : i + 4] for i in (0, 2, 4)]),
    "in another dtype": lambda x: np.stack([x[:, i : i + 5] for i in range(4)], dtype=np.float32),
    "of lists of rows": lambda x: np.array([x[:, i : i + 5, 3:] for i in range(5)]),
}
OTHERS = {
    "two": lambda x: np.stack([x[:, 1:], x[:, :-1]]),
    "backwards": lambda x: np.stack([x[:, i : i + 5] for i in (3, 2, 1, 0)]),
    "no progression": lambda x: np.stack([x[:, i : i + 5] for i in (0, 1, 3)]),
    "no whole grid": lambda x: np.stack([x[:, i : i + 5, j : j + 5] for i, j in ((0, 0), (0, 1), (1, 0))]),
    "a diagonal": lambda x: np.stack([x[:, i : i + 5, i : i + 5] for i in range(3)]),
    "the same again": lambda x: np.stack([x[:, :5]] * 3),
    "reversed": lambda x: np.stack([x[:, i + 4 : i : -1] for i in range(3)]),
    "of two arrays": lambda x: np.stack([(x + i)[:, i : i + 5] for i in range(3)]),
    "empty": lambda x: np.stack([x[:, i:i] for i in range(1, 4)]),
}


def _ops(how: Any) -> set[type]:
    """The ops of a stack, whose values are held against NumPy's."""
    traced = trace(how, {"x": X})
    (got,) = interpret(traced.graph, {"x": X}).values()
    np.testing.assert_array_equal(got, how(X), strict=True)
    return {type(n.op) for n in traced.graph.nodes}


@pytest.mark.parametrize("how", WINDOWS.values(), ids=[*WINDOWS])
def test_stacks_of_slices_in_progression_are_windows(how: Any) -> None:
    ops = _ops(how)
    assert Unfold in ops
    assert Concat not in ops


@pytest.mark.parametrize("how", OTHERS.values(), ids=[*OTHERS])
def test_other_stacks_are_put_together(how: Any) -> None:
    assert Unfold not in _ops(how)


@pytest.mark.parametrize("many", [2, 3])
def test_stacks_are_cast_as_far_as_numpys(many: int) -> None:
    """Fractions were lost where NumPy refuses to lose them."""

    def use(x: Any, casting: Any = "same_kind") -> Any:
        return np.stack([x[:, i : i + 5] for i in range(many)], dtype=np.int32, casting=casting)

    with pytest.raises(TypeError, match="Cannot cast array data from dtype") as refused:
        use(X + 0.5)
    with pytest.raises(TargetError, match=re.escape(str(refused.value))):
        trace(use, {"x": X + 0.5})
    traced = trace(lambda x: use(x, "unsafe"), {"x": X + 0.5})
    assert np.array_equal(interpret(traced.graph, traced.inputs)["out"], use(X + 0.5, "unsafe"))
