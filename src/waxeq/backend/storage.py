"""Memory that is not the CPU's: what a device lends, and arrays that lie in it.

A backend whose kernels work on such memory says so with `Kernel.device` and lends it with `Kernel.storage`. All that is
asked of one storage happens in the order it was asked for; only `download` and `wait` wait until it has happened.
"""

from __future__ import annotations

import math
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from waxeq.errors import BudgetError, TypeMismatch, UsageError

if TYPE_CHECKING:
    from waxeq.backend.kernel import Instruction, Kernel

CPU = "cpu"
"""The place of all memory that NumPy arrays lie in."""
LINE = 256
"""Bytes: what allocated memory begins at a multiple of."""


class Memory:
    """`size` bytes from `address` on, given back by `free` when nobody holds this object any more."""

    def __init__(self, address: int, size: int, free: Callable[[int], None]) -> None:
        self.address, self.size = address, size
        self._end = weakref.finalize(self, free, address)
        self._end.atexit = False  # the device goes with the process


class Held:
    """The memory of a result as long as somebody has that, or sees the memory through something else. `streams`: on
    which others read it, in numbers of their own; whoever lends the memory knows them longer than this is there."""

    def __init__(self, memory: Memory, streams: set[int]) -> None:
        self.memory, self.streams = memory, streams


class Storage(ABC):
    """The memory of one device. `device` is its name, which the places of buffers in plans are called by."""

    device: str

    @property
    @abstractmethod
    def room(self) -> int:
        """Bytes that can still be allocated."""

    @abstractmethod
    def allocated(self, size: int) -> Memory:
        """New memory at a multiple of LINE. Raises BudgetError where there is not that much."""

    @abstractmethod
    def upload(self, to: DeviceArray, host: np.ndarray) -> None:
        """Copy a dense array of the CPU; when this returns it may be written again."""

    @abstractmethod
    def download(self, host: np.ndarray, a: DeviceArray) -> None:
        """Copy to a dense array of the CPU; when this returns it is there."""

    @abstractmethod
    def copy(self, to: DeviceArray, a: DeviceArray) -> None:
        """Copy from one dense array of the device to another of its bytes."""

    def wait(self) -> None:
        """Until all that was asked for has happened."""
        return None

    def joined(self, steps: Sequence[Instruction]) -> Sequence[Instruction]:
        """Instructions that do what these do, all of kernels of this device, one after another: perhaps fewer."""
        return steps

    def seen(self, value: Any) -> DeviceArray | None:
        """An array of this memory as one of ours, with no copy; None for anything else."""
        return value if isinstance(value, DeviceArray) and value.storage is self else None

    def read(self, arrays: Iterable[DeviceArray]) -> None:
        """Told of arrays that callers gave, once all that reads them was asked for: their owners may write there, or
        give the memory back, when that has happened."""
        return None

    def handed(self, a: DeviceArray) -> Any:
        """An array as a caller gets it, with no copy."""
        return a

    def regained(self, streams: Iterable[int]) -> None:
        """Told before memory is used again that others read on these streams: what is asked for from now on happens
        after that."""
        return None

    def seconds(self, run: Callable[[], object], repeats: int) -> float:
        """Seconds that each of so many runs takes, from the first to begin to the last to end."""
        import time

        self.wait()
        start = time.perf_counter()
        for _ in range(repeats):
            run()
        self.wait()
        return max((time.perf_counter() - start) / repeats, 1e-9)

    def require(self, size: int, what: str) -> None:
        """Raise BudgetError where `what` needs more bytes than there are."""
        if size > self.room:
            raise BudgetError(
                f"{what} needs {size:,} bytes in the memory of {self.device!r} and {self.room:,} are free"
            )

    def array(self, memory: Memory, shape: tuple[int, ...], dtype: np.dtype, offset: int = 0) -> DeviceArray:
        """A dense array from a byte of some memory on."""
        return DeviceArray(self, memory.address + offset, shape, dense_strides(shape, dtype.itemsize), dtype, memory)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> DeviceArray:
        """A dense array in memory of its own; its elements are anything. Raises BudgetError."""
        return self.array(self.allocated(math.prod(shape) * dtype.itemsize), shape, dtype)

    def uploaded(self, host: np.ndarray) -> DeviceArray:
        """A copy of an array of the CPU. Raises BudgetError."""
        dense = np.ascontiguousarray(host).reshape(host.shape)
        made = self.empty(dense.shape, dense.dtype)
        if dense.size:
            self.upload(made, dense)
        return made


@dataclass(frozen=True, eq=False)
class DeviceArray:
    """An array in the memory of a device: an address, a shape, strides in bytes. `owner` is what keeps the memory.

    NumPy refuses it, for the CPU cannot read there; `get()` copies it.
    """

    storage: Storage
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype
    owner: Any = None

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.size * self.itemsize

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def dense(self) -> bool:
        """Row-major, without gaps."""
        want = dense_strides(self.shape, self.dtype.itemsize)
        if want == self.strides or not self.size:
            return True
        return all(n == 1 or s == w for n, s, w in zip(self.shape, self.strides, want, strict=True))

    @property
    def extent(self) -> tuple[int, int]:
        """The first byte that belongs to it and the one after the last, from its address."""
        if not self.size:
            return 0, 0
        ends = [(n - 1) * s for n, s in zip(self.shape, self.strides, strict=True)]
        return sum(e for e in ends if e < 0), sum(e for e in ends if e > 0) + self.itemsize

    def strided(self, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype) -> DeviceArray:
        """Another view of the same memory, from a byte on, with strides in bytes."""
        return replace(self, address=self.address + offset, shape=shape, strides=strides, dtype=dtype)

    def reshape(self, shape: tuple[int, ...]) -> DeviceArray:
        """A dense array as one of another shape. Raises UsageError for one that is not, or of another size."""
        if not self.dense or math.prod(shape) != self.size:
            raise UsageError(f"an array of shape {self.shape} cannot be seen as one of shape {shape} where it lies")
        shape = tuple(shape)
        strides = dense_strides(shape, self.dtype.itemsize)
        if type(self) is DeviceArray:  # each call of a program asks for some, and `replace` takes four times as long
            return DeviceArray(self.storage, self.address, shape, strides, self.dtype, self.owner)
        return replace(self, shape=shape, strides=strides)

    def get(self) -> np.ndarray:
        """A copy in the memory of the CPU."""
        if self.dense:
            out = np.empty(self.shape, self.dtype)
            if self.size:
                self.storage.download(out, self)
            return out
        low, high = self.extent
        raw = np.empty(high - low, np.uint8)
        if self.size:
            self.storage.download(raw, self.strided(low, raw.shape, (1,), raw.dtype))
        return np.ndarray(self.shape, self.dtype, raw, -low, self.strides).copy()

    def __array__(self, *_: object, **__: object) -> np.ndarray:
        raise TypeMismatch(f"this array lies in the memory of {self.storage.device!r}; .get() copies it to the CPU's")


@lru_cache(4096)  # a call of a program asks for those of all that it takes and gives
def dense_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Strides in bytes of a row-major array."""
    strides, step = [], itemsize
    for n in reversed(shape):
        strides.append(step)
        step *= int(n)
    return tuple(reversed(strides))


def storages(kernels: Iterable[Kernel]) -> Mapping[str, Storage]:
    """The memory of every device that some of these kernels work on, but the CPU's, by name."""
    found: dict[str, Storage] = {}
    for k in kernels:
        for place in (k.device, k.origin):
            if place != CPU and place not in found:
                lent = k.storage()
                if lent is not None:
                    found[place] = lent
    return found


def placed(view: Any, flat: Any) -> Any:
    """A `View` on a flat array, wherever that lies."""
    if not isinstance(flat, DeviceArray):
        return view.array(flat)
    size = flat.itemsize
    if not view.elements:
        return flat.strided(0, view.shape, dense_strides(view.shape, size), flat.dtype)
    return flat.strided(view.offset * size, view.shape, tuple(s * size for s in view.strides), flat.dtype)
