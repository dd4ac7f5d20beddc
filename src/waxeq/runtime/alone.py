"""One timing at a time on a machine, whoever takes it: a lock that all processes share."""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from waxeq.errors import WaxeqError
from waxeq.events import NOTICE

_OFTEN = 0.02
"""Seconds between looks whether another process still has a lock."""
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


# -- locks that are many: one for each of what is changed, which is gone when nobody has it


def taken(path: Path, wait: float) -> int:
    """The lock at `path`, had by nobody else until it is given to `left`. Raises TimeoutError after `wait` seconds,
    OSError where it cannot be made."""
    end = time.monotonic() + wait
    while True:
        held = _opened(path)
        with suppress(BlockingIOError, FileNotFoundError):
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(held), os.stat(path)):  # else whoever had it before has removed it meanwhile
                return held
        os.close(held)
        if time.monotonic() > end:
            raise TimeoutError(f"{path} has been held for {wait:.0f} s")
        time.sleep(_OFTEN)


def left(path: Path, held: int) -> None:
    """Give up what `taken` gave. The file goes first, so that whoever waits for it takes it for what it was."""
    with suppress(OSError):  # in a folder of everybody's, another user's stays
        os.unlink(path)
    os.close(held)


def _opened(path: Path) -> int:
    """The file, made where there is none: for everybody, and not by opening one of another user's to make it, which
    Linux refuses in folders of everybody's."""
    while True:
        with suppress(FileNotFoundError):
            return os.open(path, os.O_RDWR | os.O_CLOEXEC)
        with suppress(FileExistsError):
            held = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            with suppress(OSError):
                os.fchmod(held, 0o666)  # whatever the user's mask says
            return held
