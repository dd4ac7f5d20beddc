"""Values that are an unbroken part of another: how far its first element lies from the beginning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from waxeq.frontend.trace import trace
from waxeq.ir.graph import expand
from waxeq.ir.parts import parts_of

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("model", "first"),
    [
        (lambda x: x[2], 10),
        (lambda x: x[1:3], 5),
        (lambda x: x[2, 3], 13),
        (lambda x: x[3, 1:4], 16),
        (lambda x: x.T[1, 2], 11),
        (lambda x: x[1:2, ::-1][0, 1], 8),
        (lambda x: x.reshape(-1)[7:9], 7),
        (lambda x: x[:, 1], None),
        (lambda x: x.T.reshape(-1)[:3], None),
        (lambda x: x[::2], None),
    ],
)
def test_a_part_is_where_its_first_element_is(model: Callable[[Any], Any], first: int | None) -> None:
    graph = expand(trace(model, {"x": np.arange(20.0).reshape(4, 5)}).graph)
    found = dict(parts_of(graph, graph.results[0]))
    assert found.get(0) == first
