"""The scalar functions that generated kernels call: their C names, how exact they are, and what they cost."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Literal

HERE = Path(__file__).resolve().parent
HEADER = HERE / "functions.h"
MEASURED = HERE / "accuracy.json"

Kind = Literal["approximate", "exact"]
DTYPES = MappingProxyType({"float32": "f32", "float64": "f64"})
BELOW = "exp_below"


@dataclass(frozen=True, slots=True)
class Function:
    """One function of functions.h for one dtype.

    name: of the scalar in `waxeq.basis.scalar`. dtype: "float32" or "float64". symbol: its name in C.
    kind: "exact" is the machine's own operation or has what NumPy computes of these, bit for bit; "approximate" is a
    polynomial of our own.
    limit: beyond this size of x, or of x / y, the result is NaN, and `beyond` names the C function to call instead.
    largest_ulp: largest error measured, in units in the last place, with fused multiply-add and without it.
    at: the inputs of that error. instructions: of one element's share of a vector of AVX2 (counted, not timed).
    nanoseconds: of one element in cache on the machine that measured.
    """

    name: str
    dtype: str
    symbol: str
    arity: int
    kind: Kind
    limit: float | None
    beyond: str | None
    largest_ulp: float
    at: tuple[float, ...]
    instructions: float
    nanoseconds: float
    note: str


@dataclass(frozen=True, slots=True)
class Described:
    """What is known of a function without measuring: the same for both dtypes but for `limits` (float32, float64).

    reference: the function in C of wider numbers that it is measured against, {w} is "" or "l" (long double).
    call: the expression measured where it is not the plain call, {s} is the C name, {d} the suffix of the dtype.
    """

    name: str
    reference: str
    arity: int = 1
    kind: Kind = "approximate"
    limits: tuple[float, float] | None = None
    call: str | None = None
    note: str = ""


TURNS = (2.0**17, 2.0**30)
BEYOND = "NaN beyond the limit"
QUOTIENTS = (2.0**21, 2.0**35)
VIA_DOUBLE = "float32 goes through float64"
_ONE_LESS = "(fmod{w}(x, y) != 0 && (fmod{w}(x, y) < 0) != (y < 0))"
_MOD = f"(fmod{{w}}(x, y) == 0 ? copysign{{w}}(0, y) : fmod{{w}}(x, y) + ({_ONE_LESS} ? y : 0))"
_FLOORED = f"(y == 0 ? x / y : copysign{{w}}(rint{{w}}((x - fmod{{w}}(x, y)) / y) - {_ONE_LESS}, x / y))"

DESCRIBED = MappingProxyType(
    {
        row.name: row
        for row in (
            Described("exp", "exp{w}(x)"),
            Described("exp2", "exp2{w}(x)"),
            Described("expm1", "expm1{w}(x)"),
            Described("log", "log{w}(x)"),
            Described("log2", "log2{w}(x)"),
            Described("log10", "log10{w}(x)"),
            Described("log1p", "log1p{w}(x)"),
            Described("tanh", "tanh{w}(x)"),
            Described("sinh", "sinh{w}(x)"),
            Described("cosh", "cosh{w}(x)"),
            Described("erf", "erf{w}(x)"),
            Described("sigmoid", "1 / (1 + exp{w}(-(x)))"),
            Described("sin", "sin{w}(x)", limits=TURNS, note=BEYOND),
            Described("cos", "cos{w}(x)", limits=TURNS, note=BEYOND),
            Described("tan", "tan{w}(x)", limits=TURNS, note=f"{BEYOND}; float32 divides in float64"),
            Described("arctan", "atan{w}(x)"),
            Described("arcsin", "asin{w}(x)"),
            Described("arccos", "acos{w}(x)"),
            Described("arcsinh", "asinh{w}(x)", note=VIA_DOUBLE),
            Described("arccosh", "acosh{w}(x)", note=VIA_DOUBLE),
            Described("arctanh", "atanh{w}(x)", note=VIA_DOUBLE),
            Described("cbrt", "cbrt{w}(x)", note=VIA_DOUBLE),
            Described("sqrt", "sqrt{w}(x)", kind="exact"),
            Described("recip", "1 / (x)", kind="exact"),
            Described("rsqrt", "1 / sqrt{w}(x)", kind="exact", note="rounded twice, as NumPy's"),
            Described("arctan2", "atan2{w}(x, y)", 2),
            Described("hypot", "hypot{w}(x, y)", 2, note=VIA_DOUBLE),
            Described("pow", "pow{w}(x, y)", 2, note="float32 computes in float64"),
            Described(
                "logaddexp",
                "(isnan(x) || isnan(y) ? (x) + (y) : isinf(x) || isinf(y) ? INFINITY"
                " : fmax{w}(fabs{w}(x), fabs{w}(y)) + log1p{w}(exp{w}(-fabs{w}(fabs{w}(x) - fabs{w}(y)))))",
                2,
                call="{s}(wx_abs_{d}(x), wx_abs_{d}(y))",
                note="measured on x, y >= 0; near a result of 0 the error is that of max(x, y), as NumPy's",
            ),
            Described("fmod", "fmod{w}(x, y)", 2, "exact", QUOTIENTS, note=BEYOND),
            Described("mod", _MOD, 2, "exact", QUOTIENTS, note=BEYOND),
            Described("floordiv", _FLOORED, 2, "exact", QUOTIENTS, note=BEYOND),
        )
    }
)
"""What functions.h has, by the names of `waxeq.basis.scalar`."""


@cache
def source() -> str:
    """The text of functions.h, which stands before generated kernels in C and in CUDA C++."""
    return HEADER.read_text(encoding="utf-8")


def symbol(name: str, dtype: str) -> str:
    """The C name of a function of functions.h."""
    return f"wx_{name}_{DTYPES[dtype]}"


def calls(name: str, dtype: str) -> str | None:
    """The C function for a scalar function of the basis on a dtype; None where functions.h has none."""
    return symbol(name, dtype) if name in DESCRIBED and dtype in DTYPES else None


@cache
def functions() -> Mapping[tuple[str, str], Function]:
    """Every function by (name, dtype), with what `python -m waxeq_cfamily.accuracy` measured."""
    measured = json.loads(MEASURED.read_text(encoding="utf-8"))["functions"]
    return MappingProxyType(
        {(name, dtype): _function(row, dtype, measured) for dtype in DTYPES for name, row in DESCRIBED.items()}
    )


@cache
def libm() -> Mapping[tuple[str, str], str]:
    """Functions of the C library, and those of functions.h that call it for each element."""
    same = ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "cbrt", "sin", "cos", "tan", "sinh", "cosh",
            "tanh", "erf", "pow", "hypot", "fmod")  # fmt: skip
    names = {n: n for n in same} | {f"arc{n}": f"a{n}" for n in ("sin", "cos", "tan", "tan2", "sinh", "cosh", "tanh")}
    found = {(n, d): c + s for n, c in names.items() for d, s in (("float32", "f"), ("float64", ""))}
    far = {(n, d): symbol(f"far_{n}", d) for n in ("mod", "floordiv") for d in DTYPES}
    return found | far | {("sigmoid", "float32"): "wx_libm_sigmoidf", ("sigmoid", "float64"): "wx_libm_sigmoid"}


@cache
def own() -> Mapping[tuple[str, str], str]:
    """Functions of our own; BELOW is the exponential of what is zero or less."""
    found = {(n, d): name for n, d in functions() if (name := calls(n, d)) is not None}
    return {**found, (BELOW, "float32"): symbol(BELOW, "float32")}


def _function(row: Described, dtype: str, measured: Mapping[str, dict]) -> Function:
    found = measured[symbol(row.name, dtype)]
    return Function(
        row.name,
        dtype,
        symbol(row.name, dtype),
        row.arity,
        row.kind,
        limit_of(row, dtype),
        symbol(f"far_{row.name}", dtype) if row.limits else None,
        found["largest_ulp"],
        tuple(float(x) for x in found["at"]),
        found["instructions"],
        found["nanoseconds"],
        row.note,
    )


def limit_of(row: Described, dtype: str) -> float | None:
    """The largest |x| that a function takes, or |x / y| of one of two; None where there is none."""
    return row.limits[list(DTYPES).index(dtype)] if row.limits else None
