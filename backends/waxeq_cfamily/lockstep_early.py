"""Part of the first sweep in lockstep, made some vectors ahead of the others.

Where rows lie whole pages apart, all rows of an array that are read at one column have the same few places in the first
cache. Two arrays that begin at about the same offset of a page have the same ones, and push each other out: then one of
them is read ahead of the other, and what is made of it lies in a strip until it is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from waxeq.ir.types import numpy_dtype
from waxeq_cfamily.lockstep import Lockstep
from waxeq_cfamily.lockstep_cut import chosen, cut
from waxeq_cfamily.values import Row
from waxeq_cfamily.walks import PAGE

STRIP = 16
"""Vectors of each value that is made early, one of which is being read: a power of two."""

AHEAD = STRIP - 2
"""Vectors that it is made ahead of its use: by then it has left the queue of stores, out of which few are read fast."""

CROWDED = -64, 320
"""From how many bytes of a page on, and up to how many, another array may be read after one that part is made early of:
further on it would be in the way of what is read early, and before that neither loop is fast (Zen 4)."""

_WAYS = 8
"""Rows that the first cache holds at one column (Zen 4)."""

_VALUES = 4
"""Values that are made early at a place: each is written and read again."""


@dataclass(frozen=True)
class Early:
    """What the first sweep makes of operand `operand` alone, as rows of its values. `others`: operands whose rows lie
    pages apart too, each with the bytes of a page that it is read after that one if both begin at the same place."""

    operand: int
    others: tuple[tuple[int, int], ...]
    values: tuple[int, ...]


def early(p: Lockstep) -> Early | None:
    """What may be made early, where it has any use."""
    paged = [i for i in range(len(p.reads)) if _paged(p, i)]
    own = next((i for i in paged if all(n == 0 for n, _ in _loads(p, i))), None)
    others = [i for i in paged if i != own]
    if own is None or not others or sum(len(_lines(p, i)) for i in (own, *others)) <= _WAYS:
        return None
    values = _values(p, own)
    apart = [(i, (_begins(p, i) - _begins(p, own)) % PAGE) for i in others]
    return Early(own, tuple(apart), values) if 0 < len(values) <= _VALUES else None


def _loads(p: Lockstep, operand: int) -> Iterator[tuple[int, Row]]:
    """What is read of an operand, each with the number of its sweep."""
    for n in p.numbers:
        for r in p.whole(n).values.rows:
            if r.op == "load" and r.name[0] == operand:
                yield n, r


def _paged(p: Lockstep, operand: int) -> bool:
    """Whether vectors are read of rows of an operand that lie whole pages apart."""
    item = numpy_dtype(p.dtype).itemsize
    steps = {(r.name[1].stride(p.axis(n)), r.name[1].stride(p.walk.sweeps[n].axes[-1])) for n, r in _loads(p, operand)}
    return bool(steps) and all(row and row * item % PAGE == 0 and column == 1 for row, column in steps)


def _begins(p: Lockstep, operand: int) -> int:
    """The byte that an operand is read at first, whole rows aside."""
    _, r = next(_loads(p, operand))
    return r.name[1].const * numpy_dtype(p.dtype).itemsize


def _lines(p: Lockstep, operand: int) -> set[int]:
    """The rows of an operand that a step reads."""
    found = set[int]()
    for n, r in _loads(p, operand):
        row = r.name[1].stride(p.axis(n)) or 1
        found.add(p.ahead(n) + round(r.name[1].const / row))
    return found


def _values(p: Lockstep, operand: int) -> tuple[int, ...]:
    """The values made of an operand and numbers alone that others of the first sweep need."""
    values = p.whole(0).values

    def given(k: int) -> bool:
        r = values.rows[k]
        return r.op == "number" or (r.op == "load" and r.name[0] == operand)

    return cut(values, chosen(values.rows, lambda _: True), given)
