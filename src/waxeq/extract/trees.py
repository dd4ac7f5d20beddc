"""Cuts that a plan can be made of at once: each of all that one loop makes for one value that several read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from graphlib import TopologicalSorter

from waxeq.basis.heads import COMPUTED
from waxeq.egraph.snapshot import ENode, Snapshot
from waxeq.extract.cuts import Cut, Cuts

_TOGETHER = COMPUTED | {"Cat"}
"""Heads of what one loop makes along with what it is made of."""
_SUMS = 8
"""Sums, one of the other, that are looked through for the product they are of."""


def trees(cuts: Cuts) -> dict[int, Cut]:
    """For each class that roughly the cheapest e-nodes make in a loop, and that is a result, or read several times, or
    by what is not made so, the cut of all that nobody else reads: nothing is made twice, and no more calls
    are needed. Operands come before what reads them. What is too much for one loop is in several. Sums of products are
    cuts of their own."""
    makers, products = _makers(cuts)
    single = cuts.rough.single
    looped = {i: n for i, n in makers.items() if n.head in _TOGETHER and n in single.get(i, ())}
    ends = _ends(cuts.snapshot, {i: (products.get(i) or ((i, n),))[-1][1] for i, n in makers.items()}, looped)
    found, whole = dict[int, Cut](), dict[int, Cut]()
    for i in TopologicalSorter({i: looped.keys() & {*n.tensors} for i, n in looped.items()}).static_order():
        n = looped[i]
        pick = tuple(None if a in ends else whole.get(a) for a in n.tensors)
        cut = cuts.over(i, n, pick)
        if cut is None:
            ends |= {a for a in n.tensors if a in whole}
            found |= {a: whole[a] for a in n.tensors if a in whole}
            cut = cuts.over(i, n, (None,) * len(n.tensors))
        if cut is not None:
            whole[i] = cut
            found |= {i: cut} if i in ends else {}
    return found | {i: cut for i, rows in products.items() if (cut := _folded(cuts, rows)) is not None}


_Chain = tuple[tuple[int, ENode], ...]
"""Sums of sums of a product, each with its class, the last to be made first."""


def _makers(cuts: Cuts) -> tuple[dict[int, ENode], dict[int, _Chain]]:
    """The e-nodes that results are made with, by class, roughly the cheapest, but for what is given; and what sums of
    products are made of. What is put beside each other loops put there, even if copying that looks cheaper: it does not
    see what need not be made first."""
    found, products, stack = dict[int, ENode](), dict[int, _Chain](), [*_results(cuts.snapshot)]
    while stack:
        i = stack.pop()
        beside = (n for n in cuts.rough.single.get(i, ()) if n.head == "Cat")
        n = next(beside, cuts.rough.maker.get(i))
        if i not in found and n is not None and not cuts.snapshot.classes[i].weights_only:
            rows = _chain(cuts, i)
            found[i] = n
            products |= {i: rows} if rows else {}
            stack += rows[-1][1].tensors if rows else n.tensors
    return found, products


def _chain(cuts: Cuts, number: int) -> _Chain:
    """The sums of a product that a class is; nothing where it is none."""
    rows, last = cuts.rough.sums(number, _SUMS)
    product = next((n for n in cuts.rough.single.get(last, ()) if n.head == "Mul"), None)
    return (*rows, (last, product)) if rows and product is not None else ()


def _folded(cuts: Cuts, rows: _Chain) -> Cut | None:
    """The cut of sums of a product of what lies in memory."""
    number, product = rows[-1]
    cut = cuts.over(number, product, (None,) * len(product.tensors))
    for i, n in reversed(rows[:-1]):
        cut = None if cut is None else cuts.over(i, n, (cut,))
    return cut


def _ends(snapshot: Snapshot, makers: Mapping[int, ENode], looped: Iterable[int]) -> set[int]:
    """Classes that are not made within what reads them. `makers`: the e-nodes that read what lies in memory."""
    own, readers = {*looped}, dict[int, int]()
    for i, n in makers.items():
        for a in {*n.tensors}:
            readers[a] = readers.get(a, 0) + (1 if i in own else 2)
    return {*_results(snapshot)} | {i for i, n in readers.items() if n > 1}


def _results(snapshot: Snapshot) -> tuple[int, ...]:
    return tuple(i for name, i in snapshot.roots.items() if name[0] != "%")
