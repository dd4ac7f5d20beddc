"""Neighbours: a timing taken while other processes had the cores does not count as one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from waxeq.amounts import cores
from waxeq.runtime import measure, neighbours
from waxeq.runtime.measure import time_calls
from waxeq.runtime.neighbours import Load, Watch, delayed, sample

_FOREVER = "while True: pass"


@contextmanager
def crowd() -> Iterator[None]:
    """Three processes for each core that never rest."""
    others = [subprocess.Popen([sys.executable, "-c", _FOREVER]) for _ in range(3 * cores())]
    try:
        yield
    finally:
        for p in others:
            p.kill()
        for p in others:
            p.wait()


def work(n: int = 300_000) -> int:
    return sum(range(n))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts delays")
def test_a_crowd_is_seen() -> None:
    load = Load.now()
    with crowd():
        before, found = delayed(), []
        while delayed() - before < 0.3:  # as long as it takes until this process has waited so much
            found.append(sample(work)[1])
        assert not all(found)
        assert Load.now().others(load) > 0.1


def faked(monkeypatch: pytest.MonkeyPatch, calm: Iterator[bool]) -> None:
    """Samples of a millisecond, or of nine seconds when disturbed."""

    def taken(run: object) -> tuple[float, bool]:
        quiet = next(calm)
        return (1e-3 if quiet else 9.0), quiet

    monkeypatch.setattr(measure, "sample", taken)


def test_disturbed_samples_do_not_count_while_there_are_others(monkeypatch: pytest.MonkeyPatch) -> None:
    faked(monkeypatch, iter([False, True, False, True, False, True]))
    found = time_calls(work, min_seconds=60.0, max_samples=3)
    assert set(found.seconds) == {1e-3} and len(found.seconds) == 3 and not found.disturbed


def test_where_all_are_disturbed_they_count_and_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    faked(monkeypatch, iter(3 * [False]))
    found = time_calls(work, min_seconds=0.0)
    assert set(found.seconds) == {9.0} and len(found.seconds) == 3 and found.disturbed


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="only Linux says which cores a process may use")
def test_cores_of_others_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a large machine a process may have a few cores; what the others do does not disturb it."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {1})
    row = type(psutil.cpu_times(percpu=True)[0])
    rows = [row(*(float(n) for _ in row._fields)) for n in range(4)]
    monkeypatch.setattr(psutil, "cpu_times", lambda percpu: rows)
    counted = Load.now()
    assert counted.stolen == 1.0 and counted.busy == len(row._fields) - 5


def test_somebody_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch()
    now = Load(10.0, 10.0, 0.0, 100.0)
    monkeypatch.setattr(neighbours.Load, "now", staticmethod(lambda: now))
    assert watch.note is None
    watch.add(Load(0.0, 0.0, 0.0, 90.0), [False] * 20)
    assert watch.note is None, "all that was done was done by this process"
    watch.add(Load(0.0, 9.0, 0.0, 90.0), [False] * 19 + [True] * 3)
    assert watch.note and "disturbed 3 of 42 timings" in watch.note and "had 0.5 of" in watch.note
