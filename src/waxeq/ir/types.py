"""Tensor types: a dtype name and a shape."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cache

import numpy as np

from waxeq.errors import TypeMismatch, UnknownDtype

HALVES = ("float16", "bfloat16")
"""Floats of sixteen bits."""
FLOATS = (*HALVES, "float32", "float64")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
DTYPES = ("bool", *INTEGERS, *FLOATS)
_SHORT = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "b1": "bool"}
_SHORT |= {f"{'u' if n[0] == 'u' else 'i'}{n.lstrip('uint')}": n for n in INTEGERS}


@cache
def numpy_dtype(name: str) -> np.dtype:
    """The NumPy dtype called `name`; bfloat16 comes from ml_dtypes."""
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


def dtype_name(dtype: object) -> str:
    """The waxeq name of anything that names a dtype: "f32", "float32", np.float32, np.dtype(...).

    Raises UnknownDtype for dtypes outside `DTYPES`, TypeMismatch for what is no dtype.
    """
    if isinstance(dtype, str) and (dtype in _SHORT or dtype in DTYPES):
        return _SHORT.get(dtype, dtype)
    return numpy_name(dtype)


def numpy_name(dtype: object) -> str:
    """The waxeq name of what NumPy takes as a dtype: its "i8" has eight bytes, not bits. Raises as `dtype_name`
    does."""
    try:
        found = np.dtype(dtype)  # pyright: ignore[reportArgumentType, reportCallIssue]
    except TypeError as e:
        raise TypeMismatch(f"{dtype!r} is not a dtype; waxeq knows {', '.join(DTYPES)}") from e
    return _name(found)


@cache
def _name(dtype: np.dtype) -> str:
    if dtype.name not in DTYPES:
        raise UnknownDtype(f"dtype {dtype.name} is not supported; waxeq knows {', '.join(DTYPES)}")
    return dtype.name


def is_float(dtype: str) -> bool:
    """Whether the dtype is a floating-point one."""
    return dtype in FLOATS


def is_floating(dtype: np.dtype) -> bool:
    """Whether a NumPy dtype is one of floats: bfloat16 is, whose kind is "V", as NumPy does not know what it holds."""
    return dtype.kind == "f" or dtype.name == "bfloat16"


def is_integer(dtype: str) -> bool:
    """Whether the dtype is a signed or unsigned integer; bool is not."""
    return dtype in INTEGERS


def promoted(a: np.dtype, b: np.dtype) -> np.dtype:
    """The NumPy dtype that numbers of both can be compared in. Of bfloat16 and wide integers or float16 there is none
    by NumPy's rule of promotion, but one that they are added in."""
    try:
        return np.promote_types(a, b)
    except np.exceptions.DTypePromotionError:
        return np.add.resolve_dtypes((a, b, None))[0]  # pyright: ignore[reportArgumentType]


@dataclass(frozen=True, slots=True)
class TensorType:
    """A dtype and a shape of non-negative sizes. Prints as `float32[4, 8]`."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.elements * numpy_dtype(self.dtype).itemsize

    @property
    def numpy(self) -> np.dtype:
        return numpy_dtype(self.dtype)

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"

    @staticmethod
    def of(array: object) -> TensorType:
        """The type of an array or scalar."""
        a = np.asarray(array)
        return TensorType(dtype_name(a.dtype), a.shape)

    @staticmethod
    def parse(text: str) -> TensorType:
        """Inverse of `str`; also takes short dtype names (`f32[4, 8]`)."""
        m = re.fullmatch(r"\s*(\w+)\[([\d,\s]*)\]\s*", text)
        if not m:
            raise TypeMismatch(f"{text!r} is not a tensor type; write it as float32[4, 8]")
        return TensorType(dtype_name(m[1]), tuple(int(s) for s in m[2].replace(",", " ").split()))


def comparable(a: np.ndarray) -> np.ndarray:
    """An array whose elements NumPy puts in order: of bfloat16, which ml_dtypes has NaN anywhere in, as float32."""
    return a.astype(np.float32) if a.dtype.name == "bfloat16" else a
