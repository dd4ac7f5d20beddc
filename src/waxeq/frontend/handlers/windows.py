"""Stacks of slices of one array that begin in arithmetic progression along its axes, as
`np.stack([x[i : i + m, j : j + n] for i in range(3) for j in range(3)])` is: sliding windows, which are views where a
stack is copies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np

from waxeq.frontend.array import TracedArray, Tracer
from waxeq.frontend.patchwork import cut
from waxeq.ir.graph import GraphBuilder
from waxeq.ops.movement import Slice
from waxeq.ops.window import Unfold

_FEWEST = 3
"""Slices of which a stack is windows: two are a difference or a roll, for which rules know more of a concatenation."""


def stacked(t: Tracer, xs: Sequence[TracedArray], at: int) -> TracedArray | None:
    """Arrays of one shape along a new axis `at`, as windows of the array that all are slices of; None where they are
    not, and in traces at several sizes: three beginnings may be in progression at one of them alone."""
    if t.sized or len(xs) < _FEWEST or 0 in xs[0].shape:
        return None
    base, runs = zip(*(_sliced(t.builder, x.value) for x in xs), strict=True)
    grid = _grid(runs) if len({*base}) == 1 else None
    if grid is None:
        return None
    value, first, rank = base[0], runs[0], xs[0].ndim
    for axis, r in enumerate(first):
        along = next((g for g in grid if g.axis == axis), None)
        whole = r if along is None else range(r.start, r[-1] + along.step * (along.many - 1) + 1)
        value = t.value(t.wrap(cut(t.builder, value, axis, whole)))
    for g in grid:
        value = t.builder(Unfold(g.axis, g.many, first[g.axis].step, g.step), value)
    unfolded: Any = t.wrap(value)
    windows: Any = np.moveaxis(unfolded, range(rank, rank + len(grid)), range(at, at + len(grid)))
    shape = xs[0].shape
    return windows.reshape((*shape[:at], len(xs), *shape[at:]))


@dataclass(frozen=True)
class _Beginnings:
    """`many` of them, `step` apart along an axis."""

    axis: int
    step: int
    many: int


def _sliced(b: GraphBuilder, value: int) -> tuple[int, tuple[range, ...]]:
    """What a value is slices of, and the places that it has of each axis of that."""
    node = b.node(value)
    if node is None or not isinstance(node.op, Slice):
        return value, tuple(map(range, b.type(value).shape))
    op = node.op
    base, runs = _sliced(b, node.inputs[0])
    part = runs[op.axis][op.index[op.axis]]
    return base, (*runs[: op.axis], part, *runs[op.axis + 1 :])


def _grid(runs: Sequence[tuple[range, ...]]) -> tuple[_Beginnings, ...] | None:
    """The axes along which slices begin at several places, the one that changes last first; None where there is none,
    where they are no whole grid of them in order, and where one has another step or goes backwards."""
    if any(r.step != s.step or s.step < 1 for row in runs for r, s in zip(row, runs[0], strict=True)):
        return None
    begins = np.array([[r.start for r in row] for row in runs])
    axes = [i for i in range(begins.shape[1]) if (begins[:, i] != begins[0, i]).any()]
    places = {i: np.unique(begins[:, i]) for i in axes}
    if not axes or math.prod(p.size for p in places.values()) != len(runs):
        return None
    if any((np.diff(p) != p[1] - p[0]).any() for p in places.values()):
        return None
    for order in permutations(axes):
        all_of = np.meshgrid(*(places[i] for i in order), indexing="ij")
        if all(np.array_equal(begins[:, i], p.reshape(-1)) for i, p in zip(order, all_of, strict=True)):
            return tuple(_Beginnings(i, int(places[i][1] - places[i][0]), places[i].size) for i in order)
    return None
