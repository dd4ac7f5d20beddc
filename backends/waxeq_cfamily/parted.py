"""Axes in two where what is read has one of both: what is repeated along an axis, put side by side in tiles, or moved
from one axis into another is read at quotients and remainders of places, which no vector of a loop has side by side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from waxeq_cfamily.known import Rows, placed
from waxeq_cfamily.sections import asked
from waxeq_cfamily.values import Atom, Index, Row, Values, axes_of, indices, reindexed


def parted(values: Values) -> Values:
    """The same values with every axis in two whose places are divided by one number only, and that without rest."""
    for k in [*values.sizes] if not values.positions else ():
        if k not in values.folded and (n := _divisor(values, k)) is not None:
            values = _in_two(values, k, n)
    return values


def _divisor(values: Values, k: str) -> int | None:
    """The number by which all divisions of an axis's places divide. None where it is asked which places they are: loops
    are cut in sections there, which both parts of the axis would go through in turn."""
    if any(_both(g[0], k) for r in values.rows for g in asked(r)):
        return None
    every = [*(where for _, where in values.results), *(i for r in values.rows for i in indices(r))]
    found = {(a[1] == Index.of(k), a[2]) for i in every for a in _divided(i) if _within(a, k)}
    match [*found]:
        case [(True, n)] if 1 < n < values.sizes[k] and values.sizes[k] % n == 0:
            return n
        case _:
            return None


def _both(index: Index, k: str) -> bool:
    """Whether an index is made of more than the quotients of an axis's places, or more than their remainders."""
    kinds = {a if isinstance(a, str) else a[0] for a, _ in index.terms if _within(a, k)}
    return len(kinds) > 1 or k in kinds


def _divided(index: Index) -> Iterator[tuple[str, Index, int]]:
    """The quotients and remainders in an index, those in others too."""
    for a, _ in index.terms:
        if not isinstance(a, str):
            yield a
            yield from _divided(a[1])


def _within(a: Atom, k: str) -> bool:
    return a == k or (not isinstance(a, str) and any(_within(b, k) for b, _ in a[1].terms))


def _in_two(values: Values, k: str, n: int) -> Values:
    """The values with an axis as places of n neighbours each, and the places among these."""
    high, low, whole = Index.of(f"{k}:h"), Index.of(f"{k}:l"), Index.of(k)
    instead = {("div", whole, n): high, ("mod", whole, n): low, k: high.scaled(n).plus(low)}
    move = partial(placed, where=lambda a, _: instead.get(a))
    made, number = Rows(), list[int]()
    for r in values.rows:
        moved = replace(reindexed(r, move), args=tuple(number[a] for a in r.args))
        gone = r.folded if r.op == "fold" else ()
        number.append(made.add(replace(moved, axes=_axes(made, moved) - {*gone})))
    sizes = {**values.sizes, f"{k}:h": values.sizes[k] // n, f"{k}:l": n}
    return made.values([(number[m], move(where)) for m, where in values.results], sizes)


def _axes(made: Rows, r: Row) -> frozenset[str]:
    """The axes that a row has, of those that its arguments have and those at whose places it is."""
    own = (axes_of(i, made.rows) for i in indices(r))
    return frozenset().union(*own, *(made.rows[a].axes for a in r.args))
