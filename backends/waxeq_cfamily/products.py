"""Products of matrices inside a nest: sums of products whose two sides each have axes of their own."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from waxeq_cfamily.values import Values, chain

DTYPES = ("float32", "float64")
_DEEP = 32
"""Depth from which a product is worth its start, whatever else speaks for another axis."""
FILLED = 16
"""Columns of which a tile of registers is not left half empty."""


@dataclass(frozen=True, slots=True)
class Product:
    """`fold` is a sum of left * right. `rows` is the axis of the left side, `columns` of the right, along which a tile
    of the result is made at once; `depth` is the folded axis that runs inside, `around` the others."""

    fold: int
    left: int
    right: int
    rows: str
    columns: str
    depth: str
    around: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Found:
    """A sum of products: its sides as they stand, their own axes, and what is summed over."""

    fold: int
    sides: tuple[int, int]
    own: tuple[frozenset[str], frozenset[str]]
    folded: tuple[str, ...]


def found(values: Values, dtypes: Sequence[str] = DTYPES) -> tuple[Found, ...]:
    """The sums of products, of these dtypes, in which either side has axes that the other lacks."""
    rows = []
    for n, r in enumerate(values.rows):
        if r.op != "fold" or r.name != "sum" or r.dtype not in dtypes:
            continue
        axes, source = chain(values, n)
        s = values.rows[source]
        if s.op != "apply" or s.name != "Mul" or len(values.users[source]) != 1 or set(axes) & r.axes:
            continue
        if any(values.rows[u].op == "fold" and values.rows[u].name == "sum" for u in values.users.get(n, ())):
            continue  # not the outermost of its chain
        a, b = (values.rows[x].axes for x in s.args)
        if set(axes) <= a and set(axes) <= b and a - b and b - a:
            rows.append(Found(n, (s.args[0], s.args[1]), (a - b, b - a), axes))
    return tuple(rows)


def arranged(values: Values, dtypes: Sequence[str] = DTYPES) -> tuple[Product, ...] | None:
    """Rows and columns for every sum of products, of these dtypes, of a nest, such that one tile of rows runs through
    all of them; None where there is no such arrangement."""
    sums = found(values, dtypes)
    vector = next((k for k in values.sizes if values.out.stride(k) == 1 and values.sizes[k] > 1), None)
    last = next((f for f in reversed(sums) if any(vector in own for own in f.own)), None)
    if vector is None or last is None:
        return None
    tiled = last.own[0] if vector in last.own[1] else last.own[1]
    candidates = [k for k in tiled if values.out.stride(k) and k not in values.folded]
    if not candidates:
        return None
    rows = max(candidates, key=lambda k: (values.sizes[k], k))
    made = tuple(p for f in sums if (p := _arranged(values, f, rows, vector)) is not None)
    return tuple(_turned(values, p) if len(made) == 1 else p for p in made) if len(made) == len(sums) else None


def overlaps(steps: Iterable[tuple[int, int]]) -> bool:
    """Whether what is read along axes of (size, step) has elements that are met many times, as windows have."""
    steps = tuple(steps)
    return math.prod(n for n, _ in steps) > 2 * (1 + sum((n - 1) * abs(step) for n, step in steps))


def _turned(values: Values, p: Product) -> Product:
    """The product with its sides exchanged, where windows are on the right of it: no panels can be made of them, and
    on the left they are read where they lie, while the other side lies in panels. Its tile is turned when it is
    written."""
    if p.columns in values.folded or values.sizes[p.rows] < FILLED or not _windows(values, p.right):
        return p
    return p if _windows(values, p.left) else replace(p, left=p.right, right=p.left, rows=p.columns, columns=p.rows)


def _windows(values: Values, n: int) -> bool:
    r = values.rows[n]
    return r.op == "load" and overlaps((values.sizes[k], r.name[1].stride(k) or 0) for k in r.axes)


def _arranged(values: Values, f: Found, rows: str, vector: str) -> Product | None:
    sides = [i for i in (0, 1) if rows in f.own[i]]
    if len(sides) != 1:
        return None
    left, right = f.sides[sides[0]], f.sides[1 - sides[0]]
    inner = {k for k in values.rows[f.fold].axes if k == vector or k in values.folded}
    columns = [k for k in f.own[1 - sides[0]] if k in inner]
    if len(columns) != 1 or inner != {columns[0]}:
        return None  # the others would have to be loops around the product
    deep = {k: min(values.sizes[k], _DEEP) for k in f.folded}
    inside = max(f.folded, key=lambda k: (deep[k], _beside(values, left, right, k), values.sizes[k], k))
    around = tuple(k for k in f.folded if k != inside)
    if not all(_plain(values, n, (rows, columns[0], *f.folded)) for n in (left, right)):
        return None
    return Product(f.fold, left, right, rows, columns[0], inside, around)


def _beside(values: Values, left: int, right: int, axis: str) -> int:
    """How many sides hold an axis side by side."""
    rows = [values.rows[n] for n in (left, right)]
    return sum(r.op == "load" and r.name[1].stride(axis) == 1 for r in rows)


def _plain(values: Values, n: int, axes: tuple[str, ...]) -> bool:
    """Whether a side can be read as a strided matrix, or is computed first."""
    r = values.rows[n]
    return r.op != "load" or (not r.guards and all(r.name[1].stride(k) is not None for k in axes))
