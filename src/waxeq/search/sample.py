"""One sample that calibration measures: a meaning over operands in memory, and the calls of kernels that compute it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from waxeq.backend.call import Call, View
from waxeq.backend.kernel import Kernel
from waxeq.basis.typing import types
from waxeq.egraph.kernels import MANY, Pattern
from waxeq.ir.term import Term, postorder

Sizes = Mapping[str, int]


@dataclass(frozen=True)
class Sample:
    """A meaning over operands "%0", "%1" ... in memory, and the order of axes of its result. `shared` is that of its
    calls: which operands lie in one buffer."""

    meaning: Term
    sizes: Sizes
    operands: tuple[View, ...]
    order: tuple[str, ...]
    shared: tuple[int, ...] = ()

    def calls(self, kernels: Mapping[str, Kernel], patterns: Mapping[str, Pattern], threads: int = 1) -> Iterator[Call]:
        """The call of each kernel that computes this, on so many threads; of those that prepare what stays the same
        also one with an operand that does."""
        out = View.dense(self.order, self.sizes, types(self.meaning)[self.meaning].dtype)
        asked = Call("", self.meaning, self.sizes, self.operands, out, self.shared, threads=threads)
        forms = {p.kernel: p for p in patterns.values()}
        for name, k in kernels.items():
            fits = k.dtypes is None or all(v.dtype in k.dtypes for v in self.operands)
            if fits and _may_compute(k, forms.get(name), self.meaning):
                rows = (replace(asked, kernel=name, fixed=f) for f in self._fixed())
                taken = [c for c in rows if c.out.bytes >= k.smallest and k.accepts(c)]
                yield from taken[:1]
                yield from [c for c in taken[1:] if k.retained(c)][-1:]

    def _fixed(self) -> Iterator[tuple[int, ...]]:
        """Which operands may stay the same, for kernels that take no others: none, one of two, or both of a buffer."""
        yield ()
        if len(self.operands) == 2:
            yield from ((0, 1),) if self.shared else ((0,), (1,))


def _may_compute(k: Kernel, p: Pattern | None, meaning: Term) -> bool:
    if p is not None:
        return _instance(p.tree, meaning)
    if meaning.head == "In":
        return k.form == "copy"
    return k.form == ("sweeps" if _swept(meaning) else "loops") and k.matches(meaning)


def _swept(meaning: Term) -> bool:
    """Whether loops read each other: something that is computed is looked at in several ways."""
    return sum(t.head == "Slice" and t.terms[0].head not in ("In", "Slice") for t in postorder(meaning)) > 1


def _instance(tree: Any, t: Any) -> bool:
    """Whether a term is an instance of a pattern, tensors being operands. Other variables bind anything."""
    if isinstance(tree, str) and tree[0] == '"':
        return tree.strip('"') == t
    if isinstance(tree, str):
        return not isinstance(t, Term) or t.head == "In"
    head, *rest = tree
    if head != MANY:
        return isinstance(t, Term) and t.head == head and all(map(_instance, rest, t.args))
    if t.head != "Sum":
        return False
    while t.head == "Sum":
        t = t.args[1]
    return _instance(rest[1], t)
