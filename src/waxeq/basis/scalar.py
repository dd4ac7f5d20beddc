"""Scalar functions: one row each, with everything the rest of waxeq needs to know about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import Literal

import numpy as np

Group = Literal["float", "number", "integer", "bool", "any"]


@dataclass(frozen=True, slots=True)
class Scalar:
    """A function of one or two scalars of one dtype.

    ufunc: where its NumPy ufunc is ("numpy:exp"). takes: the dtypes it is defined on. gives: "same" or "bool".
    cost: "cheap" (about one instruction an element) or "costly" (a polynomial or a division).
    """

    name: str
    arity: int
    ufunc: str
    takes: Group
    gives: Literal["same", "bool"] = "same"
    cost: Literal["cheap", "costly"] = "cheap"
    onnx: str | None = None
    doc: str = ""

    def __call__(self, *arrays: np.ndarray) -> np.ndarray:
        y = np.asarray(load(self.ufunc)(*arrays))
        own = self.gives == "bool" or y.dtype == arrays[0].dtype
        return y if own else y.astype(arrays[0].dtype)  # scipy computes float16 in float64

    @property
    def own_ufunc(self) -> np.ufunc | None:
        """The function as a ufunc; None where it is one of those that this module defines."""
        f = load(self.ufunc)
        return f if isinstance(f, np.ufunc) else None


@cache
def load(where: str) -> Callable:
    """The ufunc at "module:name", or one of the few functions this module defines."""
    module, _, name = where.partition(":")
    return getattr(import_module(module), name)


def reciprocal(x: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """1 / x, rounded once."""
    return np.divide(x.dtype.type(1), x, out=out)


def rsqrt(x: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """1 / sqrt(x), rounded twice."""
    y = np.sqrt(x, out=out)
    return np.divide(x.dtype.type(1), y, out=out)


def sigmoid(x: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """1 / (1 + exp(-x)), without overflow warnings: exp(-x) = inf gives 0."""
    y = np.negative(x, out=out)
    y = np.exp(y, out=out)
    y = np.add(y, x.dtype.type(1), out=out)
    return np.divide(x.dtype.type(1), y, out=out)


def _one(name: str, takes: Group = "float", cost: Literal["cheap", "costly"] = "costly", **kw) -> Scalar:
    return Scalar(name, 1, kw.pop("ufunc", f"numpy:{name}"), takes, cost=cost, **kw)


def _two(name: str, takes: Group = "number", **kw) -> Scalar:
    return Scalar(name, 2, kw.pop("ufunc", f"numpy:{name}"), takes, **kw)


_HERE = "waxeq.basis.scalar"

_ROWS = (
    _one("exp", onnx="Exp"),
    _one("exp2"),
    _one("expm1"),
    _one("log", onnx="Log"),
    _one("log2"),
    _one("log10"),
    _one("log1p"),
    _one("sqrt", onnx="Sqrt"),
    _one("cbrt"),
    _one("rsqrt", ufunc=f"{_HERE}:rsqrt"),
    _one("recip", ufunc=f"{_HERE}:reciprocal", onnx="Reciprocal"),
    _one("square", "number", "cheap"),
    _one("sin", onnx="Sin"),
    _one("cos", onnx="Cos"),
    _one("tan", onnx="Tan"),
    _one("arcsin", onnx="Asin"),
    _one("arccos", onnx="Acos"),
    _one("arctan", onnx="Atan"),
    _one("sinh", onnx="Sinh"),
    _one("cosh", onnx="Cosh"),
    _one("tanh", onnx="Tanh"),
    _one("arcsinh", onnx="Asinh"),
    _one("arccosh", onnx="Acosh"),
    _one("arctanh", onnx="Atanh"),
    _one("erf", ufunc="scipy.special:erf", onnx="Erf"),
    _one("sigmoid", ufunc=f"{_HERE}:sigmoid", onnx="Sigmoid"),
    _one("floor", cost="cheap", onnx="Floor"),
    _one("ceil", cost="cheap", onnx="Ceil"),
    _one("trunc", cost="cheap"),
    _one("rint", cost="cheap", onnx="Round"),
    _one("neg", "number", "cheap", ufunc="numpy:negative", onnx="Neg"),
    _one("abs", "number", "cheap", ufunc="numpy:absolute", onnx="Abs"),
    _one("sign", "number", "cheap", onnx="Sign"),
    _one("isnan", cost="cheap", gives="bool", onnx="IsNaN"),
    _one("isinf", cost="cheap", gives="bool", onnx="IsInf"),
    _one("isfinite", cost="cheap", gives="bool"),
    _one("signbit", cost="cheap", gives="bool"),
    _one("not", "bool", "cheap", ufunc="numpy:logical_not", onnx="Not"),
    _one("invert", "integer", "cheap", onnx="BitwiseNot"),
    _one("bitcount", "integer", "cheap", ufunc="numpy:bitwise_count"),
    _two("sub", ufunc="numpy:subtract", onnx="Sub"),
    _two("div", "float", ufunc="numpy:divide", cost="costly", onnx="Div"),
    _two("floordiv", ufunc="numpy:floor_divide", cost="costly"),
    _two("mod", ufunc="numpy:remainder", cost="costly", onnx="Mod"),
    _two("fmod", cost="costly"),
    _two("pow", ufunc="numpy:power", cost="costly", onnx="Pow"),
    _two("max", ufunc="numpy:maximum", onnx="Max"),
    _two("min", ufunc="numpy:minimum", onnx="Min"),
    _two("fmax"),
    _two("fmin"),
    _two("arctan2", "float", cost="costly"),
    _two("hypot", "float", cost="costly"),
    _two("copysign", "float"),
    _two("logaddexp", "float", cost="costly"),
    _two("logaddexp2", "float", cost="costly"),
    _two("eq", "any", ufunc="numpy:equal", gives="bool", onnx="Equal"),
    _two("ne", "any", ufunc="numpy:not_equal", gives="bool"),
    _two("lt", ufunc="numpy:less", gives="bool", onnx="Less"),
    _two("le", ufunc="numpy:less_equal", gives="bool", onnx="LessOrEqual"),
    _two("gt", ufunc="numpy:greater", gives="bool", onnx="Greater"),
    _two("ge", ufunc="numpy:greater_equal", gives="bool", onnx="GreaterOrEqual"),
    _two("and", "bool", ufunc="numpy:logical_and", onnx="And"),
    _two("or", "bool", ufunc="numpy:logical_or", onnx="Or"),
    _two("xor", "bool", ufunc="numpy:logical_xor", onnx="Xor"),
    _two("bitand", "integer", ufunc="numpy:bitwise_and", onnx="BitwiseAnd"),
    _two("bitor", "integer", ufunc="numpy:bitwise_or", onnx="BitwiseOr"),
    _two("bitxor", "integer", ufunc="numpy:bitwise_xor", onnx="BitwiseXor"),
    _two("shl", "integer", ufunc="numpy:left_shift"),
    _two("shr", "integer", ufunc="numpy:right_shift"),
)

SCALARS = MappingProxyType({row.name: row for row in _ROWS})
"""Scalar functions by name. Addition and multiplication are not here: the algebra gives them heads of their own."""

ADD = Scalar("add", 2, "numpy:add", "number", onnx="Add")
MUL = Scalar("mul", 2, "numpy:multiply", "number", onnx="Mul")

REDUCERS = MappingProxyType(
    {
        "max": ("numpy:maximum", "same"),
        "min": ("numpy:minimum", "same"),
        "prod": ("numpy:multiply", "same"),
        "any": ("numpy:logical_or", "same"),
        "all": ("numpy:logical_and", "same"),
        "argmax": ("numpy:argmax", "int64"),
        "argmin": ("numpy:argmin", "int64"),
    }
)
"""Folds over an axis by name: the ufunc whose `reduce` it is (or the function), and the dtype it gives. Sum has a
head.
"""

SCANS = MappingProxyType({"sum": "numpy:add", "prod": "numpy:multiply", "max": "numpy:maximum", "min": "numpy:minimum"})
"""Running folds by name: the ufunc whose `accumulate` it is."""

SCATTERS = ("set", "add", "max", "min")
"""What becomes of an element that an update meets: it is the update, or their sum, or the larger or smaller of both."""

DETERMINANTS = ("det", "sign", "logabs")
"""What is asked of a determinant: itself, its sign, or the logarithm of its magnitude."""

TRIANGLES = ("lower", "upper")
"""Which half of a matrix a system of equations has, its diagonal included."""
