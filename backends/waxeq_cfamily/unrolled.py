"""Axes of a few elements written out: colours of a pixel, coordinates of a point, the pixels that a larger one is the
mean of.

Where such an axis lies innermost a loop over it is too short for vectors, and what is around it steps over it. Written
out, the loop around it is made of vectors: compilers read a few neighbours at once and take them apart (D. Nuzman,
I. Rosen, A. Zaks, Auto-vectorization of interleaved data for SIMD, 2006).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from waxeq_cfamily.known import Rows, placed
from waxeq_cfamily.scalars import carried
from waxeq_cfamily.spaces import collapsed, joined
from waxeq_cfamily.values import Index, Row, Values, reindexed

FEW = 4
"""Elements of an axis that is written out at most."""
_LEAST = 32
"""Points of all other axes from which that is worth a longer text."""
_ROWS = 96
"""Values that a text may then have."""
_STEPS = {"sum": "Add", "prod": "Mul", "max": "max", "min": "min"}
"""The functions of two numbers that folds are made of."""


def unrolled(values: Values) -> Values:
    """The same values without axes of a few elements that are folded, or lie side by side where they are read or
    written: what folds them is a chain of functions, what has them several results. As they are where there is none,
    or where they can be merged with another axis."""
    if values.positions or values.scans or values.others:
        return values
    merged = collapsed(values)
    whole = joined(merged)
    if any(_short(merged, k) and whole.sizes.get(k) != merged.sizes[k] for k in merged.folded):
        values = merged = whole  # a short axis that is folded together with its neighbour is no short loop
    found = merged
    for k in sorted(merged.folded):
        if _short(found, k) and _folds(found, k) and (_read_along(found, k) or _alone(found, k)):
            found = _without(found, k)
    short = [k for k in found.sizes if _short(found, k) and (found.out.stride(k) == 1 or _read_along(found, k))]
    if short and not found.folded:
        found = _without(found, max(short, key=lambda k: found.out.stride(k) == 1))
    mixed = found.others and found.folded  # what folds in pieces makes one result
    return values if found is merged or mixed or len(found.rows) > _ROWS else found


def _short(values: Values, k: str) -> bool:
    return 1 < values.sizes[k] <= FEW and math.prod(values.sizes.values()) >= _LEAST * values.sizes[k]


def _read_along(values: Values, k: str) -> bool:
    """Whether something lies side by side along an axis."""
    return any(r.op == "load" and r.name[1].stride(k) == 1 for r in values.rows)


def _folds(values: Values, k: str) -> bool:
    """Whether every fold along an axis is one of that axis alone, and of numbers that functions of two round no more
    often."""
    rows = [r for r in values.rows if k in r.folded]
    plain = (carried(r.dtype) == r.dtype or r.name in ("max", "min") for r in rows)
    return all(plain) and all(r.folded == (k,) and r.name in _STEPS and r.dtype != "bool" for r in rows)


def _alone(values: Values, k: str) -> bool:
    """Whether no fold along a long axis is one of many along a short one: each would be a loop of its own."""
    folds = (r for r in values.rows if r.op == "fold" and k in r.axes)
    return all(_short(values, a) for r in folds for a in r.folded)


def _without(values: Values, k: str) -> Values:
    """The values with an axis written out."""
    made, number = Rows(), dict[tuple[int, int], int]()
    places = range(values.sizes[k])

    def at(index: Index, c: int) -> Index:
        return placed(index, lambda a, _: Index(const=c) if a == k else None)

    for n, r in enumerate(values.rows):
        if r.folded == (k,):
            number |= dict.fromkeys(((n, c) for c in places), _folded(made, r, [number[r.args[0], c] for c in places]))
        for c in places if r.folded != (k,) else ():
            args = tuple(number[a, c] for a in r.args)
            moved = reindexed(r, lambda i, c=c: at(i, c))
            number[n, c] = made.add(replace(moved, args=args, axes=r.axes - {k}))
    ends = dict.fromkeys((number[n, c], at(where, c)) for n, where in values.results for c in places)
    return made.values([*ends], values.sizes)


def _folded(made: Rows, r: Row, parts: Sequence[int]) -> int:
    """A fold as a chain of functions."""
    first, *rest = parts
    for n in rest:
        axes = made.rows[first].axes | made.rows[n].axes
        first = made.add(Row("apply", _STEPS[r.name], (first, n), r.dtype, axes))
    return first
