"""Peak bytes, known before anything runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from waxeq.errors import BudgetError
from waxeq.memory.assign import Assignment
from waxeq.memory.liveness import Buffer, busiest

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True)
class Estimate:
    """Bytes a program holds while it runs: `arena_bytes` plus `resident` (bytes by kind: weights, states, results ...).

    `least_bytes`: below which no arrangement of the arena can go. `call`: the call at which most of the arena is in
    use, and `live` the buffers (name, bytes) needed there, the largest first.
    """

    arena_bytes: int
    least_bytes: int
    resident: Mapping[str, int] = field(default_factory=dict)
    call: int = 0
    live: tuple[tuple[str, int], ...] = ()

    @property
    def peak_bytes(self) -> int:
        return self.arena_bytes + sum(self.resident.values())

    def require(self, limit: int, what: str = "this machine has") -> None:
        """Raise BudgetError when the peak is over `limit` bytes; `what` says whose limit it is."""
        if self.peak_bytes > limit:
            largest = f"; the largest buffer is {self.live[0][0]} ({amount(self.live[0][1])})" if self.live else ""
            raise BudgetError(
                f"the plan needs {amount(self.peak_bytes)} of memory and {what} {amount(limit)}{largest}; "
                "use smaller inputs or raise --max-memory"
            )


def estimate(buffers: Sequence[Buffer], found: Assignment, resident: Mapping[str, int] | None = None) -> Estimate:
    """The peak of an assignment, beside what is resident at all times."""
    _, call = busiest((b.bytes, b.first, b.last) for b in buffers)
    live = sorted(((b.name, b.bytes) for b in buffers if b.first <= call <= b.last), key=lambda r: (-r[1], r[0]))
    return Estimate(found.arena_bytes, found.least_bytes, dict(resident or {}), call, tuple(live))


def peak_bytes(buffers: Sequence[Buffer], found: Assignment, resident: Mapping[str, int] | None = None) -> int:
    """Bytes held while the program runs."""
    return estimate(buffers, found, resident).peak_bytes


def amount(size: int) -> str:
    """Bytes for people: 3.2 MiB."""
    value, unit = float(size), 0
    while value >= 1024 and unit + 1 < len(_UNITS):
        value, unit = value / 1024, unit + 1
    return f"{value:.0f} {_UNITS[unit]}" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"
