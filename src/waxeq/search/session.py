"""What one optimization holds open: kernels, rules, the timing table, a worker for saturation, a clock."""

from __future__ import annotations

import gc
import hashlib
import math
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.metadata import version
from typing import Any, TypeVar

from waxeq.amounts import cores
from waxeq.backend.call import Call
from waxeq.backend.discover import Found, backends, kernels
from waxeq.backend.discover import found as found_backends
from waxeq.backend.kernel import Backend, Kernel
from waxeq.backend.storage import CPU, storages
from waxeq.cost.device import Device, Peaks, current_device
from waxeq.cost.estimate import CostModel
from waxeq.cost.key import Timing, TimingKey
from waxeq.cost.memos import Kind
from waxeq.cost.survey import runs_on_cpu
from waxeq.cost.table import TimingTable
from waxeq.egraph.kernels import patterns
from waxeq.egraph.program import RuleProgram
from waxeq.egraph.rules import RuleFile, load_rules
from waxeq.egraph.saturate import Worker
from waxeq.errors import FallbackError, UsageError
from waxeq.events import Deadline, Events, Note, Progress
from waxeq.extract.price import Prices
from waxeq.options import Options
from waxeq.plan.encode import encode_rules
from waxeq.runtime.device_timing import timed
from waxeq.runtime.neighbours import Load, Watch
from waxeq.runtime.timing import Bench
from waxeq.search.admission import files_for, own_rules, require_certificates
from waxeq.search.pace import KEPT
from waxeq.search.readying import COMPILER, Readying
from waxeq.search.tables import Opened, open_table

Value = TypeVar("Value")
_RUNS = 2
"""Runs that timing a long call takes at least."""
_OBJECTS = 200_000
"""Objects made until Python looks for cycles among them, of which a search makes next to none: by default it looks so
often that a tenth of a search goes into it."""


def _quiet(timings: Sequence[Timing]) -> Timing:
    """Of several timings of one call, of those that no other process disturbed if there are any, the lower quartile, as
    of the samples of each: what others do to a machine only ever adds."""
    calm = [t for t in timings if not t.disturbed] or timings
    return sorted(calm, key=lambda t: t.seconds)[(len(calm) - 1) // 4]


def _pools() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def _unused(installed: Sequence[Found]) -> tuple[str, ...]:
    """A sentence for each backend that every machine could use and this one cannot: that there is no other device than
    the CPU is no loss."""
    expected = (f for f in installed if f.backend is None or f.backend.device == CPU)
    return tuple(f"backend {f.name} is not used: {f.why}" for f in expected if f.why)


def _said(found: Mapping[str, Kernel]) -> dict[str, Any]:
    """What kernels say themselves for the cost model: ceilings of other devices than the CPU, and what starting takes
    that is not started as NumPy's are."""
    others = {n: Peaks(**most) for n, k in found.items() if (most := k.ceilings()) is not None}
    return {"others": others, "launches": {n: k.launch for n, k in found.items() if k.launch is not None}}


def _require_device(name: str, kernels: Mapping[str, Kernel], installed: Sequence[Found]) -> None:
    """Raise UsageError for a device that no kernel works on, with the reason where some backend would."""
    known = sorted({k.device for k in kernels.values()})
    if name not in known:
        why = [f.why for f in installed if f.why and f.backend is not None and f.backend.device == name]
        said = f": {why[0]}" if why else f"; there are {', '.join(known)}"
        raise UsageError(f"no usable backend works on device {name!r}{said}")


def levels(options: Options, of: Iterable[Kernel]) -> list[float]:
    """The tolerances up to the one allowed at which there is more to choose from: the class of rules changes, or
    another of these kernels may be used."""
    errors = {k.error for k in of}
    steps = sorted({0.0, *(e for e in (*errors, 1e-5, 1e-3) if e <= options.tolerance), options.tolerance})
    rows: list[float] = []
    seen: set[object] = set()
    for t in steps:
        allowed = (options.at(t).rule_class, sum(e <= t for e in errors))
        if allowed not in seen:
            seen.add(allowed)
            rows.append(t)
    return rows


def _rules(options: Options, kernels: Mapping[str, Kernel], own: tuple[RuleFile, ...]) -> RuleProgram:
    files, found = (*files_for(()), *own), patterns(kernels)
    return load_rules(options.rule_class, found, algebra=options.algebra, files=files, tolerance=options.tolerance)


@dataclass
class Session(Readying):
    """Opened with `Session.open(options, events)`, used as a context manager."""

    options: Options
    events: Events
    backends: Sequence[Backend]
    kernels: Mapping[str, Kernel]
    rules: RuleProgram
    own_rules: tuple[RuleFile, ...]
    device: Device
    table: TimingTable
    prices: Prices
    worker: Worker
    deadline: Deadline
    bench: Bench
    notes: tuple[str, ...] = ()
    measuring_seconds: float = 0.0
    compiling_seconds: float = 0.0
    opening_seconds: float = 0.0
    """Until the search could begin: backends, the timing table, the rules."""
    closed: bool = False
    until: float = math.inf
    part: float = 1.0
    least_part: float = 1.0
    kept: float = KEPT
    """Part of the budget that is not for measuring: nothing, where no plan is chosen."""
    watch: Watch = field(default_factory=Watch)
    """What other processes took of the machine while kernels were timed."""
    once: set[TimingKey] = field(default_factory=set)
    """What was timed here a single time."""
    begun: float = 0.0
    skipped: int = 0
    """Calls that were to be timed, for which no time was left."""
    readied: dict[tuple[str, frozenset[str]], Future[None]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    untimed: set[TimingKey] = field(default_factory=set)
    late: set[TimingKey] = field(default_factory=set)
    waited: float = 0.0
    compiled_seconds: float = 0.0
    usual_seconds: float = 0.0
    chose: float = 0.0
    contest: float = 0.0
    sole: bool = False
    took: float = 0.0
    enough: float = math.inf
    model: str = ""
    """The name of the model that is worked on: what is remembered of its blocks says whose they were."""
    others: list[Future] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)
    pools: Any = field(default_factory=_pools)

    @staticmethod
    def open(options: Options, events: Events, opened: Opened | None = None) -> Session:
        """`opened`: the timing table, where it is not the one that the options say."""
        clock = Deadline(options.budget)
        installed = found_backends()
        missing = () if options.backends else _unused(installed)  # one that is named is required
        if missing and options.strict:
            raise FallbackError(missing[0])
        opened = opened or open_table(options.table, events, strict=options.strict)
        for text in opened.notes:
            events.emit(Note(text))
        used = backends(options.backends, installed)
        found = {n: k for n, k in kernels(used).items() if k.error <= options.tolerance}
        _require_device(options.device, found, installed)
        device, table = current_device(options.threads), opened.table
        begun = time.perf_counter()
        peaks = table.peaks(device)
        measuring = time.perf_counter() - begun
        require_certificates(table, files_for(options.rules))
        own = own_rules(options.rules)
        worker = Worker.start()  # not before: the peaks would be those of a busy machine
        only, on_cpu = options.cost == "roofline", runs_on_cpu(installed)  # timings are of kernels not asked for, too
        known = table.families(device.id)
        model = CostModel(peaks, known, roofline_only=only, on_cpu=on_cpu, **_said(found))
        prices = Prices(model, found, device.id, options.threads, None if only else table)
        rules = _rules(options, found, own)
        worker.prepare(rules)
        bench = Bench(device.l3_bytes)
        notes = (*opened.notes, *missing, *options.remarks)
        return Session(
            options, events, used, found, rules, own, device, table, prices, worker, clock, bench, notes, measuring,
            opening_seconds=clock.elapsed - measuring,
        )  # fmt: skip

    def stricter(self, tolerance: float) -> Session:
        """The same search, on the same clock, with rules and kernels whose error is at most `tolerance`. It is closed
        with this one."""
        options = self.options.at(tolerance)
        found = {n: k for n, k in self.kernels.items() if k.error <= tolerance}
        prices = Prices(self.prices.model, found, self.device.id, options.threads, self.prices.table)
        prices.exclude(self.prices.excluded & set(found))
        rules = _rules(options, found, self.own_rules)
        begun = self.deadline.elapsed
        return replace(self, options=options, kernels=found, rules=rules, prices=prices, begun=begun)

    def below(self, used: Iterable[str]) -> float | None:
        """The highest tolerance at which one of these kernels or the class of rules is no longer allowed, None where
        there is none or nobody waits for it: where to search again, if what was found with them is wrong."""
        if not self.options.tolerance or self.stopped:
            return None
        here, most = self.options, max((self.kernels[n].error for n in used), default=0.0)
        lower = (t for t in levels(here, self.kernels.values()) if t < here.tolerance)
        return max(t for t in lower if t < most or here.at(t).rule_class != here.rule_class)

    def __enter__(self) -> Session:
        self._limits = self.blas(self.options.threads)
        self._thresholds = gc.get_threshold()
        if self._thresholds[0]:
            gc.set_threshold(max(_OBJECTS, self._thresholds[0]), *self._thresholds[1:])
        return self

    def __exit__(self, *exc: object) -> None:
        self.closed = True
        self.release()
        gc.set_threshold(*self._thresholds)
        self._limits.restore_original_limits()
        self.worker.close()
        if self.deadline.seconds is None:
            self.table.tidy()
        else:
            self.table.tidy_at_exit()

    @cached_property
    def devices(self) -> tuple[str, ...]:
        """Every device that plans may use, the CPU first."""
        return (CPU, *storages(self.kernels.values()))

    def about(self) -> dict[str, Any]:
        """What the plan depends on, for the record: versions and hashes."""
        return {
            "versions": {"waxeq": version("waxeq"), "numpy": version("numpy"), "egglog": version("egglog")},
            "options": self.options.fingerprint(),
            "search": {
                "class": self.options.rule_class,
                "algebra": self.options.algebra,
                "nodes": self.options.max_nodes,
                "tolerance": self.options.tolerance,
                "backends": sorted({n.partition(".")[0] for n in self.kernels}),
                "threads": self.options.threads,
                "rules": encode_rules(self.own_rules),
            },
            "rules": self.rules.hash,
            "kernels": self.kernels_hash,
            "device": self.device.id,
        }

    @cached_property
    def kernels_hash(self) -> str:
        """What the texts of all kernels come to."""
        rows = (f"{n}:{k.form}:{k.pattern}:{k.code}" for n, k in sorted(self.kernels.items()))
        return hashlib.sha256("\n".join(rows).encode()).hexdigest()[:16]

    @property
    def remarks(self) -> tuple[str, ...]:
        """Sentences on what the outcome depends on: what was not used, and who disturbed the timings."""
        return (*self.notes, *self.faults, *filter(None, (self.watch.note,)))

    def memo_key(self, kind: Kind, **of: str) -> str:
        """Under what a memo is remembered `of` something: with what its kind depends on of this session."""
        return kind.key(**of, **{n: v for n, v in self._facts.items() if n in kind.facts})

    @cached_property
    def _facts(self) -> Mapping[str, str]:
        """What memos may depend on; worked out once, as a model may have many blocks."""
        solvers = f"{version('egglog')} {version('highspy')}"
        own = {"options": self.options.fingerprint(), "rules": self.rules.hash, "kernels": self.kernels_hash}
        return {**own, "solvers": solvers, "device": self.device.id}

    @property
    def measuring(self) -> bool:
        """Whether what is chosen hangs on timings that this search takes."""
        return self.options.measure and self.options.cost != "roofline"

    @property
    def stopped(self) -> bool:
        """Whether nobody waits for more than what was found so far."""
        return self.closed or self.events.stop_requested

    def measure(self, calls: Sequence[Call], each: float = 0.02, visits: int = 1, again: bool = False) -> int:
        """Time calls the table does not know, those that come first before others, until done, out of the budget, or of
        the block's share of it, or asked to stop; how many. With more `visits` than one each is timed anew after all
        others, and of up to four the fastest counts: what a call takes differs more from moment to moment than within
        one. `again`: what the table knows of a call stays where it is the faster one, of those that nobody disturbed if
        there is one.
        """
        return len(self._measured(calls, each, visits, again))

    def by_turns(self, calls: Sequence[Call]) -> Mapping[TimingKey, float]:
        """Seconds that calls take now, timed twice each by turns as `measure` does, those too that the table knows:
        what was timed in the same moments can be compared, however slow those were."""
        return {t.key: t.seconds for t in self._measured(calls, 0.02, 2, True)}

    def _measured(self, calls: Sequence[Call], each: float, visits: int, again: bool) -> list[Timing]:
        wanted = list({self.prices.key(c): c for c in calls}.values())
        chosen = self._afforded(wanted, each)
        if not chosen:
            self.skipped += len(wanted)
            return []
        # on one core what is compiled meanwhile would only take longer
        free = cores() > 1 or self.is_alone()
        calls = self._ready(chosen) if free else ()
        free = free and self.is_alone()
        begun, load = time.perf_counter(), Load.now()
        taken: list[list[Timing]] = [[] for _ in calls]
        try:
            for n in range(visits * len(calls) * free):
                call = calls[n % len(calls)]
                if self.pressed or call.kernel in self.prices.excluded or not self.affords(self._lasts([call])[0]):
                    continue
                self.events.emit(Progress("measure", n // visits, len(calls), call.kernel))
                with self.unfit(call):
                    taken[n % len(calls)].append(self._timed(call, each))
        finally:  # what was timed is kept, whatever one of the calls raises
            known = self.prices.model.measured if again else {}
            rows = [_quiet(found) for found in taken if found]
            done = [c for c, found in zip(calls, taken, strict=True) if found]
            self.skipped += self._fit(wanted) - self._fit(done)
            self._keep([t for t in rows if t.key not in known or _quiet([known[t.key], t]) is t], load, visits)
            self.measuring_seconds += time.perf_counter() - begun
        return rows

    def _fit(self, calls: Sequence[Call]) -> int:
        """How many of the calls are of kernels that run here."""
        return sum(c.kernel not in self.prices.excluded for c in calls)

    def _keep(self, rows: Sequence[Timing], load: Load, visits: int) -> None:
        """Store timings that were taken since `load`, and reckon with them."""
        if rows:
            self.watch.add(load, (r.disturbed for r in rows))
            self.table.record(rows)
            self.prices.learn({r.key: r for r in rows})
            (self.once.update if visits == 1 else self.once.difference_update)(r.key for r in rows)

    def _timed(self, call: Call, seconds: float) -> Timing:
        return timed(self.bench, self.kernels[call.kernel], call, self.prices.key(call), seconds)

    def _afforded(self, calls: Sequence[Call], each: float) -> list[Call]:
        """The calls that there is time for, after those before them, when each is compiled and timed for `each`
        seconds: what is compiled and not timed was compiled for nothing."""
        if self.pressed:
            return []
        found, taken = list[Call](), self.slow * COMPILER
        for c, seconds in zip(calls, self._lasts(calls), strict=True):
            lasts = max(each, seconds) + self.slow * self.kernels[c.kernel].compiling
            if self.affords(taken + lasts):
                found.append(c)
                taken += lasts
        return found

    def _lasts(self, calls: Sequence[Call]) -> list[float]:
        """Seconds that timing each call takes at least."""
        return [_RUNS * e.seconds for e in self.prices.of(calls)]
