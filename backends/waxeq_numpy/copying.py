"""Copies: into another order of axes, out of a view, along axes the operand lacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from waxeq.backend.call import Call, aligned
from waxeq.backend.kernel import Instruction, Kernel


class Copy(Kernel):
    """One strided copy."""

    name = "copy"
    form = "copy"

    def accepts(self, call: Call) -> bool:
        return call.meaning.head == "In" and set(call.operands[0].axes) <= set(call.out.axes)

    def features(self, call: Call) -> Mapping[str, float]:
        v, out = call.operands[0], call.out
        inner = [k for k, s in zip(out.axes, out.strides, strict=True) if s == 1]
        straight = not inner or v.stride(inner[-1]) in (0, 1)
        return {"launches": 1.0, "bytes" if straight else "strided_bytes": float(v.bytes + out.bytes)}

    def bind(
        self, call: Call, operands: Sequence[np.ndarray], out: np.ndarray, workspace: np.ndarray
    ) -> Sequence[Instruction]:
        return (partial(np.copyto, out, aligned(operands[0], call.operands[0], call.out.axes)),)


KERNELS = (Copy,)
