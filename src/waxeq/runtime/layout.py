"""Where the inputs of a program lay in the arguments of a call: the next one that has them there is not looked through
by name, which takes longer than many a plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from waxeq.frontend.containers import fields_of

_SAME = (bool, int, float, str, type(None))
"""Classes of which the same object has the same value in each call."""


@dataclass(frozen=True, slots=True)
class _Group:
    """A container: its class, what its parts are called (nothing where they are numbered), and the parts."""

    kind: type
    names: tuple[Any, ...] | None
    parts: tuple[Any, ...]
    fields: bool


@dataclass(frozen=True, slots=True)
class _Same:
    """A Python value that the plan is for."""

    value: Any


@dataclass(frozen=True)
class Layout:
    """`named` arguments by name after `count` by position, and where in each the inputs are."""

    count: int
    named: tuple[str, ...]
    parts: tuple[Any, ...]
    inputs: int

    @staticmethod
    def of(args: Sequence[Any], named: Mapping[str, Any], found: Sequence[Any]) -> Layout | None:
        """That of a call in which `found` are the inputs; None where they do not lie in it as they are, each once, and
        nothing else but Python values."""
        places = {id(a): i for i, a in enumerate(found)}
        values = (*args, *named.values())
        if len(places) < len(found):
            return None
        parts = tuple(_part(v, places) for v in values)
        made = Layout(len(args), tuple(named), parts, len(found))
        again = made.read(args, named)
        whole = again is not None and all(a is b for a, b in zip(again, found, strict=True))
        return made if whole else None

    def read(self, args: Sequence[Any], named: Mapping[str, Any]) -> list[Any] | None:
        """What lies where the inputs lay, in their order; None where a call is of another form."""
        if len(args) != self.count or tuple(named) != self.named:
            return None
        rows: list[Any] = [None] * self.inputs
        for part, value in zip(self.parts, (*args, *named.values()), strict=True):
            if not _read(part, value, rows):
                return None
        return rows


def _part(value: Any, places: Mapping[int, int]) -> Any:
    """Where inputs are in a value: a number, a group, a Python value, or None for what is none of these."""
    if type(value) in _SAME:
        return _Same(value)
    if isinstance(value, np.ndarray) or id(value) in places:
        return places.get(id(value))
    known, kind = fields_of(value), type(value)
    if known is None and not (kind in (dict, list, tuple) or (isinstance(value, tuple) and hasattr(value, "_fields"))):
        return None
    rows: Any = known if known is not None else value if kind is dict else None
    names = None if rows is None else tuple(rows)
    parts = tuple(_part(v, places) for v in (value if rows is None else rows.values()))
    return _Group(kind, names, parts, known is not None)


def _read(part: Any, value: Any, rows: list[Any]) -> bool:
    if type(part) is int:
        rows[part] = value
        return True
    if type(part) is _Same:
        return value is part.value
    if part is None or type(value) is not part.kind:
        return False
    if part.fields:
        known = fields_of(value)
        return known is not None and tuple(known) == part.names and _all(part.parts, known.values(), rows)
    if len(value) != len(part.parts):
        return False
    if part.names is None:
        return _all(part.parts, value, rows)
    return tuple(value) == part.names and _all(part.parts, value.values(), rows)


def _all(parts: Sequence[Any], values: Any, rows: list[Any]) -> bool:
    for part, value in zip(parts, values):  # noqa: B905  # of one length
        if type(part) is int:
            rows[part] = value
        elif not _read(part, value, rows):
            return False
    return True
