"""What a model leaves of what it computed, in its object, globals or arguments. Nothing that is traced may stay there:
another trace would find it, and calls of a plan leave nothing."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from functools import cache, cached_property
from inspect import getattr_static
from types import FunctionType, ModuleType
from typing import Any

from waxeq.frontend.array import TracedArray
from waxeq.frontend.selection import Selection

_MOST = 50_000
"""Elements of containers that are looked at."""
_LEAVES = (TracedArray, type, ModuleType, FunctionType, str, bytes, int, float)

_Holder = MutableMapping[Any, Any] | list[Any] | deque[Any]


class Leavings:
    """What tables, and all that can be written to in them, hold before a model runs: dicts, lists, and the attributes
    of objects of the user's own classes, whose files are not `installed`. One of the tables may be the attributes of
    the model, where that is an object."""

    def __init__(
        self, tables: Sequence[MutableMapping[str, Any]], installed: Callable[[str], bool], model: object = None
    ) -> None:
        self._installed = cache(lambda kind: _is_installed(kind, installed))
        self._model = model
        self._leading_nowhere = set[type]()
        self._before = [*self._holders(tables)]

    def take_away(self) -> tuple[str, ...]:
        """What is traced by now gives way to what was there before. Gives the names under which it was left, but for
        properties that are computed once, which compute it again."""
        names: dict[str, None] = {}
        for name, holder, owner, before in self._before:
            left = [k for k, v in _contents(holder).items() if v is not before.get(k, holder) and self._is_traced(v)]
            if left and isinstance(holder, (list, deque)):
                names[name] = None
                holder.clear()
                holder.extend(before.values())
                continue
            for k in left:
                if not isinstance(getattr_static(type(owner), str(k), None), cached_property):
                    names[f"{name}.{k}" if name else str(k)] = None
                if k in before:
                    holder[k] = before[k]
                else:
                    del holder[k]
        return tuple(names)

    def _holders(
        self, tables: Sequence[MutableMapping[str, Any]]
    ) -> Iterator[tuple[str, _Holder, Any, dict[Any, Any]]]:
        """All that can be written to, each once: the name by which it is found first (a table has none), what it is or
        has the attributes of, and what it holds."""
        own = getattr(self._model, "__dict__", None)
        waiting: list[tuple[str, Any, Any]] = [("", t, self._model if t is own else t) for t in tables]
        seen, left = set[int](), _MOST
        for name, x, owner in waiting:
            if id(x) in seen or len(x) > left:
                continue
            seen.add(id(x))
            left -= len(parts := _contents(x))
            if not isinstance(x, tuple):
                yield name, x, owner, parts
            if self._leading_nowhere.issuperset(map(type, parts.values())):
                continue
            inside = ((k, self._inside(v), v) for k, v in parts.items())
            waiting += [(f"{name}.{k}" if name else str(k), y, v) for k, y, v in inside if y is not None]

    def _is_traced(self, value: Any) -> bool:
        """Whether a value is traced, or something in it."""
        waiting, seen = [value], set[int]()
        for x in waiting:
            if type(x) in (TracedArray, Selection):
                return True
            inside = self._inside(x)
            if inside is not None and id(inside) not in seen and len(waiting) < _MOST:
                seen.add(id(inside))
                waiting += _contents(inside).values()
        return False

    def _inside(self, x: Any) -> Any:
        """The container that a value is, or its attributes; None of what is looked at no further."""
        if isinstance(x, (dict, list, tuple, deque)):
            return x
        if issubclass(type(x), _LEAVES) or self._installed(type(x)):
            self._leading_nowhere.add(type(x))
            return None
        return getattr(x, "__dict__", None)


def _is_installed(kind: type, installed: Callable[[str], bool]) -> bool:
    """Whether a class is of Python, of waxeq or of an installed package; one whose module has no file is, but for those
    of a session in which it was typed."""
    module = sys.modules.get(kind.__module__)
    file = getattr(module, "__file__", None)
    return installed(file) if file else module is not None and kind.__module__ != "__main__"


def _contents(x: Any) -> dict[Any, Any]:
    return dict(enumerate(x)) if isinstance(x, (list, tuple, deque)) else dict(x)
