"""From a graph with positions to terms with named axes.

Axes that must agree are given one name (union-find over names). Where one name would stand twice in a tensor, as in x
@ x.T, the operand is renamed by an explicit `Ren`. Dimensions of size 1 carry no information and have no name.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from waxeq.basis.heads import HEADS
from waxeq.basis.typing import node_axes
from waxeq.errors import TypeMismatch
from waxeq.ir.graph import Graph, Leaf, Node
from waxeq.ir.op import Named
from waxeq.ir.term import Term, postorder
from waxeq.ir.types import TensorType


@dataclass(frozen=True, slots=True)
class Lowered:
    """A program as terms: what goes into the e-graph.

    leaves: by name, the leaf and the axis at each of its positions (None for size 1).
    roots: by name, a term and its axes; an axis the term lacks is broadcast. Outputs and new states go by their names,
    value number n of the graph by "%n", so that every value of the model as written can be found in the e-graph.
    outputs: the names in `roots` that are results. sizes: every axis.
    """

    leaves: Mapping[str, tuple[Leaf, tuple[str | None, ...]]]
    roots: Mapping[str, Named]
    outputs: tuple[str, ...]
    sizes: Mapping[str, int]


def lower(graph: Graph) -> Lowered:
    """Lower an expanded graph (`ir.graph.expand`)."""
    b = _Names()
    leaves: list[Named] = []
    for leaf in graph.leaves:
        axes = tuple(b.fresh(s) for s in leaf.type.shape)
        head = "Par" if leaf.kind in ("weight", "constant") else "In"
        present = frozenset(k for k in axes if k is not None)
        leaves.append(Named(b.term(head, leaf.name, present, leaf.type.dtype), axes))
    values = list(leaves)
    for _, n in graph.values():
        number = _of_nothing(n, [graph.type(i) for i in n.inputs])
        if number is None:
            values.append(n.op.lower(b, n.type, *(values[i] for i in n.inputs)))
        else:
            values.append(Named(b.term("Num", number, n.type.dtype), tuple(b.fresh(s) for s in n.type.shape)))
        b.apart(values[-1])
    return _finish(b, graph, values)


def _of_nothing(n: Node, inputs: Sequence[TensorType]) -> float | None:
    """The number that all elements of a value are, where there are none or they are made of none: zero, or what a fold
    begins with. None elsewhere. A term would still name what there is one of along an axis of size 1, as axes of that
    size have no names, and no times NaN is NaN."""
    if n.type.elements == 0:
        return 0.0
    if not inputs or any(t.elements for t in inputs):
        return None
    made = np.asarray(n.op.reference(*(np.empty(t.shape, t.numpy) for t in inputs)))
    first = made.flat[0]
    return float(first) if np.all(made == first) else None


def _finish(b: _Names, graph: Graph, values: Sequence[Named]) -> Lowered:
    number: dict[str, str] = {}

    def name(k: str | None) -> str | None:
        return None if k is None else number.setdefault(b.find(k), f"a{len(number)}")

    done: dict[Term, Term] = {}

    def settle(x: Named) -> Named:
        for t in postorder(x.term):
            if t not in done:
                done[t] = _rename(t, lambda k: str(name(k)), done)
        return Named(done[x.term], tuple(name(k) for k in x.axes))

    final = [settle(x) for x in values]
    leaves = {x.name: (x, final[i].axes) for i, x in enumerate(graph.leaves)}
    results = (*graph.outputs, *graph.states)
    roots = {n: final[v] for n, v in results} | {f"%{v}": x for v, x in enumerate(final)}
    return Lowered(leaves, roots, tuple(n for n, _ in results), {new: b.sizes[old] for old, new in number.items()})


def _rename(t: Term, name: Any, done: Mapping[Term, Term]) -> Term:
    def one(a: Any, sort: str) -> Any:
        if sort == "T":
            return done[a]
        if sort == "Axes":
            return frozenset(name(k) for k in sorted(a))
        return name(a) if sort in ("Axis", "NewAxis") else a

    return Term(t.head, *(one(a, s) for a, s in zip(t.args, HEADS[t.head].sorts, strict=True)))


class _Names:
    """Axis names while lowering: a union-find, and for each name the places (contexts) where it stands beside
    others.
    """

    def __init__(self) -> None:
        self.parent: dict[str, str] = {}
        self.sizes: dict[str, int] = {}
        self._contexts: dict[str, set[int]] = {}
        self._axes: dict[Term, frozenset[str]] = {}
        self._count = 0

    def fresh(self, size: int) -> str | None:
        return None if size == 1 else self.axis(size)

    def axis(self, size: int) -> str:
        k = f"n{len(self.parent)}"
        self.parent[k], self.sizes[k], self._contexts[k] = k, size, set()
        return k

    def size(self, axis: str | None) -> int:
        return 1 if axis is None else self.sizes[self.find(axis)]

    def find(self, k: str) -> str:
        while self.parent[k] != k:
            self.parent[k] = k = self.parent[self.parent[k]]
        return k

    def term(self, head: str, *args: Any) -> Term:
        t = Term(head, *args)
        if t not in self._axes:
            self._axes[t] = node_axes(head, args, lambda a: self._axes[a])
            self._together(self._axes[t])
        return t

    def apart(self, x: Named) -> None:
        """Note that no two axes of a value may become one: it may be constant along some, which its term lacks."""
        self._together({self.find(k) for k in x.axes if k is not None})

    def _together(self, names: Any) -> int:
        """Note that these names stand in one tensor, so no two of them may become one."""
        self._count += 1
        for k in names:
            self._contexts[self.find(k)].add(self._count)
        return self._count

    def _unify(self, a: str, b: str) -> bool:
        a, b = self.find(a), self.find(b)
        if a == b:
            return True
        if self._contexts[a] & self._contexts[b]:
            return False
        if self.sizes[a] != self.sizes[b]:
            raise TypeMismatch(f"axes of sizes {self.sizes[a]} and {self.sizes[b]} cannot be one")
        self.parent[b] = a
        self._contexts[a] |= self._contexts.pop(b)
        return True

    def join(self, *xs: tuple[Named, Sequence[Hashable]]) -> tuple[tuple[Named, ...], dict[Hashable, str | None]]:
        labels = dict.fromkeys(lb for _, ls in xs for lb in ls)
        context = self._together(())
        for x, _ in xs:
            self.apart(x)
        chosen: dict[Hashable, str | None] = {}
        for lb in labels:
            names = [x.axes[list(ls).index(lb)] for x, ls in xs if lb in ls]
            chosen[lb] = self._choose([k for k in names if k is not None], chosen, context)
        return tuple(self._renamed(x, [chosen[lb] for lb in ls]) for x, ls in xs), chosen

    def _choose(self, names: list[str], chosen: dict[Hashable, str | None], context: int) -> str | None:
        if not names:
            return None
        taken = {self.find(k) for k in chosen.values() if k is not None}
        free = [k for k in names if self.find(k) not in taken]
        pick = free[0] if free else str(self.fresh(self.size(names[0])))
        self._contexts[self.find(pick)].add(context)
        for k in names:
            self._unify(pick, k)
        return pick

    def _renamed(self, x: Named, want: list[str | None]) -> Named:
        change = {
            self.find(k): w for k, w in zip(x.axes, want, strict=True)
            if k is not None and w is not None and self.find(k) != self.find(w)
        }  # fmt: skip
        have = {self.find(k) for k in self._axes[x.term]}
        t, later = x.term, []
        for k, w in change.items():
            if k not in have:
                continue  # the tensor is constant along k: nothing to rename in the term
            if self.find(w) in have:
                via = str(self.fresh(self.size(k)))
                t = self.term("Ren", k, via, t)
                later.append((via, w))
            else:
                t = self.term("Ren", k, w, t)
        for via, w in later:
            t = self.term("Ren", via, w, t)
        axes = tuple(k if k is None or w is None else w for k, w in zip(x.axes, want, strict=True))
        return Named(t, axes)

    def align(self, *xs: Named) -> tuple[tuple[Named, ...], tuple[str | None, ...]]:
        rank = max(len(x.axes) for x in xs)
        joined, axis = self.join(*((x, range(rank - len(x.axes), rank)) for x in xs))
        return joined, tuple(axis.get(i) for i in range(rank))
