"""Coming to rest: threads of libraries spin for a while when their work is done (those of OpenBLAS for 0.1 s), on cores
that whatever is timed next would have."""

from __future__ import annotations

import threading
import time
from pathlib import Path

_TASKS = Path("/proc/self/task")
_LONGEST, _LOOK = 0.25, 1e-3
"""Seconds after which nobody waits any longer, and between two looks."""


def rest() -> None:
    """Wait until no other thread of this process runs. Where that cannot be seen (outside Linux), a moment."""
    own, end = str(threading.get_native_id()), time.perf_counter() + _LONGEST
    time.sleep(_LOOK)
    while time.perf_counter() < end and any(_runs(t) for t in _TASKS.glob("*") if t.name != own):
        time.sleep(_LOOK)


def _runs(task: Path) -> bool:
    try:
        return (task / "stat").read_bytes().rpartition(b")")[2].split()[0] == b"R"
    except OSError:  # it has ended
        return False
