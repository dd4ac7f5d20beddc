"""Bits of bytes as elements, and elements as bits of bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from waxeq.frontend.array import Tracer
from waxeq.frontend.explicit import axis_index
from waxeq.ir.types import is_floating


def _in_order(bitorder: str) -> np.ndarray:
    """The numbers of the eight bits of a byte, in the order that they are packed in."""
    if bitorder not in ("big", "little"):
        raise ValueError("'order' must be either 'little' or 'big'")
    return np.arange(8, dtype=np.uint8)[:: -1 if bitorder == "big" else 1]


def _packbits(t: Tracer, a: Any, /, axis: int | None = None, bitorder: str = "big") -> Any:
    x = t.array(a)
    if is_floating(x.dtype):
        raise TypeError("Expected an input array of integer or boolean data type")
    values = np.left_shift(np.uint8(1), _in_order(bitorder), dtype=np.uint8)
    x = x.reshape(-1) if axis is None or x.ndim == 0 else x
    axis = axis_index(axis or 0, x.ndim)
    bits = np.moveaxis(x.astype(bool), axis, -1)
    missing = -bits.shape[-1] % 8
    if missing:
        bits = np.pad(bits, [(0, 0)] * (bits.ndim - 1) + [(0, missing)])
    bytes_ = bits.reshape((*bits.shape[:-1], bits.shape[-1] // 8, 8)).astype(np.uint8) * values
    return np.moveaxis(np.sum(bytes_, axis=-1, dtype=np.uint8), -1, axis)


def _unpackbits(t: Tracer, a: Any, /, axis: int | None = None, count: int | None = None, bitorder: str = "big") -> Any:
    x = t.array(a)
    if x.dtype != np.uint8:
        raise TypeError("Expected an input array of unsigned byte data type")
    x = x.reshape(-1) if axis is None or x.ndim == 0 else x
    axis = axis_index(axis or 0, x.ndim)
    rows = np.moveaxis(x, axis, -1)
    bits = (rows[..., None] >> _in_order(bitorder)) & np.uint8(1)
    n = rows.shape[-1] * 8
    bits = bits.reshape((*rows.shape[:-1], n))
    if count is not None:
        if count < -n:
            raise ValueError("-count larger than number of elements")
        kept = count if count >= 0 else n + count
        bits = bits[..., :kept]
        if kept > n:
            bits = np.pad(bits, [(0, 0)] * (bits.ndim - 1) + [(0, kept - n)])
    return np.moveaxis(bits, -1, axis)


HANDLERS: Mapping[str, Callable[..., Any]] = {"packbits": _packbits, "unpackbits": _unpackbits}
