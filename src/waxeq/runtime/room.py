"""How much memory a process may still take: what the machine has, and what its control groups leave it.

Sources: proc(5); Linux kernel documentation, "Control Group v2" (memory.max, memory.current, memory.stat) and "Memory
Resource Controller" (version 1).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_V2 = ("memory.max", "memory.current", "inactive_file")
_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
"""Files of a group with what it may take and has taken, and the line of memory.stat with what of that is kept for files
and given back when it is needed."""


def available() -> int:
    """Bytes of memory that are free to this process."""
    return min((_free(), *grouped()))


def _free() -> int:
    """Bytes that the machine has; where neither the system nor psutil tells, of what is free and not kept for files."""
    with suppress(OSError, ValueError, KeyError):  # Linux says so at once, and importing psutil takes a while
        rows = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        return int(rows["MemAvailable"].split()[0]) << 10
    try:
        import psutil
    except ImportError:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return psutil.virtual_memory().available


def grouped(own: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> Iterator[int]:
    """Bytes that each control group with a limit leaves to this process: its own and all above it. In a container its
    path may be that outside, of which only the root is there."""
    with suppress(OSError):
        for line in own.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and "memory" not in controllers.split(","):
                continue
            base, names = (root / "memory", _V1) if controllers else (root, _V2)
            group = base / path.strip("/")
            for folder in (group, *(p for p in group.parents if p == base or base in p.parents)):
                left = _left(folder, *names)
                if left is not None:
                    yield left


def _left(folder: Path, limit: str, taken: str, kept: str) -> int | None:
    """What one group leaves; None where it has no limit, or is not there."""
    try:
        most = (folder / limit).read_text().strip()
        if most == "max":
            return None
        stat = dict(row.split() for row in (folder / "memory.stat").read_text().splitlines())
        return max(0, int(most) - int((folder / taken).read_text()) + int(stat.get(kept, 0)))
    except (OSError, ValueError):
        return None
