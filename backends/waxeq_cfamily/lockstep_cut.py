"""Which values of a sweep can be made before the others: those of something that is there earlier."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

from waxeq_cfamily.values import Row, Values

PRODUCTS = frozenset({"Mul", "square", "neg"})
"""What a compiler may join with a sum that it goes into: apart from that sum it would be rounded, and the result would
depend on where it is made."""


def chosen(rows: Sequence[Row], holds: Callable[[Row], bool]) -> Sequence[int]:
    """For each of some rows the one that has its value: that of a choice which holds is the value that it is for."""
    taken = [*range(len(rows))]
    for k, r in enumerate(rows):
        if r.op == "within" and holds(r):
            taken[k] = taken[r.args[0]]
    return taken


def reached(values: Sequence[int], links: Sequence[Sequence[int]]) -> Sequence[int]:
    """Some values and all that they are made of, in the order of their numbers."""
    found, stack = set[int](), [*values]
    while stack:
        if (n := stack.pop()) not in found:
            found.add(n)
            stack += links[n]
    return sorted(found)


def cut(values: Values, taken: Sequence[int], given: Callable[[int], bool]) -> tuple[int, ...]:
    """The values made of what is `given` alone that others need; each value is the one that is `taken` for it. A
    product that others need is one of those."""
    rows = values.rows
    links = [[taken[a] for a in r.args] for r in rows]
    results = [taken[n] for n, _ in values.results]
    needed = reached(results, links)
    late = set[int]()
    while True:
        own = _alone(rows, links, given, late)
        used = {a for k in needed if k not in own for a in links[k]} | {*results}
        found = [k for k in sorted(used & own) if rows[k].op != "number"]
        products = {k for k in found if rows[k].op == "apply" and rows[k].name in PRODUCTS}
        if not products:
            return tuple(found)
        late |= products


def _alone(
    rows: Sequence[Row], links: Sequence[Sequence[int]], given: Callable[[int], bool], late: Container[int]
) -> set[int]:
    """The values that are made of what is given alone, and of none that is `late`."""
    found = set[int]()
    for k, r in enumerate(rows):
        if given(k) or (r.op == "apply" and k not in late and found.issuperset(links[k])):
            found.add(k)
    return found
