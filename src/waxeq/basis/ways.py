"""In how many ways tensors of a term are looked at: what is seen at several places is worth computing once."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import Any, TypeVar

from waxeq.basis.heads import COMPUTED, VIEWS
from waxeq.ir.term import Term, postorder

Tensor = TypeVar("Tensor", bound=Hashable)
_MOVED = frozenset({"Pad", "Cat"})
_PLACED = COMPUTED | {"Sum", "Red", "Scan"}


def ways(rows: Iterable[tuple[Tensor, str, Sequence[Tensor]]]) -> dict[Tensor, int]:
    """By tensor: at its own place is one way, each padding or joining is one, a view is looked at in as many as there
    are. `rows`: tensors, their heads and what they are made from, users before what they use."""
    found: dict[Tensor, int] = {}
    asis: set[Tensor] = set()
    for t, head, made_from in rows:
        for x in dict.fromkeys(made_from):
            if head in VIEWS:
                found[x] = found.get(x, 0) + max(1, found.get(t, 0))
            elif head in _MOVED or x not in asis:
                found[x] = found.get(x, 0) + 1
                asis |= set() if head in _MOVED else {x}
    return found


def swept(meaning: Term) -> tuple[Term, ...]:
    """What is computed and looked at in several ways, in order: each a loop of its own that later ones read."""
    order, computed = [*postorder(meaning)], set[Term]()
    for t in order:
        if t.head in COMPUTED or any(x in computed for x in t.terms):
            computed.add(t)
    many = ways((t, t.head, t.terms) for t in reversed(order))
    return tuple(t for t in order if t in computed and t.head not in VIEWS and many.get(t, 0) > 1)


Side = tuple[frozenset[str], frozenset[str]]
"""The axes of one side of a product, and those along which it has the same again and again."""


def crossed(a: Side, b: Side) -> bool:
    """Whether a sum of products of two sides is a product of matrices: each has axes that the other lacks, or is
    repeated along, as keys are that several queries share."""
    (left, again), (right, again_right) = a, b
    return bool(left - (right - (again_right - again)) and right - (left - (again - again_right)))


def repeated(head: str, args: Sequence[Any], own: Collection[str]) -> frozenset[str]:
    """The axis along which a view has again and again what it looks at; `own`: the axes of that."""
    if head != "Merge":
        return frozenset()
    p, q, k, _ = args
    return frozenset((k,) if (p in own) != (q in own) else ())


def places(rows: Iterable[tuple[Tensor, str, Sequence[Tensor]]]) -> dict[Tensor, int]:
    """By tensor: at how many places at most it is asked for, where nothing is kept to be looked at again, for one place
    of the first. What computes an element asks for those at its own place, all else for others. `rows` as above."""
    many: list[int] = []  # by who asks for others: at how many places that is asked for itself
    askers: dict[Tensor, set[int]] = {}
    for t, head, made_from in rows:
        mine = askers.setdefault(t, {_ask(many, 1)} if not askers else set())
        for x in made_from:
            own = mine if head in _PLACED else {_ask(many, sum(many[a] for a in mine))}
            askers.setdefault(x, set()).update(own)
    return {t: sum(many[a] for a in own) for t, own in askers.items()}


def _ask(many: list[int], places: int) -> int:
    many.append(places)
    return len(many) - 1
