"""Memory of results: arrays that alias neither inputs nor each other nor anything that a later call writes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from sys import getrefcount
from typing import Any

import numpy as np

from waxeq.backend.direct import FEW, LENT, Slot
from waxeq.ir.types import TensorType
from waxeq.plan.plan import Plan
from waxeq.runtime.arena import aligned


class Results:
    """Where a plan's results lie. A large one is written where the caller will have it (`direct`), and its memory is
    used again only when nobody holds it any more; a small one is copied out of the arena, but for calls that a backend
    makes whole: they write it where the caller has it too.
    """

    def __init__(self, plan: Plan, flat: Mapping[str, np.ndarray]) -> None:
        """`flat`: the buffers that stay where they are from call to call."""
        self.direct = {o.buffer: o.type for o in plan.outputs if is_direct(plan, o.buffer)}
        self.small = {o.buffer: o.type for o in plan.outputs if is_alone(plan, o.buffer) and o.type.bytes}
        self._slots: dict[str, list[_Slot]] = {b: [] for b in (*self.direct, *self.small)}
        self._oldest = dict.fromkeys(self._slots, -1)
        self._current: dict[str, _Slot | None] = dict.fromkeys(self.direct)
        fixed = (flat[o.buffer].reshape(o.type.shape) if o.buffer in flat else None for o in plan.outputs)
        self._rows = list(zip(plan.outputs, fixed, strict=True))
        self._numbers = {o.buffer: n for n, o in enumerate(plan.outputs)}
        self._lend: Callable[[int, int, Slot], None] | None = None

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
        for s in self._slots[buffer]:
            if not s.lent():
                return s
        return self._another(buffer, self.direct[buffer])

    def _another(self, buffer: str, t: TensorType) -> _Slot:
        """New memory, in the place of the oldest where there is enough of it."""
        slots = self._slots[buffer]
        new = _Slot(aligned(t.elements, t.numpy), t)
        i = len(slots)
        if i < LENT:
            slots.append(new)
        else:
            self._oldest[buffer] = i = (self._oldest[buffer] + 1) % LENT
            slots[i] = new
        if self._lend is not None:
            self._lend(self._numbers[buffer], i, new)
        return new

    # -- for calls that a backend makes whole

    def rows(self) -> list[tuple[TensorType, str, np.ndarray | None]]:
        """The results in order: their types, the buffers they lie in, and those that stay where they are, which they
        are copied out of."""
        return [(o.type, o.buffer, view) for o, view in self._rows]

    def more(self) -> None:
        """Have memory that nobody can see for every direct result, and some for small ones."""
        for b in self.direct:
            self._free(b)
        for b, t in self.small.items():
            if len(self._slots[b]) < FEW:
                self._another(b, t)

    def tell(self, lend: Callable[[int, int, Slot], None]) -> None:
        """From now on `lend` is told of memory that results lie in: of which result, by its number, and which it is."""
        self._lend = lend
        for b, slots in self._slots.items():
            for i, s in enumerate(slots):
                lend(self._numbers[b], i, s)

    # -- the results of a call

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


class _Slot:
    """Memory lent to results. All of them are views of one array, `shown`, which they keep alive as their base, and so
    does every view of theirs; NumPy stops collapsing bases there, as what that array lies in is no array. So when it is
    referred to as often as it was at first, nobody can see the memory. A new array over the same memory for each result
    would take ten times as long to make as a view, which is as much as a small kernel."""

    __slots__ = ("_alone", "address", "flat", "shown")

    def __init__(self, flat: np.ndarray, t: TensorType) -> None:
        self.flat, self.address = flat, flat.ctypes.data
        memory: Any = (ctypes.c_char * flat.nbytes).from_buffer(flat.view(np.uint8).data)
        self.shown = np.ndarray(t.shape, t.numpy, memory)
        self._alone = getrefcount(self.shown)

    def lent(self) -> bool:
        """Whether somebody may see the memory."""
        return getrefcount(self.shown) > self._alone

    def lend(self) -> np.ndarray:
        return self.shown.view()


def is_direct(plan: Plan, buffer: str) -> bool:
    """Whether a buffer is a result that lies outside the arena, written in place for the caller."""
    b = plan.buffers[buffer]
    return b.role == "temporary" and b.offset is None


def is_alone(plan: Plan, buffer: str) -> bool:
    """Whether a buffer of the arena is one result and nothing else, so that it could lie anywhere."""
    b, ends = plan.buffers[buffer], [o.buffer for o in plan.outputs]
    kept = {n for pair in plan.states for n in pair}
    return b.role == "temporary" and b.offset is not None and ends.count(buffer) == 1 and buffer not in kept
