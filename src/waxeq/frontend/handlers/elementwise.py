"""Element-wise functions. NumPy itself says what dtypes they work in; a meaning is given on operands of that dtype."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import numpy as np

from waxeq.frontend.array import TracedArray, Tracer
from waxeq.frontend.explicit import Explicit, Value
from waxeq.ir.types import dtype_name, is_float, is_floating, is_integer, numpy_name

Meaning = Callable[..., Value | tuple[Value, ...]]
"""From operands, already in the dtypes the ufunc works in, to its result or results."""

_BOOL = {"add": "or", "mul": "and", "max": "or", "min": "and", "fmax": "or", "fmin": "and",
         "bitand": "and", "bitor": "or", "bitxor": "xor"}  # fmt: skip
_ORDER = ("lt", "le", "gt", "ge")
_COMPARED: Mapping[str, Callable[[int, int], bool]] = {
    "equal": operator.eq, "not_equal": operator.ne, "less": operator.lt, "less_equal": operator.le,
    "greater": operator.gt, "greater_equal": operator.ge,
}  # fmt: skip


@cache
def _resolve(f: np.ufunc, kinds: tuple[Any, ...], dtype: Any, casting: Any) -> tuple[np.dtype, ...]:
    fixed = {} if dtype is None else {"signature": (*(None,) * f.nin, *(np.dtype(dtype),) * f.nout)}
    return f.resolve_dtypes((*kinds, *(None,) * f.nout), casting=casting, **fixed)  # pyright: ignore


def apply(t: Tracer, f: np.ufunc, name: str, args: Any, dtype: Any = None, casting: Any = "same_kind") -> Any:
    """An element-wise ufunc on traced arrays, arrays and numbers."""
    xs = [t.operand(x) for x in args]
    kinds = tuple(t.explicit.type(x).numpy if isinstance(x, Value) else type(x) for x in xs)
    resolved = _resolve(f, kinds, dtype, casting)
    names = [dtype_name(d) for d in resolved]
    signs = name in _COMPARED and set(names[: f.nin]) == {"int64", "uint64"}
    if len(set(names[: f.nin])) > 1 and not signs:
        raise t.refuse(f"np.{name} of {names[0]} and {names[1]}", "cast one to the dtype of the other")
    _refuse_integer_powers(t, name, xs, names)
    try:
        result = _by_sign(t.explicit, name, xs, names) if signs else _outside(t.explicit, name, xs, names[0])
        if result is None:
            xs = [bool(x) if name.startswith("logical_") and type(x) is int else x for x in xs]
            result = UFUNCS[name](t.explicit, *(t.explicit.to(x, d) for x, d in zip(xs, names, strict=False)))
    except OverflowError as e:
        raise t.refuse(str(e), "use a number that the array's dtype holds, or cast the array first") from e
    rows = result if isinstance(result, tuple) else (result,)
    wrapped = tuple(t.wrap(t.explicit.cast(y, d)) for y, d in zip(rows, names[f.nin :], strict=True))
    return wrapped if isinstance(result, tuple) else wrapped[0]


def _outside(e: Explicit, name: str, xs: list[Any], dtype: str) -> Value | None:
    """What a comparison with a Python int says that the dtype does not hold: the same of all elements, as the int is
    less or more than any of them. None for what is none."""
    if name not in _COMPARED or is_float(dtype) or not any(type(x) is int and not _holds(dtype, x) for x in xs):
        return None
    shape = next(e.type(x).shape for x in xs if isinstance(x, Value))
    return e.full(_COMPARED[name](*(0 if isinstance(x, Value) else x for x in xs)), "bool", shape)


def _by_sign(e: Explicit, name: str, xs: list[Any], names: list[str]) -> Value:
    """A comparison of int64 and uint64, which no dtype holds both of: what is below zero is less than all of the other,
    and what is not is a uint64 too."""
    x, y = (e.cast(v, "uint64") for v in xs)
    signed = names.index("int64")
    below = e.zip("lt", e.cast(xs[signed], "int64"), 0)
    return e.select(below, _COMPARED[name](signed, 1 - signed), e.zip(_ZIPS[name], x, y))


def _holds(dtype: str, n: int) -> bool:
    """Whether a Python int is a number of a dtype without fractions."""
    if dtype == "bool":
        return n in (0, 1)
    span = np.iinfo(dtype)
    return span.min <= n <= span.max


def _refuse_integer_powers(t: Tracer, name: str, xs: list[Any], names: list[str]) -> None:
    if name == "power" and is_integer(names[0]) and type(xs[1]) is int and xs[1] < 0:
        raise t.refuse("an integer to a negative power", "cast to a float first")


# -- one operand


def _map(f: str, e: Explicit, x: Value) -> Value:
    return e.map(f, x)


def _same(e: Explicit, x: Value) -> Value:
    return x


def _float_only(f: str, e: Explicit, x: Value) -> Value:
    """floor and the like: integers are what they are."""
    return e.map(f, x) if is_float(e.type(x).dtype) else x


def _kind_of_float(f: str, otherwise: bool, e: Explicit, x: Value) -> Value:
    """isnan and the like: integers are all finite."""
    return e.map(f, x) if is_float(e.type(x).dtype) else e.full(otherwise, "bool", e.type(x).shape)


def _number_map(f: str, e: Explicit, x: Value) -> Value:
    return x if e.type(x).dtype == "bool" else e.map(f, x)


def _invert(e: Explicit, x: Value) -> Value:
    return e.map("not" if e.type(x).dtype == "bool" else "invert", x)


def _bit_count(e: Explicit, x: Value) -> Value:
    return e.cast(x if e.type(x).dtype == "bool" else e.map("bitcount", x), "uint8")


def _logical_not(e: Explicit, x: Value) -> Value:
    return e.map("not", e.cast(x, "bool"))


def _reciprocal(e: Explicit, x: Value) -> Value:
    """Of integers it is 0 but for 1 and -1; that of 0, which has none, is what NumPy gives on common machines."""
    dtype = e.type(x).dtype
    if not is_integer(dtype):
        return e.map("recip", x)
    span = np.iinfo(dtype)
    unit = e.zip("eq", x, 1) if span.min == 0 else e.zip("or", e.zip("eq", x, 1), e.zip("eq", x, -1))
    y = e.select(unit, x, 0)
    return e.select(e.zip("eq", x, 0), int(span.min), y) if dtype in ("int32", "int64") else y


def _times(factor: float, e: Explicit, x: Value) -> Value:
    return e.zip("mul", x, factor)


def _modf(e: Explicit, x: Value) -> tuple[Value, Value]:
    whole = e.map("trunc", x)
    part = e.select(e.map("isinf", x), 0.0, e.zip("sub", x, whole))
    return e.zip("copysign", part, x), whole


# -- two operands


def _zip(f: str, e: Explicit, x: Value, y: Value) -> Value:
    if e.type(x).dtype == "bool" and f in _ORDER:
        x, y = e.cast(x, "uint8"), e.cast(y, "uint8")
    elif e.type(x).dtype == "bool":
        f = _BOOL.get(f, f)
    return e.zip(f, x, y)


def _bool_zip(f: str, e: Explicit, x: Value, y: Value) -> Value:
    return e.zip(f, e.cast(x, "bool"), e.cast(y, "bool"))


def _divmod(e: Explicit, x: Value, y: Value) -> tuple[Value, Value]:
    return e.zip("floordiv", x, y), e.zip("mod", x, y)


def _heaviside(e: Explicit, x: Value, h: Value) -> Value:
    step = e.select(e.zip("lt", x, 0.0), 0.0, e.select(e.zip("eq", x, 0.0), h, e.to(1.0, e.type(x).dtype)))
    return e.select(e.map("isnan", x), x, step)


# -- scipy.special


def _expit_log(e: Explicit, x: Value) -> Value:
    small = e.map("log1p", e.map("exp", e.map("neg", e.map("abs", x))))
    return e.zip("sub", e.zip("min", x, 0.0), small)


def _logit(e: Explicit, x: Value) -> Value:
    return e.zip("sub", e.map("log", x), e.map("log1p", e.map("neg", x)))


def _xlog(log: str, e: Explicit, x: Value, y: Value) -> Value:
    """x log y, 0 where x is 0 and y is a number."""
    zero = e.zip("and", e.zip("eq", x, 0.0), e.map("not", e.map("isnan", y)))
    return e.select(zero, 0.0, e.zip("mul", x, e.map(log, y)))


def _entr(e: Explicit, x: Value) -> Value:
    y = e.map("neg", _xlog("log", e, x, x))
    return e.select(e.zip("lt", x, 0.0), e.to(-math.inf, e.type(x).dtype), y)


def _ndtr(e: Explicit, x: Value) -> Value:
    return e.zip("mul", e.zip("add", e.map("erf", e.zip("mul", x, math.sqrt(0.5))), 1.0), 0.5)


_MAPS = (
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "cbrt", "sin", "cos", "tan", "arcsin", "arccos"),
    *("arctan", "sinh", "cosh", "tanh", "arcsinh", "arccosh", "arctanh", "signbit", "square", "rint"),
)
_ZIPS = {
    "add": "add", "multiply": "mul", "subtract": "sub", "divide": "div", "floor_divide": "floordiv",
    "remainder": "mod", "fmod": "fmod", "power": "pow", "float_power": "pow", "maximum": "max", "minimum": "min",
    "fmax": "fmax", "fmin": "fmin", "equal": "eq", "not_equal": "ne", "less": "lt", "less_equal": "le",
    "greater": "gt", "greater_equal": "ge", "bitwise_and": "bitand", "bitwise_or": "bitor", "bitwise_xor": "bitxor",
    "left_shift": "shl", "right_shift": "shr", "arctan2": "arctan2", "hypot": "hypot", "copysign": "copysign",
    "logaddexp": "logaddexp", "logaddexp2": "logaddexp2",
}  # fmt: skip

UFUNCS: Mapping[str, Meaning] = {
    **{n: partial(_map, n) for n in _MAPS},
    **{n: partial(_float_only, n) for n in ("floor", "ceil", "trunc")},
    **{n: partial(_number_map, f) for n, f in (("sign", "sign"), ("absolute", "abs"), ("fabs", "abs"))},
    **{n: partial(_zip, f) for n, f in _ZIPS.items()},
    **{f"logical_{f}": partial(_bool_zip, f) for f in ("and", "or", "xor")},
    "logical_not": _logical_not,
    "invert": _invert,
    "bitwise_count": _bit_count,
    "negative": partial(_map, "neg"),
    "reciprocal": _reciprocal,
    "positive": _same,
    "conjugate": _same,
    "isnan": partial(_kind_of_float, "isnan", False),
    "isinf": partial(_kind_of_float, "isinf", False),
    "isfinite": partial(_kind_of_float, "isfinite", True),
    "deg2rad": partial(_times, math.pi / 180),
    "radians": partial(_times, math.pi / 180),
    "rad2deg": partial(_times, 180 / math.pi),
    "degrees": partial(_times, 180 / math.pi),
    "divmod": _divmod,
    "modf": _modf,
    "heaviside": _heaviside,
    "special.erf": partial(_map, "erf"),
    "special.expit": partial(_map, "sigmoid"),
    "special.log_expit": _expit_log,
    "special.logit": _logit,
    "special.xlogy": partial(_xlog, "log"),
    "special.xlog1py": partial(_xlog, "log1p"),
    "special.entr": _entr,
    "special.ndtr": _ndtr,
    "special.exp10": lambda e, x: e.zip("pow", e.to(10.0, e.type(x).dtype), x),
    **{f"special.{n}": partial(_map, n) for n in ("exp2", "cbrt", "expm1", "log1p")},
}
"""Meanings of element-wise ufuncs by name."""


# -- functions that are no ufuncs


def _where(t: Tracer, condition: Any, x: Any = None, y: Any = None) -> TracedArray:
    if x is None or y is None:
        raise t.refuse("np.where with one argument has a shape that depends on content", "give it three arguments")
    return t.wrap(t.explicit.select(t.value(condition), *t.explicit.wrapped(t.operand(x), t.operand(y))))


def _clip(t: Tracer, a: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Any:
    low, high = a_min if min is None else min, a_max if max is None else max
    x = t.array(a)
    if x.dtype.kind in "iu":  # an int beyond all that the dtype holds is no bound
        span = np.iinfo(x.dtype)
        low = None if type(low) is int and low <= span.min else low
        high = None if type(high) is int and high >= span.max else high
    if low is None and high is None:
        return np.copy(x)
    y = x if low is None else np.maximum(x, low)
    return y if high is None else np.minimum(y, high)


def _round(t: Tracer, a: Any, decimals: int = 0) -> Any:
    x = t.array(a)
    if x.dtype == bool:
        if decimals:
            raise TypeError("np.round takes numbers, not bool")
        x = x.astype(np.float16)
    if not is_floating(x.dtype):
        return np.copy(x) if decimals >= 0 else _round_to(x, 10**-decimals)
    if not decimals:
        return np.rint(x)
    there, back = (np.multiply, np.divide) if decimals > 0 else (np.divide, np.multiply)
    scale = 10.0 ** abs(decimals)  # which would make float32 of bfloat16: NumPy keeps to the array's dtype at each step
    return back(np.rint(there(x, scale).astype(x.dtype)), scale).astype(x.dtype)


def _round_to(x: Any, step: int) -> Any:
    """Whole numbers rounded to multiples of a step, halves to even ones; what is beyond their dtype wraps. NumPy goes
    by float64, and gives others near the ends of 32 and 64 bits: what float64 rounds, and what a cast of it gives.
    Rules would make of its quotient a product that moves halves to another side."""
    if step > np.iinfo(np.int64).max:
        return np.zeros_like(x)
    y = x if x.dtype == np.uint64 else x.astype(np.int64)
    below = y // step
    rest = y - below * step
    up = (rest > step - rest) | ((rest == step - rest) & (below % 2 == 1))
    return ((below + up.astype(y.dtype)) * step).astype(x.dtype)


def _sinc(t: Tracer, x: Any) -> Any:
    y = np.pi * t.array(x)
    y = np.where(y == 0, float(np.finfo(y.dtype).eps), y)
    return np.sin(y) / y


def _nan_to_num(t: Tracer, x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    """Of bfloat16 nothing is put, as in NumPy, which takes it for no float."""
    y = t.array(x)
    if y.dtype.kind != "f":
        return np.copy(y) if copy else x
    most = float(np.finfo(y.dtype).max)
    big = (posinf, most), (neginf, -most)
    high, low = (other if given is None else given for given, other in big)
    z = np.where(np.isinf(y), np.where(y > 0, high, low), y)
    found = np.where(np.isnan(y), nan, z).astype(y.dtype)
    return found if copy or y.scalar else _written(y, found)


def _written(x: TracedArray, new: Any) -> TracedArray:
    x.assign(new)
    return x


def _select(t: Tracer, condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    """The first choice whose condition holds."""
    dtype = np.result_type(*(c if type(c) in (int, float) else t.array(c).dtype for c in (*choicelist, default)))
    shape = np.broadcast_shapes(*(t.array(c).shape for c in (*condlist, *choicelist, default)))
    y = np.broadcast_to(t.array(default).astype(dtype), shape)
    for c, x in reversed(list(zip(condlist, choicelist, strict=True))):
        y = np.where(c, t.array(x).astype(dtype), y)
    return y


def _astype(
    t: Tracer, x: Any, dtype: Any, order: Any = "K", casting: Any = "unsafe", subok: bool = True, copy: bool = True
) -> Any:
    found = t.array(x)
    if not np.can_cast(found.dtype, dtype, casting):
        raise TypeError(f"cannot cast {found.dtype} to {np.dtype(dtype)} by {casting!r}")
    if not copy and found.dtype == dtype:
        return x
    return t.wrap(t.explicit.cast(found.value, numpy_name(dtype)))


_ONE_STEP = {"float16": 14, "float32": 126, "float64": 1022}
"""Powers of two up to which a dtype holds them and their inverses in full."""

_DOWN = -1022 + 53
"""A step down that others follow, by more than 53 together: what it rounds is nothing after them, so that no result is
rounded twice."""


def _ldexp(t: Tracer, x1: Any, x2: Any) -> Any:
    """By powers of two, each of which the dtype holds; of narrow floats in float64, to round once."""
    xs = [t.operand(x) for x in (x1, x2)]
    kinds = tuple(t.explicit.type(x).numpy if isinstance(x, Value) else type(x) for x in xs)
    dtype = _resolve(np.ldexp, kinds, None, "same_kind")[0]
    x, known = t.array(x1).astype(dtype), t.known(x2)
    most = _ONE_STEP[dtype.name]
    if known is not None and (np.abs(known.astype(float)) <= most).all():
        return x * np.ldexp(1.0, known).astype(dtype)
    wide = x.astype(np.float64)
    left = np.clip(t.array(x2).astype(np.int64), -2200, 2200)
    for _ in range(2 if dtype == np.float64 else 0):
        step = np.where(left > 1022, 1022, np.where(left < -1022, _DOWN, 0))
        wide, left = wide * np.exp2(step.astype(np.float64)), left - step
    return (wide * np.exp2(np.clip(left, -1022, 1022).astype(np.float64))).astype(dtype)


def _real(t: Tracer, val: Any) -> Any:
    return val


def _angle(t: Tracer, z: Any, deg: bool = False) -> Any:
    """Of real numbers: 0, or pi below it."""
    y = np.arctan2(0, t.array(z))
    return y * (180 / math.pi) if deg else y


HANDLERS: Mapping[str, Callable[..., Any]] = {
    "where": _where,
    "clip": _clip,
    "round": _round,
    "around": _round,
    "fix": lambda t, x: np.trunc(t.array(x)),
    "sinc": _sinc,
    "nan_to_num": _nan_to_num,
    "select": _select,
    "astype": _astype,
    "ldexp": _ldexp,
    "real": _real,
    "real_if_close": lambda t, a, tol=100: a,
    "imag": lambda t, val: np.zeros_like(val),
    "angle": _angle,
}

METHODS: Mapping[str, Callable[..., Any]] = {"conj": _real, "conjugate": _real}
