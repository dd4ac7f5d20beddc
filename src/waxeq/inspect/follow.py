"""Which e-nodes the calls of a plan compute: looked up in the saturated e-graph, from the leaves of a block on.

A call says what it computes, and the plan of what; equal e-nodes are one e-node. So each is found by its looks as soon
as the classes are known that it reads, and nothing is grown as a search grows it, which takes minutes where hundreds of
values can be fused in hundreds of ways.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import Any

from waxeq.backend.call import Call, View, operand, operand_index
from waxeq.egraph.kernels import Pattern
from waxeq.egraph.lower import Lowered
from waxeq.extract.views import LOOKS, Look, apply, look
from waxeq.inspect.match import Index, Member
from waxeq.ir.blocks import Block
from waxeq.ir.term import Term, postorder, rebuild
from waxeq.plan.plan import Fold, Step

_DEPTH = 6
"""Views of views that are followed."""
_TRIED = 500
"""Ways to say what lies in the buffers of a call that are tried, where that is not known."""
_KEPT = 4
"""Classes that one buffer may be taken for: what a call computes may be in the e-graph more than once."""

Nodes = tuple[Member, ...]


@dataclass(frozen=True)
class Lies:
    """A class as it lies in a buffer."""

    number: int
    view: View


class Calls:
    """Calls by what they compute, in one saturated e-graph. `patterns`: what kernels mean, by kernel."""

    def __init__(self, index: Index, patterns: Mapping[str, Pattern]) -> None:
        self.index, self.patterns = index, patterns
        self._constants: dict[tuple[str, str], int] = {}
        self._alike: dict[tuple[frozenset[str], str], list[int]] = {}
        self._heads: dict[str, list[Member]] = {}
        self._seen: dict[Lies, dict[tuple[Any, ...], dict[int, None]]] = {}
        for i, c in enumerate(index.snapshot.classes):
            self._alike.setdefault((c.axes, c.dtype), []).append(i)
            if c.constant is not None:
                self._constants.setdefault((repr(c.constant), c.dtype), i)
            for n in c.nodes:
                self._heads.setdefault(n.head, []).append((i, n))

    def find(self, call: Call, reads: Sequence[Lies]) -> list[tuple[int, Nodes]]:
        """The classes that a call may put in memory, each with the e-nodes that it computes on the way. `reads`: what
        lies in the buffers of its operands."""
        views = (self._views(x).get(_looks(v), ()) for v, x in zip(call.operands, reads, strict=True))
        picks = list(islice(product(*views), _KEPT))  # nearly always one
        found = [x for p in picks for x in self._by_pattern(call, p)]
        return found or [x for p in picks for x in self._by_meaning(call.meaning, p)]

    def number(self, term: Term) -> int | None:
        """The class of a term over leaves."""
        return self._classes(term, ()).get(term)

    def any(self, v: View) -> list[Lies]:
        """What may lie in a buffer, where it is known how, and not what."""
        return [Lies(i, v) for i in self._alike.get((frozenset(v.axes), v.dtype), ())]

    def _views(self, lies: Lies) -> Mapping[tuple[Any, ...], Mapping[int, None]]:
        """The classes that can be seen in a buffer, by what views of it look like."""
        if lies not in self._seen:
            found = self._seen[lies] = {_looks(lies.view): {lies.number: None}}
            rows = [(lies, 0)]
            for x, depth in rows:
                for i, step in self._viewers(x.number) if depth < _DEPTH else ():
                    v = apply(x.view, *step, self.index.snapshot.sizes)
                    if v is not None and i not in (alike := found.setdefault(_looks(v), {})):
                        alike[i] = None
                        rows.append((Lies(i, v), depth + 1))
        return self._seen[lies]

    def _viewers(self, number: int) -> Iterator[tuple[int, Look]]:
        """The classes that are another way to look at one, and how."""
        for head in LOOKS:
            for i, n in self.index.readers.get((number, head), ()):
                step = look(self.index.snapshot, n) if n.args[-1] == number else None
                if step is not None:
                    yield i, step

    def _by_pattern(self, call: Call, reads: Sequence[int]) -> Iterator[tuple[int, Nodes]]:
        """The e-nodes that stand for the call's kernel and mean the same. That need not be in the e-graph as a call
        says it: of sums over several axes, one comes first there and another one here."""
        p = self.patterns.get(call.kernel)
        if p is None:
            return
        for number, n in self._heads.get(p.constructor, ()):
            if n.tensors == tuple(reads):
                at = dict(zip(p.tensors, self._operands(reads), strict=True))
                if p.meaning(tuple(at.get(i, a) for i, a in enumerate(n.args))) == call.meaning:
                    yield number, ((number, n),)

    def _operands(self, reads: Sequence[int]) -> Iterator[Term]:
        classes = (self.index.snapshot.classes[i] for i in reads)
        return (operand(n, c.axes, c.dtype) for n, c in enumerate(classes))

    def _by_meaning(self, meaning: Term, reads: Sequence[int]) -> Iterator[tuple[int, Nodes]]:
        at = self._classes(meaning, reads)
        if meaning in at:
            nodes = (self._member(t, at) for t in at if t.head not in ("In", "Num"))
            yield at[meaning], tuple(m for m in nodes if m is not None)

    def _classes(self, meaning: Term, reads: Sequence[int]) -> dict[Term, int]:
        """The classes of a term and of all in it, operands first; not of those that are not in the e-graph, or over
        such. `reads`: those of operands; without any, its leaves are the model's."""
        at: dict[Term, int] = {}
        for t in postorder(meaning):
            if t.head == "In" and reads:
                at[t] = reads[operand_index(t)]
            elif t.head == "Num":
                number = self._constants.get((repr(t.args[0]), t.args[1]))
                at |= {} if number is None else {t: number}
            elif all(a in at for a in t.terms) and (found := self._member(t, at)) is not None:
                at[t] = found[0]
        return at

    def _member(self, t: Term, at: Mapping[Term, int]) -> Member | None:
        return self.index.member(t.head, tuple(at[a] if isinstance(a, Term) else a for a in t.args))


def _looks(v: View) -> tuple[Any, ...]:
    """A view whatever order its axes are listed in."""
    return v.dtype, frozenset(zip(v.axes, v.shape, v.strides, strict=True)), v.offset if v.elements else 0


@dataclass(frozen=True)
class Followed:
    """For each step the e-nodes that it computes, None for what is not in the e-graph; and which values of the model
    lie in buffers."""

    nodes: Mapping[int, Nodes | None]
    values: dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Piece:
    """A block of a plan: its steps by their numbers, and the weights that it folds. `name` begins the names of its
    buffers."""

    name: str
    block: Block
    steps: Mapping[int, Step]
    folds: Sequence[Fold]

    def follow(self, calls: Calls, lowered: Lowered, values: Mapping[str, tuple[int, ...]]) -> Followed:
        """`values`: what lies in the buffers that it finds there, as far as that is known: the model's leaves by their
        names, and what blocks before it made. A step that reads what is not known is looked for whatever that is."""
        leaves = {v: _leaf(n, calls.index, lowered) for n, v in self.block.leaves.items()}
        lies = {f.writes: self._folded(f, calls, values) for f in self.folds}
        every = [x for rows in leaves.values() for x in rows]
        for r in (r for s in self.steps.values() for r in s.reads if not r.startswith(self.name)):
            lies[r] = [x for v in values.get(r, ()) for x in leaves.get(v, ())] or every
        nodes, guesses, made = dict[int, Nodes | None](), dict[str, list[Lies]](), set[str]()
        for i, s in self.steps.items():
            for r, v in zip(s.reads, s.call.operands, strict=True):
                if r not in lies and r not in made:  # a whole whose parts others have written, and who reads which
                    guesses[r] = calls.any(v)
            held = {r: lies[r] if r in lies else guesses[r] for r in s.reads}
            picks = (dict(zip(held, pick, strict=True)) for pick in islice(product(*held.values()), _TRIED))
            ways = list(islice((w for at in picks for w in calls.find(s.call, [at[r] for r in s.reads])), _KEPT))
            if ways:
                lies[s.writes] = [Lies(n, s.call.out) for n in dict.fromkeys(n for n, _ in ways)]
            else:
                guesses[s.writes] = calls.any(s.call.out)
                made.add(s.writes)
            nodes[i] = ways[0][1] if ways else None
        return Followed(nodes, self._values(lies, calls.index))

    def _values(self, lies: Mapping[str, Sequence[Lies]], index: Index) -> dict[str, tuple[int, ...]]:
        """The block's results that lie in buffers."""
        numbers = {v: index.snapshot.roots[o] for o, v in self.block.outputs.items()}
        held = {r: {x.number for x in rows} for r, rows in lies.items()}
        found = {r: tuple(v for v, n in numbers.items() if n in held[r]) for r in lies}
        return {r: vs for r, vs in found.items() if vs}

    def _folded(self, f: Fold, calls: Calls, values: Mapping[str, tuple[int, ...]]) -> list[Lies]:
        """What a fold makes: it names the weights as the model does, the e-graph as the block does."""
        local = {v: n for n, v in self.block.leaves.items()}

        def change(old: Term, args: tuple[Any, ...]) -> Term:
            return Term(old.head, *((local[values[args[0]][0]], *args[1:]) if old.head == "Par" else args))

        number, view = calls.number(rebuild(f.term, change)), View.dense(f.order, f.sizes, f.dtype)
        return calls.any(view) if number is None else [Lies(number, view)]


def _leaf(name: str, index: Index, lowered: Lowered) -> list[Lies]:
    """How a leaf lies in its buffer; nothing where no rule left a use of it."""
    leaf, axes = lowered.leaves[name]
    number = index.snapshot.roots.get(f"%{list(lowered.leaves).index(name)}")
    view = View.dense((k for k in axes if k is not None), lowered.sizes, leaf.type.dtype)
    return [] if number is None else [Lies(number, view)]
