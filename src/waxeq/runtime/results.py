"""Memory of results: arrays that alias neither inputs nor each other nor anything that a later call writes."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from sys import getrefcount
from typing import Any

import numpy as np

from waxeq.ir.types import TensorType
from waxeq.plan.plan import Plan
from waxeq.runtime.arena import aligned


class Results:
    """Where a plan's results lie. A large one is written where the caller will have it (`direct`), and its memory is
    used again only when nobody holds it any more; a small one is copied out of the arena.
    """

    def __init__(self, plan: Plan, flat: Mapping[str, np.ndarray]) -> None:
        """`flat`: the buffers that stay where they are from call to call."""
        self.direct = {o.buffer: o.type for o in plan.outputs if is_direct(plan, o.buffer)}
        self._slots: dict[str, list[_Slot]] = {b: [] for b in self.direct}
        self._current: dict[str, _Slot | None] = dict.fromkeys(self.direct)
        fixed = (flat[o.buffer].reshape(o.type.shape) if o.buffer in flat else None for o in plan.outputs)
        self._rows = list(zip(plan.outputs, fixed, strict=True))

    def fresh(self) -> list[tuple[str, np.ndarray, int]]:
        """Where direct results will lie that lie elsewhere than in the last call: a flat array that nobody else can
        see, and its address. It is that of a result that is gone, or new."""
        moved = []
        for b, current in self._current.items():  # this is every call, and costs as much as a small kernel
            if current is not None and not current.lent():
                continue
            self._current[b] = free = self._free(b)
            moved.append((b, free.flat, free.address))
        return moved

    def forget(self) -> None:
        """Have every direct result lie elsewhere in the next call, or be told of as if it did."""
        self._current = dict.fromkeys(self.direct)

    def _free(self, buffer: str) -> _Slot:
        """Memory for a result that nobody can see, of the last few there were if any, or new."""
        slots = self._slots[buffer]
        for s in slots:
            if not s.lent():
                return s
        t = self.direct[buffer]
        slots.append(_Slot(aligned(t.elements, t.numpy), t))
        del slots[:-_SLOTS]
        return slots[-1]

    def collect(self, flat: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """The results of a call, in order; `flat` is where buffers lie in this call."""
        rows = []
        for o, view in self._rows:
            if view is not None:
                rows.append(view.copy())
            elif (slot := self._current.get(o.buffer)) is not None:
                rows.append(slot.lend())
            else:
                rows.append(flat[o.buffer].reshape(o.type.shape).copy())
        return rows


_SLOTS = 4


class _Slot:
    """Memory lent to results. All of them are views of one array, `_shown`, which they keep alive as their base, and so
    does every view of theirs; NumPy stops collapsing bases there, as what that array lies in is no array. So when it is
    referred to as often as it was at first, nobody can see the memory. A new array over the same memory for each result
    would take ten times as long to make as a view, which is as much as a small kernel."""

    __slots__ = ("_alone", "_shown", "address", "flat")

    def __init__(self, flat: np.ndarray, t: TensorType) -> None:
        self.flat, self.address = flat, flat.ctypes.data
        memory: Any = (ctypes.c_char * flat.nbytes).from_buffer(flat.view(np.uint8).data)
        self._shown = np.ndarray(t.shape, t.numpy, memory)
        self._alone = getrefcount(self._shown)

    def lent(self) -> bool:
        """Whether somebody may see the memory."""
        return getrefcount(self._shown) > self._alone

    def lend(self) -> np.ndarray:
        return self._shown.view()


def is_direct(plan: Plan, buffer: str) -> bool:
    """Whether a buffer is a result that lies outside the arena, written in place for the caller."""
    b = plan.buffers[buffer]
    return b.role == "temporary" and b.offset is None
