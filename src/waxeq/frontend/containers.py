"""What lies in an argument that is an object: fields of a dataclass, which are arguments as items of a dict are; and
arrays that are attributes of other objects, of which their user is told, as they are constants.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from types import FunctionType, ModuleType
from typing import Any

_MOST = 1000
"""Objects that are looked through for arrays."""
_SHORT = 40
"""Letters up to which a value is written as Python does."""
_OPAQUE = (str, bytes, int, float, complex, type, ModuleType, FunctionType)


def fields_of(value: Any) -> dict[str, Any] | None:
    """The fields of an instance of a dataclass by name; None for anything else, and for arrays of any class."""
    if not is_dataclass(value) or isinstance(value, type) or _is_array(value):
        return None
    return {f.name: getattr(value, f.name) for f in fields(value) if hasattr(value, f.name)}


def remade(value: Any, parts: Mapping[str, Any]) -> Any:
    """A copy of an instance of a dataclass with other fields. Its `__init__` is not called: it may compute with what it
    is given, which was done for this instance already."""
    made = copy.copy(value)
    for name, part in parts.items():
        object.__setattr__(made, name, part)  # frozen ones too
    return made


def hidden(value: Any, path: str) -> Iterator[str]:
    """Names of the arrays that are reached from an object by its attributes, fields of a dataclass left out."""
    known = fields_of(value) or {}
    waiting = [(f"{path}.{k}", v) for k, v in _parts(value) if k not in known]
    seen = set[int]()
    while waiting and len(seen) < _MOST:
        name, x = waiting.pop(0)
        if id(x) in seen:
            continue
        seen.add(id(x))
        if _is_array(x):
            yield name
        else:
            waiting += [(f"{name}.{k}", v) for k, v in _parts(x)]


def in_short(value: Any) -> str:
    """How a value that holds no inputs is written, the same in each process: Python's own where it is short and has no
    addresses in it, else its class."""
    text = repr(value) if _is_plain(value) else ""
    return text if text and len(text) <= _SHORT else f"<{type(value).__name__}>"


def _is_plain(x: Any) -> bool:
    if type(x) is dict:
        return all(map(_is_plain, (*x, *x.values())))
    return all(map(_is_plain, x)) if type(x) in (list, tuple) else x is None or type(x) in (str, bool, int, float)


def _is_array(x: Any) -> bool:
    return hasattr(type(x), "__array__")


def _parts(x: Any) -> Iterator[tuple[Any, Any]]:
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
