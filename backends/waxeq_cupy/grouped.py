"""Axes that something takes in groups: the heads of a model whose queries share keys and values.

Where keys are repeated for each query of a group (`repeat`, or `broadcast_to` and `reshape`), they are read at the head
divided by the size of a group. The head is two axes then, the group and the query in it, and what is repeated has only
the first of them: it is read once for all queries of the group, and nothing was ever copied.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from waxeq_cfamily.spaces import collapsed, joined
from waxeq_cfamily.values import Atom, Index, Row, Values, indices, reindexed


def walked(values: Values) -> Values:
    """The same values with every axis that something takes in groups as two, and neighbours that are walked in one go
    as one."""
    for axis, size in _groups(values):
        values = _parted(values, axis, size)
    return joined(collapsed(values))


def _groups(values: Values) -> Iterator[tuple[str, int]]:
    """Axes of the result that are read in groups, with the size of a group, where nothing else is made of them."""
    every = [values.out, *(i for r in values.rows for i in indices(r))]
    for k in values.sizes:
        uses = [u for i in every for u in _uses(i, k)]
        sizes = {u[2] for u in uses if u is not None and not isinstance(u, str)}
        if k in values.folded or None in uses or len(sizes) != 1:
            continue
        (size,) = sizes
        if values.sizes[k] % size == 0 and any(_whole_groups(r, k) for r in values.rows):
            yield k, size


def _uses(i: Index, axis: str) -> Iterator[Atom | None]:
    """How an index is made of an axis: as it is, divided, or what is left of that; None for anything else."""
    for atom, _ in i.terms:
        if atom == axis:
            yield atom
        elif isinstance(atom, tuple) and atom[0] != "row":
            if atom[1] == Index.of(axis):
                yield atom
            elif any(True for _ in _uses(atom[1], axis)):
                yield None


def _whole_groups(r: Row, axis: str) -> bool:
    """Whether a row is read at the number of the group, and at nothing else of the axis."""
    uses = [u for i in indices(r) for u in _uses(i, axis)]
    return r.op == "load" and bool(uses) and all(isinstance(u, tuple) and u[0] == "div" for u in uses)


def _parted(values: Values, axis: str, size: int) -> Values:
    """One axis as two: the number of the group, and the place in it."""
    group, place = f"{axis}:g", f"{axis}:p"
    whole = Index.of(group).scaled(size).plus(Index.of(place))

    def index(i: Index) -> Index:
        found = Index((), i.const)
        for atom, c in i.terms:
            if atom == axis:
                part = whole
            elif not isinstance(atom, tuple) or atom[0] == "row":
                part = Index.of(atom)
            elif atom[1] == Index.of(axis):
                part = Index.of(group if atom[0] == "div" else place)
            else:
                part = Index.of((atom[0], index(atom[1]), atom[2]))
            found = found.plus(part.scaled(c))
        return found

    rows: list[Row] = []
    for r in values.rows:
        own = reindexed(r, index)
        rows.append(replace(own, axes=r.axes - {axis} | _axes(own, rows) & {group, place}))
    sizes = {
        n: s
        for k, v in values.sizes.items()
        for n, s in (((group, v // size), (place, size)) if k == axis else ((k, v),))
    }
    return Values(tuple(rows), sizes, index(values.out))


def _axes(r: Row, before: list[Row]) -> frozenset[str]:
    """The axes that a row has by its indices and by the rows that it is made of."""
    found = frozenset[str]().union(*(before[a].axes for a in r.args))

    def of(i: Index) -> frozenset[str]:
        atoms = (a for a, _ in i.terms)
        return frozenset[str]().union(
            *({a} if isinstance(a, str) else before[a[1]].axes if a[0] == "row" else of(a[1]) for a in atoms)
        )

    return found.union(*map(of, indices(r)))
