"""What a user gives as an array: what cannot be one, or would lose something, is refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np

from waxeq.errors import TypeMismatch
from waxeq.ir.dlpack import CPU, opened
from waxeq.ir.types import DTYPES

_NO_NUMBERS = "OUSMm"
"""Kinds of dtypes of objects, texts, bytes, dates and spans of time."""
FIXED = "fixed"
"""Under what the record of a plan has the Python values among its examples, their texts by name."""


def as_array(value: Any, what: str, takes: str = "") -> np.ndarray:
    """`value` as a plain array in native byte order. `what` names it in a sentence ("input 'x'"); `takes` says what it
    should be. An array of another library is taken by DLPack where that is all it has. Raises TypeMismatch for what
    NumPy makes no array of numbers of, and for masked arrays: their mask would be lost.
    """
    reason = None
    if type(value) is not np.ndarray and isinstance(value, np.ma.MaskedArray):  # whose module takes a while to import
        reason = "is a masked array, whose mask would be lost; pass x.filled(value), or x.data and x.mask as two arrays"
    elif value is None:
        reason = "is None"
    elif isinstance(value, (str, bytes, set, frozenset, dict)) or (callable(value) and not hasattr(value, "__array__")):
        reason = f"is of class {type(value).__name__}"
    if reason is not None:
        raise TypeMismatch(_sentence(what, reason, takes))
    try:
        a = _plain(value)
    except (ValueError, TypeError, BufferError, RuntimeError) as e:
        uneven = "inhomogeneous" in str(e)
        reason = "has rows of different lengths" if uneven else f"cannot be made an array ({type(e).__name__}: {e})"
        raise TypeMismatch(_sentence(what, reason, takes)) from e
    if a.dtype.kind in _NO_NUMBERS:
        given = f"an array of dtype {a.dtype}" if isinstance(value, np.ndarray) else f"of class {type(value).__name__}"
        whole = "pass x.astype(np.int64), which counts them; " if a.dtype.kind in "Mm" else ""
        raise TypeMismatch(_sentence(what, f"is {given}", whole + (takes or f"waxeq knows {', '.join(DTYPES)}")))
    return a if a.dtype.isnative else a.astype(a.dtype.newbyteorder("="))


def content(a: np.ndarray) -> memoryview:
    """The bytes of an array's elements in their order, of any dtype: bfloat16 has no buffer protocol."""
    return np.ascontiguousarray(a).reshape(-1).view(np.uint8).data


def _plain(value: Any) -> np.ndarray:
    """Whatever NumPy makes of a value; bfloat16 of others, which it has no dtype for, as DLPack says where it lies."""
    lends = not isinstance(value, np.ndarray) and hasattr(value, "__dlpack__")
    if lends and str(getattr(value, "dtype", "")).endswith("bfloat16") and value.__dlpack_device__()[0] == CPU:
        return opened(value.__dlpack__()).array()
    return np.from_dlpack(value) if lends and not hasattr(value, "__array__") else np.asarray(value)


def _sentence(what: str, reason: str, takes: str) -> str:
    return f"{what} {reason}" + (f"; {takes}" if takes else "")
