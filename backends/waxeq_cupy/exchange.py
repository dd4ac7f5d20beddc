"""Arrays of the device in and out with no copy: DLPack and the CUDA array interface.

Whoever hands over an array says on which stream it was made; ours waits for that, and theirs for ours.

Sources: https://dmlc.github.io/dlpack/latest/python_spec.html,
https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html (version 3).
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from waxeq.backend.storage import DeviceArray, Storage, dense_strides
from waxeq.errors import TypeMismatch
from waxeq.ir.types import numpy_dtype

_CUDA = 2
"""kDLCUDA"""
_LEGACY = 1
"""The stream of whoever names none."""
_CODES = {"i": 0, "u": 1, "f": 2, "b": 6}
_BFLOAT = 4


@dataclass(frozen=True)
class Wire:
    """The stream that an array is made on, what makes it wait for another stream, and another one for it."""

    stream: int
    after: Callable[[int], None]
    before: Callable[[int], None]


# -- DLPack, as C lays it out


class _Type(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p), ("device", ctypes.c_int32), ("number", ctypes.c_int32), ("ndim", ctypes.c_int32),
        ("dtype", _Type), ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64),
    )  # fmt: skip


class _Managed(ctypes.Structure):
    pass


_Delete = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_Managed._fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("delete", _Delete))

_python = ctypes.pythonapi
_python.PyCapsule_New.restype = ctypes.py_object
_python.PyCapsule_New.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_python.PyCapsule_GetPointer.restype = ctypes.c_void_p
_python.PyCapsule_GetPointer.argtypes = (ctypes.c_void_p, ctypes.c_char_p)
_python.PyCapsule_IsValid.argtypes = (ctypes.c_void_p, ctypes.c_char_p)
_python.PyCapsule_SetName.argtypes = (ctypes.py_object, ctypes.c_char_p)
_NAME, _USED = b"dltensor", b"used_dltensor"
_given: dict[int, tuple[Any, ...]] = {}
"""What lives until whoever took a capsule gives it back, by the address of its tensor."""


@_Delete
def _back(managed: Any) -> None:
    _given.pop(ctypes.addressof(managed.contents), None)


def _sweep() -> None:
    """Let go of what nobody took out of a capsule that is gone. A capsule could say so itself, but does where an
    exception is on its way, and no Python can run there."""
    for at, row in list(_given.items()):
        if sys.getrefcount(row[-1]) == 2 and _python.PyCapsule_IsValid(id(row[-1]), _NAME):
            del _given[at]


def capsule(a: DeviceArray) -> Any:
    """An array of a device as DLPack has it; the array lives as long as somebody holds that."""
    n, item = a.ndim, a.itemsize
    shape, strides = (ctypes.c_int64 * n)(*a.shape), (ctypes.c_int64 * n)(*(s // item for s in a.strides))
    code = _BFLOAT if a.dtype.name == "bfloat16" else _CODES[a.dtype.kind]
    tensor = _Tensor(a.address or None, _CUDA, 0, n, _Type(code, 8 * item, 1), shape, strides, 0)
    made = _Managed(tensor, None, _back)
    _sweep()
    packed = _python.PyCapsule_New(ctypes.addressof(made), _NAME, None)
    _given[ctypes.addressof(made)] = (made, shape, strides, a, packed)
    return packed


class _Taken:
    """A tensor that was taken out of a capsule: given back when nobody holds it any more."""

    def __init__(self, managed: Any) -> None:
        self._managed = managed

    def __del__(self) -> None:
        if self._managed.delete:
            self._managed.delete(ctypes.byref(self._managed))


def opened(storage: Storage, given: Any) -> DeviceArray:
    """The array in a capsule. Raises TypeMismatch for elements that waxeq has no dtype for."""
    managed = _Managed.from_address(_python.PyCapsule_GetPointer(id(given), _NAME))
    _python.PyCapsule_SetName(given, _USED)
    owner, t = _Taken(managed), managed.tensor
    kind = {v: k for k, v in _CODES.items()}.get(t.dtype.code)
    if t.dtype.lanes != 1 or (kind is None and t.dtype.code != _BFLOAT):
        raise TypeMismatch(f"waxeq has no dtype for elements of DLPack's code {t.dtype.code}")
    dtype = numpy_dtype("bfloat16") if kind is None else np.dtype(f"{kind}{t.dtype.bits // 8}")
    shape = tuple(t.shape[i] for i in range(t.ndim))
    strides = tuple(t.strides[i] * dtype.itemsize for i in range(t.ndim)) if t.strides else None
    return DeviceArray(
        storage, (t.data or 0) + t.offset, shape, strides or dense_strides(shape, dtype.itemsize), dtype, owner
    )


# -- in and out


def taken(storage: Storage, value: Any, wire: Wire) -> DeviceArray | None:
    """An array of the device, whoever made it, as one of ours; None for anything else."""
    if isinstance(value, DeviceArray):
        return value if value.storage is storage else None
    faced = getattr(value, "__cuda_array_interface__", None)
    if faced is not None and ("stream" in faced or not hasattr(value, "__dlpack__")):
        stream = faced.get("stream", _LEGACY)
        if stream is not None:
            wire.after(stream)
        dtype, shape = np.dtype(faced["typestr"]), tuple(faced["shape"])
        strides = faced.get("strides") or dense_strides(shape, dtype.itemsize)
        return DeviceArray(storage, faced["data"][0], shape, tuple(strides), dtype, value)
    where = getattr(value, "__dlpack_device__", None)
    if where is not None and tuple(where()) == (_CUDA, 0):
        return opened(storage, value.__dlpack__(stream=wire.stream))
    return None


@dataclass(frozen=True, eq=False)
class CudaArray(DeviceArray):
    """A result on the device: torch, jax and CuPy take it with no copy (`torch.from_dlpack`, `cupy.asarray`)."""

    wire: Wire | None = None

    @staticmethod
    def of(a: DeviceArray, wire: Wire) -> CudaArray:
        """The same array, to be handed out."""
        return CudaArray(a.storage, a.address, a.shape, a.strides, a.dtype, a.owner, wire)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.dtype.name == "bfloat16":
            raise AttributeError("the CUDA array interface has no bfloat16; use DLPack")
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.address, False),
            "version": 3,
            "strides": None if self.dense else self.strides,
            "stream": None if self.wire is None else self.wire.stream,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CUDA, 0

    def __dlpack__(self, *, stream: int | None = None, **_: Any) -> Any:
        """A capsule; `stream`: the stream that will read it, -1 for one that needs not wait."""
        if self.wire is not None and stream != -1:
            self.wire.before(_LEGACY if stream is None else stream)
        return capsule(self)

    def as_cupy(self) -> Any:
        """A CuPy array where CuPy is in use in this process, whose current stream waits for it; else itself."""
        cupy = sys.modules.get("cupy")
        if cupy is None or self.dtype.name == "bfloat16" or not self.size:
            return self
        if self.wire is not None:
            self.wire.before(cupy.cuda.get_current_stream().ptr or _LEGACY)
        memory = cupy.cuda.UnownedMemory(self.address, self.nbytes, self.owner)
        pointer = cupy.cuda.MemoryPointer(memory, 0)
        return cupy.ndarray(self.shape, self.dtype, pointer, self.strides)
