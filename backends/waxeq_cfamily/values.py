"""A meaning as scalar values over loop axes (`resolved`). Rows are numbered; equal rows are one row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from waxeq.basis.scalar import SCALARS

Atom = str | tuple[str, Any, int]
"""What an index is a multiple of: an axis; ("div" | "mod", index, n); ("row", number of the row, size it wraps at)."""


@dataclass(frozen=True, slots=True)
class Index:
    """`const` plus multiples of atoms."""

    terms: tuple[tuple[Atom, int], ...] = ()
    const: int = 0

    @staticmethod
    def of(atom: Atom) -> Index:
        return Index(((atom, 1),))

    def scaled(self, factor: int) -> Index:
        if factor == 0:
            return Index()
        return Index(tuple((a, c * factor) for a, c in self.terms), self.const * factor)

    def plus(self, other: Index) -> Index:
        found = dict(self.terms)
        for a, c in other.terms:
            found[a] = found.get(a, 0) + c
        kept = sorted(((a, c) for a, c in found.items() if c), key=lambda row: (isinstance(row[0], tuple), repr(row)))
        return Index(tuple(kept), self.const + other.const)

    def moved(self, axis: str, by: int) -> Index:
        """The index so many places on along an axis."""
        found = Index((), self.const)
        for a, c in self.terms:
            if isinstance(a, tuple) and a[0] != "row":
                a = (a[0], a[1].moved(axis, by), a[2])
            found = found.plus(Index(((a, c),), c * by if a == axis else 0))
        return found

    def stride(self, axis: str) -> int | None:
        """How far a step along an axis leads; None where that is not one number."""
        step = 0
        for a, c in self.terms:
            if a == axis:
                step += c
            elif isinstance(a, tuple) and a[0] != "row" and a[1].stride(axis) != 0:
                return None
        return step


Guard = tuple[Index, int, int]
"""low <= index < high."""


@dataclass(frozen=True, slots=True)
class Row:
    """One scalar value. `op`: load, number, position, apply, fold, scan or within; `name`: operand, value, index,
    function or kind of fold. A scan is a running fold: it has the axis that it runs along. A load is only made where
    its `guards` hold; elsewhere its value does not matter."""

    op: str
    name: Any
    args: tuple[int, ...]
    dtype: str
    axes: frozenset[str]
    folded: tuple[str, ...] = ()
    guards: tuple[Guard, ...] = ()

    @property
    def costly(self) -> bool:
        """Whether it is a function of more than a few instructions: better kept than computed again."""
        return self.op == "apply" and self.name in SCALARS and SCALARS[self.name].cost == "costly"


@dataclass(frozen=True)
class Values:
    """The rows of a meaning, operands before users; the last is the result. `sizes` has the loop axes. `others`: rows
    that are results as well, and where each is written."""

    rows: tuple[Row, ...]
    sizes: Mapping[str, int]
    out: Index
    others: tuple[tuple[int, Index], ...] = ()

    @property
    def root(self) -> int:
        return len(self.rows) - 1

    @property
    def results(self) -> tuple[tuple[int, Index], ...]:
        """Every result: its row, and where it is written."""
        return (self.root, self.out), *self.others

    @cached_property
    def users(self) -> Mapping[int, tuple[int, ...]]:
        found: dict[int, list[int]] = {}
        for n, r in enumerate(self.rows):
            for a in self.reads(r):
                found.setdefault(a, []).append(n)
        return {n: tuple(u) for n, u in found.items()}

    def reads(self, row: Row) -> tuple[int, ...]:
        """Every row that a row needs, those in its indices as well."""
        return tuple(dict.fromkeys((*row.args, *(n for i in indices(row) for n, _ in pointed(i)))))

    @cached_property
    def positions(self) -> Mapping[int, tuple[int, ...]]:
        """The rows whose values are positions, with the sizes of the axes that they point into."""
        found: dict[int, dict[int, None]] = {}
        for r in self.rows:
            for i in indices(r):
                for n, size in pointed(i):
                    found.setdefault(n, {})[size] = None
        return {n: tuple(sizes) for n, sizes in found.items()}

    @property
    def scans(self) -> tuple[int, ...]:
        return tuple(n for n, r in enumerate(self.rows) if r.op == "scan")

    @cached_property
    def folded(self) -> frozenset[str]:
        """Axes that folds and scans run along."""
        return frozenset(k for r in self.rows for k in r.folded)


def indices(row: Row) -> tuple[Index, ...]:
    """The indices of a row."""
    own = (row.name,) if row.op == "position" else (row.name[1],) if row.op in ("load", "within") else ()
    return (*own, *(g[0] for g in row.guards))


def pointed(index: Index) -> Iterable[tuple[int, int]]:
    """Rows that an index takes positions from, with the size of the axis they point into."""
    for a, _ in index.terms:
        if isinstance(a, tuple):
            if a[0] == "row":
                yield a[1], a[2]
            else:
                yield from pointed(a[1])


def axes_of(index: Index, rows: Sequence[Row]) -> frozenset[str]:
    """The axes whose places an index comes from, those of the rows that it takes positions from among them."""
    found: set[str] = set()
    for a, _ in index.terms:
        if isinstance(a, str):
            found.add(a)
        else:
            found |= rows[a[1]].axes if a[0] == "row" else axes_of(a[1], rows)
    return frozenset(found)


def chain(values: Values, fold: int) -> tuple[tuple[str, ...], int]:
    """Folds of one kind over one another, used nowhere else, are one fold: (axes, what is folded)."""
    axes, n = list(values.rows[fold].folded), values.rows[fold].args[0]
    while (r := values.rows[n]).op == "fold" and r.name == values.rows[fold].name and len(values.users[n]) == 1:
        if r.folded[0] in axes:
            break
        axes += r.folded
        n = r.args[0]
    return tuple(axes), n


def reach(values: Values, axis: str) -> int:
    """The longest step along an axis in anything that is read."""
    steps = [abs(r.name[1].stride(axis) or 0) for r in values.rows if r.op == "load"]
    return max((s for s in steps if s), default=0)


class Unsupported(Exception):
    """A head that has no scalar form (a sort, a scatter, ...)."""


def kept(rows: Sequence[Row], root: int) -> tuple[Row, ...]:
    """The rows that the root needs, renumbered, the root last."""
    seen: set[int] = set()
    stack = [root]
    while stack:
        n = stack.pop()
        if n not in seen:
            seen.add(n)
            r = rows[n]
            stack += [*r.args, *(p for i in indices(r) for p, _ in pointed(i))]
    new = {n: i for i, n in enumerate(sorted(seen))}
    return tuple(renumbered(rows[n], new) for n in sorted(seen))


def renumbered(r: Row, new: Mapping[int, int]) -> Row:
    """The row with others called by their new numbers."""

    def move(i: Index) -> Index:
        def atom(a: Atom) -> Atom:
            if isinstance(a, str):
                return a
            return ("row", new[a[1]], a[2]) if a[0] == "row" else (a[0], move(a[1]), a[2])

        return Index(tuple((atom(a), c) for a, c in i.terms), i.const)

    return replace(reindexed(r, move), args=tuple(new[a] for a in r.args))


def reindexed(r: Row, change: Callable[[Index], Index]) -> Row:
    """The row with every index changed."""
    name = r.name
    if r.op == "position":
        name = change(name)
    elif r.op in ("load", "within"):
        name = (name[0], change(name[1]))
    return replace(r, name=name, guards=tuple((change(g[0]), *g[1:]) for g in r.guards))
