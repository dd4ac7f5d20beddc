"""Positions that are looked up: under which guards an element is taken from there."""

from __future__ import annotations

from collections.abc import Mapping

from waxeq_cfamily.values import Guard, Index, Values, indices, pointed

Use = tuple[int, tuple[Guard, ...]]
"""The size of the axis that a position points into, and guards outside of which nothing is read there."""


def lookups(values: Values) -> Mapping[int, tuple[Use, ...]]:
    """The uses of each row that is a position. Of the guards of a use those that hold, or do not, for a position as a
    whole: under others an element may be taken or not."""
    found: dict[int, dict[Use, None]] = {}
    for r in values.rows:
        for i in indices(r):
            for n, size in pointed(i):
                own = tuple(g for g in r.guards if _known(g[0], values.rows[n].axes))
                found.setdefault(n, {})[size, own] = None
    return {n: tuple(uses) for n, uses in found.items()}


def _known(index: Index, axes: frozenset[str]) -> bool:
    """Whether an index is made of the places along these axes alone, and of no position."""
    parts = [a for a, _ in index.terms]
    return all(a in axes if isinstance(a, str) else a[0] != "row" and _known(a[1], axes) for a in parts)
