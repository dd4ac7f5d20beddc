"""Which rows of a timing table still count here: what is installed and where this runs, against what rows are of."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from typing import Any, Literal

from waxeq.backend.discover import Found, found
from waxeq.backend.storage import CPU
from waxeq.cost.device import Device, Peaks, current_device, described
from waxeq.cost.key import METHOD

State = Literal["current", "stale", "unknown", "elsewhere"]
_MACHINE = ("model", "cores", "l1_bytes", "l2_bytes", "l3_bytes", "memory_bytes")
"""What of a device is the machine; the rest is software, which is changed by an update."""


@dataclass(frozen=True)
class Present:
    """What runs here and now: the installed backends, how to tell the code of each of their kernels, this machine on
    each number of threads it can use, and how to tell the ceilings of kernels that do not run on its CPU."""

    kernels: Mapping[str, Callable[[], str]]
    backends: frozenset[str]
    devices: tuple[Device, ...]
    elsewhere: Mapping[str, Callable[[], Mapping[str, Any] | None]] = field(default_factory=dict)

    @staticmethod
    def here() -> Present:
        """As it is on this machine."""
        # of one that cannot be used now nothing is stale: its device may be back tomorrow
        installed = {f.name: f.backend.kernels for f in found() if f.backend is not None and f.why is None}
        kernels = {n: partial(getattr, k, "code") for of in installed.values() for n, k in of.items()}
        devices = tuple(current_device(n + 1) for n in range(os.cpu_count() or 1))
        elsewhere = {n: k.ceilings for of in installed.values() for n, k in of.items() if k.device != CPU}
        return Present(kernels, frozenset(installed), devices, elsewhere)

    def on_cpu(self, kernel: str) -> bool:
        """Whether a kernel is known to run on the CPU that its timings are filed under."""
        return kernel in self.kernels and kernel not in self.elsewhere

    def ceilings(self, kernel: str) -> Peaks | None:
        """What a kernel that does not run on the CPU can reach on its device; None where that is not here."""
        try:
            most = self.elsewhere[kernel]()
        except Exception:  # no device
            return None
        return None if most is None else Peaks(**most)

    @cached_property
    def _codes(self) -> dict[str, str | None]:
        return {}

    def code(self, kernel: str) -> str | None:
        """The code of an installed kernel; None where it cannot say what it is made of. Asked for only once rows are of
        it: of some it takes a compiler, or reading much text."""
        if kernel not in self._codes:
            try:
                self._codes[kernel] = self.kernels[kernel]()
            except Exception:  # no compiler, no device
                self._codes[kernel] = None
        return self._codes[kernel]

    @property
    def ids(self) -> frozenset[str]:
        """The devices that this machine is."""
        return frozenset(d.id for d in self.devices)

    def device_state(self, id_: str, device: Device | None) -> tuple[State, str]:
        """What rows of a device are worth here, and why."""
        if id_ in self.ids:
            return "current", ""
        if device is None:
            return "unknown", f"nothing says what device {id_} is"
        same = next((d for d in self.devices if d.threads == device.threads), self.devices[-1])
        if any(getattr(same, n) != getattr(device, n) for n in _MACHINE):
            return "elsewhere", f"timed on another machine: {', '.join(device.differences(same))}"
        return "stale", f"this machine was changed since: {', '.join(device.differences(same))}"

    def kernel_state(self, backend: str, kernel: str, code: str, method: int) -> tuple[State, str]:
        """What rows of a kernel are worth here, and why."""
        if method != METHOD:
            return "stale", f"timed in another way than now (version {method}, now {METHOD})"
        if backend not in self.backends:
            return "unknown", f"backend {backend} is not installed here or cannot be used"
        if kernel not in self.kernels:
            return "unknown", f"the installed backend {backend} has no kernel {kernel}"
        now = self.code(kernel)
        if now is None:
            return "unknown", f"backend {backend} is not installed here or cannot be used"
        if code != now:
            return "stale", "the kernel's text, its compiler, its library or its driver was changed since"
        return "current", ""


def runs_on_cpu(installed: Sequence[Found]) -> Callable[[str], bool]:
    """Tells of a kernel, by its full name, whether it is one of these backends that can be used here and runs on the
    CPU. A backend is asked only once one of its kernels is: it may compile to tell whether it can be used."""
    backends = {f.name: f for f in installed}

    @cache
    def known(kernel: str) -> bool:
        f = backends.get(kernel.partition(".")[0])
        k = f.backend.kernels.get(kernel) if f is not None and f.backend is not None and f.why is None else None
        return k is not None and k.device == CPU

    return known


@dataclass(frozen=True)
class Part:
    """Rows of one kernel text on one device, with what they are worth here and why. `newest`: seconds since 1970."""

    device: str
    kernel: str
    code: str
    method: int
    rows: int
    newest: float
    state: State
    why: str


def survey(db: Any, present: Present) -> list[Part]:
    """Every part of the archive that is the current database. Rows of another machine are those of `elsewhere`,
    whatever code their kernels have: it names that machine's compiler and driver too."""
    devices = described(db.execute("SELECT id, description FROM devices").fetchall())
    sql = (
        "SELECT device, backend, kernel, code, method, count(*), max(written) FROM timings GROUP BY ALL "
        "ORDER BY device, kernel, code, method"
    )
    parts = []
    for device, backend, kernel, code, method, rows, newest in db.execute(sql).fetchall():
        state, why = present.kernel_state(backend, kernel, code, method)
        there = present.device_state(device, devices.get(device))
        if state == "current" or (state == "stale" and method == METHOD and there[0] == "elsewhere"):
            state, why = there
        parts.append(Part(device, kernel, code, method, rows, newest, state, why))
    return parts


def counts(parts: Iterable[Part]) -> dict[str, int]:
    """Rows by what they are worth."""
    found: dict[str, int] = {"current": 0, "stale": 0, "unknown": 0, "elsewhere": 0}
    for p in parts:
        found[p.state] += p.rows
    return found
