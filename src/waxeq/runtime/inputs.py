"""What a program is called with: arrays in order, of the types it takes; a sentence for anything else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from waxeq.amounts import number_of
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
        return ordered(args, named, {x.name: str(x.type) for x in self.leaves})


def ordered(args: Sequence[Any], named: Mapping[str, Any], types: Mapping[str, str]) -> list[Any]:
    """What a program is called with, in the order of its inputs. `types`: what it takes, by name of the input; empty
    where that is not one type. Raises TypeMismatch when an input is missing, unknown or given twice."""
    takes = ", ".join(f"{n}: {t}" if t else n for n, t in types.items()) or "none"
    if len(args) > len(types):
        count = number_of(len(types), "input")
        raise TypeMismatch(f"the program takes {count} ({takes}), {len(args)} were given")
    rows = dict(zip(types, args, strict=False))
    for n in named:
        if n in rows:
            raise TypeMismatch(f"input {n!r} is given twice: by position and by name")
        if n not in types:
            raise TypeMismatch(f"the program has no input {n!r}; it takes {takes}")
    rows |= named
    for n, t in types.items():
        if n not in rows:
            raise TypeMismatch(f"no array was given for input {n!r}{f' ({t})' if t else ''}; the program takes {takes}")
    return [rows[n] for n in types]


def fitted(leaf: Leaf, value: Any) -> np.ndarray:
    """The value as an array of the leaf's type. Raises TypeMismatch, which names the leaf and what it takes."""
    what, takes = f"{leaf.kind} {leaf.name!r}", f"the program takes {leaf.type}"
    a = as_array(value, what, takes)
    if a.shape != leaf.type.shape or a.dtype != leaf.type.numpy:
        raise TypeMismatch(f"{what} is {a.dtype}[{', '.join(map(str, a.shape))}], {takes}")
    return a
