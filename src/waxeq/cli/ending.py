"""Signals that end a command: what it was in the midst of is cleared away first."""

from __future__ import annotations

import atexit
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def cleared_away() -> Iterator[None]:
    """Inside, SIGTERM and SIGHUP (of a terminal that is closed) raise KeyboardInterrupt once, so that no process and no
    temporary file stays behind, and the process dies of the signal after that; at once where another one comes. Main
    thread only, and not where whoever called handles or ignores them (nohup); elsewhere nothing changes."""
    main = threading.current_thread() is threading.main_thread()
    ours = [s for s in (signal.SIGTERM, signal.SIGHUP) if main and signal.getsignal(s) is signal.SIG_DFL]
    came: list[int] = []

    def back() -> None:
        for s in ours:
            signal.signal(s, signal.SIG_DFL)

    def handle(number: int, frame: object) -> None:
        came.append(number)
        back()
        raise KeyboardInterrupt

    try:
        for s in ours:
            signal.signal(s, handle)
        yield
    finally:
        back()
        if came:
            atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage] a process that a signal ends runs none of them
            os.kill(os.getpid(), came[0])
            raise SystemExit(128 + came[0])  # the first process of a container dies of no signal that it sends itself
