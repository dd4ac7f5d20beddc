"""What a program is called with: arrays in order, of the types it takes; a sentence for anything else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from waxeq.errors import TypeMismatch
from waxeq.ir.array import as_array
from waxeq.ir.graph import Leaf
from waxeq.runtime.arguments import ordered
from waxeq.runtime.layout import Reader, reader

_Array = np.ndarray
_asarray = np.asarray
_NUMBERS = (np.generic, float, int)
"""What becomes an array without a look at what else it could be; its dtype and shape are compared as any."""


def with_arrays(args: Sequence[Any]) -> tuple[Any, ...]:
    """Arguments with the numbers among them as arrays; of what type, nobody has looked at."""
    return tuple([_asarray(a) if isinstance(a, _NUMBERS) else a for a in args])


class Inputs:
    """The inputs of a program. A call that fits costs a few comparisons; one that does not is explained."""

    def __init__(self, leaves: Sequence[Leaf], fixed: Mapping[str, str] | None = None) -> None:
        """`fixed`: as `ordered` has it."""
        self.leaves, self._fixed = tuple(leaves), fixed
        self._names = tuple(x.name for x in leaves)
        self._nested = any("." in n for n in self._names)
        self._reader: Reader | None = None
        self._types = tuple((x.type.shape, x.type.numpy) for x in leaves)

    def take(self, args: Sequence[Any], named: Mapping[str, Any]) -> Sequence[np.ndarray]:
        """An array for each input, in order. Raises TypeMismatch when one is missing, unknown or of another dtype or
        shape."""
        if self._reader is not None:
            rows = self._reader(args, named)
            if rows is not None and (self._fit(rows) or self._fit(rows := with_arrays(rows))):
                return rows
        flat = not self._nested
        if named or len(args) != len(self._names):
            args, flat = self._ordered(args, named), True
        if self._fit(args):
            return args
        return self._made(args if flat else self._ordered(args, {}))

    def _fit(self, args: Sequence[Any]) -> bool:
        """Whether these are arrays of the right types."""
        for a, (shape, dtype) in zip(args, self._types):  # noqa: B905  # of one length, and this is every call
            if type(a) is not _Array or a.dtype is not dtype or a.shape != shape:
                return False
        return True

    def _made(self, args: Sequence[Any]) -> list[np.ndarray]:
        """Arrays of what are not all arrays of the right types: numbers at once, the rest after a look at them."""
        rows = list[np.ndarray]()
        for leaf, a, (shape, dtype) in zip(self.leaves, args, self._types):  # noqa: B905  # of one length, as above
            made = _asarray(a) if type(a) is not _Array and isinstance(a, _NUMBERS) else a
            if type(made) is not _Array or made.dtype is not dtype or made.shape != shape:
                made = fitted(leaf, a)
            rows.append(made)
        return rows

    def _ordered(self, args: Sequence[Any], named: Mapping[str, Any]) -> Sequence[Any]:
        if not args and len(named) == len(self._names):
            try:
                return [named[n] for n in self._names]
            except KeyError:
                pass  # explained below
        rows = ordered(args, named, self._said, self._fixed)
        self._reader = reader(args, named, rows) if self._nested else None
        return rows

    @cached_property
    def _said(self) -> dict[str, str]:
        return {x.name: str(x.type) for x in self.leaves}


def fitted(leaf: Leaf, value: Any) -> np.ndarray:
    """The value as an array of the leaf's type. Raises TypeMismatch, which names the leaf and what it takes."""
    what, takes = f"{leaf.kind} {leaf.name!r}", f"the program takes {leaf.type}"
    a = as_array(value, what, takes)
    if a.shape != leaf.type.shape or a.dtype != leaf.type.numpy:
        raise TypeMismatch(f"{what} is {a.dtype}[{', '.join(map(str, a.shape))}], {takes}")
    return a
