"""What other processes take of the machine while something is timed.

Two signs. A thread of this process that is ready and waits for a core is delayed: Linux counts that by thread, in
nanoseconds, so a sample of which a part was waiting is known to be wrong. And what the cores did for others altogether,
in hundredths of a second, tells of those that take caches and memory rather than cores.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from waxeq.amounts import cores

_TASKS = "/proc/self/task"
_SHARE = 0.05
"""Part of a sample that was waiting from which on it does not count."""
_MANY, _TAKEN, _SHORT = 0.05, 0.25, 1.0
"""Part of the timings that are disturbed, and cores that others have, from which on somebody should know; and seconds
in which the system's clocks tell too little of the latter."""


def delayed() -> float:
    """Seconds that the threads of this process have waited for a core so far; 0 where that cannot be seen (outside
    Linux)."""
    total = 0
    try:
        tasks = os.listdir(_TASKS)
    except OSError:
        return 0.0
    for t in tasks:
        try:
            with open(f"{_TASKS}/{t}/schedstat", "rb", buffering=0) as f:
                total += int(f.read(64).split()[1])
        except (OSError, IndexError, ValueError):  # the thread has ended, or the kernel does not count
            continue
    return 1e-9 * total


def sample(run: Callable[[], object]) -> tuple[float, bool]:
    """Seconds that a run takes, and whether they count: other processes had the cores meanwhile if not."""
    before = delayed()
    start = time.perf_counter()
    run()
    took = time.perf_counter() - start
    return took, delayed() - before <= _SHARE * took


@dataclass(frozen=True)
class Load:
    """Seconds so far of the cores that this process may use: at work (`busy`), at work for this process (`own`), and
    taken by other machines on the same hardware (`stolen`); `at`: when, in seconds of wall clock."""

    busy: float
    own: float
    stolen: float
    at: float

    @staticmethod
    def now() -> Load:
        """As of now. What is not counted on an operating system is 0."""
        import psutil

        rows = psutil.cpu_times(percpu=True)
        may = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(len(rows))
        busy, stolen, own = 0.0, 0.0, os.times()
        for t in [t for n, t in enumerate(rows) if n in may]:
            idle = t.idle + getattr(t, "iowait", 0.0)
            guests = getattr(t, "guest", 0.0) + getattr(t, "guest_nice", 0.0)  # counted in user and nice already
            taken = getattr(t, "steal", 0.0)
            busy, stolen = busy + sum(t) - idle - taken - guests, stolen + taken
        return Load(busy, own.user + own.system + own.children_user + own.children_system, stolen, time.monotonic())

    def others(self, before: Load) -> float:
        """Cores that other processes, and other machines, had on average since `before`."""
        wall = self.at - before.at
        taken = (self.busy - before.busy) - (self.own - before.own) + (self.stolen - before.stolen)
        return max(0.0, taken / wall) if wall > 0 else 0.0


class Watch:
    """How far others disturbed what this process timed: `timings`, how many of them are `disturbed`, and the core
    seconds that others had in the `seconds` meanwhile. `what` is timed."""

    def __init__(self, what: str = "kernels") -> None:
        self.what = what
        self.timings = self.disturbed = 0
        self.seconds = self.others = 0.0

    def add(self, since: Load, disturbed: Iterable[bool]) -> None:
        """Count timings taken since then."""
        now, rows = Load.now(), list(disturbed)
        self.timings += len(rows)
        self.disturbed += sum(rows)
        self.seconds += now.at - since.at
        self.others += now.others(since) * (now.at - since.at)

    @property
    def note(self) -> str | None:
        """A sentence when it was so much that the timings are in doubt."""
        had = self.others / self.seconds if self.seconds else 0.0
        if self.disturbed <= _MANY * self.timings and (had <= _TAKEN or self.seconds < _SHORT):
            return None
        hurt = f", and disturbed {self.disturbed} of {self.timings} timings" if self.disturbed else ""
        return (
            f"other processes had {had:.1f} of {cores()} cores while {self.what} were timed{hurt}: on a quiet machine "
            "the outcome may be another"
        )
