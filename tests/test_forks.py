"""Processes that are forked while another thread is in the midst of something: they wait for nothing of it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import waxeq as wx
from waxeq.backend.call import Call
from waxeq.errors import UsageError, WaxeqWarning
from waxeq.ir.term import Term
from waxeq_native import library as libraries
from waxeq_native.compiler import find
from waxeq_native.library import Library

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]
LONG = 20.0
"""Seconds after which a child hangs."""


def in_child(does: Callable[[], object]) -> int:
    """What a forked process ends with: 0 where `does` raised nothing, -1 where it hangs."""
    child = os.fork()
    if child == 0:
        try:
            does()
        except BaseException:
            os._exit(1)
        os._exit(0)
    until = time.monotonic() + LONG
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return -1


@contextmanager
def held(lock: Any) -> Iterator[None]:
    """Inside, another thread has the lock."""
    taken, over = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            taken.set()
            over.wait(2 * LONG)

    other = threading.Thread(target=hold)
    other.start()
    taken.wait()
    try:
        yield
    finally:
        over.set()
        other.join()


@pytest.fixture
def slow(tmp_path: Path) -> Callable[[float], Library]:
    """A library whose first compiler takes so many seconds, and each later one as long as it takes."""

    def make(seconds: float) -> Library:
        real = find()
        script = tmp_path / "slow.sh"
        wait = f'case "$*" in *building-*) mkdir "{tmp_path}/begun" 2>/dev/null && sleep {seconds};; esac'
        script.write_text(f'#!/bin/sh\n{wait}\nexec {" ".join(real.command)} "$@"\n', encoding="utf-8")
        script.chmod(0o755)
        return Library(tmp_path, replace(real, command=(str(script),)))

    return make


def compiling(library: Library, tmp_path: Path) -> tuple[threading.Thread, list[object]]:
    """A thread in which a compiler runs by now, and what will have come of it."""
    found: list[object] = []

    def run() -> None:
        try:
            found.append(library.functions({"f": "double f(double x) { return x; }"}, "").keys())
        except Exception as e:
            found.append(e)

    thread = threading.Thread(target=run)
    thread.start()
    while not (tmp_path / "begun").exists():
        time.sleep(0.002)
    return thread, found


def test_a_child_compiles_while_the_parent_does(slow: Callable[[float], Library], tmp_path: Path) -> None:
    """Regression: it waited for a lock of a thread that it does not have, for ever."""
    library = slow(2.0)
    thread, found = compiling(library, tmp_path)
    assert in_child(lambda: library.functions({"g": "double g(double x) { return 2 * x; }"}, "")) == 0
    thread.join()
    assert found == [{"f"}]


FORKS = """
import os, sys, threading
from waxeq_native.library import shared
texts = {"f": "double f(double x) { return x; }"}
found = []
other = threading.Thread(target=lambda: found.append(shared().functions(texts, "")))
other.start()
while not os.path.exists(sys.argv[1]):
    pass
if (child := os.fork()) == 0:
    sys.exit()
os.waitpid(child, 0)
other.join()
print(*found[0])
"""


def test_a_child_that_ends_leaves_the_parent_its_compilers(slow: Callable[[float], Library], tmp_path: Path) -> None:
    """Regression: what the interpreter clears away as it ends was also what the parent was compiling in."""
    (command,) = slow(1.0).compiler.command
    own = {**os.environ, "CC": command, "WAXEQ_CACHE": str(tmp_path)}
    run = [sys.executable, "-c", FORKS, str(tmp_path / "begun")]
    done = subprocess.run(run, env=own, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "f\n"), done.stderr
    assert not list((tmp_path / "native").glob("building-*"))


def test_a_child_that_ends_leaves_the_parent_its_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: the folder in the place of one that cannot be written went with the first process that was forked."""
    (tmp_path / "native").write_text("no folder")
    removed: list[Callable[[], object]] = []
    monkeypatch.setattr(libraries.atexit, "register", lambda f, *args: removed.append(lambda: f(*args)))
    with pytest.warns(WaxeqWarning, match="cannot be written"):
        folder = libraries.directory(tmp_path)
    (at_exit,) = removed
    assert in_child(at_exit) == 0 and folder.is_dir()
    at_exit()
    assert not folder.exists()


def test_a_child_makes_terms_while_the_parent_makes_one() -> None:
    with held(Term._new):
        assert in_child(lambda: Term("Par", f"of a child {os.getpid()}")) == 0


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="cached properties have no locks any more")
def test_a_child_works_out_what_the_parent_is_working_out() -> None:
    """Regression: Python 3.11 works out a cached property of one object of a class at a time."""
    properties: Any = vars(Call)
    with held(properties["_facts"].lock):
        assert in_child(lambda: properties["_facts"].lock.acquire(timeout=LONG / 2) or 1 / 0) == 0


def swept(x: Any) -> Any:
    for _ in range(4):
        x = np.tanh(np.sin(x) * 1.5 + np.exp(-x * x))
    return x


OWN = {"trial": False, "measure": False, "threads": 1}


@pytest.mark.parametrize("backend", ["native", "numpy"])
def test_a_program_that_runs_in_the_parent_is_free_in_a_child(backend: str, tmp_path: Path) -> None:
    """Regression: it was "running in another thread" there for ever."""
    x = np.linspace(-2, 2, 1_000_000, dtype=np.float32)
    own = wx.Options.of(table=tmp_path / "t.duckdb", backends=(backend,), **OWN)
    program = wx.optimize(swept, x, options=own).program
    want, seen = program(x).copy(), []
    program(x)
    other = threading.Thread(target=lambda: [seen.append(program(x).sum()) for _ in range(3)])
    other.start()
    refused = False
    while other.is_alive() and not refused:
        try:
            program(x)
        except UsageError:
            refused = True
    assert refused, "the other thread is in a call"

    def again() -> None:
        for _ in range(2):
            np.testing.assert_array_equal(program(x), want)

    assert in_child(again) == 0
    other.join()
    assert len(seen) == 3


def test_a_program_of_any_size_is_free_in_a_child(tmp_path: Path) -> None:
    model: Callable[..., Any] = lambda x: np.tanh(x) + 1  # noqa: E731

    own = wx.Options.of(table=tmp_path / "t.duckdb", **OWN)
    program = wx.optimize(model, x=np.ones((9, 8), np.float32), dims={"T": (1, 9, {"x": 0})}, options=own).program
    with held(program._turn):
        assert in_child(lambda: program(np.ones((4, 8), np.float32))) == 0
