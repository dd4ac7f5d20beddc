"""Products of matrices among e-nodes that are computed together, and what is folded beside them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from waxeq.basis.ways import Side, crossed, repeated
from waxeq.egraph.snapshot import ENode, Snapshot


class Multiplied(NamedTuple):
    """E-nodes with a product of matrices: whether a maximum of one `attends` to it, as in attention; and, the less the
    better, folds along `other` axes than those of the products that come last, of such a maximum, and of the product
    under it; less than none, how many `kinds` of folds there are along these; and all `folds`."""

    attends: bool
    other: int
    kinds: int
    folds: int


class Products:
    """Those in parts of a snapshot, which map e-classes to their e-nodes."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._beside: dict[int, Multiplied | None] = {}

    def of(self, number: int, e: ENode, inside: Mapping[int, ENode]) -> int | None:
        """The product that a sum is over, where that is one of matrices."""
        if e.head != "Sum":
            return None
        *_, last = chain(number, inside)
        m = inside.get(last)
        if m is None or m.head != "Mul":
            return None
        a, b = (self._side(x, inside) for x in m.tensors)
        return last if crossed(a, b) else None

    def _side(self, number: int, inside: Mapping[int, ENode]) -> Side:
        classes, e = self._snapshot.classes, inside.get(number)
        looked_at = classes[e.tensors[-1]].axes if e is not None and e.tensors else frozenset[str]()
        return classes[number].axes, frozenset() if e is None else repeated(e.head, e.args, looked_at)

    def beside(self, part: int, root: int, inside: Mapping[int, ENode]) -> Multiplied | None:
        """What is folded in a part, which is remembered by its number; None where no matrices are multiplied."""
        if part not in self._beside:
            self._beside[part] = self._found(root, inside)
        return self._beside[part]

    def forget(self) -> None:
        """Parts will not be asked for again."""
        self._beside.clear()

    def _found(self, root: int, inside: Mapping[int, ENode]) -> Multiplied | None:
        folds = [(i, e) for i, e in inside.items() if e.head in ("Sum", "Red")]
        if all(e.head != "Sum" for _, e in folds):
            return None
        tops = [e for _, e in folds if e.head == "Red" and e.args[0] == "max"]
        under = [(axis(e), self._depths(e.tensors[0], inside)) for e in tops]
        attended = {a for top, depths in under if depths for a in (top, *depths)}
        own = self._depths(root, inside) | attended
        kinds = [(axis(e), e.head, self.of(i, e, inside) is None) for i, e in folds if axis(e) in own]
        found = Multiplied(bool(attended), len(folds) - len(kinds), -len({*kinds}), len(folds))
        return found if own else None

    def _depths(self, number: int, inside: Mapping[int, ENode]) -> set[str]:
        """Axes along which the first products of matrices among what a class is made from are summed."""
        found, seen, stack = set[str](), {number}, [number]
        while stack:
            e = inside.get(i := stack.pop())
            if e is not None and self.of(i, e, inside) is not None:
                found |= {axis(inside[n]) for n in chain(i, inside) if inside[n].head == "Sum"}
            elif e is not None:
                stack += [a for a in dict.fromkeys(e.tensors) if a not in seen]
                seen |= {*e.tensors}
        return found


def chain(number: int, inside: Mapping[int, ENode]) -> list[int]:
    """A sum, the sums inside it and what they are over."""
    rows = [number]
    while (e := inside.get(rows[-1])) is not None and e.head == "Sum":
        rows.append(e.tensors[0])
    return rows


def axis(fold: ENode) -> str:
    """The axis that a sum or another reduction folds."""
    return fold.args[0 if fold.head == "Sum" else 1]
