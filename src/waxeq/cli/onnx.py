"""A traced graph as an ONNX model (opset 18), for ONNX Runtime. Composites that ONNX has no form of are expanded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import numpy as np

from waxeq.errors import UnsupportedError
from waxeq.ir.graph import Graph
from waxeq.ir.op import Composite, Op
from waxeq.ir.types import TensorType, numpy_dtype
from waxeq.ops.composite import Relu, Softmax
from waxeq.ops.contraction import Einsum, Matmul
from waxeq.ops.elementwise import Cast, Map, Select, Zip
from waxeq.ops.indexing import Gather
from waxeq.ops.movement import BroadcastTo, Concat, Pad, Reshape, Slice, Transpose
from waxeq.ops.ordering import Scan
from waxeq.ops.reduction import Reduce
from waxeq.ops.source import Const, Iota
from waxeq.ops.window import Unfold

OPSET = 18


def as_onnx(graph: Graph, tensors: Mapping[str, np.ndarray]) -> Any:
    """The graph as an onnx.ModelProto; weights (`tensors`) and constants are initializers, inputs and outputs keep
    their names and order, but for an output that is called as an input is: ONNX has one space of names. Raises
    UnsupportedError for an op that has no form here, and for a model that keeps state."""
    if graph.states:
        raise UnsupportedError("the model keeps state between calls, which an ONNX model cannot")
    b = _Model()
    values = []
    for x in graph.leaves:
        data = {**graph.constants, **tensors}.get(x.name)
        values.append(b.array(data, x.name) if data is not None else b.input(x.name, x.type))
    for _, n in graph.values():
        values.append(b(n.op, *(values[i] for i in n.inputs)))
    return b.finish([(name, values[v]) for name, v in graph.outputs])


class _Model:
    """Nodes as they are added. A `Builder`, so that composites can expand into it; values are names."""

    def __init__(self) -> None:
        self.onnx = import_module("onnx")
        self.nodes: list[Any] = []
        self.inputs: list[Any] = []
        self.initializers: list[Any] = []
        self.types: dict[str, TensorType] = {}

    def __call__(self, op: Op, *values: str) -> str:
        form = _FORMS.get(type(op))
        made = form(self, op, *values) if form is not None else None
        if made is None and isinstance(op, Composite):
            return op.expand(self, *values)
        if made is None:
            raise UnsupportedError(f"ONNX Runtime cannot run this model: {op.label} has no form in ONNX here")
        self.types[made] = op.infer(*(self.types[v] for v in values))
        return made

    def type(self, value: str) -> TensorType:
        return self.types[value]

    def input(self, name: str, t: TensorType) -> str:
        self.inputs.append(self._info(name, t))
        self.types[name] = t
        return name

    def array(self, data: Any, name: str | None = None, dtype: Any = None) -> str:
        """An initializer. The second argument is its name."""
        a = np.ascontiguousarray(data, dtype).reshape(np.shape(data))  # the former gives scalars an axis
        name = name or f"%c{len(self.initializers)}"
        self.initializers.append(self.onnx.numpy_helper.from_array(a, name))
        self.types[name] = TensorType.of(a)
        return name

    def ints(self, *values: int) -> str:
        return self.array(values, dtype=np.int64)

    def node(self, kind: str, *values: str, **attributes: Any) -> str:
        name = f"%{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(kind, list(values), [name], **attributes))
        return name

    def finish(self, outputs: list[tuple[str, str]]) -> Any:
        h = self.onnx.helper
        outputs = self._renamed(outputs)
        infos = [self._info(n, self.types[v]) for n, v in outputs]
        last = [h.make_node("Identity", [v], [n]) for n, v in outputs]
        g = h.make_graph([*self.nodes, *last], "waxeq", self.inputs, infos, self.initializers)
        return h.make_model(g, opset_imports=[h.make_opsetid("", OPSET)], ir_version=9)

    def _renamed(self, outputs: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """Outputs under names that nothing else in the model has."""
        taken, found = {*self.types, *(n for n, _ in outputs)}, []
        for name, v in outputs:
            other = name
            while name in self.types and other in taken:
                other += "_out"
            taken.add(other)
            found.append((other, v))
        return found

    def _info(self, name: str, t: TensorType) -> Any:
        return self.onnx.helper.make_tensor_value_info(name, self.dtype(t.dtype), t.shape)

    def dtype(self, name: str) -> int:
        return self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(numpy_dtype(name)))


def _scalar(b: _Model, op: Any, *xs: str) -> str | None:
    if op.f in _SCALARS:
        return _SCALARS[op.f](b, *xs)
    if op.f == "mod" and b.type(xs[0]).dtype.startswith("float"):
        return None  # ONNX's remainder of floats has the sign of the dividend
    return None if op.scalar.onnx is None else b.node(op.scalar.onnx, *xs)


_SCALARS: Mapping[str, Callable[..., str]] = {
    "square": lambda b, x: b.node("Mul", x, x),
    "rsqrt": lambda b, x: b.node("Reciprocal", b.node("Sqrt", x)),
    "ne": lambda b, x, y: b.node("Not", b.node("Equal", x, y)),
}
"""Scalar functions that ONNX says in two steps."""


def _reduce(b: _Model, op: Any, x: str) -> str | None:
    if op.f in ("argmax", "argmin"):
        return b.node("ArgMax" if op.f == "argmax" else "ArgMin", x, axis=op.axes[0], keepdims=int(op.keepdims))
    names = {"sum": "ReduceSum", "max": "ReduceMax", "min": "ReduceMin", "prod": "ReduceProd"}
    if op.f not in names:
        return None
    # without axes ONNX would fold over all of them
    return b.node(names[op.f], x, b.ints(*op.axes), keepdims=int(op.keepdims), noop_with_empty_axes=1)


def _slice(b: _Model, op: Any, x: str) -> str:
    end = op.start + op.step * op.count
    if end < 0:
        end = -(2**62)  # before the first element: a plain negative end would count from the last
    return b.node("Slice", x, b.ints(op.start), b.ints(end), b.ints(op.axis), b.ints(op.step))


def _pad(b: _Model, op: Any, x: str) -> str:
    value = b.array(np.asarray(op.value).astype(b.type(x).numpy))
    return b.node("Pad", x, b.ints(op.low, op.high), value, b.ints(op.axis))


def _unfold(b: _Model, op: Any, x: str) -> str:
    """By index; the elements of a window then go last. The index is flat: the optimizer of ONNX Runtime 1.31 makes a
    chain of gathers by two-dimensional indices into one that reads out of bounds."""
    t = b.type(x)
    count = op.count(t.shape[op.axis])
    index = np.arange(count)[:, None] * op.stride + np.arange(op.size) * op.dilation
    windows = b.node("Gather", x, b.array(index.ravel()), axis=op.axis)
    split = b.node("Reshape", windows, b.ints(*t.shape[: op.axis], count, op.size, *t.shape[op.axis + 1 :]))
    return b.node("Transpose", split, perm=[i for i in range(t.rank + 1) if i != op.axis + 1] + [op.axis + 1])


def _softmax(b: _Model, op: Any, x: str) -> str | None:
    return b.node("Softmax", x, axis=op.axes[0]) if len(op.axes) == 1 else None


def _scan(b: _Model, op: Any, x: str) -> str | None:
    return b.node("CumSum", x, b.array(op.axis, dtype=np.int64)) if op.f == "sum" else None


_FORMS: Mapping[type[Op], Callable[..., str | None]] = {
    Map: _scalar,
    Zip: _scalar,
    Select: lambda b, op, *xs: b.node("Where", *xs),
    Cast: lambda b, op, x: b.node("Cast", x, to=b.dtype(op.dtype)),
    Reduce: _reduce,
    Scan: _scan,
    Transpose: lambda b, op, x: b.node("Transpose", x, perm=list(op.perm)),
    Reshape: lambda b, op, x: b.node("Reshape", x, b.ints(*op.shape), allowzero=1),
    BroadcastTo: lambda b, op, x: b.node("Expand", x, b.ints(*op.shape)),
    Slice: _slice,
    Concat: lambda b, op, *xs: b.node("Concat", *xs, axis=op.axis),
    Pad: _pad,
    Gather: lambda b, op, *xs: b.node("Gather", *xs, axis=op.axis),
    Unfold: _unfold,
    Einsum: lambda b, op, *xs: b.node("Einsum", *xs, equation=op.spec),
    Matmul: lambda b, op, *xs: b.node("MatMul", *xs),
    Const: lambda b, op: b.array(op.reference()),
    Iota: lambda b, op: b.array(op.reference()),
    Softmax: _softmax,
    Relu: lambda b, op, x: b.node("Relu", x),
}
