"""Plans made by hand, on a kernel that computes whatever a call means."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import pytest

from waxeq.backend.call import Call, View, operand
from waxeq.backend.kernel import Instruction, Kernel
from waxeq.basis.evaluate import Evaluator, NamedArray
from waxeq.basis.typing import types
from waxeq.ir.graph import Graph, Kind, Leaf
from waxeq.ir.term import Term
from waxeq.ir.types import TensorType
from waxeq.memory.plan import assign_plan
from waxeq.plan.plan import Buffer, Output, Plan, Step


class Anything(Kernel):
    """Computes any call by its definition."""

    name = "anything"
    form = "loops"

    def accepts(self, call: Call) -> bool:
        return True

    def features(self, call: Call) -> Mapping[str, float]:
        return {}

    def in_place(self, call: Call) -> tuple[int, ...]:
        return tuple(i for i, v in enumerate(call.operands) if v == call.out)

    def workspace(self, call: Call) -> int:
        return 64

    def bind(
        self, call: Call, operands: Sequence[np.ndarray], out: np.ndarray, workspace: np.ndarray
    ) -> Sequence[Instruction]:
        return (partial(self.run, call, tuple(operands), out, workspace),)

    @staticmethod
    def run(call: Call, operands: tuple[np.ndarray, ...], out: np.ndarray, workspace: np.ndarray) -> None:
        leaves = {f"%{i}": NamedArray(v.axes, a) for i, (v, a) in enumerate(zip(call.operands, operands, strict=True))}
        e = Evaluator(call.sizes)
        value = e.present(e.term(call.meaning, leaves), *call.out.axes).aligned(call.out.axes)
        workspace.fill(0xA5)
        out[...] = value


KERNELS: Mapping[str, Kernel] = {"test.anything": Anything()}


class Builder:
    """Leaves, steps and outputs, one after another; `plan()` puts them into an arena."""

    def __init__(self, **sizes: int) -> None:
        self.sizes = sizes
        self.leaves: list[Leaf] = []
        self.views: dict[str, View] = {}
        self.buffers: dict[str, Buffer] = {}
        self.steps: list[Step] = []
        self.outputs: list[Output] = []
        self.states: list[tuple[str, str]] = []

    def leaf(self, name: str, axes: str, dtype: str = "float32", kind: Kind = "input") -> str:
        v = self.views[name] = View.dense(axes, self.sizes, dtype)
        self.leaves.append(Leaf(name, TensorType(dtype, v.shape), kind))
        self.buffers[name] = Buffer(name, dtype, v.elements, kind)
        return name

    def step(self, name: str, make: Callable[..., Term], *reads: str, axes: str | None = None) -> str:
        """`make` gives the meaning from the operands; `axes`: the memory order of the result."""
        views = tuple(self.views[r] for r in reads)
        meaning = make(*(operand(i, v.axes, v.dtype) for i, v in enumerate(views)))
        kind = types(meaning)[meaning]
        order = tuple(axes) if axes is not None else tuple(k for k in self.sizes if k in kind.axes)
        out = self.views[name] = View.dense(order, self.sizes, kind.dtype)
        self.buffers[name] = Buffer(name, kind.dtype, out.elements, "temporary")
        scratch = f"{name}.scratch"
        self.buffers[scratch] = Buffer(scratch, "uint8", 64, "workspace")
        self.steps.append(Step(Call("test.anything", meaning, self.sizes, views, out), reads, name, scratch))
        return name

    def output(self, name: str, buffer: str) -> None:
        v = self.views[buffer]
        self.outputs.append(Output(name, TensorType(v.dtype, v.shape), buffer))

    def plan(self) -> Plan:
        graph = Graph(tuple(self.leaves), (), ())
        made = Plan("made", graph, self.buffers, (), tuple(self.steps), tuple(self.outputs), tuple(self.states))
        return assign_plan(made, KERNELS).check()


@pytest.fixture(scope="session")
def kernels() -> Mapping[str, Kernel]:
    return KERNELS


@pytest.fixture(scope="session")
def build() -> type[Builder]:
    return Builder


def number(value: float, dtype: str = "float32") -> Term:
    return Term("Num", value, dtype)


@pytest.fixture(scope="session")
def affine(build: type[Builder]) -> Callable[..., Plan]:
    """`affine(rows, columns)`: the plan of y = 2 x + w (w a weight, one row) and s = the sums of y's rows."""

    def make(rows: int, columns: int) -> Plan:
        b = build(i=rows, j=columns)
        b.leaf("x", "ij")
        b.leaf("w", "j", kind="weight")
        b.step("t", lambda x: Term("Mul", x, number(2.0)), "x")
        b.step("y", lambda t, w: Term("Add", t, w), "t", "w")
        b.step("s", lambda y: Term("Sum", "j", y), "y")
        b.output("y", "y")
        b.output("s", "s")
        return b.plan()

    return make
