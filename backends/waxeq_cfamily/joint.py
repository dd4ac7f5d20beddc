"""Several element-wise nests over the same points as one nest of several results: what they have in common is computed
once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from waxeq.ir.types import numpy_dtype
from waxeq_cfamily.values import Atom, Index, Row, Values, reindexed, renumbered

_STREAMS = 12
"""Arrays that one loop goes through at most: a core looks ahead for about so many."""
_ROWS = 256
"""Values that one loop computes at most: compilers take more than their share of time for longer ones."""
_NEAR = 2 << 20
"""Bytes up to which what one loop has read is in a near cache when the next reads it: that alone is no reason then."""
_COMMUTES = frozenset({"Add", "Mul"})


@dataclass(frozen=True)
class Joint:
    """`values` has the results of several nests, `results[i]` being of which nest its i-th result is."""

    values: Values
    results: tuple[int, ...]


def joint(parts: Sequence[Values], operands: Sequence[Sequence[int]]) -> Joint | None:
    """The nests as one; `operands[i]` are the numbers of the operands of nest i among those of all. None where they
    have other points, too many arrays, or one of them nothing to gain from those before: no large operand that they
    read as well, and no costly function that they compute."""
    made = _Rows(parts[0].sizes)
    ends: list[tuple[int, Index]] = []
    for values, numbers in zip(parts, operands, strict=True):
        names = _names(parts[0], values)
        if names is None:
            return None
        root, gains = made.add(values, names, numbers)
        if ends and not gains:
            return None
        ends.append((root, _renamed(values.out, names)))
    streams = {r.name[0] for r in made.rows if r.op == "load"}
    if len(streams) + len(ends) > _STREAMS or len(made.rows) > _ROWS:
        return None
    last = len(made.rows) - 1  # the root of the nest that added it: nothing reads it
    first = next(i for i, (n, _) in enumerate(ends) if n == last)
    order = (first, *(i for i in range(len(ends)) if i != first))
    others = tuple(ends[i] for i in order[1:])
    return Joint(Values(tuple(made.rows), parts[0].sizes, ends[first][1], others), order)


@dataclass
class _Rows:
    """Rows of several nests over the same axes; equal ones are one."""

    sizes: Mapping[str, int]
    rows: list[Row] = field(default_factory=list)
    _number: dict[Row, int] = field(default_factory=dict)

    def add(self, values: Values, names: Mapping[str, str], operands: Sequence[int]) -> tuple[int, bool]:
        """The number of a nest's root, and whether it shares with earlier ones what is worth sharing."""
        new: dict[int, int] = {}
        before, gains = len(self.rows), False
        for n, r in enumerate(values.rows):
            moved = renumbered(reindexed(r, lambda i: _renamed(i, names)), new)
            moved = replace(moved, axes=frozenset(names[k] for k in r.axes))
            if r.op == "load":
                moved = replace(moved, name=(operands[r.name[0]], moved.name[1]))
            new[n] = self._of(moved)
            gains |= new[n] < before and self._matters(moved)
        return new[values.root], gains

    def _of(self, r: Row) -> int:
        key = replace(r, args=tuple(sorted(r.args))) if r.op == "apply" and r.name in _COMMUTES else r
        if key not in self._number:
            self._number[key] = len(self.rows)
            self.rows.append(r)
        return self._number[key]

    def _matters(self, r: Row) -> bool:
        """Whether a row is a costly function or comes from afar, and is another value at each point."""
        every = math.prod(self.sizes.values())
        far = r.op == "load" and every * numpy_dtype(r.dtype).itemsize > _NEAR
        return (far or r.costly) and math.prod(self.sizes[k] for k in r.axes) == every


def _names(first: Values, other: Values) -> dict[str, str] | None:
    """The axes of another nest by name of those of the first that are as long and lie in its result as they lie in the
    other's; None where they do not."""
    a, b = _placed(first), _placed(other)
    return dict(zip(b, a, strict=True)) if list(a.values()) == list(b.values()) else None


def _placed(values: Values) -> dict[str, tuple[int | None, int]]:
    """The step and the size of each axis, the shortest steps first."""
    rows = {k: (values.out.stride(k), n) for k, n in values.sizes.items()}
    return dict(sorted(rows.items(), key=lambda row: (row[1][0] or 0, row[1][1], row[0])))


def _renamed(i: Index, names: Mapping[str, str]) -> Index:
    def atom(a: Atom) -> Atom:
        if isinstance(a, str):
            return names[a]
        return a if a[0] == "row" else (a[0], _renamed(a[1], names), a[2])

    made = Index(const=i.const)
    for a, c in i.terms:
        made = made.plus(Index(((atom(a), c),)))
    return made
