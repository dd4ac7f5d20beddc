"""Axes of a few elements written out: colours of a pixel, coordinates of a point, the pixels that a larger one is the
mean of, the classes of a softmax, the states of a recurrence side by side.

Where such an axis lies innermost a loop over it is too short for vectors, and what is around it steps over it. Written
out, the loop around it is made of vectors: compilers read a few neighbours at once and take them apart (D. Nuzman,
I. Rosen, A. Zaks, Auto-vectorization of interleaved data for SIMD, 2006).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from waxeq_cfamily.known import Rows, placed
from waxeq_cfamily.scalars import NARROW, carried
from waxeq_cfamily.spaces import collapsed, joined
from waxeq_cfamily.values import Atom, Index, Row, Values, reindexed

_FEW, _SOME, _MOST = 4, 7, 12
"""Elements of an axis that is written out at most; of one along which polynomials are computed, of which a vector does
not take longer than an element; and of one for which loops of its own are slow."""
_LEAST = 32
"""Points of all other axes from which that is worth a longer text."""
_ROWS = 96
"""Values that a text may then have."""
_STACKED, _LONG, _WRITTEN = 16, 1024, 256
"""States of a stack that are written out at most, and the values that they are made of, before that and after."""
_FOLDED, _CHAINED = 32, 384
"""Arrays of a stack that are written out at most where it is folded, and the values of the text."""
_RECKONED = 8
"""Functions that find the places of lookups from which those are looked up for a whole axis at once."""
_INSTRUCTIONS = frozenset({"div", "sqrt", "rsqrt", "reciprocal"})
"""Functions that machines have, and that take longer than others."""
_STEPS = {"sum": "Add", "prod": "Mul", "max": "max", "min": "min"}
"""The functions of two numbers that folds are made of."""


def unrolled(values: Values) -> Values:
    """The same values without axes of a few elements that are folded, or lie side by side where they are read or
    written: what folds them is a chain of functions, what has them several results. As they are where there is none,
    or where they can be merged with another axis."""
    if values.scans or values.others:
        return values
    if not values.positions and (states := _states(values)) is not None:
        return states
    merged = collapsed(values)
    whole = joined(merged)
    if any(_short(merged, k) and whole.sizes.get(k) != merged.sizes[k] for k in merged.folded):
        values = merged = whole  # a short axis that is folded together with its neighbour is no short loop
    found = merged
    for k in sorted(merged.folded):
        if _short(found, k) and _folds(found, k) and (_read_along(found, k) or _alone(found, k)):
            found = _without(found, k)
    short = [k for k in found.sizes if _short(found, k) and (found.out.stride(k) == 1 or _read_along(found, k))]
    last = max(short, key=lambda k: found.out.stride(k) == 1, default=None)
    alone = last is not None and not found.folded and not _multiplied(found, last)
    if last is not None and alone and (not found.positions or _shared(found, last)):
        found = _without(found, last)
    mixed = found.others and found.folded  # what folds in pieces makes one result
    most = _CHAINED if any(_chooses(merged, k) for k in merged.folded) else _ROWS
    return values if found is merged or mixed or len(found.rows) > most else found


def _multiplied(values: Values, k: str) -> bool:
    """Whether values are products of many small matrices, and an axis that of their columns: a row of the second one is
    a vector as it lies, and the axis around both steps over all of it."""
    loads = [r for r in values.rows if r.op == "load"]
    right = [r for r in loads if r.name[1].stride(k) == 1]
    shared = frozenset().union(*(r.axes for r in right))
    left = [r for r in loads if k not in r.axes and r.axes & shared]
    rows = {i for r in left for i in r.axes - shared if values.sizes[i] > 1}
    small = bool(rows) and all(values.sizes[i] <= _SOME for i in rows)
    return small and len(right) > 1 and values.sizes[k] > 2 and values.out.stride(k) == 1


def _shared(values: Values, k: str) -> bool:
    """Whether places where values are looked up are the same along an axis, and something is computed of these, or of
    places by many functions: they are found once for all of the axis then. What is only read costs less as rows that
    lie side by side than as elements that are written apart."""
    if any(k in values.rows[n].axes for n in values.positions):
        return False
    found = set[int]().union(*(_computed(values, n) for n in values.positions))
    return len(found) >= _RECKONED or any(r.op == "apply" and k in r.axes for r in values.rows)


def _states(values: Values) -> Values | None:
    """The values without an axis that only says which of several is meant, where most of what they are made of is the
    same: states that were computed one from another. All of them are made in one go then."""
    for k, size in values.sizes.items():
        if 1 < size <= _STACKED and not values.folded and len(values.rows) <= _LONG and _chooses(values, k):
            found = _without(values, k)
            made = [_computed(found, n) for n, _ in found.results]
            if len(found.rows) <= _WRITTEN and sum(map(len, made)) >= 2 * len(set[int]().union(*made)) > 0:
                return found
    return None


def _chooses(values: Values, k: str) -> bool:
    """Whether the place along an axis alone says which of two values is meant."""
    choices = (r.name[1] for r in values.rows if r.op == "within")
    return any({a for a, _ in where.terms} == {k} for where in choices)


def _computed(values: Values, n: int) -> set[int]:
    """The functions that a row is made by."""
    found, stack = set[int](), [n]
    while stack:
        m = stack.pop()
        if m not in found and values.rows[m].op == "apply":
            found.add(m)
            stack += values.rows[m].args
    return found


def _short(values: Values, k: str) -> bool:
    return 1 < values.sizes[k] <= _most(values, k) and math.prod(values.sizes.values()) >= _LEAST * values.sizes[k]


def _most(values: Values, k: str) -> int:
    """Elements of an axis that is written out at most. A result that has the axis is written element by element then,
    which is worth it where loops of the axis are slow: there are several of them, or narrow floats are converted one by
    one, or polynomials computed of few elements at a time, or doubles compared of which one may be NaN."""
    own = [r for r in values.rows if k in r.axes]
    folds = [r for r in values.rows if k in r.folded]
    if folds and _chooses(values, k):
        return _FOLDED  # a loop asks at each place of each array whether it is the one
    if not folds and values.out.stride(k) != 1:
        return _FEW  # squares are turned in registers
    heavy = any(r.costly and r.name not in _INSTRUCTIONS for r in own)
    if any(r.op != "load" and r.dtype in NARROW for r in own):
        return _MOST
    if not folds:
        return _SOME if heavy else _FEW
    looks = any(r.name in ("max", "min") and r.dtype == "float64" for r in folds)
    alone = all(at.stride(k) == 0 for _, at in values.results)
    return _MOST if alone or heavy or looks or len(folds) > 1 else _FEW


def _read_along(values: Values, k: str) -> bool:
    """Whether something lies side by side along an axis."""
    return any(r.op == "load" and r.name[1].stride(k) == 1 for r in values.rows)


def _folds(values: Values, k: str) -> bool:
    """Whether every fold along an axis is one of that axis alone, and has a function of two numbers."""
    rows = [r for r in values.rows if k in r.folded]
    return all(r.folded == (k,) and r.name in _STEPS and r.dtype != "bool" for r in rows)


def _alone(values: Values, k: str) -> bool:
    """Whether no fold along a long axis is one of many along a short one: each would be a loop of its own."""
    folds = (r for r in values.rows if r.op == "fold" and k in r.axes)
    return all(_short(values, a) for r in folds for a in r.folded)


def _without(values: Values, k: str) -> Values:
    """The values with an axis written out."""
    made, number = Rows(), dict[tuple[int, int], int]()
    places = range(values.sizes[k])

    def at(index: Index, c: int) -> Index:
        def where(a: Atom, _: int) -> Index | None:
            if isinstance(a, tuple) and a[0] == "row":
                return Index.of(("row", number[a[1], c], a[2]))
            return Index(const=c) if a == k else None

        return placed(index, where)

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
    """A fold as a chain of functions; sums of narrow floats are rounded at its end."""
    wide = carried(r.dtype) if r.name in ("sum", "prod") else r.dtype
    first, *rest = parts if wide == r.dtype else [_cast(made, n, wide) for n in parts]
    for n in rest:
        axes = made.rows[first].axes | made.rows[n].axes
        first = made.add(Row("apply", _STEPS[r.name], (first, n), wide, axes))
    return first if wide == r.dtype else _cast(made, first, r.dtype)


def _cast(made: Rows, n: int, dtype: str) -> int:
    return made.add(Row("apply", "Cast", (n,), dtype, made.rows[n].axes))
