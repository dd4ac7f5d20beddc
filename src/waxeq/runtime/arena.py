"""One block of memory for all temporaries of a program: mapped, advised for huge pages and touched once.

Fresh pages cost more than most kernels that fill them; here that is paid when the program is bound, never in a call.
"""

from __future__ import annotations

import mmap

import numpy as np

from waxeq.errors import BudgetError
from waxeq.memory.liveness import ALIGN
from waxeq.runtime.room import available

PAGE = 4096
"""Bytes of a page: cores tell addresses apart by their places in one, until they know better."""

_LARGE = 1 << 16
"""Bytes of a result from which its place in a page is chosen. Arrays that an allocator maps begin at the same place of
one, and a core that reads an argument waits for what it wrote where a result begins a line after that: eight norms of
64 KiB each took 92 us, and take 71 (Zen 4)."""


class Arena:
    """`bytes` of zeroed memory, aligned to a page. Raises BudgetError when the machine has not that much."""

    def __init__(self, size: int, limit: int | None = None) -> None:
        room = available() if limit is None else limit
        if size > room:
            raise BudgetError(
                f"the plan needs {size:,} bytes of working memory and {room:,} are available; use a smaller batch"
            )
        self.bytes = size
        # private: a process that forks has memory of its own from then on
        private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
        self._map = mmap.mmap(-1, max(size, 1), **private)
        if hasattr(mmap, "MADV_HUGEPAGE") and size >= 1 << 21:
            self._map.madvise(mmap.MADV_HUGEPAGE)
        self._flat = np.frombuffer(self._map, np.uint8)
        self._flat[:] = 0

    def view(self, offset: int, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """A dense array at a byte offset."""
        count = int(np.prod(shape, dtype=np.int64))
        if count == 0:
            return np.empty(shape, dtype)
        return self._flat[offset : offset + count * dtype.itemsize].view(dtype).reshape(shape)


def aligned(elements: int, dtype: np.dtype) -> np.ndarray:
    """A flat array that begins with a cache line, as temporaries do: a vector written across two lines costs twice. A
    large one begins in the middle of a page."""
    size = elements * dtype.itemsize
    place, step = (PAGE // 2, PAGE) if size >= _LARGE else (0, ALIGN)
    raw = np.empty(size + step, np.uint8)
    begin = (place - raw.ctypes.data) % step
    return raw[begin : begin + size].view(dtype)
