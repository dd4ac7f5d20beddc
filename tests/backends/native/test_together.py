"""Processes that begin with one empty cache at once: what takes seconds is compiled by one of them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from waxeq_native.compiler import find
from waxeq_native.files import in_turn

Begin = Callable[[float], subprocess.Popen]
WORKER = """
import sys
from pathlib import Path
from waxeq_native.library import shared
shared().units([((Path(sys.argv[1]),), ())])
print(shared().spent()[0])
"""


@pytest.fixture
def begin(tmp_path: Path) -> Begin:
    """Begins a process that wants a unit, and then says how many it has compiled; its compiler takes some seconds
    longer than it needs, and makes a folder `begun` when it begins."""
    unit, script = tmp_path / "unit.c", tmp_path / "slow.sh"
    unit.write_text("int one(void) { return 1; }\n", encoding="utf-8")
    wait = f'case "$*" in *building-*) mkdir -p "{tmp_path}/begun"; sleep "$SECONDS_MORE";; esac'
    script.write_text(f'#!/bin/sh\n{wait}\nexec {" ".join(find().command)} "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    own = {**os.environ, "CC": str(script), "WAXEQ_CACHE": str(tmp_path)}

    def run(seconds: float) -> subprocess.Popen:
        line = [sys.executable, "-c", WORKER, str(unit)]
        return subprocess.Popen(line, env={**own, "SECONDS_MORE": str(seconds)}, stdout=subprocess.PIPE, text=True)

    return run


def said(process: subprocess.Popen) -> str:
    with process:
        return process.communicate(timeout=100)[0].strip()


def test_processes_that_want_one_unit_wait_for_the_one_that_builds_it(begin: Begin) -> None:
    """Regression: four that began with an empty cache each compiled the products of matrices."""
    assert sorted(map(said, [begin(2.0) for _ in range(3)])) == ["0", "0", "1"]


def test_who_waits_for_a_process_that_is_killed_builds_it(begin: Begin, tmp_path: Path) -> None:
    with begin(1000.0) as first:
        while not (tmp_path / "begun").exists():
            time.sleep(0.005)
        second = begin(0.0)
        time.sleep(0.5)
        first.kill()
    assert said(second) == "1"


def test_a_turn_is_entered_where_it_cannot_be_had(tmp_path: Path) -> None:
    entered = 0
    for path in (tmp_path, tmp_path / "nothing" / "there", Path("/dev/null")):
        with in_turn(path, ["0" * 64], lambda: False):
            entered += 1
    assert entered == 3


def test_a_turn_is_waited_for_until_that_is_given_up(tmp_path: Path) -> None:
    asked: list[int] = []
    with in_turn(tmp_path / "turns", ["a1" * 32], lambda: False):
        child = os.fork()
        if child == 0:
            with in_turn(tmp_path / "turns", ["b2" * 32], lambda: os._exit(1)):  # another key
                pass
            with in_turn(tmp_path / "turns", ["a1" * 32], lambda: len(asked) == 3 or asked.append(0) is not None):
                os._exit(0 if len(asked) == 3 else 2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
