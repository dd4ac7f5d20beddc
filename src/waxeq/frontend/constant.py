"""Arrays that a model names and is not given: its module's, those around it, those that it makes itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from waxeq.frontend.array import TracedArray
from waxeq.frontend.handlers import indexing


class Constant(np.ndarray):
    """An array as any other, of which elements can be taken by traced positions: NumPy's own would ask for their
    content."""

    def __getitem__(self, index: Any) -> Any:
        parts = index if isinstance(index, tuple) else (index,)
        traced = next((p for p in parts if isinstance(p, TracedArray)), None)
        if traced is None:
            return super().__getitem__(index)
        t = traced.tracer
        t.builder.source = t.source()
        return indexing.getitem(t, t.array(self), index)


_DEPTH, _MANY = 3, 10_000
"""Containers within each other in which arrays are looked for, and the elements of the largest."""


def constant(value: Any) -> Any:
    """An array, or a tuple with arrays in it, with constants in their place; whatever else as it is."""
    if type(value) is np.ndarray:
        return value.view(Constant)
    if type(value) is tuple and len(value) <= _MANY:
        parts = tuple(map(constant, value))
        return value if all(a is b for a, b in zip(parts, value, strict=True)) else parts
    return value


def containers(values: Iterable[Any], depth: int = _DEPTH) -> Iterator[list[Any] | dict[Any, Any]]:
    """The lists and dicts among values, and those in them."""
    for x in values:
        if type(x) in (list, dict, tuple) and len(x) <= _MANY and depth:
            if type(x) is not tuple:
                yield x
            yield from containers([*x.values()] if isinstance(x, dict) else [*x], depth - 1)


def swap_inside(container: list[Any] | dict[Any, Any]) -> Callable[[], None]:
    """Put constants in place of the arrays of a container. Gives what puts these back, where they still are."""
    rows = [*(enumerate(container) if isinstance(container, list) else container.items())]
    swapped = [(k, v, x) for k, v in rows if (x := constant(v)) is not v]
    for k, _, x in swapped:
        container[k] = x

    def put_back() -> None:
        for k, v, x in swapped:
            there = k < len(container) if isinstance(container, list) else k in container
            if there and container[k] is x:
                container[k] = v

    return put_back
