"""The operators of the stand-in for an array where they are not what ufuncs are: those that write in place, and what an
ndarray leaves to other operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from waxeq.frontend.containers import is_array

_WRITTEN = "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "lshift", "rshift", "and", "xor", "or"
_COMPARED = "lt", "le", "eq", "ne", "gt", "ge"
_Kind = TypeVar("_Kind", bound=type)


def with_operators(kind: _Kind) -> _Kind:
    """A class of arrays, whose operators are ufuncs, with those of ndarray."""
    for name in (*_WRITTEN, *_COMPARED):
        setattr(kind, f"__{name}__", _deferring(getattr(kind, f"__{name}__")))
    for name in _WRITTEN:
        setattr(kind, f"__i{name}__", _augmented(getattr(kind, f"__i{name}__"), getattr(kind, f"__{name}__")))
    return kind


def answers_itself(x: Any) -> bool:
    """Whether an operand that is no array says what ufuncs of it are."""
    if isinstance(x, (np.ndarray, np.generic)) or getattr(type(x), "__array_ufunc__", None) is None:
        return False
    return type(x).__module__.partition(".")[0] != "waxeq"


def _deferring(plain: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """`x + y` and the like, which ndarray leaves to operands of a higher priority that know nothing of ufuncs; arrays
    of other libraries are constants all the same, as they are for ufuncs."""

    def operator(x: Any, other: Any) -> Any:
        first = not hasattr(type(other), "__array_ufunc__") and getattr(other, "__array_priority__", 0) > 0
        return NotImplemented if first and not is_array(other) else plain(x, other)

    return operator


def _augmented(write: Callable[[Any, Any], Any], plain: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """`x += y` and the like: an array is written to, a scalar is left as it is for those who hold it."""
    return lambda x, other: (plain if x.scalar else write)(x, other)
