"""Axes of a few elements written out: colours of a pixel, coordinates of a point, parts of a quaternion.

Where such an axis lies innermost a loop over it is too short for vectors, and what is around it steps over it. Written
out, the loop around it is made of vectors: compilers read a few neighbours at once and take them apart (D. Nuzman,
I. Rosen, A. Zaks, Auto-vectorization of interleaved data for SIMD, 2006).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from waxeq_cfamily.known import Rows, placed
from waxeq_cfamily.scalars import carried
from waxeq_cfamily.spaces import collapsed
from waxeq_cfamily.values import Index, Row, Values, chain, reindexed

FEW = 4
"""Elements of an axis that is written out at most."""
_LEAST = 32
"""Points of all other axes from which that is worth a longer text."""
_ROWS = 96
"""Values that a text may then have."""
_STEPS = {"sum": "Add", "prod": "Mul", "max": "max", "min": "min"}
"""The functions of two numbers that folds are made of."""


def unrolled(values: Values) -> Values:
    """The same values without axes of a few elements that lie side by side: what folds them is a chain of functions,
    what has them several results. As they are where there is none, or where they can be merged with another axis."""
    if values.positions or values.scans or values.others:
        return values
    merged = found = collapsed(values)
    for k in sorted(merged.folded):
        if _read_along(merged, k) and _folds(merged, k):
            found = _without(found, k)
    last = next((k for k in found.sizes if found.out.stride(k) == 1), None)
    if last is not None and not found.folded and _short(found, last):
        found = _without(found, last)
    mixed = found.others and found.folded  # what folds in pieces makes one result
    return values if found is merged or mixed or len(found.rows) > _ROWS else found


def _short(values: Values, k: str) -> bool:
    return 1 < values.sizes[k] <= FEW and math.prod(values.sizes.values()) >= _LEAST * values.sizes[k]


def _read_along(values: Values, k: str) -> bool:
    """Whether an axis is short and something lies side by side along it."""
    return _short(values, k) and any(r.op == "load" and r.name[1].stride(k) == 1 for r in values.rows)


def _folds(values: Values, k: str) -> bool:
    """Whether every fold along an axis is one of plain numbers and of that axis alone."""
    rows = [(n, r) for n, r in enumerate(values.rows) if k in r.folded]
    inside = {m for n, r in enumerate(values.rows) if r.op == "fold" for m in _chained(values, n)}
    return all(
        r.name in _STEPS and r.dtype != "bool" and carried(r.dtype) == r.dtype
        and chain(values, n)[0] == (k,) and n not in inside
        for n, r in rows
    )  # fmt: skip


def _chained(values: Values, fold: int) -> Iterable[int]:
    """The folds below one that are one with it."""
    n, (_, source) = values.rows[fold].args[0], chain(values, fold)
    while n != source:
        yield n
        n = values.rows[n].args[0]


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
