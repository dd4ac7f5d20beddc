"""Processes that end with the one that started them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

BUSY = "from waxeq.children import end_with; end_with({}); print(1, flush=True); sum(range(10**15))"
"""Python answers no signal until that sum is there."""
STARTS = f"""
import sys, threading
from waxeq.children import start
command = lambda parent: [sys.executable, "-c", {BUSY!r}.format(parent)]
rows = []
thread = threading.Thread(target=lambda: rows.append(start(command, start_new_session=True)))
thread.start()
thread.join()
sys.stdin.readline()
"""


@pytest.fixture
def parent() -> Iterator[subprocess.Popen]:
    """A process that has started a busy one in a thread that is over; what both say is read from it."""
    with subprocess.Popen([sys.executable, "-c", STARTS], stdin=-1, stdout=-1) as process:
        yield process
        process.kill()


def test_a_process_ends_with_one_that_is_killed(parent: subprocess.Popen) -> None:
    """Of whoever was killed, timing went on: for minutes, beside everything that was timed meanwhile."""
    assert parent.stdout is not None and parent.stdout.readline() == b"1\n"
    parent.kill()
    assert parent.communicate(timeout=20)[0] == b"", "the child is gone: nobody has its end of the pipe"


def test_a_process_does_not_end_with_the_thread_that_started_it(parent: subprocess.Popen) -> None:
    assert parent.stdout is not None and parent.stdout.readline() == b"1\n"
    with pytest.raises(subprocess.TimeoutExpired):
        parent.wait(1.0)
    assert parent.communicate(b"end\n", timeout=20)[0] == b"" and parent.returncode == 0
