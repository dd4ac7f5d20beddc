"""What lies in an argument that is an object: fields of a dataclass, which are arguments as items of a dict are; and
arrays that are attributes of other objects, of which their user is told, as they are constants.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cached_property
from inspect import getattr_static
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

_MOST = 1000
"""Objects that are looked through for arrays."""
_SHORT = 40
"""Letters up to which a value is written as Python does."""
_DEEP = 8
"""Levels down to which values are compared."""
_OPAQUE = (str, bytes, int, float, complex, type, ModuleType, FunctionType)


def fields_of(value: Any) -> dict[str, Any] | None:
    """The fields of an instance of a dataclass by name; None for anything else, and for arrays of any class."""
    if not is_dataclass(value) or isinstance(value, type) or is_array(value):
        return None
    return {f.name: getattr(value, f.name) for f in fields(value) if hasattr(value, f.name)}


def remade(value: Any, parts: Mapping[str, Any]) -> Any:
    """A copy of an instance of a dataclass with other fields. Its `__init__` is not called: it may compute with what it
    is given, which was done for this instance already."""
    made = copy.copy(value)
    for name in _cached(value, parts):
        del made.__dict__[name]  # computed anew, of the new fields
    for name, part in parts.items():
        object.__setattr__(made, name, part)  # frozen ones too
    return made


def hidden(value: Any, path: str) -> Iterator[str]:
    """Names of the arrays that are reached from an object by its attributes, fields of a dataclass left out."""
    known: Mapping[str, Any] = fields_of(value) or {}
    known = {**known, **_cached(value, known)} if known else known
    waiting = [(f"{path}.{k}", v) for k, v in parts_of(value) if k not in known]
    seen = set[int]()
    while waiting and len(seen) < _MOST:
        name, x = waiting.pop(0)
        if id(x) in seen:
            continue
        seen.add(id(x))
        if is_array(x):
            yield name
        else:
            waiting += [(f"{name}.{k}", v) for k, v in parts_of(x)]


def in_short(value: Any) -> str:
    """How a value that holds no inputs is written, the same in each process: Python's own where it is short and has no
    addresses in it, else its class."""
    text = repr(value) if _is_plain(value) else ""
    return text if text and len(text) <= _SHORT else f"<{type(value).__name__}>"


class Said(str):
    """How a Python value among the arguments is written, and the value itself, which texts of plan files lack."""

    value: Any

    def __new__(cls, text: str, value: Any) -> Said:
        made = super().__new__(cls, text)
        made.value = value
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return str, (str(self),)


def said(value: Any) -> Said:
    """A Python value that holds no arrays, as something to compare others with (`is_said`)."""
    return Said(_name(value), value)


def is_said(text: str | None, value: Any) -> bool:
    """Whether a value is the one that a text stands for; of a text without its value, as far as it tells."""
    if isinstance(text, Said):
        return _same(text.value, value)
    return text is not None and text in (repr(value), _name(value))


def _name(x: Any) -> str:
    """How a value is named, the same in each process."""
    if isinstance(x, np.ndarray):
        return f"an array of {x.dtype}"
    if isinstance(x, Enum):
        return f"{type(x).__name__}.{x.name}"
    if isinstance(x, np.dtype) or (isinstance(x, (list, tuple)) and _is_plain(x)):
        return repr(x)
    name = getattr(x, "__qualname__", None) or getattr(x, "__name__", None)
    owner = getattr(x, "__module__", None) or ("numpy" if isinstance(x, np.ufunc) else "")
    return ".".join(filter(None, (owner, name))) if isinstance(name, str) else f"<{type(x).__name__} object>"


def _same(a: Any, b: Any, depth: int = _DEEP) -> bool:
    """Whether values are equal, of one class; functions are that are made of the same code and content, and objects
    without a comparison of their own that have equal attributes. What cannot be compared is not."""
    if a is b:
        return True
    if type(a) is not type(b) or not depth:
        return False
    try:
        if isinstance(a, np.ndarray):
            return a.dtype == b.dtype and a.shape == b.shape and bool(np.all(a == b))
        if type(a) in (list, tuple):
            return len(a) == len(b) and all(_same(x, y, depth - 1) for x, y in zip(a, b, strict=True))
        if type(a) is dict:
            return [*a] == [*b] and all(_same(a[k], b[k], depth - 1) for k in a)
        if isinstance(a, FunctionType):
            return all(_same(x, y, depth - 1) for x, y in zip(_made_of(a), _made_of(b), strict=True))
        if type(a).__eq__ is object.__eq__ and _is_of_attributes(type(a)):
            return _same(vars(a), vars(b), depth - 1)
        return bool(a == b)
    except Exception:
        return False


def _is_of_attributes(c: type) -> bool:
    """Whether instances of a class are their attributes, and nothing that is hidden as in functools.partial."""
    return c.__base__ is object and c.__basicsize__ == _OfAttributes.__basicsize__


class _OfAttributes:
    pass


def _made_of(f: FunctionType) -> tuple[Any, ...]:
    cells = [c.cell_contents for c in f.__closure__ or ()]
    return f.__code__, f.__defaults__, f.__kwdefaults__, cells, f.__dict__


def _cached(value: Any, known: Mapping[str, Any]) -> dict[str, Any]:
    """What an object keeps of properties that are computed once, fields left out."""
    kept = getattr(value, "__dict__", {})
    rows = {k: v for k, v in kept.items() if k not in known}
    return {k: v for k, v in rows.items() if isinstance(getattr_static(type(value), k, None), cached_property)}


def _is_plain(x: Any) -> bool:
    if type(x) is dict:
        return all(map(_is_plain, (*x, *x.values())))
    return all(map(_is_plain, x)) if type(x) in (list, tuple) else x is None or type(x) in (str, bool, int, float)


def is_array(x: Any) -> bool:
    """Whether an object, no class, is an array of any kind."""
    return hasattr(type(x), "__array__")


def parts_of(x: Any) -> Iterator[tuple[Any, Any]]:
    """What is in an object: items of containers, attributes of others. No property is asked for: it might compute."""
    if isinstance(x, _OPAQUE):
        return
    if isinstance(x, Mapping):
        yield from x.items()
    elif isinstance(x, (list, tuple)):
        yield from enumerate(x)
    else:
        yield from getattr(x, "__dict__", {}).items()
        slots = (n for c in type(x).__mro__ for n in _names(c.__dict__.get("__slots__", ())))
        yield from ((n, getattr(x, n)) for n in slots if n not in ("__dict__", "__weakref__") and hasattr(x, n))


def _names(slots: Any) -> tuple[str, ...]:
    return (slots,) if isinstance(slots, str) else tuple(slots)
