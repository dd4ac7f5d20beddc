"""Profiling a model on a cluster: its kernels are timed on every kind of device that is there, what may change which
plan is the best on that kind first. Rows go into the timing table as soon as they come in.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from waxeq.__about__ import __version__
from waxeq.amounts import number_of
from waxeq.backend.call import Call
from waxeq.backend.code import code_hash
from waxeq.backend.kernel import Kernel
from waxeq.cost.device import Device, Peaks
from waxeq.cost.estimate import CostModel
from waxeq.cost.examine import wrong_with
from waxeq.cost.key import Timing, TimingKey
from waxeq.cost.rows import read
from waxeq.cost.table import TimingTable
from waxeq.errors import ClusterError, UsageError
from waxeq.events import Deadline, Note, Progress, StageFinished, StageStarted
from waxeq.extract.detour import Worth
from waxeq.extract.price import Prices
from waxeq.frontend.trace import Traced
from waxeq.search.cluster import Cluster
from waxeq.search.dispatch import HELLO, PATIENCE, Dispatch, Job
from waxeq.search.paths import Menu
from waxeq.search.profile import BATCH, EACH
from waxeq.search.session import Session
from waxeq.search.spread import Spread
from waxeq.search.worker import ceilings, encode_calls, greet, machine, time_calls

_STEP = 0.05
"""Seconds between two looks at what came back."""
_RANKING = 4.0
"""Times as long as ranking calls took that the ranking is used, though timings came in since."""


class DevicePrices(Prices):
    """Prices of calls on another device, whose kernels are of the same text and may be compiled otherwise."""

    def __init__(self, model: CostModel, kernels: Mapping[str, Kernel], kind: Kind, table: TimingTable) -> None:
        super().__init__(model, kernels, kind.device.id, kind.device.threads, table)
        self._codes = kind.codes

    def key(self, call: Call) -> TimingKey:
        here = super().key
        return call.remember(
            ("key", self.device),
            lambda: replace(here(call), device=self.device, threads=self.threads, code=self._codes[call.kernel]),
        )


@dataclass
class Kind:
    """A device of the cluster: the codes of its kernels, and its ceilings once they are known."""

    device: Device
    codes: Mapping[str, str]
    peaks: Peaks | None = None
    asked: bool = False


@dataclass(frozen=True)
class KindProfiled:
    """What was timed on one kind of device: as in `Profiled`. `machines` and `workers` are those there at the end."""

    device: Device
    machines: int
    workers: int
    timings: int
    decisive: int
    unmeasured: int
    undecided: int


@dataclass(frozen=True)
class Spreading:
    """What a profile of one model on a cluster did. `refused`: a sentence for each worker that took no part."""

    kinds: tuple[KindProfiled, ...]
    menu: Menu
    refused: tuple[str, ...]
    finished: bool
    seconds: float


class Fleet:
    """The workers of a cluster that may time kernels for this session's models, by kind of device."""

    def __init__(
        self, cluster: Cluster, session: Session, wanted: Sequence[str] = (), patience: float = PATIENCE
    ) -> None:
        """`wanted`: ids of devices, or how they begin; none for all."""
        self.session, self.wanted, self.patience = session, tuple(wanted), patience
        self.kinds: dict[str, Kind] = {}
        self.refused: dict[str, str] = {}
        self.others: dict[str, str] = {}
        self._used = {n.partition(".")[0] for n in session.kernels}
        self._here = {n: code_hash(type(k)) for n, k in session.kernels.items()}
        hello = (greet, (session.options.threads, HELLO))
        self.dispatch = Dispatch(cluster, hello, self._admit, self._note, patience)

    def _note(self, text: str) -> None:
        self.session.events.emit(Note(text))

    # -- who takes part

    def gather(self) -> None:
        """Wait until every worker that is there has said what it is. Raises ClusterError when none can be used,
        UsageError for a wanted device that is not there."""
        end = time.monotonic() + self.patience
        while not self.session.stopped:
            self.dispatch.step(lambda device: None)
            if not self.dispatch.greeting and (self.kinds or self.refused or self.others or time.monotonic() > end):
                break
            time.sleep(_STEP)
        known = {**{i: k.device.describe() for i, k in self.kinds.items()}, **self.others}
        for w in self.wanted:
            if not any(i.startswith(w) for i in known):
                there = "; ".join(f"{i} ({about})" for i, about in known.items()) or "none"
                raise UsageError(f"--device {w}: no worker has this device; there are: {there}")
        if not self.kinds and not self.session.stopped:
            why = next(iter(self.refused.values()), "no worker has come")
            address = self.dispatch.cluster.address
            raise ClusterError(f"no worker of the cluster at {address} can be used: {why}")

    def _admit(self, worker: str, said: Any) -> tuple[str, str] | None:
        why = self._refusal(said)
        if why is not None:
            self.refused[worker] = f"worker {worker} is refused: {why}"
            self._note(self.refused[worker])
            return None
        device = Device.from_json(said["device"])
        if self.wanted and not any(device.id.startswith(w) for w in self.wanted):
            self.others[device.id] = device.describe()
            return None
        codes = {n: said["kernels"][n][0] for n in self._here}
        self.kinds.setdefault(device.id, Kind(device, codes, self.session.table.known_peaks(device)))
        return f"{said['machine']}", device.id

    def _refusal(self, said: Any) -> str | None:
        """Why a worker cannot take part, in words."""
        if isinstance(said, BaseException):
            return str(said)
        if said["version"] != __version__:
            return f"it has waxeq {said['version']}, this is {__version__}; install the same"
        for b in sorted(self._used):
            why = said["backends"].get(b, "it is not installed")
            if why:
                return f"its backend {b} cannot be used: {why}; leave it out with --backend, or mend it there"
        if said["cores"] < self.session.options.threads:
            return (
                f"it has {said['cores']} cores and {self.session.options.threads} threads are asked for; see --threads"
            )
        kernels, device = said["kernels"], Device.from_json(said["device"])
        other = next((n for n, text in self._here.items() if n not in kernels or kernels[n][1] != text), None)
        kind = self.kinds.get(device.id)
        if other is None and kind is not None:
            other = next((n for n, code in kind.codes.items() if kernels[n][0] != code), None)
        if other is None and device.id == self.session.device.id:
            other = next((n for n, k in self.session.kernels.items() if kernels[n][0] != k.code), None)
        return None if other is None else f"its kernel {other} is not the one here; install the same waxeq and compiler"


@dataclass
class _Work:
    """One model on one kind of device."""

    kind: Kind
    spread: Spread
    each: float
    patience: float
    tried: set[TimingKey] = field(default_factory=set)
    got: set[TimingKey] = field(default_factory=set)
    rows: list[tuple[Worth, Call]] = field(default_factory=list)
    heard: int = 0
    ranked: tuple[float, float] = (0.0, 0.0)
    spent: bool = False
    decisive: int = 0

    @property
    def prices(self) -> Prices:
        return self.spread.session.prices

    def batch(self, may_rank: bool) -> Job | None:
        """The calls to time next, what may change the winner first. Ranking takes a core of this machine, so that
        something may have to come back first."""
        now = time.monotonic()
        due = self.heard and now - self.ranked[0] > _RANKING * self.ranked[1]
        if not self.rows or due:
            if not may_rank or self.spent:
                return None
            self._rank()
        rows = [(w, c) for w, c in self.rows if c.kernel not in self.prices.excluded]
        possible = any(w.possible for w, _ in rows)
        calls = [c for w, c in rows[:BATCH] if w.possible or not possible]
        self.tried.update(map(self.prices.key, calls))
        self.rows = [(w, c) for w, c in rows if self.prices.key(c) not in self.tried]
        if not calls:
            return None
        keys = {self.prices.key(c).digest: self.prices.key(c) for c in calls}
        args = (encode_calls(calls), self.kind.device.threads, self.each, _lock_wait(self.patience))
        return Job(self.kind.device.id, time_calls, args, (self, keys, possible))

    def _rank(self) -> None:
        begun = time.monotonic()
        self.rows = [(w, c) for w, c in self.spread.ranked() if self.prices.key(c) not in self.tried]
        self.heard, self.ranked = 0, (begun, time.monotonic() - begun)
        self.spent = not self.rows

    def take(self, said: Mapping[str, Any], keys: Mapping[str, TimingKey], decisive: bool) -> list[str]:
        """Keep the rows that came in, each once; sentences on what is wrong with others."""
        good: dict[TimingKey, Timing] = {}
        wrong: list[str] = []
        for row in said["rows"]:
            key = keys.get(row["digest"])
            fault = wrong_with(row, None, time.time())
            if key is None:
                wrong.append(f"a row from {self.kind.device.id} is of no call that was asked for, and is dropped")
            elif fault is not None and fault[0] == "poisoned":
                wrong.append(f"a row from {self.kind.device.id} is dropped: {fault[1]}")
            elif key not in self.got:
                good[key] = read(row)
        for name, why in said["failed"].items():
            self.prices.exclude([name])
            wrong.append(f"{name} could not be used on {self.kind.device.id}: {why}")
        self.spread.session.table.record(list(good.values()))
        self.prices.learn(good)
        self.got |= set(good)
        self.heard += len(good)
        self.decisive += len(good) if decisive else 0
        return wrong


def _lock_wait(patience: float) -> float:
    """Seconds that a worker waits for others on its machine: it is given up after more than that."""
    return 2 * patience


def spread_out(fleet: Fleet, traced: Traced, clock: Deadline, each: float = EACH) -> Spreading:
    """Time the calls of a model's candidates on the devices of a cluster, until done, out of time, asked to stop, or
    nobody is left to do it. What came in by then is in the table. Raises ClusterError when the scheduler is gone."""
    session = fleet.session
    whole = Spread(session, traced)
    session.events.emit(StageStarted("profile", traced.name))
    works: dict[str, _Work] = {}
    lost: list[str] = []
    try:
        _drive(fleet, whole, works, clock, each, lost)
    finally:
        fleet.dispatch.stop()
    kinds = tuple(_profiled(fleet, w) for w in works.values())
    timings = sum(k.timings for k in kinds)
    session.events.emit(StageFinished("profile", clock.elapsed, number_of(timings, "timing")))
    finished = (
        works.keys() == fleet.kinds.keys() and all(w.spent for w in works.values()) and not (lost or session.stopped)
    )
    menu = whole.menu(whole.listings())
    return Spreading(kinds, menu, tuple(fleet.refused.values()), finished, clock.elapsed)


def _drive(fleet: Fleet, whole: Spread, works: dict[str, _Work], clock: Deadline, each: float, lost: list[str]) -> None:
    session, own = fleet.session, machine()

    def wanted(device: str) -> Job | None:
        kind = fleet.kinds[device]
        if kind.peaks is None:
            if kind.asked:
                return None
            kind.asked = True
            return Job(device, ceilings, (kind.device.threads, _lock_wait(fleet.patience)))
        if device not in works:
            works[device] = _Work(kind, _on(whole, kind), each, fleet.patience)
        return works[device].batch(may_rank=not fleet.dispatch.runs_on(own))

    def take(job: Job, said: Any) -> None:
        if isinstance(said, BaseException):
            what = "the machine's ceilings" if job.about is None else f"{len(job.about[1])} calls"
            lost.append(f"{what} could not be timed on {job.device}: {said}")
            session.events.emit(Note(lost[-1]))
        elif job.about is None:
            kind = fleet.kinds[job.device]
            kind.peaks = Peaks.from_json(said)
            session.table.note_peaks(kind.device, kind.peaks)
        else:
            work, keys, decisive = job.about
            for text in work.take(said, keys, decisive):
                session.events.emit(Note(text))
            session.events.emit(_progress(works))

    while not session.stopped and not clock.expired:
        answers = fleet.dispatch.step(wanted)
        for job, said in answers:
            take(job, said)
        if not (answers or fleet.dispatch.busy):
            break
        time.sleep(_STEP)


def _progress(works: Mapping[str, _Work]) -> Progress:
    done = sum(len(w.got) for w in works.values())
    left = sum(len(w.rows) for w in works.values())
    return Progress("kernels", done, done + left, f"on {len(works)} kinds of device" if len(works) > 1 else "")


def _on(whole: Spread, kind: Kind) -> Spread:
    """The same model, at the prices of another kind of device."""
    session = whole.session
    assert kind.peaks is not None, "its ceilings are asked for first"
    on_cpu = session.prices.model.on_cpu
    model = CostModel(kind.peaks, session.table.families(kind.device.id), on_cpu=on_cpu)
    prices = DevicePrices(model, session.kernels, kind, session.table)
    return whole.on(replace(session, prices=prices))


def _profiled(fleet: Fleet, w: _Work) -> KindProfiled:
    left = w.spread.ranked()
    undecided = sum(x.possible for x, _ in left)
    there = fleet.dispatch.workers(w.kind.device.id)
    return KindProfiled(w.kind.device, *there, len(w.got), w.decisive, len(left), undecided)
