"""Positions that are numbers, as what they are: indices that need no look."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from waxeq_cfamily.known import Rows, placed
from waxeq_cfamily.values import Atom, Index, Row, Values, reindexed, renumbered


def settled(values: Values, *, beside: bool = False) -> Values:
    """The same values, with the positions in indices that are numbers inside their axes. Another may lie outside: it is
    left, to be found out. `beside`: what is only read where the loop is at one place of an axis is read so many places
    beside that: the last column again, behind it, is the one before."""
    found: dict[tuple[int, int], int] = {}
    for n, sizes in values.positions.items():
        if values.rows[n].op == "number":
            at = int(float(values.rows[n].name))
            found |= {(n, size): at % size for size in sizes if -size <= at < size}
    if not found:
        return values
    known, made, new = _Known(found, _steps(values) if beside else {}), Rows(), dict[int, int]()
    for n, r in enumerate(values.rows):
        new[n] = made.add(renumbered(known.row(r), new))
    return made.values([(new[values.root], values.out)], values.sizes)


def _steps(values: Values) -> Mapping[tuple[int, int], frozenset[tuple[Atom, int]]]:
    """The axes along which some load takes a step, once each, by operand and length of the step."""
    found: dict[tuple[int, int], set[tuple[Atom, int]]] = {}
    for r in values.rows:
        for a, step in r.name[1].terms if r.op == "load" else ():
            if isinstance(a, str):
                found.setdefault((r.name[0], step), set()).add((a, 1))
    return {k: frozenset(axes) for k, axes in found.items()}


@dataclass(frozen=True)
class _Known:
    """Positions by row and size of the axis; `steps` tells which axis a step of an operand is along."""

    positions: Mapping[tuple[int, int], int]
    steps: Mapping[tuple[int, int], frozenset[tuple[Atom, int]]]

    def row(self, r: Row) -> Row:
        changed = reindexed(r, lambda i: placed(i, lambda a, _: self._number(a)))
        if r.op != "load" or not self.steps:
            return changed
        where = placed(r.name[1], lambda a, step: self._beside(changed, a, step))
        return replace(changed, name=(r.name[0], where))

    def _number(self, a: Atom) -> Index | None:
        known = None if isinstance(a, str) or a[0] != "row" else self.positions.get((a[1], a[2]))
        return None if known is None else Index(const=known)

    def _beside(self, r: Row, a: Atom, step: int) -> Index | None:
        """A position, where a guard says at which place of its axis the loop is, from that place on."""
        number = self._number(a)
        if number is None:
            return None
        axes = self.steps.get((r.name[0], step), frozenset())
        for where, low, high in r.guards:
            if high - low == 1 and len(where.terms) == 1 and where.terms[0] in axes:
                return where.plus(Index(const=number.const - low))
        return number
