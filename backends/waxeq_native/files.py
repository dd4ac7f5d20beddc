"""Files that several processes write."""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

HALF = "."
"""How the name of a file begins that is not whole: of a process that was killed it stays."""


def replace(path: Path, data: bytes) -> None:
    """Writes a file that others see whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=HALF)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


@contextmanager
def in_turn(path: Path, keys: Collection[str], given_up: Callable[[], bool]) -> Iterator[None]:
    """Inside, no other process is that names the same file and one of the `keys`, which are hexadecimal. It is entered
    all the same once `given_up` says so, and where the file cannot be had or locked. One use at a time in a process."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        yield
        return
    try:
        for place in sorted({int(k[:12], 16) for k in keys}):  # in one order, so that no two wait for each other
            while not (_locked(file, place) or given_up()):
                time.sleep(_LOOK)
        yield
    finally:
        os.close(file)  # which gives all back, and so does the end of the process


_LOOK = 0.02
"""Seconds from one look whether another process is done to the next."""


def _locked(file: int, place: int) -> bool:
    """Whether a byte of a file is this process's now (of no process that it forks), or cannot be anybody's."""
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
    except (BlockingIOError, PermissionError):
        return False
    except OSError:
        pass
    return True
