"""Prices: from candidates to seconds, measured where the table knows the call, estimated (and marked) where it does
not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from waxeq.backend.call import Call
from waxeq.backend.kernel import Kernel
from waxeq.cost.estimate import CostModel
from waxeq.cost.key import METHOD, TimingKey
from waxeq.cost.table import TimingTable
from waxeq.extract.candidates import Candidate, Space, State
from waxeq.extract.choice import Priced, Problem
from waxeq.extract.cuts import Means
from waxeq.extract.views import sources

_FLOP = 0.03
"""Price of one floating-point operation of a product, in the rough units of `extract.cuts`."""


def timing_key(call: Call, device: str, threads: int) -> TimingKey:
    """What the table files a call under: its lowered text, sizes and strides; never a name of the model."""
    backend = call.kernel.partition(".")[0]
    return TimingKey(backend, call.kernel, call.text, call.dims, call.layout, call.out.dtype, device, threads, METHOD)


class Prices:
    """Predicted seconds of calls on one device; equal calls are priced once."""

    def __init__(
        self,
        model: CostModel,
        kernels: Mapping[str, Kernel],
        device: str,
        threads: int,
        table: TimingTable | None = None,
    ) -> None:
        self.model, self.kernels, self.device, self.threads, self.table = model, kernels, device, threads, table

    def of(self, calls: Sequence[Call]) -> list:
        """An Estimate for each call."""
        keys = [timing_key(c, self.device, self.threads) for c in calls]
        if self.table is not None:
            self.model = self.model.with_measured(self.table.lookup(dict.fromkeys(keys)))
        known: dict[TimingKey, object] = {}
        for k, c in zip(keys, calls, strict=True):
            if k not in known:
                known[k] = self.model.estimate(k, self.kernels[c.kernel].features(c))
        return [known[k] for k in keys]

    def problem(self, space: Space, rows: Sequence[Candidate], roots: tuple[State, ...]) -> Problem:
        """The extraction problem over priced candidates; of candidates with equal output and inputs the cheapest
        stays.
        """
        best: dict[tuple, Priced] = {}
        for c, e in zip(rows, self.of([r.call for r in rows]), strict=True):
            key = (c.out, c.inputs)
            if key not in best or e.seconds < best[key].cost:
                best[key] = Priced(c, e)
        makers: dict[State, list[Priced]] = {}
        for p in best.values():
            makers.setdefault(p.candidate.out, []).append(p)
        given = set(space.leaves.values())
        given |= {s for p in best.values() for s in p.candidate.inputs if space.free(s.number)}
        given |= {r for r in roots if space.free(r.number)}
        return Problem({s: tuple(ps) for s, ps in makers.items()}, roots, frozenset(given))


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
                axes = c.axes.union(*(space.snapshot.classes[r].axes for r in reads))
                volume = _product(sizes[k] for k in axes)
                rows.append(Means(i, 2000.0 + _FLOP * 2 * volume, tuple(dict.fromkeys(reads))))
        rows += [Means(i, 0.0, (s.base,)) for s in sources(space.snapshot, i)[1:]]
    return rows


def _product(xs: Iterable[int]) -> float:
    n = 1.0
    for x in xs:
        n *= x
    return n
