"""The products of matrices in C: their text, a unit for each element type, and the table of functions in Python."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

from waxeq_native import library

HERE = Path(__file__).parent
FILES = tuple(HERE / name for name in ("gemm.c", "gemm.h", "tile.h", "dots.h", "api.h"))
_KINDS = ("f32", "f64")

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

    _fields_ = [member for kind in _KINDS for member in _members(kind)]


@cache
def api() -> Api:
    """The table of this process. Raises MissingCompiler, CompileFailed."""
    table = Api()
    for kind, built in zip(_KINDS, library.units([(FILES, (f"-DWX_ONLY_{kind}",)) for kind in _KINDS]), strict=True):
        getattr(built, f"wx_fill_{kind}")(ctypes.byref(table))
    return table
