"""Arrays of the device in and out with no copy: DLPack and the CUDA array interface.

Whoever hands over an array says on which stream it was made; ours waits for that, and theirs for ours: before they read
a result, and before they write again where an input lay.

Source: https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html (version 3).
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from waxeq.backend.storage import DeviceArray, Held, Storage, dense_strides
from waxeq.errors import TypeMismatch
from waxeq.ir.dlpack import CUDA, Delete, Managed, Tensor, Type, opened, packed, untaken

LEGACY = 1
"""The stream of whoever names none."""
UNKNOWN = -1
"""In the place of a stream that is not told."""


@dataclass(frozen=True)
class Wire:
    """The stream that an array is made on, what makes it wait for another stream, and another one for it."""

    stream: int
    after: Callable[[int], None]
    before: Callable[[int], None]


# -- DLPack

_given: dict[int, tuple[Any, ...]] = {}
"""What lives until whoever took a capsule gives it back, by the address of its tensor."""


@Delete
def _back(managed: Any) -> None:
    _given.pop(ctypes.addressof(managed.contents), None)


def _sweep() -> None:
    """Let go of what nobody took out of a capsule that is gone. A capsule could say so itself, but does where an
    exception is on its way, and no Python can run there."""
    for at, row in list(_given.items()):
        if sys.getrefcount(row[-1]) == 2 and untaken(row[-1]):
            del _given[at]


def lent(a: DeviceArray) -> Any:
    """An array of a device as DLPack has it; the array lives as long as somebody holds that."""
    n, item = a.ndim, a.itemsize
    shape, strides = (ctypes.c_int64 * n)(*a.shape), (ctypes.c_int64 * n)(*(s // item for s in a.strides))
    tensor = Tensor(a.address or None, CUDA, 0, n, Type.of(a.dtype), shape, strides, 0)
    made = Managed(tensor, None, _back)
    _sweep()
    capsule = packed(made)
    _given[ctypes.addressof(made)] = (made, shape, strides, a, capsule)
    return capsule


# -- in and out


@dataclass(frozen=True, eq=False)
class Borrowed(DeviceArray):
    """An array that somebody else owns and works on in the order of their `stream`."""

    stream: int = UNKNOWN


def taken(storage: Storage, value: Any, wire: Wire) -> DeviceArray | None:
    """An array of the device, whoever made it, as one of ours; None for anything else. Raises TypeMismatch for one
    that its owner does not hand over."""
    try:
        return _taken(storage, value, wire)
    except (BufferError, RuntimeError, LookupError) as e:  # the last: torch, of a dtype that the interface has not
        raise TypeMismatch(f"an array of class {type(value).__name__} is not handed over: {e}") from e


def _taken(storage: Storage, value: Any, wire: Wire) -> DeviceArray | None:
    if isinstance(value, DeviceArray):
        return value if value.storage is storage else None
    faced = getattr(value, "__cuda_array_interface__", None)
    if faced is not None and ("stream" in faced or not hasattr(value, "__dlpack__")):
        stream = faced.get("stream", LEGACY)
        if stream is not None:
            wire.after(stream)
        theirs = UNKNOWN if stream is None else stream
        dtype, shape = np.dtype(faced["typestr"]), tuple(faced["shape"])
        strides = faced.get("strides") or dense_strides(shape, dtype.itemsize)
        return Borrowed(storage, faced["data"][0], shape, tuple(strides), dtype, value, theirs)
    where = getattr(value, "__dlpack_device__", None)
    if where is not None and tuple(where()) == (CUDA, 0):
        x = opened(value.__dlpack__(stream=wire.stream))
        strides = x.strides or dense_strides(x.shape, x.dtype.itemsize)
        return Borrowed(storage, x.address, x.shape, strides, x.dtype, x.owner, _current(value))
    return None


def _current(value: Any) -> int:
    """The stream that the owner of an array works on now, where DLPack does not tell it and torch does."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor):
        return UNKNOWN
    return torch.cuda.current_stream(value.device).cuda_stream or LEGACY


@dataclass(frozen=True, eq=False)
class CudaArray(DeviceArray):
    """A result on the device: torch, jax and CuPy take it with no copy (`torch.from_dlpack`, `cupy.asarray`)."""

    wire: Wire | None = None

    @staticmethod
    def of(a: DeviceArray, wire: Wire) -> CudaArray:
        """The same array, to be handed out."""
        return CudaArray(a.storage, a.address, a.shape, a.strides, a.dtype, a.owner, wire)

    def _read_on(self, stream: int) -> None:
        """Somebody else reads it from now on, on a stream of theirs, which waits for ours where it is told."""
        if self.wire is not None and stream != UNKNOWN:
            self.wire.before(stream)
        if isinstance(self.owner, Held):
            self.owner.streams.add(stream)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.dtype.name == "bfloat16":
            raise AttributeError("the CUDA array interface has no bfloat16; use DLPack")
        self._read_on(UNKNOWN)
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.address, False),
            "version": 3,
            "strides": None if self.dense else self.strides,
            "stream": None if self.wire is None else self.wire.stream,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA, 0

    def __dlpack__(
        self, *, stream: int | None = None, max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None, copy: bool | None = None,
    ) -> Any:  # fmt: skip
        """A capsule of version 0 of DLPack, which all take, whatever `max_version`; `stream`: the stream that will read
        it, -1 for one that needs not wait. Raises BufferError where another device or a copy is asked for."""
        if copy or dl_device not in (None, self.__dlpack_device__()):
            raise BufferError("the array is handed over where it lies, and not copied; .get() copies it to the CPU's")
        self._read_on(stream or LEGACY)
        return lent(self)

    def as_cupy(self) -> Any:
        """A CuPy array where CuPy is in use in this process, whose current stream waits for it; else itself."""
        cupy = sys.modules.get("cupy")
        if cupy is None or self.dtype.name == "bfloat16" or not self.size:
            return self
        self._read_on(cupy.cuda.get_current_stream().ptr or LEGACY)
        memory = cupy.cuda.UnownedMemory(self.address, self.nbytes, self.owner)
        pointer = cupy.cuda.MemoryPointer(memory, 0)
        return cupy.ndarray(self.shape, self.dtype, pointer, self.strides)
