"""What a program is called with: arrays in order, of the types it takes; a sentence for anything else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from waxeq.errors import TypeMismatch
from waxeq.ir.array import as_array
from waxeq.ir.graph import Leaf

_Array = np.ndarray


class Inputs:
    """The inputs of a program. A call that fits costs a few comparisons; one that does not is explained."""

    def __init__(self, leaves: Sequence[Leaf]) -> None:
        self.leaves = tuple(leaves)
        self._names = tuple(x.name for x in leaves)
        self._types = tuple((x.type.shape, x.type.numpy) for x in leaves)

    def take(self, args: Sequence[Any], named: Mapping[str, Any]) -> Sequence[np.ndarray]:
        """An array for each input, in order. Raises TypeMismatch when one is missing, unknown or of another dtype or
        shape."""
        if named or len(args) != len(self._names):
            args = self._ordered(args, named)
        for a, (shape, dtype) in zip(args, self._types):  # noqa: B905  # of one length, and this is every call
            if type(a) is not _Array or a.dtype is not dtype or a.shape != shape:
                return [fitted(x, a) for x, a in zip(self.leaves, args, strict=True)]
        return args

    def _ordered(self, args: Sequence[Any], named: Mapping[str, Any]) -> Sequence[Any]:
        if not args and len(named) == len(self._names):
            try:
                return [named[n] for n in self._names]
            except KeyError:
                pass  # explained below
        takes = ", ".join(f"{x.name}: {x.type}" for x in self.leaves) or "none"
        if len(args) > len(self._names):
            count = f"{len(self._names)} input{'' if len(self._names) == 1 else 's'}"
            raise TypeMismatch(f"the program takes {count} ({takes}), {len(args)} were given")
        rows = dict(zip(self._names, args, strict=False))
        for n in named:
            if n in rows:
                raise TypeMismatch(f"input {n!r} is given twice: by position and by name")
            if n not in self._names:
                raise TypeMismatch(f"the program has no input {n!r}; it takes {takes}")
        rows |= named
        for x in self.leaves:
            if x.name not in rows:
                raise TypeMismatch(f"no array was given for input {x.name!r} ({x.type}); the program takes {takes}")
        return [rows[n] for n in self._names]


def fitted(leaf: Leaf, value: Any) -> np.ndarray:
    """The value as an array of the leaf's type. Raises TypeMismatch, which names the leaf and what it takes."""
    what, takes = f"{leaf.kind} {leaf.name!r}", f"the program takes {leaf.type}"
    a = as_array(value, what, takes)
    if a.shape != leaf.type.shape or a.dtype != leaf.type.numpy:
        raise TypeMismatch(f"{what} is {a.dtype}[{', '.join(map(str, a.shape))}], {takes}")
    return a
