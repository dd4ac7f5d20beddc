"""Networks of maxima and minima that look for NaN once.

A maximum of two numbers is one instruction, and two more where either may be NaN. What is made of numbers by nothing
but maxima and minima (windows of pixels, medians by a network of comparisons) is NaN where one of the numbers is: they
are looked at two by two, once, and what lies between is made with one instruction each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from waxeq_cfamily.functions import DTYPES
from waxeq_cfamily.known import Rows
from waxeq_cfamily.values import Row, Values, renumbered

LARGER, SMALLER, UNLESS = "larger", "smaller", "unless"
"""Maxima and minima that are anything where an argument is NaN; and the third argument unless one of two is NaN, which
is the result then. Functions of rows for native code, of float32 and float64."""
_BARE = MappingProxyType({"max": LARGER, "min": SMALLER})
_USUAL, _LOOKED_AT, _ADDED = 3, 2, 1
"""Instructions of a maximum that looks for NaN, of a look at two numbers, and of what is put together of both."""


def bare(r: Row) -> str | None:
    """A format string over its arguments for one of these functions; None for others."""
    if r.op != "apply" or r.name not in (LARGER, SMALLER, UNLESS):
        return None
    places = ", ".join(f"{{{i}}}" for i in range(len(r.args)))
    return f"wx_{r.name}_{DTYPES[r.dtype]}({places})"


def checked_once(values: Values) -> Values:
    """The same values, with networks of maxima and minima that look for NaN once; as they are where that takes as many
    instructions."""
    inner = {n for n, r in enumerate(values.rows) if _extreme(values, r)}
    ends = {n for n, _ in values.results}
    roots = [n for n in sorted(inner) if n in ends or not inner.issuperset(values.users.get(n, ()))]
    leaves = _leaves(values, inner)
    shared: dict[frozenset[int], list[int]] = {}
    for n in roots:
        shared.setdefault(leaves[n], []).append(n)
    looks = sum(_LOOKED_AT * -(-len(s) // 2) + _ADDED * len(of) * (len(of) > 1) for s, of in shared.items())
    if not inner or len(inner) + looks >= _USUAL * len(inner):
        return values
    return _rewritten(values, inner, shared)


def _extreme(values: Values, r: Row) -> bool:
    """Whether a row is a maximum or minimum of two numbers neither of which is known, which takes one instruction."""
    if r.op != "apply" or r.name not in _BARE or r.dtype not in ("float32", "float64"):
        return False
    return all(values.rows[a].op != "number" for a in r.args)


def _leaves(values: Values, inner: set[int]) -> Mapping[int, frozenset[int]]:
    """What the maxima and minima are made of that is none itself."""
    found: dict[int, frozenset[int]] = {}
    for n in sorted(inner):
        found[n] = frozenset[int]().union(*(found.get(a, frozenset({a})) for a in values.rows[n].args))
    return found


def _rewritten(values: Values, inner: set[int], shared: Mapping[frozenset[int], Sequence[int]]) -> Values:
    made, new, plain = Rows(), dict[int, int](), dict[int, int]()
    of = {n: leaves for leaves, roots in shared.items() for n in roots}
    for n, r in enumerate(values.rows):
        if n not in inner:
            new[n] = made.add(renumbered(r, new))
            continue
        args = tuple(plain.get(a, new.get(a, -1)) for a in r.args)
        plain[n] = made.add(Row("apply", _BARE[r.name], args, r.dtype, r.axes))
        if n in of:
            seen = [new[a] for a in sorted(of[n])]
            new[n] = _settled(made, plain[n], seen, alone=len(shared[of[n]]) == 1)
    ends = [(new[n], where) for n, where in values.results]
    return made.values(ends, values.sizes)


def _settled(made: Rows, n: int, leaves: Sequence[int], *, alone: bool) -> int:
    """A row that is NaN where one of the leaves is. What says so for several rows is added to each: minus zero, to
    which nothing is changed, or NaN."""
    r = made.rows[n]
    at = n if alone else made.add(Row("number", "-0.0", (), r.dtype, frozenset()))
    for a, b in zip(leaves[::2], (*leaves[1::2], leaves[-1]), strict=False):
        axes = made.rows[at].axes | made.rows[a].axes | made.rows[b].axes
        at = made.add(Row("apply", UNLESS, (a, b, at), r.dtype, axes))
    return at if alone else made.add(Row("apply", "Add", (n, at), r.dtype, r.axes))
