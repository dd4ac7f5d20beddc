"""Memory of results: arrays that alias neither inputs nor each other nor anything that a later call writes."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from waxeq.ir.types import TensorType
from waxeq.plan.plan import Plan


class Results:
    """Where a plan's results lie. A large one is written where the caller will have it (`direct`), and its memory is
    used again only when nobody holds it any more; a small one is copied out of the arena.
    """

    def __init__(self, plan: Plan, flat: Mapping[str, np.ndarray]) -> None:
        """`flat`: the buffers that stay where they are from call to call."""
        self.direct = {o.buffer: o.type for o in plan.outputs if is_direct(plan, o.buffer)}
        self._slots: dict[str, list[_Slot]] = {b: [] for b in self.direct}
        self._current: dict[str, _Slot] = {}
        fixed = (flat[o.buffer].reshape(o.type.shape) if o.buffer in flat else None for o in plan.outputs)
        self._rows = list(zip(plan.outputs, fixed, strict=True))

    def fresh(self) -> list[tuple[str, np.ndarray, int]]:
        """Where direct results will lie that lie elsewhere than in the last call: a flat array that nobody else can
        see, and its address. It is that of a result that is gone, or new."""
        for s in self._current.values():
            if s.lent() is not None:
                break
        else:  # nobody holds any: this is every call, and costs as much as a small kernel
            if len(self._current) == len(self.direct):
                return []
        moved = []
        for b, t in self.direct.items():
            slots = self._slots[b]
            free = next((s for s in (*slots[-1:], *slots) if s.lent() is None), None)
            if free is None:
                free = _Slot(_aligned(t), t)
                slots.append(free)
                del slots[:-_SLOTS]
            if self._current.get(b) is not free:
                self._current[b] = free
                moved.append((b, free.flat, free.address))
        return moved

    def collect(self, flat: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """The results of a call, in order; `flat` is where buffers lie in this call."""
        rows, current = [], self._current
        for o, view in self._rows:
            if view is not None:
                rows.append(view.copy())
            elif o.buffer in current:
                rows.append(current[o.buffer].lend())
            else:
                rows.append(flat[o.buffer].reshape(o.type.shape).copy())
        return rows


_SLOTS = 4
_LINE = 64


def _aligned(t: TensorType) -> np.ndarray:
    """A flat array that begins with a cache line: vectors that are written across two lines cost twice."""
    size = t.elements * t.numpy.itemsize
    raw = np.empty(size + _LINE, np.uint8)
    begin = -raw.ctypes.data % _LINE
    return raw[begin : begin + size].view(t.numpy)


def _nobody() -> None:
    """To whom memory is lent at first."""


class _Slot:
    """Memory lent to one result at a time. Every view of a result keeps the array handed out alive, as its base
    (NumPy stops collapsing bases at what is no array, as ctypes' are none), so when that array is gone nobody can see
    the memory. `lent`: answers that array, None when it is gone."""

    __slots__ = ("_made", "address", "flat", "lent")

    def __init__(self, flat: np.ndarray, t: TensorType) -> None:
        self.flat, self.address = flat, flat.ctypes.data
        memory: Any = (ctypes.c_char * flat.nbytes).from_buffer(flat.view(np.uint8).data)
        self._made = partial(np.ndarray, t.shape, t.numpy, memory)
        self.lent: Callable[[], np.ndarray | None] = _nobody

    def lend(self) -> np.ndarray:
        a = self._made()
        self.lent = weakref.ref(a)
        return a


def is_direct(plan: Plan, buffer: str) -> bool:
    """Whether a buffer is a result that lies outside the arena, written in place for the caller."""
    b = plan.buffers[buffer]
    return b.role == "temporary" and b.offset is None
