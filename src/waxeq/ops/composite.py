"""Ops that models are written in and that mean a few others: they expand before anything is searched."""

from __future__ import annotations

import math
from typing import Any

from waxeq.errors import TypeMismatch
from waxeq.ir.op import Builder, Composite
from waxeq.ir.types import TensorType, is_float
from waxeq.ops.contraction import Einsum
from waxeq.ops.elementwise import Cast, Map, Select, Zip, broadcast
from waxeq.ops.movement import Pad, Reshape
from waxeq.ops.reduction import Reduce
from waxeq.ops.source import Const
from waxeq.ops.window import Unfold


def _require_floats(op: Composite, *types: TensorType) -> None:
    if len({t.dtype for t in types}) > 1 or not is_float(types[0].dtype):
        raise TypeMismatch(f"{op.label} takes one float dtype, not {', '.join(t.dtype for t in types)}")


def _number(b: Builder, value: float, like: Any) -> Any:
    return b(Const(value, b.type(like).dtype))


def _finite_max(b: Builder, x: Any, axes: tuple[int, ...]) -> Any:
    """The largest elements, or 0 where they are not finite: what may be taken off before exp."""
    m = b(Reduce("max", axes, True), x)
    return b(Select(), b(Map("isfinite"), m), m, _number(b, 0.0, x))


class _AlongAxes(Composite):
    axes: tuple[int, ...]

    def infer(self, x: TensorType) -> TensorType:
        _require_floats(self, x)
        Reduce("max", self.axes).infer(x)
        return x


class Softmax(_AlongAxes):
    """exp(x - max) / sum of exp(x - max) over `axes`."""

    onnx = "Softmax"

    def expand(self, b: Builder, x: Any) -> Any:
        e = b(Map("exp"), b(Zip("sub"), x, b(Reduce("max", self.axes, True), x)))
        return b(Zip("div"), e, b(Reduce("sum", self.axes, True), e))


class LogSoftmax(_AlongAxes):
    """x - max - log of the sum of exp(x - max) over `axes`."""

    onnx = "LogSoftmax"

    def expand(self, b: Builder, x: Any) -> Any:
        d = b(Zip("sub"), x, _finite_max(b, x, self.axes))
        return b(Zip("sub"), d, b(Map("log"), b(Reduce("sum", self.axes, True), b(Map("exp"), d))))


class LogSumExp(Composite):
    """log of the sum of exp(x) over `axes`, without overflow."""

    axes: tuple[int, ...]
    keepdims: bool = False
    onnx = "ReduceLogSumExp"

    def infer(self, x: TensorType) -> TensorType:
        _require_floats(self, x)
        return Reduce("max", self.axes, self.keepdims).infer(x)

    def expand(self, b: Builder, x: Any) -> Any:
        m = _finite_max(b, x, self.axes)
        total = b(Reduce("sum", self.axes, True), b(Map("exp"), b(Zip("sub"), x, m)))
        y = b(Zip("add"), b(Map("log"), total), m)
        return y if self.keepdims else b(Reshape(Reduce("sum", self.axes).infer(b.type(x)).shape), y)


class LayerNorm(Composite):
    """(x - mean) / sqrt(variance + epsilon) over the last `count` axes, times scale, plus bias (of the shape of those
    axes, or what broadcasts to it)."""

    epsilon: float
    count: int = 1
    onnx = "LayerNormalization"

    def infer(self, x: TensorType, scale: TensorType, bias: TensorType) -> TensorType:
        _require_floats(self, x, scale, bias)
        if not 1 <= self.count <= x.rank or broadcast(x, scale, bias) != x.shape:
            raise TypeMismatch(f"{self.label} over {self.count} axes of {x} does not fit scale {scale}, bias {bias}")
        return x

    def expand(self, b: Builder, x: Any, scale: Any, bias: Any) -> Any:
        rank = b.type(x).rank
        axes = tuple(range(rank - self.count, rank))
        n = _number(b, float(math.prod(b.type(x).shape[-self.count :])), x)
        d = b(Zip("sub"), x, b(Zip("div"), b(Reduce("sum", axes, True), x), n))
        variance = b(Zip("div"), b(Reduce("sum", axes, True), b(Zip("mul"), d, d)), n)
        y = b(Zip("mul"), d, b(Map("rsqrt"), b(Zip("add"), variance, _number(b, self.epsilon, x))))
        return b(Zip("add"), b(Zip("mul"), y, scale), bias)


class Relu(Composite):
    """max(x, 0)."""

    onnx = "Relu"

    def infer(self, x: TensorType) -> TensorType:
        return Zip("max").infer(x, TensorType(x.dtype, ()))

    def expand(self, b: Builder, x: Any) -> Any:
        return b(Zip("max"), x, _number(b, 0, x))


class Silu(Composite):
    """x * sigmoid(x)."""

    def infer(self, x: TensorType) -> TensorType:
        _require_floats(self, x)
        return x

    def expand(self, b: Builder, x: Any) -> Any:
        return b(Zip("mul"), x, b(Map("sigmoid"), x))


class Gelu(Composite):
    """x * (1 + erf(x / sqrt 2)) / 2, or with `approximate` the usual one by tanh."""

    approximate: bool = False
    onnx = "Gelu"

    def infer(self, x: TensorType) -> TensorType:
        _require_floats(self, x)
        return x

    def expand(self, b: Builder, x: Any) -> Any:
        if self.approximate:
            cube = b(Zip("mul"), x, b(Zip("mul"), x, x))
            inner = b(Zip("add"), x, b(Zip("mul"), _number(b, 0.044715, x), cube))
            bell = b(Map("tanh"), b(Zip("mul"), _number(b, math.sqrt(2 / math.pi), x), inner))
        else:
            inner = b(Zip("mul"), x, _number(b, math.sqrt(0.5), x))
            known = b.type(x).dtype != "bfloat16"  # SciPy's erf does not know it
            bell = b(Map("erf"), inner) if known else b(Cast("bfloat16"), b(Map("erf"), b(Cast("float32"), inner)))
        half = b(Zip("mul"), _number(b, 0.5, x), x)
        return b(Zip("mul"), half, b(Zip("add"), bell, _number(b, 1.0, x)))


class Conv(Composite):
    """Cross-correlation of x (batch, channels, d1, d2 ...) with w (out channels, channels / groups, k1, k2 ...).

    strides, dilations and pads (low, high) per spatial dimension.
    """

    strides: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    dilations: tuple[int, ...]
    groups: int = 1
    onnx = "Conv"

    def infer(self, x: TensorType, w: TensorType) -> TensorType:
        n = len(self.strides)
        if not (x.rank == w.rank == n + 2 and len(self.pads) == len(self.dilations) == n) or x.dtype != w.dtype:
            raise TypeMismatch(f"convolution over {n} dimensions does not fit {x} and {w}")
        g = self.groups
        if g < 1 or x.shape[1] != g * w.shape[1] or w.shape[0] % g or x.dtype == "bool":
            raise TypeMismatch(f"convolution in {g} groups does not fit {x} and {w}")
        sizes = (
            Unfold(0, k, s, d).infer(TensorType(x.dtype, (low + m + high,))).shape[0]
            for m, k, s, d, (low, high) in zip(
                x.shape[2:], w.shape[2:], self.strides, self.dilations, self.pads, strict=True
            )
        )
        return TensorType(x.dtype, (x.shape[0], w.shape[0], *sizes))

    def expand(self, b: Builder, x: Any, w: Any) -> Any:
        out = self.infer(b.type(x), b.type(w)).shape
        (batch, channels, *_), (_, _, *kernel) = b.type(x).shape, b.type(w).shape
        for i, (k, s, d, (low, high)) in enumerate(zip(kernel, self.strides, self.dilations, self.pads, strict=True)):
            padded = b(Pad(i + 2, low, high, 0.0), x) if low or high else x
            x = b(Unfold(i + 2, k, s, d), padded)
        g, n = self.groups, len(kernel)
        x = b(Reshape((batch, g, channels // g, *b.type(x).shape[2:])), x)
        w = b(Reshape((g, out[1] // g, channels // g, *kernel)), w)
        at, window = "DEFGH"[:n], "defgh"[:n]
        y = b(Einsum(f"bgc{at}{window},gmc{window}->bgm{at}"), x, w)
        return b(Reshape(out), y)
