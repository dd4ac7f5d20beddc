"""Peak bytes, for assignments and for plans that run the model as written."""

from __future__ import annotations

import numpy as np
import pytest

from waxeq.ir.graph import GraphBuilder
from waxeq.ir.types import TensorType
from waxeq.memory.assign import assign
from waxeq.memory.estimate import amount, estimate, peak_bytes, plan_estimate
from waxeq.memory.liveness import Buffer, busiest
from waxeq.ops.elementwise import Map
from waxeq.plan.plan import Buffer as PlanBuffer
from waxeq.plan.plan import Output, Plan

pytestmark = pytest.mark.quick

ROWS = [Buffer("a", 100, 0, 1), Buffer("b", 1000, 1, 2), Buffer("c", 10, 2, 3), Buffer("d", 500, 2, 2)]


def test_the_busiest_call() -> None:
    assert busiest((b.bytes, b.first, b.last) for b in ROWS) == (1510, 2)
    assert busiest([]) == (0, 0)
    found = estimate(ROWS, assign(ROWS), {"weights": 7000})
    assert found.call == 2 and found.live == (("b", 1000), ("d", 500), ("c", 10))
    assert found.peak_bytes == found.arena_bytes + 7000 == peak_bytes(ROWS, assign(ROWS), {"weights": 7000})


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1024, "1.0 KiB"), (5 << 30, "5.0 GiB"), (1 << 52, "4096.0 TiB")],
)
def test_amounts_for_people(size: int, text: str) -> None:
    assert amount(size) == text


def test_the_model_as_written_keeps_values_to_their_last_use() -> None:
    b = GraphBuilder()
    x = b.leaf("x", TensorType("float32", (1000,)))
    values = [x]
    for _ in range(5):
        values.append(b(Map(f="exp"), values[-1]))
    graph = b.finish([("y", values[-1])])
    leaf = PlanBuffer("x", "float32", 1000, "input")
    plan = Plan("p", graph, {"x": leaf}, (), (), (Output("y", TensorType("float32", (1000,)), "x"),), (), written=True)
    found = plan_estimate(plan)
    assert found.resident == {"inputs": 4000, "results": 4000}
    assert found.arena_bytes == 8000, "a value and the one made from it"
    assert np.all([n.startswith("%") for n, _ in found.live])


def test_the_model_as_written_holds_what_its_states_become_to_the_end() -> None:
    b, kind = GraphBuilder(), TensorType("float32", (1000,))
    x, s = b.leaf("x", kind), b.leaf("s", kind, "state")
    new = b(Map(f="tanh"), x)
    values = [x]
    for _ in range(5):
        values.append(b(Map(f="exp"), values[-1]))
    graph = b.finish([("y", values[-1])], [("s", new)], keep=[s])
    leaves = {n: PlanBuffer(n, "float32", 1000, role) for n, role in (("x", "input"), ("s", "state"))}
    plan = Plan("p", graph, leaves, (), (), (Output("y", kind, "x"),), (("s", ""),), written=True)
    found = plan_estimate(plan)
    assert found.arena_bytes == 12000 and (f"%{new}", 4000) in found.live
