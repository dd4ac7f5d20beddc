"""Arrays that a model names and is not given: its module's, those around it, those that it makes itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableMapping
from typing import Any

import numpy as np

from waxeq.frontend.array import TracedArray
from waxeq.frontend.handlers import indexing
from waxeq.frontend.selection import Selection
from waxeq.frontend.ufuncs import Ufunc

_MOST = 50_000
"""Elements of containers among which arrays are looked for."""


class Constant(np.ndarray):
    """An array as any other, of which elements can be taken by traced positions: NumPy's own would ask for their
    content. Where one is kept it is saved as the array that it is."""

    __array_priority__ = 0.5  # pyright: ignore[reportAssignmentType]  # what is joined of one and of lists is one

    def __getitem__(self, index: Any) -> Any:
        parts = index if isinstance(index, tuple) else (index,)
        traced = next((p for p in parts if isinstance(p, (TracedArray, Selection))), None)
        if traced is None:
            return super().__getitem__(index)
        t = traced.tracer
        t.builder.source = t.source()
        return indexing.getitem(t, t.array(self), index)

    def __setitem__(self, index: Any, value: Any) -> None:
        parts = index if isinstance(index, tuple) else (index,)
        flat = value if isinstance(value, (list, tuple)) else (value,)
        if (traced := next((p for p in (*parts, *flat) if isinstance(p, TracedArray)), None)) is not None:
            what = "an array that is known while tracing is written to"
            raise traced.tracer.refuse(what, "begin with np.zeros_like(x) + x, or take np.where")
        super().__setitem__(index, value)

    def __reduce__(self) -> Any:
        return self.view(np.ndarray).__reduce__()

    def __repr__(self) -> str:
        return repr(self.view(np.ndarray))


class Constants:
    """The constants in place of arrays, one for each; and what stands for ufuncs, as `ufunc` gives it."""

    def __init__(self, ufunc: Callable[[Any], Any]) -> None:
        self._ufunc = ufunc
        self._made: dict[int, tuple[np.ndarray, Constant]] = {}
        self._arrays: dict[int, np.ndarray] = {}
        self._seen: set[int] = set()
        self._left = _MOST

    def of(self, value: Any) -> Any:
        """An array, or a tuple with arrays in it, with constants in their place; whatever else as it is."""
        if type(value) is np.ndarray:
            array, made = self._made.setdefault(id(value), (value, value.view(Constant)))
            self._arrays[id(made)] = array
            return made
        if type(value) is np.ufunc:
            return self._ufunc(value)
        return _tuple(value, self.of, _REAL)

    def back(self, value: Any) -> Any:
        """The array that a constant stands for, or a tuple with arrays in place of constants."""
        if type(value) is Constant:
            return self._arrays.get(id(value), value.view(np.ndarray))
        if type(value) is Ufunc:
            return value.real
        return _tuple(value, self.back, _STANDING)

    def containers(self, values: Iterable[Any]) -> Iterator[list[Any] | dict[Any, Any]]:
        """The lists and dicts among values, and those in them, each once, as far as there are not too many elements."""
        waiting = [x for x in values if type(x) in _CONTAINERS]
        for x in waiting:
            if id(x) in self._seen or len(x) > self._left:
                continue
            self._seen.add(id(x))
            self._left -= len(x)
            if type(x) is not tuple:
                yield x
            parts = x.values() if isinstance(x, dict) else x
            if not _CONTAINERS.isdisjoint(map(type, parts)):
                waiting += [y for y in parts if type(y) in _CONTAINERS]

    def put(self, container: list[Any] | MutableMapping[Any, Any]) -> None:
        """Constants in place of the arrays of a container."""
        _each(container, self.of, _REAL)

    def take(self, container: list[Any] | MutableMapping[Any, Any]) -> None:
        """Arrays in place of the constants of a container, whoever put them there."""
        _each(container, self.back, _STANDING)


_CONTAINERS = frozenset[type]({list, dict, tuple})
_REAL = frozenset[type]({np.ndarray, np.ufunc, tuple})
"""Classes of what something may stand for, or for something in it. All that a module holds is looked through at each
trace, and most of it is of other classes: that is asked of a container as a whole, and not of each of its elements."""
_STANDING = frozenset[type]({Constant, Ufunc, tuple})
"""Likewise of what stands for something."""


def _tuple(value: Any, change: Any, kinds: frozenset[type]) -> Any:
    if type(value) is not tuple or len(value) > _MOST or kinds.isdisjoint(map(type, value)):
        return value
    parts = tuple(map(change, value))
    return value if all(a is b for a, b in zip(parts, value, strict=True)) else parts


def _each(container: list[Any] | MutableMapping[Any, Any], change: Any, kinds: frozenset[type]) -> None:
    if kinds.isdisjoint(map(type, container if isinstance(container, list) else container.values())):
        return
    for k, v in [*(enumerate(container) if isinstance(container, list) else container.items())]:
        if (x := change(v)) is not v:
            container[k] = x
