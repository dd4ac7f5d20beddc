"""Long folds in parts: threads fold pieces of an axis into partial results, which are folded in turn.

A nest that folds almost all it reads has too few points to share out. The axis with the longest steps is cut in pieces;
what is folded from a piece is kept in memory, and the fold is replaced by one over the pieces.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from waxeq.ir.types import is_float
from waxeq_cfamily.spaces import Widths, space
from waxeq_cfamily.stages import Space
from waxeq_cfamily.values import Index, Row, Values, chain, kept, reach, renumbered

_LONG = 1 << 16
"""Elements from which a fold is worth sharing out."""
_PIECE = 1 << 14
"""Elements that a piece has at least."""
_MANY = 512
"""Rows from which a sum of them is made of sums of fewer."""
_FEW = 64
"""Rows that one of those has at least: what it writes is read again."""


@dataclass(frozen=True, slots=True)
class Nest:
    """One walk, and where its result goes: `partial` is the number of a partial result of so many `elements`, None for
    the result itself."""

    space: Space
    partial: int | None = None
    elements: int = 0


def nests(values: Values, widths: Widths, threads: int, operands: int) -> Iterator[Nest]:
    """The walks that compute `values` on so many threads, in order. Partial results are further operands, numbered from
    `operands` on."""
    count = 0
    while not values.scans:  # a scan has no pieces
        whole = space(values, widths)
        shared = _splittable(values, whole, threads, operands) if threads > 1 else None
        n = shared if shared is not None else _inexact(values, whole, operands)
        if n is None:
            break
        axis, pieces, width = _cut(values, n, threads, many=shared is None)
        before = waits_for(values, n, axis)
        if before is not None:
            nest, values = apart(values, before, widths, operands + count)
            yield nest
            count += 1
            continue
        yield Nest(_partial(values, n, axis, width, widths), operands + count, pieces * _size(values, n))
        values = _over_pieces(values, n, pieces, operands + count)
        count += 1
    yield Nest(space(values, widths))


def waits_for(values: Values, n: int, axis: str) -> int | None:
    """The first fold along an axis that what row `n` folds depends on: it must be whole before the axis is cut."""
    _, source = chain(values, n)
    seen, stack = set[int](), [source]
    while stack:
        m = stack.pop()
        if m not in seen:
            seen.add(m)
            stack += values.reads(values.rows[m])
    return min((m for m in seen if values.rows[m].op == "fold" and axis in chain(values, m)[0]), default=None)


def cut(values: Values, n: int, axis: str, width: int, widths: Widths, operand: int) -> tuple[Nest, Values]:
    """A fold in pieces of `width` of one of its axes: the walk that makes partial result number `operand`, and the
    values that fold the pieces."""
    pieces = -(-values.sizes[axis] // width)
    partial = Nest(_partial(values, n, axis, width, widths), operand, pieces * _size(values, n))
    return partial, _over_pieces(values, n, pieces, operand)


def apart(values: Values, n: int, widths: Widths, operand: int) -> tuple[Nest, Values]:
    """A row on its own: the walk that makes it as partial result number `operand`, and the values that read it."""
    r = values.rows[n]
    where, _ = _placed(values, n)
    rows = kept(values.rows, n)
    used = {k for x in rows for k in (*x.axes, *x.folded)}
    own = Values(rows, {k: s for k, s in values.sizes.items() if k in used}, where)
    left = [*values.rows]
    left[n] = Row("load", (operand, where), (), r.dtype, r.axes)
    found = kept(left, len(left) - 1)
    used = {k for x in found for k in (*x.axes, *x.folded)} | {a for a, _ in values.out.terms if isinstance(a, str)}
    return (
        Nest(space(own, widths), operand, _size(values, n)),
        Values(found, {k: s for k, s in values.sizes.items() if k in used}, values.out),
    )


def _size(values: Values, n: int) -> int:
    return math.prod(values.sizes[k] for k in values.rows[n].axes)


def _splittable(values: Values, whole: Space, threads: int, operands: int) -> int | None:
    """The first fold that is long, has few points, and does not wait for another one that is long; not one of pieces:
    there is no end to cutting those."""
    for n, r in enumerate(values.rows):
        if r.op != "fold" or any(values.rows[u].op == "fold" for u in values.users.get(n, ())):
            continue
        axes, source = chain(values, n)
        if _of_pieces(values, source, operands):
            continue
        volume = _size(values, n) * math.prod(values.sizes[k] for k in axes)
        points = whole.points(values.sizes.keys() - values.rows[n].axes)
        if volume >= _LONG and points < 2 * threads and math.prod(values.sizes[k] for k in axes) >= 4 * threads:
            return n
    return None


def _of_pieces(values: Values, source: int, operands: int) -> bool:
    r = values.rows[source]
    return r.op == "load" and r.name[0] >= operands


def _inexact(values: Values, whole: Space, operands: int) -> int | None:
    """The first sum of floats that would add many rows one after another: its error grows with their number, that of a
    sum of sums with the root of it. Sums along the vector have several accumulators, and blocks."""
    for n, r in enumerate(values.rows):
        if r.op != "fold" or r.name != "sum" or not is_float(r.dtype) or whole.vector not in r.axes:
            continue
        axes, source = chain(values, n)
        inside = any(values.rows[u].op == "fold" for u in values.users.get(n, ()))
        if not inside and max(values.sizes[k] for k in axes) >= _MANY and not _of_pieces(values, source, operands):
            return n
    return None


def _cut(values: Values, n: int, threads: int, *, many: bool = False) -> tuple[str, int, int]:
    """(axis, pieces, width of a piece). `many`: as many pieces as each has elements, or fewer."""
    axes, _ = chain(values, n)
    axis = max(axes, key=lambda k: (values.sizes[k] > 1, reach(values, k), k))
    if many:
        axis = max(axes, key=lambda k: values.sizes[k])
        width = max(_FEW, math.isqrt(values.sizes[axis]))
        return axis, -(-values.sizes[axis] // width), width
    volume = _size(values, n) * math.prod(values.sizes[k] for k in axes)
    largest = int(values.sizes[axis])  # of a size that varies: pieces are as wide at all sizes
    # as many as each has elements: of few that are large nothing is left in cache for a walk beside this one
    most = max(8 * threads, math.isqrt(largest))
    width = -(-largest // min(largest, most, max(2, int(volume) // _PIECE)))
    return axis, -(-values.sizes[axis] // width), width


def _partial(values: Values, n: int, axis: str, width: int, widths: Widths) -> Space:
    """The walk that folds each piece: its result has the pieces first, then the axes of the fold."""
    rows = kept(values.rows, n)
    where, step = _placed(values, n)
    where = where.plus(Index.of(piece(axis)).scaled(step))
    used = {k for r in rows for k in (*r.axes, *r.folded)}
    own = Values(rows, {k: s for k, s in values.sizes.items() if k in used}, where)
    s = space(own, widths, merge=False)
    return replace(s, outer=(axis, *s.outer), tiles={**s.tiles, axis: width})


def piece(axis: str) -> str:
    """The name of the number of a piece of an axis."""
    return f"{axis}:t"


def _over_pieces(values: Values, n: int, pieces: int, operand: int) -> Values:
    """The same values with a fold replaced by one over its partial results."""
    r = values.rows[n]
    over = f"p{operand}"
    where, step = _placed(values, n)
    load = Row("load", (operand, where.plus(Index.of(over).scaled(step))), (), r.dtype, r.axes | {over})
    new = {m: m + (m >= n) for m in range(len(values.rows))}
    rows = [renumbered(x, new) for x in values.rows]
    rows[n : n + 1] = [load, Row("fold", r.name, (n,), r.dtype, r.axes, (over,))]
    found = kept(rows, len(rows) - 1)
    sizes = {**values.sizes, over: pieces}
    used = {k for x in found for k in (*x.axes, *x.folded)} | {a for a, _ in values.out.terms if isinstance(a, str)}
    return Values(found, {k: s for k, s in sizes.items() if k in used}, values.out)


def _placed(values: Values, n: int) -> tuple[Index, int]:
    """Where the elements of a fold lie in one partial result, and how many there are."""
    where, step = Index(), 1
    for k in sorted(values.rows[n].axes, key=lambda k: (reach(values, k), k)):
        where = where.plus(Index.of(k).scaled(step))
        step *= values.sizes[k]
    return where, step
