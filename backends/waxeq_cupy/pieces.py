"""Long folds that too few teams would share: they are folded in pieces, and what comes of those is folded in turn.

Every walk is a launch of its own. A fold of the pieces that others wait for is made by a walk of its own too, so that
the last walk reads it as any other operand.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from waxeq_cfamily.spaces import Widths, joined, space
from waxeq_cfamily.split import Nest, apart, cut, waits_for
from waxeq_cfamily.stages import Space
from waxeq_cfamily.values import Values
from waxeq_cupy.stages import Schedule

WIDTHS = Widths(flat=256, columns=32, square=32)
_TEAMS = 264
"""Blocks that a large GPU runs at once: two for each of its 132 processors."""
_ROW = 1 << 15
"""Elements of a row that one block still folds at once."""
_COLUMN = 256
"""Elements of a column that one block still folds at once."""
_INEXACT = 1 << 21, 1 << 15
"""Elements of a row, of a column, from which a thread would add up too many in a row to be exact."""
_AGAIN = 1 << 24
"""Elements that are folded again from which a launch of its own is cheaper: some microseconds of a large GPU."""


def walks(values: Values, operands: int) -> Iterator[Nest]:
    """The walks that compute `values`, in order. Partial results are further operands, from number `operands` on."""
    values, count = joined(values), operands
    while True:
        long, again = _long(values, operands), _made_again(values)
        before = None if long is None else waits_for(values, *long[:2])
        if before is not None:
            long, again = None, before
        if long is not None and (again is None or long[0] <= again):
            nest, values = cut(values, *long, WIDTHS, count)
            again = _of_pieces(values, count)
            again = again if _read_again(values, again) else None
            yield replace(nest, space=threaded(nest.space))
            count += 1
        elif again is None:
            break
        if again is not None:
            nest, values = apart(values, again, WIDTHS, count)
            yield replace(nest, space=threaded(nest.space))
            count += 1
    yield Nest(threaded(space(values, WIDTHS)))


def _of_pieces(values: Values, operand: int) -> int:
    """The fold of a partial result."""
    rows = values.rows
    folds = (n for n, r in enumerate(rows) if r.op == "fold" and rows[r.args[0]].op == "load")
    return next(n for n in folds if rows[rows[n].args[0]].name[0] == operand)


def _made_again(values: Values) -> int | None:
    """The first fold that many points would each make for themselves, as it does not depend on all of their axes."""
    whole = space(values, WIDTHS)
    for n, (axes, _) in Schedule(whole).folds.items():
        r = values.rows[n]
        work = math.prod(values.sizes[k] for k in (*axes, *r.axes))
        again = math.prod(values.sizes[k] for k in whole.outer if k not in r.axes and k not in axes)
        if n != values.root and work * (again - 1) > _AGAIN:
            return n
    return None


def _read_again(values: Values, n: int) -> bool:
    """Whether a row is used along axes that it lacks: made there, it would be made again and again."""
    above = {n}
    for m in range(n + 1, len(values.rows)):
        if above & {*values.reads(values.rows[m])}:
            above.add(m)
    return any(values.rows[m].axes - values.rows[n].axes for m in above)


def threaded(s: Space) -> Space:
    """The walk without tiles that only caches need: what is left of them are the pieces of a fold."""
    return replace(s, tiles={k: w for k, w in s.tiles.items() if k in s.values.folded})


def _long(values: Values, operands: int) -> tuple[int, str, int] | None:
    """The first fold that is to be made in pieces: its row, the axis that is cut and the width of a piece."""
    v = space(values, WIDTHS).vector
    for n, (axes, source) in Schedule(space(values, WIDTHS)).folds.items():
        r, s = values.rows[n], values.rows[source]
        if s.op == "load" and s.name[0] >= operands:
            continue  # of pieces: there is no end to cutting those
        length = math.prod(values.sizes[k] for k in axes)
        points = math.prod(values.sizes[k] for k in r.axes)
        column = v in r.axes
        teams = -(-points // 32) if column else points
        most, inexact = (_COLUMN, _INEXACT[1]) if column else (_ROW, _INEXACT[0])
        if length < most or (teams >= _TEAMS and length < inexact):
            continue
        pieces = max(2, min(-(-2 * _TEAMS // max(1, teams)), length * 4 // most), length // inexact)
        axis = max(axes, key=lambda k: (values.sizes[k], k))
        width = -(-values.sizes[axis] // min(pieces, values.sizes[axis]))
        width = min(-(-width // 32) * 32, values.sizes[axis]) if width >= 32 else width
        if width < values.sizes[axis]:
            return n, axis, width
    return None
