"""C text of scalar functions, dtypes and numbers. Functions that need a polynomial are in `functions.h`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from waxeq.basis.scalar import SCALARS
from waxeq.ir.types import is_float, numpy_dtype

CTYPES: Mapping[str, str] = MappingProxyType(
    {
        "bool": "uint8_t", "int8": "int8_t", "int16": "int16_t", "int32": "int32_t", "int64": "int64_t",
        "uint8": "uint8_t", "uint16": "uint16_t", "uint32": "uint32_t", "uint64": "uint64_t",
        "float16": "uint16_t", "bfloat16": "uint16_t", "float32": "float", "float64": "double",
    }
)  # fmt: skip
"""The C type of each dtype that generated kernels take, as it lies in memory."""

NARROW: Mapping[str, str] = MappingProxyType({"float16": "f16", "bfloat16": "bf16"})
"""Floats that are computed with as float32 and rounded after each function, as NumPy and ml_dtypes do. Sums are rounded
once, at their end."""
_ROUNDED_ALREADY = frozenset(
    {"neg", "abs", "sign", "copysign", "floor", "ceil", "trunc", "rint", "max", "min", "fmax", "fmin", "Select"}
)
"""Functions whose values need as few digits as their arguments."""

_FLOAT: Mapping[str, str] = MappingProxyType(
    {
        "floor": "__builtin_floor{s}({0})",
        "ceil": "__builtin_ceil{s}({0})",
        "trunc": "__builtin_trunc{s}({0})",
        "rint": "__builtin_rint{s}({0})",
        "sqrt": "__builtin_sqrt{s}({0})",
        "rsqrt": "(1 / __builtin_sqrt{s}({0}))",
        "recip": "(1 / {0})",
        "abs": "__builtin_fabs{s}({0})",
        "sign": "({0} != {0} ? {0} : (({0} > 0) - ({0} < 0)))",
        "isnan": "({0} != {0})",
        "isinf": "(__builtin_fabs{s}({0}) > WX_MAX_{d})",
        "isfinite": "(__builtin_fabs{s}({0}) <= WX_MAX_{d})",
        "signbit": "wx_negative_{k}({0})",
        "copysign": "__builtin_copysign{s}({0}, {1})",
        "div": "({0} / {1})",
    }
)
_INTEGER: Mapping[str, str] = MappingProxyType(
    {
        "abs": "({0} < 0 ? -{0} : {0})",
        "sign": "(({0} > 0) - ({0} < 0))",
        "invert": "(~{0})",
        "bitcount": "wx_ones_{w}({0} < 0 ? 0 - ({u}){0} : ({u}){0})",
        "bitand": "({0} & {1})",
        "bitor": "({0} | {1})",
        "bitxor": "({0} ^ {1})",
        # as NumPy has them: nothing is left of what is shifted by all its bits or more, or by a negative number
        "shl": "({1} >= 0 && {1} < {w} ? ({c})(({u}){0} << {1}) : 0)",
        "shr": "({0} >> ({1} >= 0 && {1} < {w} ? {1} : {w} - 1))",
        # by zero: zero; and by -1 what has no opposite stays
        "floordiv": "({1} == 0 ? 0 : {1} == -1 ? ({c})(0 - ({u}){0}) : "
        "{0} / {1} - ({0} % {1} != 0 && ({0} % {1} < 0) != ({1} < 0)))",
        "mod": "({1} == 0 || {1} == -1 ? 0 : {0} % {1} + ({0} % {1} != 0 && ({0} % {1} < 0) != ({1} < 0) ? {1} : 0))",
        "fmod": "({1} == 0 || {1} == -1 ? 0 : {0} % {1})",
    }
)
_UNSIGNED: Mapping[str, str] = MappingProxyType(
    {
        "abs": "{0}",
        "bitcount": "wx_ones_{w}({0})",
        "shl": "({1} < {w} ? ({u}){0} << {1} : 0)",
        "shr": "({1} < {w} ? {0} >> {1} : 0)",
        "floordiv": "({1} == 0 ? 0 : {0} / {1})",
        "mod": "({1} == 0 ? 0 : {0} % {1})",
        "fmod": "({1} == 0 ? 0 : {0} % {1})",
    }
)
_ANY: Mapping[str, str] = MappingProxyType(
    {
        "Add": "({0} + {1})",
        "Mul": "({0} * {1})",
        "sub": "({0} - {1})",
        "neg": "(-{0})",
        "square": "({0} * {0})",
        "max": "({1} != {1} ? {1} : {1} > {0} ? {1} : {0})",
        "min": "({1} != {1} ? {1} : {1} < {0} ? {1} : {0})",
        "fmax": "({0} != {0} ? {1} : {1} > {0} ? {1} : {0})",
        "fmin": "({0} != {0} ? {1} : {1} < {0} ? {1} : {0})",
        "eq": "({0} == {1})",
        "ne": "({0} != {1})",
        "lt": "({0} < {1})",
        "le": "({0} <= {1})",
        "gt": "({0} > {1})",
        "ge": "({0} >= {1})",
        "Select": "({0} ? {1} : {2})",
    }
)
_BOOL: Mapping[str, str] = MappingProxyType(
    {
        "Add": "({0} | {1})", "Mul": "({0} & {1})", "not": "(!{0})", "and": "({0} & {1})", "or": "({0} | {1})",
        "xor": "({0} ^ {1})", "max": "({0} | {1})", "min": "({0} & {1})",
        "eq": "({0} == {1})", "ne": "({0} != {1})", "lt": "({0} < {1})", "le": "({0} <= {1})",
        "gt": "({0} > {1})", "ge": "({0} >= {1})", "Select": "({0} ? {1} : {2})",
    }
)  # fmt: skip


def var(axis: str) -> str:
    """The C name of an axis."""
    return axis.replace("'", "_b").replace(":", "_")


def nth(i: int) -> str:
    """What the C names of the i-th result end in: nothing for the first, which most have alone."""
    return str(i) if i else ""


def carried(dtype: str) -> str:
    """The dtype of the C variables that hold a dtype's values."""
    return "float32" if dtype in NARROW else dtype


def variable(dtype: str) -> str:
    """The C type of variables that hold a dtype's values."""
    return CTYPES[carried(dtype)]


def widened(text: str, dtype: str) -> str:
    """What was read from memory as a value to compute with."""
    return f"wx_widened_{NARROW[dtype]}({text})" if dtype in NARROW else text


def narrowed(text: str, dtype: str) -> str:
    """A value, rounded to its dtype or not, as it is written to memory."""
    return f"wx_narrowed_{NARROW[dtype]}({text})" if dtype in NARROW else text


def rounded(text: str, dtype: str) -> str:
    """A value rounded to its dtype."""
    return f"wx_rounded_{NARROW[dtype]}({text})" if dtype in NARROW else text


def rounds(name: str, dtype: str) -> bool:
    """Whether a function's value in `dtype` must be rounded after it is computed."""
    return dtype in NARROW and name not in _ROUNDED_ALREADY


def expression(name: str, dtype: str, gives: str, functions: Mapping[tuple[str, str], str]) -> str | None:
    """A format string over its arguments for a function on `dtype` that gives dtype `gives`, not rounded where it
    `rounds`; None where there is none.

    `functions`: C names by (function, dtype) of those that need code of their own.
    """
    if name == "Cast":
        return _cast(dtype, gives)
    if dtype in NARROW:
        if name == "rsqrt":
            return f"(1 / {rounded('__builtin_sqrtf({0})', dtype)})"
        return expression(name, carried(dtype), carried(gives), functions)
    if is_float(dtype):
        text = _FLOAT.get(name) or _ANY.get(name)
        if text is None and (name, dtype) in functions:
            text = functions[name, dtype] + ("({0}, {1})" if name in _BINARY else "({0})")
        suffix, kind = ("f", "F32") if dtype == "float32" else ("", "F64")
        text = text and text.replace("{s}", suffix).replace("{d}", kind).replace("{k}", kind.lower())
    elif dtype == "bool":
        text = _BOOL.get(name)
    else:
        unsigned = _UNSIGNED.get(name) if dtype.startswith("uint") else None
        text = unsigned or _INTEGER.get(name) or _ANY.get(name)
        bits = 8 * numpy_dtype(dtype).itemsize
        wide = f"uint{max(bits, 32)}_t"  # of what is narrower C makes an int, whose last bit is a sign
        text = text and text.replace("{w}", str(bits)).replace("{u}", wide).replace("{c}", CTYPES[dtype])
    if text is None or gives not in CTYPES:
        return None
    return text if is_float(gives) else f"(({CTYPES[gives]}){text})"  # C computes small integers as int


_BINARY = frozenset(name for name, scalar in SCALARS.items() if scalar.arity == 2)


def _cast(dtype: str, gives: str) -> str:
    if gives == "bool":
        return "((uint8_t)({0} != 0))"
    if dtype == "bool" and is_float(gives):  # of one byte that becomes four gcc makes no vectors of 32-bit comparisons
        return f"({{0}} ? {number('1', carried(gives))} : {number('0', carried(gives))})"
    if (dtype, gives) == ("float64", "float16"):
        return "wx_odd_f32({0})"
    return f"(({variable(gives)}){{0}})"


def number(value: str, dtype: str) -> str:
    """A literal that is exactly the value in `dtype`."""
    with np.errstate(all="ignore"):
        x = np.asarray(float(value)).astype(numpy_dtype(dtype))[()]
    if not is_float(dtype):
        return f"(({CTYPES[dtype]}){int(x)}{'u' if dtype.startswith('u') else ''}{'ll' if abs(int(x)) >> 31 else ''})"
    f = float(x)
    suffix, kind = ("", "F64") if dtype == "float64" else ("f", "F32")
    if math.isnan(f):
        return f"WX_NAN_{kind}"
    if math.isinf(f):
        return f"({'-' if f < 0 else ''}WX_INF_{kind})"
    return f"({f.hex()}{suffix})"


@np.errstate(all="ignore")
def start(kind: str, dtype: str) -> str:
    """What a fold begins with. Raises KeyError for a fold that has no such number."""
    if kind in ("sum", "any"):
        return number("0", dtype)
    if kind in ("prod", "all"):
        return number("1", dtype)
    low = {"max": True, "min": False}[kind]
    if dtype == "bool":
        return "0" if low else "1"
    if is_float(dtype):
        return number("-inf" if low else "inf", dtype)
    info = np.iinfo(dtype)
    if dtype in ("int64", "uint64"):
        return {("int64", True): "INT64_MIN", ("int64", False): "INT64_MAX", ("uint64", True): "0"}.get(
            (dtype, low), "UINT64_MAX"
        )
    return f"(({CTYPES[dtype]}){info.min if low else info.max})"


def combine(kind: str, dtype: str, a: str, b: str) -> str:
    """One step of a fold: the accumulator `a` and the next value `b`. NaN in floats is handled by the loop for max
    and min."""
    if kind == "sum":
        return f"{a} | {b}" if dtype == "bool" else f"{a} + {b}"
    if kind == "prod":
        return f"{a} & {b}" if dtype == "bool" else f"{a} * {b}"
    if kind in ("any", "all"):
        return f"{a} {'|' if kind == 'any' else '&'} ({b} != 0)"
    if dtype == "bool":
        return f"{a} {'|' if kind == 'max' else '&'} {b}"
    return f"{b} {'>' if kind == 'max' else '<'} {a} ? {b} : {a}"
