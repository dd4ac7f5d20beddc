"""Coming to rest: a thread that spins is waited for, one that sleeps is not."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from waxeq.runtime import rest as resting
from waxeq.runtime.rest import rest

linux = pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="states of threads are seen on Linux only")


@linux
def test_a_thread_that_spins_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resting, "_LONGEST", 30.0)
    stop, spinning = threading.Event(), threading.Event()

    def spin() -> None:
        end = time.perf_counter() + 0.3
        while time.perf_counter() < end:
            spinning.set()
        stop.set()

    thread = threading.Thread(target=spin)
    thread.start()
    spinning.wait()
    rest()
    assert stop.is_set()
    thread.join()


@linux
def test_a_thread_that_sleeps_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resting, "_LONGEST", 30.0)
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    rest()
    assert not stop.is_set()
    stop.set()
    thread.join()


@linux
def test_nobody_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    stop, looks = threading.Event(), []
    monkeypatch.setattr(resting, "_runs", lambda task: looks.append(task.name) or True)
    monkeypatch.setattr(resting, "_LONGEST", 0.02)
    thread = threading.Thread(target=stop.wait)
    thread.start()
    rest()
    stop.set()
    thread.join()
    assert looks and str(threading.get_native_id()) not in looks  # on a machine in use one look may take the whole time


def test_elsewhere_it_is_a_moment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(resting, "_TASKS", tmp_path / "nothing")
    monkeypatch.setattr(resting, "_LONGEST", 30.0)
    rest()
