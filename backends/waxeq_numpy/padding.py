"""Padding with a constant: a block copy into the middle, and the border filled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from waxeq.backend.call import Call, aligned
from waxeq.backend.kernel import Instruction, Kernel
from waxeq.ir.term import Term


class Pad(Kernel):
    """A tensor amid a constant along one axis; works on any strides."""

    name = "pad"
    pattern = "(Pad k n low value x)"

    def accepts(self, call: Call) -> bool:
        return True

    def features(self, call: Call) -> Mapping[str, float]:
        return {"launches": float(1 + 2 * len(_pads(call.meaning))), "bytes": float(call.bytes_read + call.out.bytes)}

    def bind(
        self, call: Call, operands: Sequence[np.ndarray], out: np.ndarray, workspace: np.ndarray
    ) -> Sequence[Instruction]:
        steps: list[Instruction] = []
        source, new = aligned(operands[0], call.operands[0], _old_axes(call)), out
        for k, n, low, value in _pads(call.meaning):
            at = call.out.axes.index(n)
            high = low + call.sizes[k]
            for border in (slice(0, low), slice(high, None)):
                edge = new[(*(slice(None),) * at, border)]
                if edge.size:
                    steps.append(partial(edge.fill, value))
            new = new[(*(slice(None),) * at, slice(low, high))]
        return (*steps, partial(np.copyto, new, source))


class PadTwice(Pad):
    """Padding along two axes at once: one copy instead of two."""

    name = "pad_twice"
    pattern = "(Pad k n low value (Pad j m under value x))"

    def accepts(self, call: Call) -> bool:
        return len({a for k, n, _, _ in _pads(call.meaning) for a in (k, n)}) == 4


def _pads(t: Term) -> list[tuple[str, str, int, float]]:
    """(old axis, new axis, elements before, value) of each padding, the outermost first."""
    rows = []
    while t.head == "Pad":
        rows.append(t.args[:4])
        t = t.args[4]
    return rows


def _old_axes(call: Call) -> tuple[str, ...]:
    """The axes of what is padded, in the order of the result's."""
    name = {n: k for k, n, _, _ in _pads(call.meaning)}
    return tuple(name.get(k, k) for k in call.out.axes)


KERNELS = (Pad, PadTwice)
