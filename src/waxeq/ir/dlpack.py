"""Tensors as DLPack lays them out in C, which is how libraries lend each other arrays.

Source: https://dmlc.github.io/dlpack/latest/c_api.html, https://dmlc.github.io/dlpack/latest/python_spec.html.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from waxeq.errors import TypeMismatch
from waxeq.ir.types import numpy_dtype

CPU, CUDA = 1, 2
"""kDLCPU, kDLCUDA"""
_CODES = {"i": 0, "u": 1, "f": 2, "b": 6}
_BFLOAT = 4


class Type(ctypes.Structure):
    """DLDataType."""

    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))

    @staticmethod
    def of(dtype: np.dtype) -> Type:
        """How DLPack writes a dtype."""
        return Type(_BFLOAT if dtype.name == "bfloat16" else _CODES[dtype.kind], 8 * dtype.itemsize, 1)

    @property
    def numpy(self) -> np.dtype:
        """Raises TypeMismatch for elements that waxeq has no dtype for."""
        kind = {v: k for k, v in _CODES.items()}.get(self.code)
        if self.lanes != 1 or (kind is None and self.code != _BFLOAT):
            raise TypeMismatch(f"waxeq has no dtype for elements of DLPack's code {self.code}")
        return numpy_dtype("bfloat16") if kind is None else np.dtype(f"{kind}{self.bits // 8}")


class Tensor(ctypes.Structure):
    """DLTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p), ("device", ctypes.c_int32), ("number", ctypes.c_int32), ("ndim", ctypes.c_int32),
        ("dtype", Type), ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64),
    )  # fmt: skip


class Managed(ctypes.Structure):
    """DLManagedTensor."""


Delete = ctypes.CFUNCTYPE(None, ctypes.POINTER(Managed))
Managed._fields_ = (("tensor", Tensor), ("context", ctypes.c_void_p), ("delete", Delete))

_python = ctypes.pythonapi
_python.PyCapsule_New.restype = ctypes.py_object
_python.PyCapsule_New.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_python.PyCapsule_GetPointer.restype = ctypes.c_void_p
_python.PyCapsule_GetPointer.argtypes = (ctypes.c_void_p, ctypes.c_char_p)
_python.PyCapsule_IsValid.argtypes = (ctypes.c_void_p, ctypes.c_char_p)
_python.PyCapsule_SetName.argtypes = (ctypes.py_object, ctypes.c_char_p)
_NAME, _USED = b"dltensor", b"used_dltensor"


class _Taken:
    """A tensor that was taken out of a capsule: given back when nobody holds it any more."""

    def __init__(self, managed: Any) -> None:
        self._managed = managed

    def __del__(self) -> None:
        if self._managed.delete:
            self._managed.delete(ctypes.byref(self._managed))


@dataclass(frozen=True)
class Lent:
    """Where an array of somebody else lies, for as long as `owner` lives. `strides`: bytes; None: row by row."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    dtype: np.dtype
    owner: object

    def array(self) -> np.ndarray:
        """As an array of NumPy that is only read. Memory of the CPU alone."""
        if 0 in self.shape:
            return np.empty(self.shape, self.dtype)
        face = {
            "shape": self.shape,
            "strides": self.strides,
            "typestr": f"<V{self.dtype.itemsize}",
            "data": (self.address, True),
            "version": 3,
        }
        return np.asarray(_Faced(face, self.owner)).view(self.dtype)


class _Faced:
    """What NumPy makes an array of, and holds for as long as that lives."""

    def __init__(self, face: dict[str, Any], owner: object) -> None:
        self.__array_interface__, self.owner = face, owner


def packed(managed: Managed) -> Any:
    """A capsule of a tensor."""
    return _python.PyCapsule_New(ctypes.addressof(managed), _NAME, None)


def untaken(capsule: Any) -> bool:
    """Whether nobody has taken the tensor out of a capsule."""
    return bool(_python.PyCapsule_IsValid(id(capsule), _NAME))


def opened(capsule: Any) -> Lent:
    """The tensor in a capsule, which is empty from now on. Raises TypeMismatch for elements that waxeq has no dtype
    for."""
    managed = Managed.from_address(_python.PyCapsule_GetPointer(id(capsule), _NAME))
    _python.PyCapsule_SetName(capsule, _USED)
    owner, t = _Taken(managed), managed.tensor
    dtype: np.dtype = t.dtype.numpy
    shape: Sequence[int] = t.shape[: t.ndim]
    strides = tuple(s * dtype.itemsize for s in t.strides[: t.ndim]) if t.strides else None
    return Lent((t.data or 0) + t.offset, tuple(shape), strides, dtype, owner)
