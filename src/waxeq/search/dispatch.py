"""Jobs out to workers and back: one at a time on a machine, again where a worker died or is late, answered once.

Dask would run what it is given on any worker, several at a time; here each job goes to one worker that is named, and
whether it is run again is decided here.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from waxeq.errors import ClusterError, WaxeqError
from waxeq.search.cluster import Answer, Cluster

TRIES = 3
"""Times that a job is given to a worker."""
PATIENCE = 20.0
"""Seconds after which a job is late, unless such jobs take longer than that."""
HELLO = 120.0
"""Seconds in which a new worker must say what it is: it may have to wait for others on its machine."""
_LATE = 5.0
"""Times the median of other jobs of its device that a job may take before it is late."""
_HUNG = 4.0
"""Times that limit after which a worker is given up."""
_LOOK = 0.5
"""Seconds between two looks at which workers there are."""


@dataclass(eq=False)
class Job:
    """What some worker with this device is to do; `about` is for whoever asks for it."""

    device: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    about: Any = None
    tries: int = 0
    answered: bool = False


@dataclass(eq=False)
class _Run:
    job: Job
    worker: str
    machine: str
    answer: Answer
    begun: float


class Dispatch:
    """Workers by machine, and what runs on them."""

    def __init__(
        self,
        cluster: Cluster,
        hello: tuple[Callable[..., Any], tuple[Any, ...]],
        admit: Callable[[str, Any], tuple[str, str] | None],
        note: Callable[[str], object],
        patience: float = PATIENCE,
    ) -> None:
        """`hello`: what a new worker is asked. `admit`: given a worker and its answer (or an error), its machine and
        its device; None for one that is refused."""
        self.cluster, self.hello, self.admit, self.note, self.patience = cluster, hello, admit, note, patience
        self.machines: dict[str, dict[str, str]] = {}
        """By machine its workers, and the device of each: the same on all, if they have the same software."""
        self._met: set[str] = set()
        self._greeted: dict[str, tuple[Answer, float]] = {}
        self._runs: list[_Run] = []
        self._again: deque[Job] = deque()
        self._took: dict[str, list[float]] = {}
        self._looked = -_LOOK
        self._alive = time.monotonic()

    @property
    def greeting(self) -> bool:
        """Whether some worker has not said yet what it is."""
        return bool(self._greeted)

    @property
    def busy(self) -> bool:
        """Whether something is under way that was not answered yet, or is to be done again."""
        return bool(self._greeted or self._again or any(not r.job.answered for r in self._runs))

    def runs_on(self, machine: str) -> bool:
        """Whether a job runs on a machine."""
        return any(r.machine == machine for r in self._runs)

    def devices(self) -> set[str]:
        """Those that some worker has."""
        return {d for of in self.machines.values() for d in of.values()}

    def workers(self, device: str) -> tuple[int, int]:
        """How many machines have a device, and how many workers they have."""
        counts = [list(of.values()).count(device) for of in self.machines.values()]
        return sum(n > 0 for n in counts), sum(counts)

    def step(self, wanted: Callable[[str], Job | None]) -> list[tuple[Job, Any]]:
        """Look at what came back, then give every idle machine a job: one that is to be done again, one that is late
        elsewhere, or one that is `wanted` of its device. Answers, and errors (WaxeqError) of jobs that are given up.
        """
        self._look()
        answers = [*self._finished(), *self._stranded()]
        for name in [n for n in self.machines if not self.runs_on(n)]:
            job = self._next(name, wanted)
            if job is not None:
                self._give(job, name)
        return answers

    def stop(self) -> None:
        """Wait for nothing any more."""
        self.cluster.cancel([r.answer for r in self._runs] + [a for a, _ in self._greeted.values()])
        self._runs.clear()
        self._greeted.clear()
        self._again.clear()

    # -- workers

    def _look(self) -> None:
        """Meet workers that are new, and part from those that are gone."""
        now = time.monotonic()
        if self.machines or self._greeted:
            self._alive = now
        if now - self._looked >= _LOOK:
            self._looked, there = now, self.cluster.workers()
            for w in sorted(there - self._met):
                self._met.add(w)
                self._greeted[w] = (self.cluster.submit(w, self.hello[0], *self.hello[1]), now)
            for w in self._met - there:
                self._part(w, f"worker {w} is gone")
        for w, (answer, begun) in list(self._greeted.items()):
            if answer.status != "pending":
                del self._greeted[w]
                self._place(w, _outcome(answer))
            elif now - begun > HELLO:
                del self._greeted[w]
                self._place(w, ClusterError(f"it said nothing for {now - begun:.0f} s"))

    def _place(self, worker: str, said: Any) -> None:
        found = self.admit(worker, said)
        if found is not None:
            machine, device = found
            self.machines.setdefault(machine, {})[worker] = device

    def _part(self, worker: str, why: str) -> None:
        """Do without a worker; what it had is done again."""
        self._met.discard(worker)
        self._greeted.pop(worker, None)
        for name, of in list(self.machines.items()):
            if of.pop(worker, None) is not None:
                self.note(why)
            if not of:
                del self.machines[name]
        for r in [r for r in self._runs if r.worker == worker]:
            self._runs.remove(r)
            self._lost(r.job)

    # -- jobs

    def _give(self, job: Job, machine: str) -> None:
        worker = next(w for w, d in self.machines[machine].items() if d == job.device)
        job.tries += 1
        answer = self.cluster.submit(worker, job.function, *job.args)
        self._runs.append(_Run(job, worker, machine, answer, time.monotonic()))

    def _next(self, machine: str, wanted: Callable[[str], Job | None]) -> Job | None:
        for device in dict.fromkeys(self.machines[machine].values()):
            again = next((j for j in self._again if j.device == device), None)
            if again is not None:
                self._again.remove(again)
            found = again or self._late(device) or wanted(device)
            if found is not None:
                return found
        return None

    def _limit(self, device: str) -> float:
        """Seconds after which a job of a device is late."""
        return max(self.patience, _LATE * statistics.median(self._took.get(device) or [0.0]))

    def _late(self, device: str) -> Job | None:
        """A job that runs for too long elsewhere, and nowhere else."""
        now, of = time.monotonic(), [r for r in self._runs if r.job.device == device]
        for r in of:
            alone = sum(o.job is r.job for o in of) == 1
            if alone and not r.job.answered and r.job.tries < TRIES and now - r.begun > self._limit(device):
                return r.job
        return None

    def _finished(self) -> Iterator[tuple[Job, Any]]:
        """First answers, and errors of jobs that failed as often as they may."""
        now = time.monotonic()
        for r in list(self._runs):
            if r.answer.status == "pending":
                if now - r.begun > _HUNG * self._limit(r.job.device):
                    self.cluster.cancel([r.answer])
                    self._part(r.worker, f"worker {r.worker} has not answered for {now - r.begun:.0f} s; it is left")
                    self._met.add(r.worker)  # not to be met again
                continue
            self._runs.remove(r)
            found = _outcome(r.answer)
            if r.job.answered:
                continue
            if isinstance(found, BaseException) and r.job.tries < TRIES:
                self._lost(r.job)
                continue
            r.job.answered = True
            self._took.setdefault(r.job.device, []).append(now - r.begun)
            yield r.job, found

    def _lost(self, job: Job) -> None:
        """Do a job again, unless it runs elsewhere too."""
        if not job.answered and not any(r.job is job for r in self._runs):
            self._again.append(job)

    def _stranded(self) -> Iterator[tuple[Job, Any]]:
        """Jobs that have been given to as many workers as they may, or whose device is nowhere any more."""
        now, there = time.monotonic(), self.devices()
        for job in list(self._again):
            spent = job.tries >= TRIES
            if spent or (job.device not in there and not self._greeted and now - self._alive > self.patience):
                self._again.remove(job)
                job.answered = True
                said = f"{job.tries} workers that had it are gone" if spent else "no worker with its device is left"
                yield job, ClusterError(said)


def _outcome(answer: Answer) -> Any:
    """What came back; errors as values, those that are none of ours in a sentence."""
    try:
        return answer.result(timeout=5.0)
    except WaxeqError as e:
        return e
    except Exception as e:
        return ClusterError(f"{type(e).__name__}: {' '.join(str(e).split())}")
