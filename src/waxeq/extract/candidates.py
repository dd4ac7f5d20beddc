"""Candidates: every kernel call that could put an e-class in memory, in some order of axes, and what it reads."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product

from waxeq.backend.call import Call, View, axes_in, operand, sharing
from waxeq.backend.kernel import Kernel
from waxeq.backend.storage import CPU
from waxeq.basis.heads import HEADS
from waxeq.egraph.kernels import Pattern
from waxeq.egraph.snapshot import ENode, Snapshot
from waxeq.events import Deadline
from waxeq.extract.cuts import Cut, folds, is_pointwise
from waxeq.extract.orders import Order, Orders
from waxeq.extract.picks import Loops, picks
from waxeq.extract.sweeps import Sweeps
from waxeq.extract.views import Source, sources
from waxeq.ir.term import Term


@dataclass(frozen=True, slots=True)
class State:
    """An e-class in the memory of a device, dense, its axes in this order."""

    number: int
    order: Order
    place: str = CPU


@dataclass(frozen=True)
class Candidate:
    """`call` computes `out` from `inputs`; `nodes` are the e-nodes it covers (class number, node)."""

    out: State
    inputs: tuple[State, ...]
    call: Call
    nodes: tuple[tuple[int, ENode], ...]

    @property
    def folds(self) -> int:
        """Folds that the call makes in its loops."""
        return folds(e for _, e in self.nodes)

    @property
    def looks(self) -> tuple[Hashable, ...]:
        """Equal where two candidates are the same call, whatever e-nodes they cover."""
        return self.out, self.inputs, self.call.kernel, self.call.meaning, self.call.operands


@dataclass(frozen=True)
class Space:
    """Everything extraction looks at: the e-graph, its memory orders, the kernels with their patterns."""

    snapshot: Snapshot
    orders: Orders
    kernels: Mapping[str, Kernel]
    patterns: Mapping[str, Pattern]
    leaves: Mapping[int, State]
    threads: int = 1

    @property
    def index_maps(self) -> frozenset[str]:
        """Heads besides element-wise ones and folds that some kernel takes into its loops."""
        return frozenset[str]().union(*(k.heads for k in self.kernels.values() if k.form == "loops"))

    @property
    def pace(self) -> float:
        """What an operation takes in the loops of the best kernel."""
        return min((k.pace for k in self.kernels.values() if k.form == "loops"), default=1.0)

    def fixed(self, reads: Sequence[State]) -> tuple[int, ...]:
        """Which of these are the same in every run."""
        return tuple(i for i, s in enumerate(reads) if self.free(s.number))

    def dense(self, s: State) -> View:
        return View.dense(s.order, self.snapshot.sizes, self.snapshot.classes[s.number].dtype)

    def bytes(self, number: int) -> int:
        """What a class takes in memory."""
        return self.dense(self.states(number)[0]).bytes

    def free(self, number: int) -> bool:
        """Whether a class costs nothing when the program runs: it depends on weights only and is folded when bound."""
        return self.snapshot.classes[number].weights_only

    def states(self, number: int, place: str = CPU) -> tuple[State, ...]:
        """What a class can be in the memory of one device."""
        if number in self.leaves:
            return (replace(self.leaves[number], place=place),)
        return tuple(State(number, o, place) for o in self.orders.of(number))

    def operands(self, number: int, place: str = CPU) -> list[tuple[State, View]]:
        """Ways to read a class on one device: a state in memory and the view of it that is this class; views before
        copies, and those of what lies deepest first, since others are likely to read that as well."""
        rows = []
        for src in [Source(number)] if self.free(number) else sources(self.snapshot, number)[::-1]:
            for s in self.states(src.base, place):
                v = src.view(self.dense(s), self.snapshot.sizes)
                if v is not None:
                    rows.append((s, v))
        return rows


def _build(
    space: Space, number: int, kernel: str, meaning: Term, reads: tuple[int, ...], nodes: tuple[tuple[int, ENode], ...],
    *, leaves: bool = False,
) -> Iterator[Candidate]:  # fmt: skip
    """Calls of one kernel for one meaning, over memory orders of the result and of what it reads; those that look at
    `leaves` come first, if so."""
    k = space.kernels[kernel]
    if space.bytes(number) < k.smallest:
        return
    sizes = {
        a: space.snapshot.sizes[a] for a in dict.fromkeys((*space.snapshot.classes[number].axes, *axes_in(meaning)))
    }
    options = [space.operands(r, k.device) for r in reads]
    for order in space.orders.of(number, k.orders(meaning, space.snapshot.classes[number].axes)):
        out = State(number, order, k.device)
        loops = Loops.of(meaning, order, sizes)
        ways = [_nearer(space, r, o, loops, k.device) for r, o in zip(reads, options, strict=True)]
        if leaves:
            ways = [sorted(o, key=lambda sv: sv[0].number not in space.leaves) for o in ways]
        for pick in not_in_itself(number, reads, ways, order, loops, both=k.device != CPU):
            read = [s for s, _ in pick]
            call = Call(
                kernel, meaning, sizes, tuple(v for _, v in pick), space.dense(out), sharing(read), space.fixed(read),
                space.threads,
            )  # fmt: skip
            if k.accepts(call):
                yield Candidate(out, tuple(s for s, _ in pick), call, nodes)


def not_in_itself(
    number: int, reads: Sequence[int], ways: Sequence[Sequence[tuple[State, View]]], order: Order, loops: Loops,
    *, both: bool,
) -> Iterator[tuple[tuple[State, View], ...]]:  # fmt: skip
    """The `picks` that read nothing in the result itself. Where operands could be seen there, they can be in what it is
    a part of as well, and it can then not be made of that: they are read as they are made, too."""
    others = [[w for w in o if w[0].number != number] for o in ways]
    found = picks(others, order, loops, both=both)
    if all(len(o) == len(every) for o, every in zip(others, ways, strict=True)):
        yield from found
        return
    made = [[w for w in o if w[0].number == r] or o for o, r in zip(others, reads, strict=True)]
    yield from dict.fromkeys((*found, *islice(product(*made), 1)))


def _nearer(
    space: Space, number: int, ways: list[tuple[State, View]], loops: Loops, place: str
) -> list[tuple[State, View]]:
    """Ways to read a class, and where all of these read it far apart, one more: a copy in another order of axes."""
    if number in space.leaves or not ways or not all(loops.apart(v) for _, v in ways):
        return ways
    nearer = loops.nearer(space.orders.of(number)[0])
    made = State(number, nearer, place)
    return [*ways, (made, space.dense(made))] if nearer in space.orders.of(number, [nearer]) else ways


def by_pattern(space: Space, number: int, n: ENode) -> Iterator[Candidate]:
    """The calls of the kernel whose pattern an e-node of a class is; none where it is no pattern."""
    p = space.patterns.get(n.head)
    if p is None:
        return
    reads = tuple(n.args[i] for i in p.tensors)
    at = {pos: _leaf(space, i, r) for i, (pos, r) in enumerate(zip(p.tensors, reads, strict=True))}
    meaning = p.meaning(tuple(at.get(i, a) for i, a in enumerate(n.args)))
    dtypes = space.kernels[p.kernel].dtypes
    if dtypes is None or all(space.snapshot.classes[r].dtype in dtypes for r in reads):
        yield from _build(space, number, p.kernel, meaning, reads, ((number, n),))


def _leaf(space: Space, i: int, number: int) -> Term:
    c = space.snapshot.classes[number]
    return operand(i, c.axes, c.dtype)


def loops_of(space: Space, number: int, cut: Cut, *, brief: bool = False) -> Iterator[Candidate]:
    """Loops of the quickest kernels of each device that take a cut: where one of them makes instructions of every
    function, those of its pool that call a library are not looked at either. In `brief`, the first such kernel alone
    where all is made point by point."""
    brief = brief and is_pointwise(cut.inside)
    meaning = cut_meaning(space.snapshot, cut)
    able = [(n, k, k.swift(meaning)) for n, k in space.kernels.items() if _grown(k) and k.matches(meaning)]
    pace, pools = dict[str, float](), set[tuple[str, str]]()
    for name, k, swift in sorted(able, key=lambda row: not row[2]):
        known = (k.device, k.pool) in pools and (brief or not swift)
        if known or k.pace > pace.get(k.device, math.inf):
            continue
        for c in _build(space, number, name, meaning, cut.leaves, tuple(cut.inside.items())):
            if swift:
                pace[k.device] = min(pace.get(k.device, math.inf), k.pace)
                pools.add((k.device, k.pool))
            yield c


def sweeps_of(space: Space, number: int, longer: Sweeps, until: Deadline) -> Iterator[Candidate]:
    """Loops that read each other, of the swift kernels where some take them, else of the others; of what they read,
    each as it suits them best: what need not be made, where it is seen in that."""
    able = [(n, k) for n, k in space.kernels.items() if k.form == "sweeps" and space.bytes(number) >= k.smallest]
    for cut in longer.of(number) if able and not until.expired else ():
        meaning = cut_meaning(space.snapshot, cut)
        found = dict[bool, list[Candidate]]()
        for n, k in able:
            if k.matches(meaning):
                made = _build(space, number, n, meaning, cut.leaves, tuple(cut.inside.items()), leaves=True)
                found.setdefault(k.swift(meaning), []).extend(islice(made, 1))
        yield from found.get(True) or found.get(False, ())
        if until.expired:
            return


def _grown(k: Kernel) -> bool:
    return k.form == "loops" and not k.variant_of


def variants(space: Space, c: Candidate) -> Iterator[Candidate]:
    """The same call by kernels that do it in another way than the one that variants are of."""
    backend, _, name = c.call.kernel.partition(".")
    usual = space.kernels[c.call.kernel].variant_of or name
    for n, k in space.kernels.items():
        if k.variant_of == usual and n.partition(".")[0] == backend and n != c.call.kernel:
            call = replace(c.call, kernel=n)
            if call.out.bytes >= k.smallest and k.accepts(call) and k.differs(call):
                yield replace(c, call=call)


def cut_meaning(snapshot: Snapshot, cut: Cut) -> Term:
    """The term a cut computes, over its leaves as operands."""
    place = {leaf: i for i, leaf in enumerate(cut.leaves)}
    done: dict[int, Term] = {}

    def go(i: int) -> Term:
        if i not in done:
            c = snapshot.classes[i]
            if i in cut.inside:
                n = cut.inside[i]
                args = zip(n.args, HEADS[n.head].sorts, strict=True)
                done[i] = Term(n.head, *(go(a) if s == "T" else a for a, s in args))
            elif c.constant is not None:
                done[i] = Term("Num", c.constant, c.dtype)
            else:
                done[i] = operand(place[i], c.axes, c.dtype)
        return done[i]

    return go(cut.root)


def copies(space: Space, number: int) -> Iterator[Candidate]:
    """Copies into another order of axes, and of a view into memory of its own."""
    if len(space.snapshot.classes[number].axes) == 0 and number in space.leaves:
        return
    meaning = _leaf(space, 0, number)
    for name, k in space.kernels.items():
        if k.form != "copy" or k.variant_of or space.bytes(number) < k.smallest:
            continue
        rows = space.operands(number, k.device)
        for order in space.orders.of(number):
            out = State(number, order, k.device)
            sizes = {a: space.snapshot.sizes[a] for a in order}
            for s, v in rows:
                if s == out or (s.number != number and _via(space, s, number)):
                    continue
                call = Call(name, meaning, sizes, (v,), space.dense(out), fixed=space.fixed([s]), threads=space.threads)
                if k.accepts(call):
                    yield Candidate(out, (s,), call, ())


def transfers(space: Space, number: int) -> Iterator[Candidate]:
    """Copies to the memory of another device, of whatever lies in memory as it lies there."""
    for name, k in space.kernels.items():
        if k.form != "transfer":
            continue
        for src in space.states(number, k.origin):
            out, v = replace(src, place=k.device), space.dense(src)
            sizes = {a: space.snapshot.sizes[a] for a in src.order}
            call = Call(name, _leaf(space, 0, number), sizes, (v,), v, threads=space.threads)
            if k.accepts(call):
                yield Candidate(out, (src,), call, ())


def _via(space: Space, s: State, number: int) -> bool:
    """A copy from a class that is itself a view of this one would only go round in circles."""
    return any(src.base == number for src in sources(space.snapshot, s.number)[1:])
