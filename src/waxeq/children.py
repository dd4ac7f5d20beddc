"""Processes that end with the one that started them, however that ends."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import subprocess
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

INHERITED: dict[str, str] = {}
"""Variables that the environment of processes has that are started here, whatever is in that of this one."""


def start(
    command: Callable[[int], Sequence[str]],
    *,
    held: Sequence[int] = (),
    env: Mapping[str, str] = os.environ,
    **how: Any,
) -> subprocess.Popen:
    """A process that inherits the descriptors that are `held`, and one more, which `command` is given the number of:
    there the process is to call `end_with` on it. `how`: as for subprocess.Popen.

    The descriptor is an end of a pipe of which nobody but this process (and what it forks without exec) has the other,
    which is closed when the process object is gone."""
    return _tied(
        lambda theirs: subprocess.Popen(command(theirs), pass_fds=(*held, theirs), env={**env, **INHERITED}, **how)
    )


def start_group(command: Sequence[str], **how: Any) -> subprocess.Popen:
    """A program that knows nothing of this. It leads a group of its own, and all of that ends with this process, as
    long as something in it has the descriptor that it inherits. `how`: as for subprocess.Popen."""

    def begun(theirs: int) -> subprocess.Popen:
        process = subprocess.Popen(command, pass_fds=(theirs,), process_group=0, **how)
        with suppress(OSError):  # another system than Linux
            _killed(theirs, -process.pid)
        return process

    return _tied(begun)


def _tied(begin: Callable[[int], subprocess.Popen]) -> subprocess.Popen:
    """What `begin` starts, given the end of a pipe that it inherits. The other end is this process's, until the process
    object is gone."""
    theirs, ours = os.pipe()
    try:
        process = begin(theirs)
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    weakref.finalize(process, os.close, ours)
    return process


def _killed(other: int, who: int) -> None:
    """When the other end of the pipe is closed, the kernel sends SIGKILL to a process, or to a group where `who` is
    negative."""
    fcntl.fcntl(other, fcntl.F_SETOWN, who)
    fcntl.fcntl(other, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(other, fcntl.F_SETFL, fcntl.fcntl(other, fcntl.F_GETFL) | os.O_ASYNC)


def end_with(other: int) -> None:
    """From now on the end of whoever has the other end of the pipe `other` ends this process: the kernel sends it
    SIGKILL then, which no computation that keeps Python from its signals holds up; SIGIO, which is sent unless another
    one is named, stays ignored or blocked where the parent's parent had it so. What Linux offers for this
    (PR_SET_PDEATHSIG) would end it with the thread that started it."""
    _killed(other, os.getpid())
    if select.select([other], [], [], 0)[0]:  # it was gone before that
        os._exit(1)
