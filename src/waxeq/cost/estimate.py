"""Predicted seconds: measured where known, else fitted per kernel and dtype, else from the machine's ceilings."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from operator import mul

from waxeq.cost.device import Peaks
from waxeq.cost.elements import Elements, alone, elements, unseen
from waxeq.cost.features import SHORTEST, is_function, roofline, soonest
from waxeq.cost.fit import Fit
from waxeq.cost.key import Family, Timing, TimingKey
from waxeq.cost.known import Known, Rows
from waxeq.cost.places import Calls
from waxeq.cost.shared import Shared, akin
from waxeq.cost.told import Told

ENOUGH = 8
"""Timings of a family from which it is fitted; fewer correct what is reckoned without them."""
_UNKNOWN = 3.0
"""Factor around a roofline in which a timing may lie."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Seconds with an interval, and where they come from: "measured", "fitted" (to timings of others) or "roofline"."""

    seconds: float
    low: float
    high: float
    source: str


_KIN = 1.5
"""Factor on intervals where what is told of one kernel are the timings of another."""
_FEW = 1.5
"""Factor on intervals where what was reckoned was corrected by few timings."""
_NEAR = 0.5
"""How far apart calls are, in logarithms of what they take, of which one tells a quarter as much of the other as of
itself."""
_MORE = 1.1
"""Times as many timings as before that are worth a new look at what functions cost."""


SOURCES = ("measured", "fitted", "roofline")
"""Where estimates come from, the surest first."""


def least_sure(sources: Iterable[str]) -> str:
    """What a sum of estimates rests on."""
    return max(sources, key=SOURCES.index)


class CostModel:
    """Estimates for one machine: a timing where there is one, else the fit of the call's family, else the roofline.
    `peaks` are the CPU's, `others` those of kernels, by name, that run on other devices. `on_cpu` tells of a kernel, by
    name, whether it is known to run on the CPU; without it each does that is not among the others. `launches`: seconds
    that starting kernels takes, by name, where that is not what the peaks say.

    Fits are made when they are first asked for, and again when `learn` brings timings of their family.
    """

    def __init__(
        self,
        peaks: Peaks,
        timings: Iterable[Timing] = (),
        *,
        roofline_only: bool = False,
        others: Mapping[str, Peaks] | None = None,
        on_cpu: Callable[[str], bool] | None = None,
        launches: Mapping[str, float] | None = None,
    ) -> None:
        self.peaks, self.roofline_only, self.others = peaks, roofline_only, dict(others or {})
        self.on_cpu = on_cpu or (lambda kernel: True)
        self.launches = dict(launches or {})
        self._rows = Rows()
        self._fits: dict[Family, Fit | None] = {}
        self._stale: set[Family] = set()
        self._elements: dict[str, tuple[int, Elements]] = {}
        self._shared: dict[tuple[str, str], tuple[int, Shared]] = {}
        if isinstance(timings, Known) and not roofline_only:
            self._begin(timings)
        else:
            self.learn(timings)

    @property
    def measured(self) -> Mapping[TimingKey, Timing]:
        """Timings by key, of the families that were looked at: that of any call that was priced or learned."""
        return self._rows.measured

    def _begin(self, known: Known) -> None:
        """Take in timings that need not be made before somebody asks for their family."""
        self._rows = Rows(known)
        for family, group in known.groups.items():
            self._raise_ceiling(family.kernel, family.dtype, group.rate())
        # laws that ship were made with the CPU's ceilings
        elsewhere = {akin(f) for f in known.groups if f.kernel in self.others}
        laws = {of: row for of, row in known.told.laws.items() if of not in elsewhere}
        self._shared = {of: (n, Shared(law, self.peaks)) for of, (n, law) in laws.items()}
        self._elements = dict(known.told.elements)

    def learn(self, timings: Iterable[Timing]) -> frozenset[Family]:
        """Take in timings; the families whose estimates may have changed."""
        changed: set[Family] = set()
        if self.roofline_only:
            return frozenset()
        for t in timings:
            if self._rows.get(t.key) is not t:
                self._rows.put(t)
                changed.add(t.key.family)
                self._raise_ceiling(t.key.kernel, t.key.dtype, t.rate)
        self._stale |= changed
        return frozenset(changed)

    def _raise_ceiling(self, kernel: str, dtype: str, rate: float) -> None:
        """What a kernel was seen to reach is a ceiling that was measured too low, as on a machine that was busy then;
        kernels that nobody timed would otherwise look too dear to be tried. What runs on a device that is not looked at
        now tells nothing of the CPU."""
        peaks = self.peaks_of(kernel)
        if rate > peaks.flops.get(dtype, 0.0):
            higher = replace(peaks, flops={**peaks.flops, dtype: rate})
            if kernel in self.others:
                self.others[kernel] = higher
            elif self.on_cpu(kernel):
                self.peaks = higher

    def peaks_of(self, kernel: str) -> Peaks:
        """The ceilings of the device that a kernel runs on."""
        return self.others.get(kernel, self.peaks)

    def fit(self, family: Family) -> Fit | None:
        """The fit of a family; None while it has too few timings."""
        if family not in self._fits or family in self._stale:
            self._stale.discard(family)
            rows = list(self._rows.of(family).values())
            before = self._fits.get(family)
            self._fits[family] = Fit.of(rows, self.prices(family), before) if len(rows) >= ENOUGH else None
        return self._fits[family]

    def fits(self) -> dict[Family, Fit]:
        """Those of all families that have enough timings."""
        return {f: fit for f in self._rows if (fit := self.fit(f)) is not None}

    def prices(self, family: Family) -> Mapping[str, float]:
        """Seconds that one unit of each feature of a family takes, as the timings of all kernels akin to its kernel
        tell."""
        return self._in_common(family).prices({n for t in self._rows.of(family).values() for n in t.work}, family.dtype)

    def _in_common(self, family: Family) -> Shared:
        """What kernels akin to that of a family have in common; worked out anew when there are many more
        timings."""
        group = [other for other in self._rows if akin(other) == akin(family)]
        count, known = self._shared.get(akin(family), (0, None))
        now = sum(map(self._rows.count, group))
        if known is None or now > _MORE * count:
            known = Shared.of(self._timings(group), self.peaks_of(family.kernel))
            self._shared[akin(family)] = now, known
        return known

    def told(self) -> Told:
        """What all timings tell together, for kernels of the CPU."""
        for family in self._rows:
            self._in_common(family)
            self._of_elements(family.backend)
        return Told({of: (n, known.law) for of, (n, known) in self._shared.items()}, self._elements)

    def _timings(self, families: Iterable[Family]) -> list[Timing]:
        return [t for f in families for t in self._rows.of(f).values()]

    def _of_elements(self, backend: str) -> Elements:
        """Of the functions that a backend's kernels have timed; worked out anew when there are many timings more."""
        group = [family for family in self._rows if family.backend == backend]
        count, known = self._elements.get(backend, (0, {}))
        if (now := sum(map(self._rows.count, group))) > _MORE * count:
            known = elements(alone(self.peaks, self._timings(group)))
            self._elements[backend] = now, known
        return known

    def estimate(self, key: TimingKey, features: Mapping[str, float]) -> Estimate:
        """Seconds for a call; positive and finite."""
        return self.estimates([key], [features])[0]

    def estimates(self, keys: Sequence[TimingKey], features: Sequence[Mapping[str, float]]) -> list[Estimate]:
        """Seconds for each call; together they take less time than one by one."""
        rows: list[Estimate | None] = [None] * len(keys)
        unknown: dict[Family, list[int]] = {}
        for i, k in enumerate(keys):
            known = self._rows.get(k)
            if known is not None:
                rows[i] = Estimate(known.seconds, *known.interval, "measured")
            else:
                unknown.setdefault(k.family, []).append(i)
        for family, places in unknown.items():
            found = self._guessed(family, [keys[i] for i in places], [features[i] for i in places])
            for i, e in zip(places, found, strict=True):
                rows[i] = e
        return [e for e in rows if e is not None]

    def _guessed(
        self, family: Family, keys: Sequence[TimingKey], features: Sequence[Mapping[str, float]]
    ) -> Sequence[Estimate]:
        few = [] if self.fit(family) else list(self._rows.of(family).values())
        reckoned = list(self._reckoned(family, [t.key for t in few] + [*keys], [t.features for t in few] + [*features]))
        n = len(few)
        return _corrected(few, reckoned[:n], reckoned[n:]) if few else reckoned

    def _reckoned(
        self, family: Family, keys: Sequence[TimingKey], features: Sequence[Mapping[str, float]]
    ) -> Iterator[Estimate]:
        """By the fit of a family or of the nearest one that has timings enough, else by the roofline."""
        fit, wider, peaks = self.fit(family), 1.0, self.peaks_of(family.kernel)
        if fit is None and (nearest := self._kin(family)) is not None:
            fit, wider = self.fit(nearest), _KIN
        if fit is None:
            peaks = replace(peaks, launch=self.launches.get(family.kernel, peaks.launch))
            for f in features:
                bound = roofline(f, family.dtype, peaks)
                yield Estimate(bound, bound / _UNKNOWN, bound * _UNKNOWN, "roofline")
            return
        works = [k.work(f) for k, f in zip(keys, features, strict=True)]
        seconds, spreads = fit.predict(Calls.of(keys, works, fit.law.names))
        for f, s, spread in zip(works, seconds.tolist(), spreads.tolist(), strict=True):
            if not fit.names.issuperset(f):
                new = {n: v for n, v in f.items() if n not in fit.names}
                known = self._of_elements(family.backend) if any(map(is_function, new)) else {}
                s += unseen(new, family.kernel, known, family.dtype, peaks)
            s, spread = max(s, soonest(f, family.dtype, peaks), SHORTEST), spread * wider
            yield Estimate(s, s / spread, s * spread, "fitted")

    def _kin(self, family: Family) -> Family | None:
        """Of the families that are made like one with too few timings, that with the name most like its own: what
        differs between them is a part of what a roofline leaves out. No other text of the same kernel: the new one may
        be far better."""

        def like(other: Family) -> tuple[int, int, Family]:
            words = zip(other.kernel.split("_"), family.kernel.split("_"), strict=False)
            return len(list(takewhile(lambda pair: pair[0] == pair[1], words))), self._rows.count(other), other

        what = akin(family), family.dtype, family.device
        rows = (f for f in self._rows if self._rows.count(f) >= ENOUGH and f.kernel != family.kernel)
        return max((f for f in rows if (akin(f), f.dtype, f.device) == what), key=like, default=None)


def _corrected(few: Sequence[Timing], reckoned: Sequence[Estimate], asked: Sequence[Estimate]) -> list[Estimate]:
    """What was `asked`, times what the timings that there are took of what was `reckoned` of them, those nearby
    counting most: a sort takes many times what memory and arithmetic allow, and two timings tell."""
    at = [math.log(e.seconds) for e in reckoned]
    off = [math.log(t.seconds) - x for t, x in zip(few, at, strict=True)]
    found: list[Estimate] = []
    for e in asked:
        here = math.log(e.seconds)
        weights = [(_NEAR / (_NEAR + abs(here - x))) ** 2 for x in at]
        by = math.exp(sum(map(mul, weights, off)) / sum(weights))
        by = max(by, SHORTEST / e.seconds)
        found.append(Estimate(e.seconds * by, e.low * by / _FEW, e.high * by * _FEW, "fitted"))
    return found
