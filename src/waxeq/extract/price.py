"""Prices: from candidates to seconds, measured where the table knows the call, estimated (and marked) where it does
not.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from waxeq.backend.call import Call
from waxeq.backend.kernel import Kernel
from waxeq.cost.estimate import CostModel, Estimate
from waxeq.cost.key import METHOD, Family, Timing, TimingKey
from waxeq.cost.places import lie_of
from waxeq.cost.table import TimingTable
from waxeq.extract.candidates import Candidate, Space, State, by_pattern
from waxeq.extract.choice import Mood, Priced, Problem
from waxeq.extract.rough import FLOP, READ, START, Means
from waxeq.extract.views import seen

_HEARD = 0.1
"""Part of a family's timings that must be new before the prices of what was not measured are worked out again."""
_SURPRISE = 1.5
"""How many times beyond its interval a timing is a surprise: one such tells more than a tenth of all others."""


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
        self._number: dict[TimingKey, int] = {}
        self._known: list[Estimate | None] = []
        self._families: dict[Family, list[int]] = {}
        self._lies: dict[tuple[Family, int], list[int]] = {}
        self._timings: dict[Family, int] = {}
        self._unheard: dict[Family, int] = {}
        self._grouped: tuple[Sequence[Candidate], list[_Makers]] = ((), [])

    def key(self, call: Call) -> TimingKey:
        """What a call is filed under on this device."""
        return call.remember("key", lambda: timing_key(call, self.kernels[call.kernel], self.device, self.threads))

    def of(self, calls: Sequence[Call]) -> list[Estimate]:
        """An Estimate for each call."""
        return self._estimates(calls, self._numbers(calls))

    def together(self, calls: Sequence[Call], reads: Sequence[Sequence[Hashable]]) -> Estimate | None:
        """What calls take as the one loop that their kernels make of them; `reads`: what is the same for operands that
        lie in the same place, by call. None where they are not one.

        No such loop was timed. What the fit says of it against what it says of each call scales what is known of the
        calls; a loop takes no less than the longest of them.
        """
        kernels = [self.kernels[c.kernel] for c in calls]
        ways = {k.together for k in kernels}
        features = ways.pop()(list(zip(kernels, calls, strict=True)), reads) if len(ways) == 1 else None
        if features is None:
            return None
        alone = self.of(calls)
        longest = max(range(len(calls)), key=lambda i: alone[i].seconds)
        keys = [replace(self.key(c), text=f"{c.text} beside others") for c in calls]
        apart = self.model.estimates(keys, [k.features(c) for k, c in zip(kernels, calls, strict=True)])
        whole = self.model.estimate(keys[longest], features)
        seconds = whole.seconds / sum(e.seconds for e in apart) * sum(e.seconds for e in alone)
        seconds = max(seconds, alone[longest].seconds)
        scale = seconds / whole.seconds
        return Estimate(seconds, scale * whole.low, scale * whole.high, whole.source)

    def _numbers(self, calls: Sequence[Call]) -> list[int]:
        """A number for each distinct key; the table is asked for those that are new."""
        keys = [self.key(c) for c in calls]
        new = dict.fromkeys(k for k in keys if k not in self._number)
        for k in new:
            self._number[k] = len(self._known)
            self._families.setdefault(k.family, []).append(len(self._known))
            self._lies.setdefault((k.family, lie_of(k.dims, k.layout)), []).append(len(self._known))
            self._known.append(None)
        if self.table is not None and new:
            self.learn(self.table.lookup(new))
        return [self._number[k] for k in keys]

    def _estimates(self, calls: Sequence[Call], numbers: Sequence[int]) -> list[Estimate]:
        new = {n: c for n, c in zip(numbers, calls, strict=True) if self._known[n] is None}
        if new:
            features = [c.remember("features", lambda c=c: self.kernels[c.kernel].features(c)) for c in new.values()]
            found = self.model.estimates([self.key(c) for c in new.values()], features)
            for n, e in zip(new, found, strict=True):
                self._known[n] = e
        return [e for n in numbers if (e := self._known[n]) is not None]

    def learn(self, rows: Mapping[TimingKey, Timing]) -> None:
        """Take in timings that were measured or found. What they say of calls of their family that lie as they do is
        heard at once; what they say of others when one is a surprise, or when they are a tenth of its timings."""
        surprising = {k.family for k, t in rows.items() if self._surprises(t)}
        for family in self.model.learn(rows.values()):
            new = [k for k in rows if k.family == family]
            if family not in self._timings:
                self._timings[family] = sum(k.family == family for k in self.model.measured) - len(new)
            self._unheard[family] = self._unheard.get(family, 0) + len(new)
            lies = {lie_of(k.dims, k.layout) for k in new}
            numbers: Iterable[int] = (n for lie in lies for n in self._lies.get((family, lie), ()))
            if family in surprising or self._unheard[family] > _HEARD * self._timings[family]:
                self._timings[family] += self._unheard.pop(family)
                numbers = self._families.get(family, ())
            for n in numbers:
                self._known[n] = None

    def _surprises(self, t: Timing) -> bool:
        """Whether a timing lies far beyond what was thought of its call."""
        n = self._number.get(t.key)
        thought = None if n is None else self._known[n]
        return thought is not None and not thought.low / _SURPRISE <= t.seconds <= thought.high * _SURPRISE

    def exclude(self, kernels: Collection[str]) -> None:
        """Note that these kernels turned out not to run here."""
        self.excluded |= set(kernels)

    def problem(
        self, space: Space, rows: Sequence[Candidate], roots: tuple[State, ...], *, mood: Mood = "expected"
    ) -> Problem:
        """The extraction problem over priced candidates; those that another one makes needless are set aside."""
        makers, spare = {}, {}
        for group in self._groups(rows):
            estimates = self._estimates([c.call for c in group.candidates], group.numbers)
            makers[group.out], spare[group.out] = group.priced(estimates, mood)
        given = set(space.leaves.values())
        given |= {s for ps in makers.values() for p in ps for s in p.candidate.inputs if space.free(s.number)}
        given |= {r for r in roots if space.free(r.number)}
        return Problem(makers, roots, frozenset(given), spare)

    def _groups(self, rows: Sequence[Candidate]) -> list[_Makers]:
        """Candidates by what they make; those of the last problem are kept, as it is posed anew with other prices."""
        if self._grouped[0] is not rows:
            by_out: dict[State, tuple[list[Candidate], list[int]]] = {}
            for c, n in zip(rows, self._numbers([r.call for r in rows]), strict=True):
                candidates, numbers = by_out.setdefault(c.out, ([], []))
                candidates.append(c)
                numbers.append(n)
            self._grouped = (rows, [_Makers(s, c, n) for s, (c, n) in by_out.items()])
        return self._grouped[1]


@dataclass
class _Makers:
    """Candidates that make one state, with the numbers of their keys; they are sorted anew only when prices changed."""

    out: State
    candidates: Sequence[Candidate]
    numbers: Sequence[int]
    last: tuple[list[Estimate], Mood] | None = None
    split: tuple[tuple[Priced, ...], tuple[Priced, ...]] = ((), ())

    def priced(self, estimates: list[Estimate], mood: Mood) -> tuple[tuple[Priced, ...], tuple[Priced, ...]]:
        """Those worth a look, and the spare ones."""
        if self.last != (estimates, mood):
            self.last = (estimates, mood)
            pairs = zip(self.candidates, estimates, strict=True)
            self.split = _undominated([Priced(c, e, mood) for c, e in pairs])
        return self.split


def _undominated(rows: Sequence[Priced]) -> tuple[tuple[Priced, ...], tuple[Priced, ...]]:
    """Makers of one state, and apart those that cost no less than another one that reads no more."""
    kept: list[Priced] = []
    rest: list[Priced] = []
    seen: set[frozenset[State]] = set()
    for p in sorted(rows, key=lambda p: (p.cost, len(p.candidate.inputs))):
        reads = frozenset(p.candidate.inputs)
        needless = reads in seen or any(fewer < reads for fewer in seen)
        (rest if needless else kept).append(p)
        seen.add(reads)
    return tuple(kept), tuple(rest)


def other_means(space: Space) -> list[Means]:
    """How classes can be had without loops, for the growing of cuts: by pattern kernels and as views. Kernels that are
    quicker than the common ones are asked first whether they take a call: what they do not take would put out of the
    e-graph all that does."""
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
                pace = space.kernels[p.kernel].pace
                if pace < 1 and next(by_pattern(space, i, n), None) is None:
                    continue
                axes = c.axes | own
                volume = math.prod(sizes[k] for k in axes)
                moved = sum(math.prod(sizes[k] for k in space.snapshot.classes[a].axes) for a in {i, *reads})
                work = pace * (FLOP * 2 * volume + READ * moved)
                rows.append(Means(i, START + work, tuple(dict.fromkeys(reads)), n))
        rows += [Means(i, 0.0, (n.args[-1],), n) for n in c.nodes if seen(space.snapshot, n)]
    return rows
