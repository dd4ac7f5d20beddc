"""The parts of an index, one for each axis: what stands in them, and what of it lies side by side."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from waxeq.frontend import selection
from waxeq.frontend.array import TracedArray, Tracer
from waxeq.frontend.selection import require_fit


def parts_of(t: Tracer, x: TracedArray, index: Any) -> list[Any]:
    """The index, one part for each axis of x and None for each new one: slices, ints, arrays. `...` stays among arrays
    where it covers no axis."""
    parts: list[Any] = []
    masks: list[tuple[int, Sequence[int]]] = []
    for p in index if isinstance(index, tuple) else (index,):
        if isinstance(p, (list, tuple, range)):
            p = np.asarray(p) if len(p) else np.zeros(0, np.int64)
        placed = traced(p) and t.sized and p.ndim and p.dtype != bool  # np.arange of a dim is no constant
        if isinstance(p, TracedArray) and not placed and (known := t.known(p)) is not None:
            p = known
        if type(p) in (bool, np.bool_):  # what is traced says that it is one of them
            raise t.refuse("indexing by a bool", "use np.where")
        if not traced(p) and isinstance(p, np.ndarray) and p.dtype == bool:
            masks.append((len(parts), p.shape))
            parts += list(np.nonzero(p))
        elif isinstance(p, TracedArray) and p.dtype == bool:
            raise t.refuse(selection.UNKNOWN, selection.INSTEAD)
        elif picks(p) and np.ndim(p) == 0 and not traced(p):
            parts.append(operator.index(p))
        else:
            parts.append(signed(p))
    full = _filled_up(parts, x.ndim)
    for i, shape in masks:
        at = i + (len(full) - len(parts)) * any(p is Ellipsis for p in parts[:i])
        require_fit(shape, x.shape, sum(map(of_axis, full[:at])))
    return full


def signed(p: Any) -> Any:
    """A part of an index as NumPy reads it: what an array of uint64 holds beyond int64 counts from the end, and a
    single number beyond it is outside of any axis."""
    if not is_array(p) or p.dtype != np.uint64:
        return p
    return (p if p.ndim else np.minimum(p, np.uint64(np.iinfo(np.int64).max))).astype(np.int64)


def _filled_up(parts: list[Any], rank: int) -> list[Any]:
    used = sum(map(of_axis, parts))
    if used > rank:
        raise IndexError(f"too many indices for array: array is {rank}-dimensional, but {used} were indexed")
    at, *more = [i for i, p in enumerate(parts) if p is Ellipsis] or [len(parts)]
    if more:
        raise IndexError("an index can only have a single ellipsis ('...')")
    stays = used == rank and any(map(is_array, parts))  # to NumPy it lies between arrays as a slice does
    return [*parts[:at], *(parts[at : at + 1] if stays else [slice(None)] * (rank - used)), *parts[at + 1 :]]


def of_axis(p: Any) -> bool:
    """Whether a part says what is read of an axis: a new axis has none, nor has an ellipsis that covers no axis."""
    return p is not None and p is not Ellipsis


def picks(p: Any) -> bool:
    """Whether a part is an int or an array."""
    return of_axis(p) and not isinstance(p, slice)


def side_by_side(parts: Sequence[Any]) -> bool:
    """Whether nothing lies between ints and arrays: where something does, NumPy puts what they pick first."""
    places = [i for i, p in enumerate(parts) if picks(p)]
    return places == list(range(places[0], places[-1] + 1))


def traced(p: Any) -> bool:
    """Whether a part is an array whose content may be data."""
    return isinstance(p, TracedArray)


def is_array(p: Any) -> bool:
    """Whether a part is an array, traced or known."""
    return isinstance(p, (np.ndarray, TracedArray))
