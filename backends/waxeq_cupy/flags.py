"""Flags: words in which kernels note a position outside its axis.

They lie in pinned memory of the CPU, which a GPU with unified addressing writes at the same address: nobody copies
them, and nobody waits for them alone. What a thread started is looked at when it waits for the stream anyway, to
download a result, or before a result is handed out where it lies.

Source: CUDA Driver API, "Unified Addressing", "Automatic Mapping of Host Allocated Host Memory".
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Iterator

from waxeq_cupy.driver import Driver

_WORD = ctypes.sizeof(ctypes.c_int)
_TOGETHER = 1024
"""Words that are allocated at once."""


class Flag:
    """One word, which kernels get the address of."""

    def __init__(self, address: int) -> None:
        self.address = address
        self._word = ctypes.c_int.from_address(address)

    @property
    def up(self) -> bool:
        """Whether a kernel noted something, as far as it ran."""
        return bool(self._word.value)

    def lower(self) -> None:
        """Nothing is noted."""
        self._word.value = 0


class _Own(threading.local):
    """Of each thread: the flags of what it started and has not waited for."""

    def __init__(self) -> None:
        self.started = set[Flag]()


class Flags:
    """The flags of kernels on one stream. Whoever asks for one, or looks at them, does so in its turn on the stream."""

    def __init__(self, driver: Driver, stream: int) -> None:
        self._driver, self._stream, self._own = driver, stream, _Own()
        self._fresh: Iterator[int] = iter(())
        self._back: list[int] = []
        """Addresses of flags that are gone; the kernels that had them may still run."""

    @property
    def started(self) -> set[Flag]:
        """Of kernels that the calling thread started and has not waited for."""
        return self._own.started

    def new(self) -> Flag:
        """One that is down, given back when nobody holds it any more."""
        address = self._back.pop() if self._back else None
        if address is None:
            address = self._next()
        else:
            self._driver.wait_on(self._stream)
        made = Flag(address)
        made.lower()
        weakref.finalize(made, self._back.append, address).atexit = False
        return made

    def _next(self) -> int:
        address = next(self._fresh, None)
        if address is None:
            first = self._driver.pinned(_TOGETHER * _WORD)
            self._fresh = iter(range(first, first + _TOGETHER * _WORD, _WORD))
            address = next(self._fresh)
        return address

    def check(self) -> None:
        """After the stream was waited for: raise IndexError where a flag is up of what the calling thread started."""
        up = [f for f in self.started if f.up]
        self.started.clear()
        for f in up:
            f.lower()
        if up:
            raise IndexError("an index is out of bounds for the axis it points into")
