"""Processes that end with the one that started them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from waxeq.children import INHERITED, start

BUSY = "from waxeq.children import end_with; end_with({}); print(1, flush=True); sum(range(10**15))"
"""Python answers no signal until that sum is there."""
STARTS = f"""
import signal, subprocess, sys, threading
from waxeq.children import start
rows = []

def starts():
    command = lambda parent: [sys.executable, "-c", {BUSY!r}.format(parent)]
    rows.append(start(command, start_new_session=True))
    sys.stdin.readline()

exec(sys.argv[1])
thread = threading.Thread(target=starts)
thread.start()
thread.join()
try:
    print("ended with", rows[0].wait(1.0))
except subprocess.TimeoutExpired:
    print("goes on")
"""
Begun = Callable[[str], subprocess.Popen]


@pytest.fixture
def begun() -> Iterator[Begun]:
    """Begins a process, which runs a statement and starts a busy one in a thread that ends with the first line that is
    written to it; what both say is read from it. The busy one has begun."""
    rows = list[subprocess.Popen]()

    def begin(statement: str = "") -> subprocess.Popen:
        process = subprocess.Popen([sys.executable, "-c", STARTS, statement], stdin=-1, stdout=-1)
        rows.append(process)
        assert process.stdout is not None and process.stdout.readline() == b"1\n"
        return process

    yield begin
    for process in rows:
        with process:
            process.kill()


@pytest.mark.parametrize(
    "statement",
    ["", "signal.signal(signal.SIGIO, signal.SIG_IGN)", "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGIO])"],
    ids=["", "ignored", "blocked"],
)
def test_a_process_ends_with_one_that_is_killed(begun: Begun, statement: str) -> None:
    """Of whoever was killed, timing went on: for minutes, beside everything that was timed meanwhile. Then it did where
    the program that used waxeq had no use for the signal it was ended with: what is ignored or blocked is inherited."""
    parent = begun(statement)
    parent.kill()
    assert parent.communicate(timeout=20)[0] == b"", "the child is gone: nobody has its end of the pipe"


def test_a_process_does_not_end_with_the_thread_that_started_it(begun: Begun) -> None:
    parent = begun("")
    assert parent.communicate(b"end\n", timeout=20)[0] == b"goes on\n"
    assert parent.returncode == 0


PROGRAM = """
import subprocess, time
from waxeq.children import start_group
held = start_group(["sh", "-c", "sleep 100 & sleep 100; true"], stdout=1)
subprocess.run(["sh", "-c", "echo begun"])
time.sleep(100)
"""


def test_a_program_and_what_it_started_end_with_one_that_is_killed() -> None:
    """Regression: compilers of a search that was killed ran on."""
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=-1) as parent:
        assert parent.stdout is not None and parent.stdout.readline() == b"begun\n"
        parent.kill()
        assert parent.communicate(timeout=20)[0] == b"", "nobody has its standard output any more"


def test_what_a_process_hands_down_is_in_the_environment_of_children(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAXEQ_CACHE", "of the user")
    monkeypatch.setitem(INHERITED, "WAXEQ_CACHE", "of this process")
    show = "import os; print(os.environ['WAXEQ_CACHE'])"
    for env in (os.environ, {**os.environ, "WAXEQ_CACHE": "another"}):
        with start(lambda _: [sys.executable, "-c", show], stdout=-1, env=env) as child:
            assert child.communicate(timeout=60)[0] == b"of this process\n"
