"""One timing at a time on a machine, whoever takes it: a lock that all processes share."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from waxeq.errors import WaxeqError
from waxeq.events import NOTICE

WAITING = "waiting until another process on this machine is done timing"


def lock_path() -> Path:
    """Where the lock lies: one place for all users of the machine, or the one that `WAXEQ_TIMING_LOCK` names."""
    return Path(os.environ.get("WAXEQ_TIMING_LOCK") or Path(tempfile.gettempdir()) / "waxeq-timing.lock")


@contextmanager
def alone(
    path: Path | None = None,
    *,
    wait: float = float("inf"),
    stopped: Callable[[], bool] = lambda: False,
    waiting: Callable[[], object] = lambda: None,
) -> Iterator[bool]:
    """Inside, no other process that asks is timing anything; it ends with the process that holds it, however that ends.
    True once it is had, False when `stopped` came first. `waiting` is called once when another has it.

    Raises WaxeqError after `wait` seconds, or where the lock cannot be made.
    """
    from filelock import FileLock, Timeout

    path = path or lock_path()
    lock = FileLock(str(path), mode=0o666)
    end, told = time.monotonic() + wait, False
    while True:
        try:
            lock.acquire(timeout=NOTICE)
            break
        except Timeout as e:
            if stopped():
                yield False
                return
            if time.monotonic() > end:
                raise WaxeqError(f"another process has been timing for {wait:.0f} s; try again later") from e
            if not told:
                told = True
                waiting()
        except OSError as e:
            raise WaxeqError(
                f"the lock {path} cannot be used: {e.strerror or e}; name another in WAXEQ_TIMING_LOCK"
            ) from e
    try:
        yield True
    finally:
        lock.release()
