"""Kernels timed by a cluster: a scheduler and workers that are processes, one of which is killed and one is late."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from waxeq.cost.table import TimingTable
from waxeq.search import cluster as clusters
from waxeq.search import fleet

PROGRAM = str(Path(__file__).with_name("fleet_process.py"))
WORKERS = (("one", "A", "die"), ("one", "A", "spare"), ("two", "A", "late"), ("three", "B", ""))


class Processes:
    """The address of a scheduler, the log of its workers' timings, and the process of the worker that dies."""

    def __init__(self, folder: Path) -> None:
        self.log, at = folder / "log", folder / "address"
        self.all = [self.start("scheduler", str(at))]
        while not at.exists():
            assert self.all[0].poll() is None, "the scheduler ended"
            time.sleep(0.02)
        self.address = at.read_text()
        self.all += [self.start("worker", self.address, *said, str(self.log)) for said in WORKERS]
        distributed = pytest.importorskip("distributed")
        at_once = sum(what != "spare" for *_, what in WORKERS)
        with distributed.Client(self.address, set_as_default=False) as client:  # patience is short here
            client.wait_for_workers(at_once, timeout=120)

    @property
    def doomed(self) -> subprocess.Popen:
        return self.all[1]

    def start(self, *argv: str) -> subprocess.Popen:
        return subprocess.Popen([sys.executable, PROGRAM, *argv], stdout=subprocess.DEVNULL)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Processes]:
    pytest.importorskip("distributed")
    processes = Processes(tmp_path)
    try:
        yield processes
    finally:
        for p in processes.all:
            p.kill()
        for p in processes.all:
            p.wait()


@pytest.mark.slow
def test_a_cluster_times_every_kernel_once_on_each_device(waxeq, model, table, cluster: Processes, monkeypatch) -> None:
    """One worker is killed midway, another is late, and the first run is stopped by Ctrl-C."""
    monkeypatch.setattr(fleet.Fleet.__init__, "__defaults__", ((), 1.0))
    command = ("profile", model(), "--scheduler", cluster.address, "--table", table, "--threads", "1", "--json")
    shown, told = fleet._progress, []

    def interrupt(works):
        if not told:
            os.kill(os.getpid(), signal.SIGINT)
        told.append(shown(works))
        return told[-1]

    monkeypatch.setattr(fleet, "_progress", interrupt)
    stopped = waxeq(*command, "--backend", "numpy")
    assert stopped.code == 130 and not stopped.data["finished"], stopped.err
    (first,) = stopped.data["models"]
    assert first["timings"] > 0, "what came in was kept"
    done = waxeq(*command, "--backend", "numpy")
    (second,) = done.data["models"]
    assert done.code == 0 and second["finished"], done.err
    assert cluster.doomed.wait(5) == -signal.SIGKILL
    kinds = second["kinds"]
    assert [k["unmeasured"] for k in kinds] == [0, 0] and sorted(k["about"][0] for k in kinds) == ["A", "B"]
    with TimingTable.open(table).database() as db:
        sql = "SELECT count(*), count(DISTINCT digest) FROM timings GROUP BY device"
        rows = db.execute(sql).fetchall()
    assert len(rows) == 2 and len(set(rows)) == 1 and all(a == b for a, b in rows), "each call once on each device"
    assert sum(a for a, _ in rows) == first["timings"] + second["timings"]
    nobody_disturbed_another(cluster.log)


def nobody_disturbed_another(log: Path) -> None:
    spans: dict[str, list[tuple[float, float]]] = {}
    for name, begun, ended in map(str.split, log.read_text().splitlines()):
        spans.setdefault(name, []).append((float(begun), float(ended)))
    assert set(spans) >= {"one", "three"}
    for of in spans.values():
        assert all(a[1] <= b[0] for a, b in pairwise(sorted(of))), "two timings at once on one machine"


def test_what_a_cluster_cannot_do_is_one_sentence(waxeq, model, monkeypatch: pytest.MonkeyPatch) -> None:
    path = model()
    assert "--plans" in waxeq("profile", path, "--scheduler", "tcp://x:1", "--plans", "2").sentence
    assert "--scheduler" in waxeq("profile", path, "--kind", "abc").sentence
    monkeypatch.setattr(clusters, "find_spec", lambda name: None)
    missing = waxeq("profile", path, "--scheduler", "tcp://127.0.0.1:1")
    assert missing.code == 2 and "waxeq[distributed]" in missing.sentence


def test_an_address_that_is_none_is_told_at_once(waxeq, model) -> None:
    """A client of it ended after twenty seconds, in a traceback."""
    pytest.importorskip("distributed")
    outcome = waxeq("profile", model(), "--scheduler", "foo", "--quiet")
    assert outcome.code == 2 and outcome.sentence.endswith("write it as tcp://HOST:8786")


def test_a_scheduler_that_does_not_answer_is_named(waxeq, model, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr(clusters, "_CONNECT", 0.3)
    silent = waxeq("profile", model(), "--scheduler", "tcp://127.0.0.1:1", "--quiet")
    assert silent.code == 10 and "tcp://127.0.0.1:1" in silent.sentence
