"""Sums of products."""

from __future__ import annotations

from typing import Any

import numpy as np

from waxeq.errors import TypeMismatch
from waxeq.ir.op import Builder, Composite, Lowering, Named, Op
from waxeq.ir.types import TensorType


class Einsum(Op):
    """Einstein summation of one or two operands; `spec` is explicit ("abc,cd->abd"), no ellipsis, no label twice in an
    operand (a diagonal is an op of its own). A dimension of size 1 broadcasts against its label."""

    spec: str
    arity = None
    onnx = "Einsum"

    @property
    def labels(self) -> tuple[tuple[str, ...], str]:
        ins, _, out = self.spec.partition("->")
        return tuple(ins.split(",")), out

    def infer(self, *types: TensorType) -> TensorType:
        ins, out = self.labels
        if len(ins) != len(types):
            raise TypeMismatch(f"einsum {self.spec} takes {len(ins)} operands, not {len(types)}")
        if len(ins) > 2:
            raise TypeMismatch(f"einsum {self.spec} is of more than two operands; make it of those two by two")
        sizes: dict[str, int] = {}
        for labels, t in zip(ins, types, strict=True):
            if len(labels) != t.rank or len(set(labels)) != len(labels):
                raise TypeMismatch(f"einsum {self.spec}: labels {labels!r} do not fit {t}")
            for k, s in zip(labels, t.shape, strict=True):
                if sizes.get(k, 1) not in (1, s) and s != 1:
                    raise TypeMismatch(f"einsum {self.spec}: axis {k} is {sizes[k]} and {s}")
                sizes[k] = s if sizes.get(k, 1) == 1 else sizes[k]
        if len({t.dtype for t in types}) > 1 or types[0].dtype == "bool":
            raise TypeMismatch(f"einsum {self.spec} takes one number dtype, not {', '.join(t.dtype for t in types)}")
        if not set(out) <= set(sizes) or len(set(out)) != len(out):
            raise TypeMismatch(f"einsum {self.spec}: the result's labels are not among the operands'")
        return TensorType(types[0].dtype, tuple(sizes[k] for k in out))

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        if arrays[0].dtype.kind in "fiu" and arrays[0].dtype != np.float16:
            return np.asarray(np.einsum(self.spec, *arrays, optimize=len(arrays) == 2))
        wide = [a.astype(np.float32) for a in arrays]  # einsum knows no bfloat16, and rounds float16 at every step
        return np.asarray(np.einsum(self.spec, *wide, optimize=len(arrays) == 2)).astype(arrays[0].dtype)

    def lower(self, b: Lowering, out: TensorType, *xs: Named) -> Named:
        ins, result = self.labels
        joined, axis = b.join(*zip(xs, ins, strict=True))
        t = joined[0].term if len(joined) == 1 else b.term("Mul", joined[0].term, joined[1].term)
        for k in dict.fromkeys("".join(ins)):
            if k not in result and axis[k] is not None:
                t = b.term("Sum", axis[k], t)
        return Named(t, tuple(axis[k] for k in result))


class Matmul(Composite):
    """NumPy's matmul: matrix products of stacks, with the rules for one-dimensional operands."""

    onnx = "MatMul"

    def spec(self, ra: int, rb: int) -> str:
        """The einsum that a product of operands of these ranks is."""
        batch = _BATCH[: max(ra, rb, 2) - 2]
        left = batch[len(batch) - (ra - 2) :] + "MK" if ra > 1 else "K"
        right = batch[len(batch) - (rb - 2) :] + "KN" if rb > 1 else "K"
        return f"{left},{right}->{batch}{'M' if ra > 1 else ''}{'N' if rb > 1 else ''}"

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        if not a.rank or not b.rank:
            raise TypeMismatch(f"matmul takes arrays of at least one dimension, not {a} and {b}")
        if a.shape[-1] != b.shape[-2 if b.rank > 1 else 0]:
            raise TypeMismatch(f"matmul of {a} and {b}: the inner sizes differ")
        return Einsum(self.spec(a.rank, b.rank)).infer(a, b)

    def expand(self, b: Builder, x: Any, y: Any) -> Any:
        return b(Einsum(self.spec(b.type(x).rank, b.type(y).rank)), x, y)

    def reference(self, *arrays: np.ndarray) -> np.ndarray:
        return np.asarray(np.matmul(*arrays))


_BATCH = "abcdefghijklmnopqrstuvwxyz"
