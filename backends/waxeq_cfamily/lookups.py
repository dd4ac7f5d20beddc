"""Positions that are looked up: under which guards an element is taken from there, and what looks at them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

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


def looked_at(
    name: str, uses: Sequence[Use], holds: Callable[[tuple[Guard, ...]], str], *, kept: bool
) -> Iterator[str]:
    """What notes that the position of this name is outside of an axis where it is used; with `kept`, what it is within
    one is a variable, for loops in which it stays the same."""
    for size, guards in uses:
        where = holds(guards)
        yield f"bad |= {'' if where == '1' else f'{where} & '}wx_outside({name}, {size});"
    if kept:
        for size in dict.fromkeys(size for size, _ in uses):
            yield f"const int64_t {_within(name, size)} = wx_within({name}, {size});"


def within(name: str, size: int, *, kept: bool) -> str:
    """A position within an axis. What is no variable itself has none of its own."""
    return _within(name, size) if kept and name.startswith("r") else f"wx_within({name}, {size})"


def _within(name: str, size: int) -> str:
    return f"{name}_in{size}"
