"""Elements of rows in rising order, by their places: of short rows by exchanges of pairs, in which no row is sorted.

Sources: D. E. Knuth, The Art of Computer Programming 3, 5.3.4 (networks for sorting, Batcher's merge exchange); the
median of nine: N. Devillard, Fast median search, 1998.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any

import numpy as np

from waxeq.frontend.array import TracedArray, Tracer
from waxeq.frontend.explicit import axes_tuple
from waxeq.ir.types import is_floating
from waxeq.ops.movement import Concat

_EXCHANGED = 9
"""Elements of a row up to which pairs are exchanged: a neighbourhood of three by three, which is read by one loop."""
_MEDIAN_OF_9 = (
    (1, 2), (4, 5), (7, 8), (0, 1), (3, 4), (6, 7), (1, 2), (4, 5), (7, 8), (0, 3), (5, 8), (4, 7), (3, 6), (1, 4),
    (2, 5), (4, 7), (4, 2), (6, 4), (4, 2),
)  # fmt: skip
"""After which the median is at its place, and of the others none need be."""


class Ranks:
    """The rows of an array along axes that are to be reduced. `axes`: those. `size`: elements of a row."""

    def __init__(self, t: Tracer, x: TracedArray, axis: Any) -> None:
        self.axes = axes_tuple(axis, x.ndim)
        self.size = int(np.prod([x.shape[i] for i in self.axes], dtype=np.int64))
        self.exchanged = 1 < self.size <= _EXCHANGED and x.dtype.kind not in "bc" and not t.sized
        if self.exchanged:
            self._elements = _elements(t, x, self.axes)
            return
        rest = [i for i in range(x.ndim) if i not in self.axes]
        rows: Any = np.transpose(x, (*rest, *self.axes)).reshape((*(x.shape[i] for i in rest), self.size))
        self._rows = np.sort(rows, axis=-1)

    def __getitem__(self, place: int) -> Any:
        """The elements at a place, from 0 on. Of rows that are exchanged it is NaN where there is one in the row: the
        smaller and the larger one of a pair both are, and each element of a row can be at any place."""
        if not self.exchanged:
            return self._rows[..., place]
        if self.size == 9 and place == 4:
            return self._exchange(_MEDIAN_OF_9)[4]
        return self._exchange(merge_exchange(self.size))[place]

    def settled(self, y: Any) -> Any:
        """NaN where a row had one (they sort last)."""
        if self.exchanged or not is_floating(self._rows.dtype):
            return y
        return np.where(np.isnan(self._rows[..., -1]), np.asarray(np.nan, y.dtype), y)

    def between(self, first: int, last: int) -> Any:
        """The elements from a place to another one along a last axis."""
        if not self.exchanged:
            return self._rows[..., first : last + 1]
        return np.stack([self[k] for k in range(first, last + 1)], axis=-1)

    def _exchange(self, pairs: Iterable[tuple[int, int]]) -> list[Any]:
        every = list(self._elements)
        for i, j in pairs:
            every[i], every[j] = np.minimum(every[i], every[j]), np.maximum(every[i], every[j])
        return every


def _elements(t: Tracer, x: TracedArray, axes: tuple[int, ...]) -> list[Any]:
    """Those of each row, each one an array. Of arrays that were stacked they are those arrays: no stack is read."""
    node = t.builder.node(x.value)
    if node is not None and isinstance(node.op, Concat) and (node.op.axis,) == axes:
        return [e for part in node.inputs for e in _elements(t, t.wrap(part), axes)]
    every = product(*(range(x.shape[i]) if i in axes else (slice(None),) for i in range(x.ndim)))
    return [x[index] for index in every]


def merge_exchange(n: int) -> Iterator[tuple[int, int]]:
    """Pairs of places of which the smaller element comes to lie first: after all of them n elements are sorted."""
    p = 1
    while p < n:
        k = p
        while k:
            for j in range(k % p, n - k, 2 * k):
                for i in range(j, min(j + k, n - k)):
                    if i // (2 * p) == (i + k) // (2 * p):
                        yield i, i + k
            k //= 2
        p *= 2
