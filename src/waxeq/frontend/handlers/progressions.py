"""Reading at known positions. Where these are in arithmetic progression, as `np.arange(frames)[:, None] * hop +
np.arange(length)` is, what is read is a slice or sliding windows: views, of which rules and kernels know more than of a
table of positions that is looked up."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from waxeq.frontend.array import TracedArray, Tracer
from waxeq.frontend.handlers.parts import traced
from waxeq.frontend.patchwork import cut
from waxeq.ops.indexing import Gather
from waxeq.ops.window import Unfold


def taken(t: Tracer, x: TracedArray, axis: int, index: Any) -> TracedArray:
    """x at positions of an axis, which the dimensions of the index replace. In traces at several sizes they are looked
    up at all of them: two positions are in progression, and three of another size may not be."""
    steps = None if traced(index) or t.sized else _steps(np.asarray(index), x.shape[axis])
    if steps is None:
        return t.wrap(t.builder(Gather(axis), x.value, t.value(index)))
    known = np.where(np.asarray(index) < 0, np.asarray(index) + x.shape[axis], index)
    first = int(known.flat[0])
    if len(steps) == 1:
        return t.wrap(cut(t.builder, x.value, axis, range(first, first + steps[0] * known.size, steps[0])))
    part = cut(t.builder, x.value, axis, range(first, int(known.flat[-1]) + 1))
    windows: Any = t.wrap(t.builder(Unfold(axis, known.shape[1], *steps), part))
    return np.moveaxis(windows, -1, axis + 1)  # pyright: ignore[reportReturnType]


def outer(arrays: Sequence[np.ndarray]) -> list[np.ndarray] | None:
    """Of several arrays of positions, one for each of as many axes, each without the dimensions of the others; None
    where two share a dimension, where their dimensions are in another order than the axes, and for one array."""
    rank = max(a.ndim for a in arrays)
    own = [[rank - a.ndim + d for d, n in enumerate(a.shape) if n != 1] for a in arrays]
    dimensions = [d for o in own for d in o]
    if len(arrays) == 1 or any(a >= b for a, b in pairwise(dimensions)):
        return None
    return [a.reshape([n for n in a.shape if n != 1]) for a in arrays]


def _steps(index: np.ndarray, size: int) -> tuple[int, ...] | None:
    """From position to position along each dimension, of one that steps or two that step forwards; None for other
    positions, and where one of them is taken again and again along a dimension."""
    if index.ndim not in (1, 2) or not index.size or index.dtype.kind not in "iu":
        return None
    known = index.astype(np.int64)
    known = np.where(known < 0, known + size, known)
    steps = tuple(int(np.diff(known, axis=i).flat[0]) if n > 1 else 1 for i, n in enumerate(known.shape))
    if 0 in steps or (len(steps) == 2 and min(steps) < 0):
        return None
    even = known.flat[0] + sum(s * i for s, i in zip(steps, np.indices(known.shape, sparse=True), strict=True))
    return steps if np.array_equal(known, even) else None
