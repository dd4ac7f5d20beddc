"""Memory of results on a device, lent to whoever holds them: used again only when nobody does any more."""

from __future__ import annotations

import weakref

from waxeq.backend.storage import DeviceArray, Held, Memory, Storage
from waxeq.ir.types import numpy_dtype
from waxeq.plan.plan import Buffer

_SLOTS = 4
"""Blocks of memory that are kept for one result."""


class Lent:
    """The memory of one result, from call to call."""

    def __init__(self, storage: Storage, buffer: Buffer) -> None:
        self.storage, self.elements, self.dtype = storage, buffer.elements, numpy_dtype(buffer.dtype)
        self._slots: list[tuple[Memory, weakref.ref[Held] | None, set[int]]] = []

    def fresh(self) -> DeviceArray:
        """A flat array that nobody else can see."""
        for n, (_, held, streams) in enumerate(self._slots):
            if held is None or held() is None:
                if streams:
                    self.storage.regained(streams)
                self._slots.append((self._slots.pop(n)[0], None, set()))
                break
        else:
            memory = self.storage.allocated(self.elements * self.dtype.itemsize)
            self._slots = [*self._slots, (memory, None, set())][-_SLOTS:]
        self._last = self.storage.array(self._slots[-1][0], (self.elements,), self.dtype)
        return self._last

    def lend(self, shape: tuple[int, ...]) -> DeviceArray:
        """The last fresh array, in a shape: its memory is in use until nobody holds the array any more."""
        memory, _, streams = self._slots[-1]
        held = Held(memory, streams)
        self._slots[-1] = (memory, weakref.ref(held), streams)
        a = self._last.reshape(shape)
        return DeviceArray(a.storage, a.address, a.shape, a.strides, a.dtype, held)
