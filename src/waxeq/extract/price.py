"""Prices: from candidates to seconds, measured where the table knows the call, estimated (and marked) where it does
not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from waxeq.backend.call import Call
from waxeq.backend.kernel import Kernel
from waxeq.basis.heads import VIEWS
from waxeq.cost.estimate import CostModel, Estimate
from waxeq.cost.key import METHOD, Timing, TimingKey
from waxeq.cost.table import TimingTable
from waxeq.extract.candidates import Candidate, Space, State
from waxeq.extract.choice import Priced, Problem
from waxeq.extract.rough import FLOP, READ, START, Means


def timing_key(call: Call, kernel: Kernel, device: str, threads: int) -> TimingKey:
    """What the table files a call under: the kernel and its text, the call's lowered text, sizes and strides; never a
    name of the model.
    """
    what = (call.kernel.partition(".")[0], call.kernel, kernel.code, call.text, call.dims, call.layout, call.out.dtype)
    return TimingKey(*what, device, threads, METHOD)


class Prices:
    """Predicted seconds of calls on one device; equal calls are priced once, the table is asked once for each key.
    Kernels that are `excluded` turned out not to run here."""

    def __init__(
        self,
        model: CostModel,
        kernels: Mapping[str, Kernel],
        device: str,
        threads: int,
        table: TimingTable | None = None,
    ) -> None:
        self.model, self.kernels, self.device, self.threads, self.table = model, kernels, device, threads, table
        self.excluded: set[str] = set()
        self._asked: set[TimingKey] = set()
        self._known: dict[TimingKey, Estimate] = {}

    def key(self, call: Call) -> TimingKey:
        """What a call is filed under on this device."""
        return call.remember("key", lambda: timing_key(call, self.kernels[call.kernel], self.device, self.threads))

    def of(self, calls: Sequence[Call]) -> list[Estimate]:
        """An Estimate for each call."""
        keys = [self.key(c) for c in calls]
        new = dict.fromkeys(k for k in keys if k not in self._asked)
        if self.table is not None and new:
            self.learn(self.table.lookup(new))
            self._asked.update(new)
        for k, c in zip(keys, calls, strict=True):
            if k not in self._known:
                features = c.remember("features", lambda c=c: self.kernels[c.kernel].features(c))
                self._known[k] = self.model.estimate(k, features)
        return [self._known[k] for k in keys]

    def learn(self, rows: Mapping[TimingKey, Timing]) -> None:
        """Take in timings that were measured or found."""
        changed = self.model.learn(rows.values())
        self._known = {k: e for k, e in self._known.items() if k.family not in changed}

    def problem(
        self, space: Space, rows: Sequence[Candidate], roots: tuple[State, ...], *, cautious: bool = False
    ) -> Problem:
        """The extraction problem over priced candidates; those that another one makes needless are set aside."""
        rows = [r for r in rows if r.call.kernel not in self.excluded]
        by_out: dict[State, list[Priced]] = {}
        for c, e in zip(rows, self.of([r.call for r in rows]), strict=True):
            by_out.setdefault(c.out, []).append(Priced(c, e, cautious))
        makers, spare = {}, {}
        for s, ps in by_out.items():
            makers[s], spare[s] = _undominated(ps)
        given = set(space.leaves.values())
        given |= {s for ps in makers.values() for p in ps for s in p.candidate.inputs if space.free(s.number)}
        given |= {r for r in roots if space.free(r.number)}
        return Problem(makers, roots, frozenset(given), spare)


def _undominated(rows: Sequence[Priced]) -> tuple[tuple[Priced, ...], tuple[Priced, ...]]:
    """Makers of one state, and apart those that cost no less than another one that reads no more."""
    kept: list[Priced] = []
    rest: list[Priced] = []
    seen: set[tuple[State, ...]] = set()
    for p in sorted(rows, key=lambda p: (p.cost, len(p.candidate.inputs))):
        reads = set(p.candidate.inputs)
        needless = p.candidate.inputs in seen or any(reads.issuperset(q.candidate.inputs) for q in kept)
        (rest if needless else kept).append(p)
        seen.add(p.candidate.inputs)
    return tuple(kept), tuple(rest)


def other_means(space: Space) -> list[Means]:
    """How classes can be had without loops, for the growing of cuts: by pattern kernels and as views."""
    rows = []
    sizes = space.snapshot.sizes
    for i, c in enumerate(space.snapshot.classes):
        if c.weights_only:
            continue
        for n in c.nodes:
            p = space.patterns.get(n.head)
            if p is not None:
                reads = tuple(n.args[t] for t in p.tensors)
                own = frozenset().union(*(space.snapshot.classes[r].axes for r in reads))
                if any(isinstance(a, frozenset) and not a <= own for a in n.args):
                    continue  # a sum over an axis that no operand has is a multiple, which no contraction computes
                axes = c.axes | own
                volume = math.prod(sizes[k] for k in axes)
                moved = sum(math.prod(sizes[k] for k in space.snapshot.classes[a].axes) for a in {i, *reads})
                rows.append(Means(i, START + FLOP * 2 * volume + READ * moved, tuple(dict.fromkeys(reads)), n))
        rows += [Means(i, 0.0, (n.args[-1],), n) for n in c.nodes if n.head in VIEWS]
    return rows
