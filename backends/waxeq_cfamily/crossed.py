"""Folds over pairs: every row of one tensor meets every column of another (distances, tropical products, counts).

Like a product of matrices they read far less than they compute, if a tile of columns stays in cache for many rows;
unlike one, their function may be anything, so that no library has them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from waxeq.ir.types import numpy_dtype
from waxeq_cfamily.scalars import carried
from waxeq_cfamily.values import Row, Values, chain

_LEAST_BYTES = 128
"""A row of a tile has so many at least: a few vectors, that one need not wait for another."""
_ROWS = 128
_LEAST_ROWS = 4
_RESULTS_BYTES = 128 << 10
"""A tile of results: with more rows columns are brought into cache, and turned, less often."""
_COLUMNS_BYTES = 16 << 10
"""A tile of columns that stays in the first-level cache."""
_DEPTH = 4, 1023
"""How many numbers are folded: of fewer the result takes longer to write, of more a sum is cut in pieces."""


@dataclass(frozen=True, slots=True)
class Cross:
    """`rows` and `columns` are axes of the result that are never read together; what lies side by side along `across`
    and not along the columns is turned in cache first. Tiles are of so many of each."""

    rows: str
    columns: str
    across: str | None
    tile_rows: int
    tile_columns: int


def least(dtype: str) -> int:
    """How many columns a tile has at least."""
    return _LEAST_BYTES // numpy_dtype(dtype).itemsize


def crossed(values: Values) -> Cross | None:
    """The pairs that the only fold of some values is over; None where there are none, or too few for tiles."""
    folds = [n for n, r in enumerate(values.rows) if r.op == "fold"]
    if not folds or values.scans or values.positions:
        return None
    axes, source = chain(values, folds[-1])
    depth = math.prod(values.sizes[k] for k in axes)
    if len(axes) != len(folds) or not _DEPTH[0] <= depth <= _DEPTH[1]:
        return None
    loads = [r for r in _loads(values, source) if r.axes]
    columns = next((k for k in values.sizes if values.out.stride(k) == 1 and k not in axes), None)
    if columns is None or any(r.name[1].stride(k) is None for r in loads for k in (columns, *axes)):
        return None
    near = [r for r in loads if columns in r.axes]
    apart = {k for r in loads if columns not in r.axes for k in r.axes if k not in axes and values.out.stride(k)}
    rows = max(
        (k for k in apart if not any(k in r.axes for r in near)), key=lambda k: (values.sizes[k], k), default=None
    )
    width = least(carried(values.rows[folds[-1]].dtype))
    if rows is None or not near or values.sizes[rows] < _LEAST_ROWS or values.sizes[columns] < width:
        return None
    turned = [r for r in near if r.name[1].stride(columns) != 1]
    across = next((k for k in axes if all(r.name[1].stride(k) == 1 for r in turned)), None)
    if turned and across is None:
        return None
    each = max(numpy_dtype(r.dtype).itemsize for r in near) * depth * len(near)
    most = max(width, _COLUMNS_BYTES // each // width * width)
    many = _RESULTS_BYTES // (most * numpy_dtype(carried(values.rows[folds[-1]].dtype)).itemsize)
    high = max(_ROWS, min(many, int(values.sizes[rows]) // 2))
    return Cross(
        rows, columns, across if turned else None, min(high, values.sizes[rows]), min(most, values.sizes[columns])
    )


def _loads(values: Values, start: int) -> Iterator[Row]:
    """What is read to compute a row."""
    seen, stack = set(), [start]
    while stack:
        n = stack.pop()
        if n not in seen:
            seen.add(n)
            stack += values.reads(values.rows[n])
            if values.rows[n].op == "load":
                yield values.rows[n]
