"""The team of threads: its promises under sanitizers, and its Python face."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from waxeq_native import library as libraries
from waxeq_native.compiler import find
from waxeq_native.library import Library
from waxeq_native.team import HERE, Phase, Team

STRESS = Path(__file__).with_name("stress.c")

SANITIZERS = {
    "none": ("-O3",),
    "thread": ("-O1", "-fsanitize=thread", "-Wno-tsan"),
    "address": ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
}

ADD = """
void add(char *const *args, int64_t begin, int64_t end, int64_t thread) {
  double *x = (double *)args[0];
  for (int64_t i = begin; i < end; ++i) x[i] += *(const double *)args[1];
}
void total(char *const *args, int64_t begin, int64_t end, int64_t thread) {
  double *x = (double *)args[0], sum = 0;
  for (int64_t i = 0; i < SIZE; ++i) sum += x[i];
  *(double *)args[2] = sum;
}
"""

SIZE = 1000

Sums = Callable[[Team, int], tuple[float, float]]


@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_promises_hold(tmp_path: Path, sanitizer: str) -> None:
    """tests/backends/native/stress.c says what is tried."""
    output = tmp_path / "stress"
    sources = [str(HERE / "team.c"), str(STRESS)]
    made = subprocess.run(
        [
            *find().command,
            "-std=gnu11",
            "-g",
            "-pthread",
            "-I",
            str(HERE),
            *SANITIZERS[sanitizer],
            *sources,
            "-o",
            str(output),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode != 0 and sanitizer != "none" and "san" in made.stderr:
        pytest.skip(f"no such sanitizer here: {made.stderr.splitlines()[-1]}")
    assert made.returncode == 0, made.stderr
    command = [str(output), "50", *(("without forks",) if sanitizer == "thread" else ())]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if "unexpected memory mapping" in done.stderr and shutil.which("setarch"):  # the thread sanitizer and random maps
        command = ["setarch", platform.machine(), "-R", *command]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Library]:
    library = Library(tmp_path_factory.mktemp("native"), find())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(libraries, "shared", lambda: library)
        yield library


@pytest.fixture(scope="module")
def sums(library: Library) -> Sums:
    """`sums(team, rounds)` adds 0.5 to numbers in many tasks and sums them in one, `rounds` times over: the last sum,
    and what it should be.
    """
    sources = {"add": ADD.replace("SIZE", str(SIZE))}
    add = library.functions(sources, "#include <stdint.h>\n")["add"]
    total = library.functions({"total": sources["add"]}, "#include <stdint.h>\n")["total"]

    def run(team: Team, rounds: int) -> tuple[float, float]:
        x, step, result = np.zeros(SIZE), np.full(1, 0.5), np.zeros(1)
        args = (ctypes.c_void_p * 3)(x.ctypes.data, step.ctypes.data, result.ctypes.data)
        where = ctypes.addressof(args)
        pair = (Phase(add, where, SIZE, 7), Phase(total, where, 1, 1))
        phases = (Phase * (2 * rounds))(*(pair * rounds))
        team.run(ctypes.addressof(phases), len(phases))
        team.prepared(ctypes.addressof(phases), len(phases))()
        return float(result[0]), 0.5 * 2 * rounds * SIZE

    return run


@pytest.mark.parametrize("threads", [1, 2, 3, 17])
def test_phases_follow_each_other(sums: Sums, threads: int) -> None:
    team = Team(threads)
    for rounds in (1, 2, 50):
        got, want = sums(team, rounds)
        assert got == want


def test_python_threads_share_a_team(sums: Sums) -> None:
    team = Team(2)
    with ThreadPoolExecutor(4) as pool:
        pairs = list(pool.map(lambda _: sums(team, 30), range(40)))
    assert all(got == want for got, want in pairs)


def test_a_forked_process_has_a_team_of_its_own(sums: Sums) -> None:
    team = Team(2)
    for _ in range(3):
        assert sums(team, 10)[0] == sums(team, 10)[1]
        child = os.fork()
        if child == 0:
            got, want = sums(team, 10)
            os._exit(0 if got == want else 1)
        assert os.waitpid(child, 0)[1] == 0
    assert sums(team, 10)[0] == sums(team, 10)[1]


def test_there_is_one_team_of_a_size(library: Library) -> None:
    assert Team.of(2) is Team.of(2)
    assert Team.of(2).threads == 2
    assert Team.of(1) is not Team.of(2)
    with pytest.raises(ValueError, match="at least one thread, not 0"):
        Team.of(0)
