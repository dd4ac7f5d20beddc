"""Sizes as functions of dims: polynomials with integer coefficients, exact in sympy while they are worked out, plain
integer arithmetic when a size is bound.

A size stands in a plan where a number stands in others. It prints as a hole, `⟨64*T + 3⟩`, so that the text of whatever
it is in, a graph, a meaning, a JSON value, is a template that `fill` makes concrete.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from types import CodeType
from typing import Any

from waxeq.errors import PlanError

OPEN, CLOSE = "⟨", "⟩"
_HOLE = re.compile(f"{OPEN}([^{OPEN}{CLOSE}]*){CLOSE}")
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {"float": float, "sqrt": math.sqrt, "max": max}
_ALLOWED = (
    *(ast.Expression, ast.BinOp, ast.UnaryOp, ast.Constant, ast.Name, ast.Load, ast.Call),
    *(ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow, ast.USub),
)
_POWER = 64
"""The highest power of a dim that is worked out: text from a file must not ask for numbers without end."""


def symbol(name: str) -> Any:
    """The sympy symbol of a dim: a positive integer."""
    import sympy

    return sympy.Symbol(name, integer=True, positive=True)


def sized(expression: Any) -> Size | int:
    """A sympy expression as a size; a number where it depends on no dim."""
    import sympy

    e = sympy.expand(expression)
    return int(e) if e.is_Integer else Size(e)


class Size:
    """A polynomial in dims that is no constant. Sums, differences and products are sizes again, or numbers."""

    __slots__ = ("expr",)

    def __init__(self, expr: Any) -> None:
        self.expr = expr

    @staticmethod
    def of(name: str) -> Size:
        """A dim by itself."""
        return Size(symbol(name))

    def at(self, sizes: Mapping[str, int]) -> int:
        """The number it is at the sizes of its dims."""
        return value(str(self.expr), sizes)

    def __add__(self, other: Size | int) -> Size | int:
        return sized(self.expr + _expr(other))

    def __sub__(self, other: Size | int) -> Size | int:
        return sized(self.expr - _expr(other))

    def __rsub__(self, other: Size | int) -> Size | int:
        return sized(_expr(other) - self.expr)

    def __mul__(self, other: Size | int) -> Size | int:
        return sized(self.expr * _expr(other))

    def __neg__(self) -> Size | int:
        return sized(-self.expr)

    __radd__, __rmul__ = __add__, __mul__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Size) and self.expr == other.expr

    def __hash__(self) -> int:
        return hash(self.expr)

    def __repr__(self) -> str:
        return f"{OPEN}{self.expr}{CLOSE}"


class Number:
    """A float that depends on dims, by the text of a formula: `1/T`, `0.5*sqrt(T)`."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def at(self, sizes: Mapping[str, int]) -> float:
        return float(value(self.text, sizes))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Number) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"{OPEN}float({self.text}){CLOSE}"


def _expr(x: Size | int) -> Any:
    return x.expr if isinstance(x, Size) else x


@lru_cache(maxsize=1 << 14)
def _compiled(text: str) -> CodeType:
    try:
        tree = ast.parse(text, mode="eval")
        odd = next((n for n in ast.walk(tree) if not _understood(n)), None)
        if odd is None:
            return compile(tree, "<size>", "eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as e:
        raise PlanError(f"{text!r:.80} is not a function of sizes") from e
    raise PlanError(f"{text!r} is not a function of sizes: {ast.unparse(odd)} may not stand in one")


def _understood(n: ast.AST) -> bool:
    """Whether a part of a formula is arithmetic on numbers and dims that takes no time."""
    if isinstance(n, ast.Constant):
        return type(n.value) in (int, float)
    if isinstance(n, ast.Call):
        return isinstance(n.func, ast.Name) and n.func.id in _FUNCTIONS
    if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Pow):
        power = n.right.value if isinstance(n.right, ast.Constant) else None
        return isinstance(n.left, ast.Name) and type(power) is int and power <= _POWER
    return isinstance(n, _ALLOWED)


def value(text: str, sizes: Mapping[str, int]) -> Any:
    """What a formula comes to. Only arithmetic is understood, so text from a file can do no harm. Raises PlanError."""
    try:
        return eval(_compiled(text), {"__builtins__": {}}, {**_FUNCTIONS, **sizes})
    except (NameError, ArithmeticError, TypeError, ValueError) as e:
        raise PlanError(f"{text!r} has no value where {written(sizes)}: {e}") from e


def polynomial(text: str, names: Iterable[str]) -> Size | int:
    """The size that a hole stands for, as its text is in a file. Raises PlanError for what is no polynomial in these
    dims with integer coefficients."""
    import sympy

    whole, dims = _HOLE.fullmatch(text), {n: symbol(n) for n in names}
    with suppress(PlanError, sympy.SympifyError, sympy.PolynomialError):
        made = sympy.Poly(value(whole[1], dims), *dims.values()) if whole else None
        if made is not None and made.domain.is_ZZ:
            return sized(made.as_expr())
    raise PlanError(f"{text!r:.80} is no polynomial in {', '.join(dims)} with integer coefficients")


def written(sizes: Mapping[str, int]) -> str:
    """Sizes for people: T = 4, B = 2."""
    return ", ".join(f"{n} = {s}" for n, s in sizes.items())


def holes(data: Any) -> bool:
    """Whether JSON values depend on any dim."""
    if isinstance(data, str):
        return OPEN in data
    if isinstance(data, Mapping):
        return any(map(holes, data.values()))
    return isinstance(data, (list, tuple)) and any(map(holes, data))


def numbered(text: str, first: int) -> tuple[str, tuple[str, ...]]:
    """A text whose holes are numbers from `first` on, and the formula that each of them stands for."""
    formulas: list[str] = []

    def number(m: re.Match[str]) -> str:
        formulas.append(m[1])
        return str(first + len(formulas) - 1)

    return _HOLE.sub(number, text), tuple(formulas)


def template(data: Any) -> Any:
    """JSON values in which sizes are holes."""
    if isinstance(data, (Size, Number)):
        return repr(data)
    if isinstance(data, Mapping):
        return {k: template(v) for k, v in data.items()}
    return [template(v) for v in data] if isinstance(data, (list, tuple)) else data


def fill(data: Any, sizes: Mapping[str, int]) -> Any:
    """JSON values with every hole filled. Raises PlanError for one that is no function of these sizes."""
    if isinstance(data, str):
        if OPEN not in data:
            return data
        whole = _HOLE.fullmatch(data)
        if whole:
            return value(whole[1], sizes)
        return _HOLE.sub(lambda m: repr(value(m[1], sizes)), data)
    if isinstance(data, Mapping):
        return {k: fill(v, sizes) for k, v in data.items()}
    return [fill(v, sizes) for v in data] if isinstance(data, (list, tuple)) else data
