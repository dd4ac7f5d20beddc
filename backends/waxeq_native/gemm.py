"""The products of matrices in C: their text, a unit for each element type, and the table of functions in Python."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from waxeq_cfamily.functions import DTYPES
from waxeq_native import library
from waxeq_native.compiler import CompileFailed

HERE = Path(__file__).parent
FILES = tuple(HERE / name for name in ("gemm.c", "gemm.h", "tile.h", "dots.h", "api.h"))
KINDS = tuple(DTYPES.values())

_SIZE = ctypes.c_int64
_POINTER = ctypes.c_void_p
_FLAG = ctypes.c_int
_A = (_POINTER, _SIZE, _SIZE)  # a matrix and its two strides
_SIDES = (_SIZE, _SIZE, _SIZE)
_C = (_POINTER, _SIZE, _FLAG)  # the result, the stride of its rows, accumulate


def header() -> str:
    """The text of api.h: what a generated kernel sees."""
    return (HERE / "api.h").read_text(encoding="utf-8")


def _members(kind: str) -> list[tuple[str, type]]:
    """WX_API_MEMBERS of api.h, in its order."""
    function = ctypes.CFUNCTYPE
    members = {
        "nr": _SIZE,
        "packed_size": function(_SIZE, _SIZE, _SIZE),
        "pack_b": function(None, _SIZE, _SIZE, *_A, _POINTER),
        "gemm": function(None, *_SIDES, *_A, _POINTER, *_C, _POINTER),
        "gemm_scratch": function(_SIZE, *_SIDES),
        "gemm_any": function(None, *_SIDES, *_A, *_A, *_C, _POINTER),
        "gemm_any_scratch": function(_SIZE, *_SIDES),
        "dots_pay": function(_FLAG, *_SIDES[:2], *_A[1:]),
        "lies_well": function(_FLAG, *_SIDES, *_A[1:]),
        "blas": function(_FLAG, _POINTER, _SIZE, *_SIDES, *_A, *_A, *_C),
    }
    return [(f"{name}_{kind}", member) for name, member in members.items()]


class Api(ctypes.Structure):
    """`wx_api`; its functions can be called with integers as pointers, sizes and strides counted in elements."""

    _fields_ = [member for kind in KINDS for member in _members(kind)]


UNITS = {kind: (FILES, (f"-DWX_ONLY_{kind}",)) for kind in KINDS}
"""What is compiled for each kind of elements."""

_table = Api()
_filled: set[str] = set()
_failed: dict[str, str] = {}
"""Kinds that could not be compiled, which takes seconds to find out, and why."""


def api() -> Api:
    """The table of this process, empty for kinds of elements that were never `made`."""
    return _table


def made(kinds: Iterable[str]) -> Api:
    """The table of this process, with all that it says for elements of these kinds; what is not compiled yet is, all at
    once. Raises MissingCompiler, CompileFailed."""
    missing = [kind for kind in kinds if kind not in _filled]
    if missing:
        if why := next((_failed[kind] for kind in missing if kind in _failed), None):
            raise CompileFailed(why)
        try:
            units = library.units([UNITS[kind] for kind in missing])
        except CompileFailed as e:
            if len(missing) > 1:  # which of them it is shows alone, and what compiled is kept
                for kind in missing:
                    made((kind,))
                return _table
            _failed[missing[0]] = str(e)
            raise
        for kind, built in zip(missing, units, strict=True):
            getattr(built, f"wx_fill_{kind}")(ctypes.byref(_table))
            _filled.add(kind)
    return _table


def entry(name: str, dtype: str) -> Any:
    """A number or a function of the table for elements of a type: `entry("nr", "float32")`. Raises MissingCompiler,
    CompileFailed."""
    kind = DTYPES[dtype]
    return getattr(made((kind,)), f"{name}_{kind}")
