"""Where the inputs of a program lay in the arguments of a call: the next one that has them there is not looked through
by name, which takes longer than many a plan.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from types import CodeType
from typing import Any

import numpy as np

from waxeq.frontend.containers import fields_of

_SAME = (bool, int, float, str, type(None))
"""Classes of which the same object has the same value in each call."""
_FORMS = 256
"""Texts that stay compiled: calls of several forms may take turns."""

Reader = Callable[[Sequence[Any], Mapping[str, Any]], list[Any] | None]


def reader(args: Sequence[Any], named: Mapping[str, Any], found: Sequence[Any]) -> Reader | None:
    """What takes the inputs, in their order, from the arguments of a call of the form of this one, in which they are
    `found`, and gives None for another form. None where they do not lie in this one as they are, each once, and nothing
    else but Python values."""
    places = {id(a): i for i, a in enumerate(found)}
    if len(places) < len(found):
        return None
    text = _Text(places)
    try:
        text.group("args", args, f"len(args) != {len(args)}", range(len(args)))
        text.group("named", named, f"len(named) != {len(named)}", named)
    except _Other:
        return None
    read = text.compiled()
    again = read(args, named)
    return read if again is not None and all(a is b for a, b in zip(again, found, strict=True)) else None


class _Other(Exception):
    """Something lies in the arguments that is neither an input nor a Python value."""


class _Text:
    """A Python function that takes arguments apart: each step of it looks whether they are of the same form."""

    def __init__(self, places: Mapping[int, int]) -> None:
        self.places = places
        self.lines: list[str] = []
        self.known: dict[str, Any] = {}
        self.inputs: dict[int, str] = {}

    def compiled(self) -> Reader:
        if len(self.inputs) < len(self.places):
            return lambda args, named: None
        rows = ", ".join(self.inputs[i] for i in sorted(self.inputs))
        body = "".join(f"        {line}\n" for line in (*self.lines, f"return [{rows}]"))
        text = f"def read(args, named):\n    try:\n{body}    except (KeyError, AttributeError):\n        return None\n"
        exec(_code(text), self.known)
        return self.known["read"]

    def group(self, name: str, value: Any, other: str, keys: Collection[Any], *, attributes: bool = False) -> None:
        """Steps for the parts of a value, each under a name of its own; `other`: what holds for one of another form."""
        self.lines.append(f"if {other}: return None")
        for i, key in enumerate(keys):
            part = f"{name}_{i}"
            if attributes:
                self.lines.append(f"{part} = {name}.{key}")
                self.part(part, getattr(value, key))
            else:
                self.lines.append(f"{part} = {name}[{key if type(key) is int else self._constant(key)}]")
                self.part(part, value[key])

    def part(self, name: str, value: Any) -> None:
        """Steps for a value: an input, a container of others, or a Python value that the plan is for."""
        kind = type(value)
        if kind in _SAME:
            known = self._constant(value)
            equal = kind in (int, str) or (kind is float and value != 0.0)  # -0.0 is another number
            other = f" and (type({name}) is not {kind.__name__} or {name} != {known})" if equal else ""
            self.lines.append(f"if {name} is not {known}{other}: return None")
        elif id(value) in self.places:
            self.inputs[self.places[id(value)]] = name
        elif isinstance(value, np.ndarray):
            raise _Other
        elif (known := fields_of(value)) is not None and len(known) == len(fields(value)):
            self.group(name, value, f"type({name}) is not {self._constant(kind)}", known, attributes=True)
        elif kind in (dict, list, tuple) or (isinstance(value, tuple) and hasattr(value, "_fields")):
            other = f"type({name}) is not {self._constant(kind)} or len({name}) != {len(value)}"
            self.group(name, value, other, value if kind is dict else range(len(value)))
        else:
            raise _Other

    def _constant(self, value: Any) -> str:
        self.known[f"known_{len(self.known)}"] = value
        return f"known_{len(self.known) - 1}"


@lru_cache(_FORMS)
def _code(text: str) -> CodeType:
    """What Python makes of a text, which takes longer than to look through most arguments."""
    return compile(text, "<arguments>", "exec")
