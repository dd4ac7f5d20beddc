"""Jobs on workers that die, are late or fail, and workers that are refused: no cluster is needed to see that."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from waxeq.errors import ClusterError, UsageError
from waxeq.events import Events
from waxeq.frontend.trace import trace
from waxeq.options import Options
from waxeq.runtime.timing import Bench
from waxeq.search import dispatch as dispatching
from waxeq.search.dispatch import TRIES, Dispatch, Job
from waxeq.search.fleet import Fleet
from waxeq.search.session import Session
from waxeq.search.spread import Spread
from waxeq.search.worker import decode_calls, encode_calls, greet, time_calls


@dataclass
class Answer:
    """What a worker was given; it answers when the test says so."""

    worker: str
    args: tuple
    status: str = "pending"
    value: Any = None

    def result(self, timeout: float | None = None) -> Any:
        if isinstance(self.value, Exception):
            raise self.value
        return self.value

    def give(self, value: Any) -> None:
        self.status, self.value = "finished", value


@dataclass
class Workers:
    """Stands for a cluster. Workers are called MACHINE.NUMBER, and say at once what they are."""

    there: set[str]
    address: str = "nowhere"
    given: list[Answer] = field(default_factory=list)

    def workers(self) -> frozenset[str]:
        return frozenset(self.there)

    def submit(self, worker: str, function: Any, *args: Any) -> Answer:
        answer = Answer(worker, args)
        if function is greet:
            answer.give(worker.partition(".")[0])
        else:
            self.given.append(answer)
        return answer

    def cancel(self, answers: Any) -> None:
        for a in answers:
            a.status, a.value = "cancelled", RuntimeError("cancelled")

    def open(self) -> list[Answer]:
        return [a for a in self.given if a.status == "pending"]


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(dispatching, "time", found)
    return found


def dispatch_of(workers: Workers, notes: list[str] | None = None) -> Dispatch:
    note = (notes if notes is not None else []).append
    return Dispatch(workers, (greet, ()), lambda w, said: (said, "device"), note, patience=10.0)  # type: ignore


def endless(device: str) -> Job:
    return Job(device, time_calls, ())


def test_one_job_at_a_time_on_a_machine(clock: Clock) -> None:
    workers = Workers({"a.1", "a.2", "b.1"})
    d = dispatch_of(workers)
    d.step(endless)
    d.step(endless)
    assert sorted(a.worker[0] for a in workers.given) == ["a", "b"] and d.workers("device") == (2, 3)
    workers.given[0].give("x")
    ((job, said),) = d.step(endless)
    assert said == "x" and job.answered and len(workers.given) == 3 and len(workers.open()) == 2


def test_what_a_dead_worker_had_is_done_by_another(clock: Clock) -> None:
    workers, notes = Workers({"a.1", "b.1"}), []
    d = dispatch_of(workers, notes)
    jobs = iter([Job("device", time_calls, ("only",))])
    d.step(lambda device: next(jobs, None))
    (first,) = workers.given
    workers.there.discard(first.worker)
    clock.now += 1.0
    d.step(lambda device: None)
    assert [a.args for a in workers.given] == [("only",)] * 2 and workers.given[1].worker != first.worker
    assert notes == [f"worker {first.worker} is gone"] and d.busy
    workers.given[1].give("done")
    assert [said for _, said in d.step(lambda device: None)] == ["done"] and not d.busy


def test_a_job_that_is_late_is_given_to_another_and_answered_once(clock: Clock) -> None:
    workers = Workers({"a.1", "b.1"})
    d = dispatch_of(workers)
    jobs = iter([Job("device", time_calls, ())])
    d.step(lambda device: next(jobs, None))
    clock.now += 9.0
    assert not d.step(lambda device: None) and len(workers.given) == 1, "it may take that long"
    clock.now += 2.0
    d.step(lambda device: None)
    slow, quick = workers.given
    quick.give("first")
    assert [said for _, said in d.step(lambda device: None)] == ["first"]
    slow.give("second")
    assert not d.step(lambda device: None) and not d.busy


def test_a_worker_that_hangs_is_left(clock: Clock) -> None:
    workers, notes = Workers({"a.1"}), []
    d = dispatch_of(workers, notes)
    d.step(endless)
    clock.now += 100.0
    d.step(endless)
    assert "has not answered" in notes[0] and not d.machines and d.busy
    clock.now += 100.0
    ((_, said),) = d.step(endless)
    assert isinstance(said, ClusterError) and "no worker with its device is left" in str(said) and not d.busy


def test_a_job_that_fails_everywhere_is_given_up(clock: Clock) -> None:
    workers = Workers({"a.1"})
    d = dispatch_of(workers)
    jobs, found = iter([Job("device", time_calls, ())]), []
    for _ in range(TRIES + 1):
        found += d.step(lambda device: next(jobs, None))
        for a in workers.open():
            a.give(ValueError("no such thing"))
    ((_, said),) = found
    assert len(workers.given) == TRIES and "no such thing" in str(said) and not d.busy


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory):
    table = tmp_path_factory.mktemp("table") / "t.duckdb"
    options = Options.of(table=table, threads=1, measure=False, trial=False, backends=("numpy",))
    with Session.open(options, Events()) as opened:
        yield opened


def spread(session: Session) -> Spread:
    x = np.ones((8, 8), np.float32)
    return Spread(session, trace(lambda x: np.tanh(x @ x.T) + x[:, :1], {"x": x}))


def test_calls_that_no_plan_has_room_for_are_not_timed(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """A product of matrices that is not summed yet once took 30 GB, and ended the profile."""
    laid = spread(session)
    sizes = [c.out.bytes + c.bytes_read for _, c in laid.ranked()]
    room = sorted(sizes)[len(sizes) // 2]
    monkeypatch.setattr(session, "options", session.options.model_copy(update={"max_memory": room}))
    assert [c.out.bytes + c.bytes_read for _, c in laid.ranked()] == [n for n in sizes if n <= room] != sizes


def test_calls_come_back_from_text_as_they_were(session: Session) -> None:
    calls = [c for _, c in spread(session).ranked()]
    assert any(c.shared for c in calls) and len(calls) > 5
    again = decode_calls(encode_calls(calls))
    assert list(map(session.prices.key, again)) == list(map(session.prices.key, calls))


def test_rows_of_a_worker_are_those_of_this_machine(session: Session) -> None:
    calls = [c for _, c in spread(session).ranked()][:2]
    said = time_calls(encode_calls(calls), 1, 1e-4, 10.0)
    assert [r["digest"] for r in said["rows"]] == [session.prices.key(c).digest for c in calls] and not said["failed"]


def test_a_call_without_a_value_costs_a_worker_that_call_alone(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Operands of a call that computes positions may not be found: a batch of twelve was then lost on every worker."""
    calls, time_one = [c for _, c in spread(session).ranked()][:3], Bench.time

    def timed(bench: Bench, kernel: Any, call: Any, *rest: Any) -> Any:
        if call == calls[1]:
            raise IndexError("an index is out of bounds for the axis it points into")
        return time_one(bench, kernel, call, *rest)

    monkeypatch.setattr(Bench, "time", timed)
    said = time_calls(encode_calls(calls), 1, 1e-4, 10.0)
    left = [session.prices.key(calls[n]).digest for n in (0, 2)]
    assert [r["digest"] for r in said["rows"]] == left and not said["failed"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"version": "0.0.1"}, "waxeq 0.0.1"),
        ({"backends": {}}, "backend numpy cannot be used: it is not installed"),
        ({"backends": {"numpy": "it is broken"}}, "it is broken"),
        ({"cores": 0}, "see --threads"),
        ({"kernels": {}}, "is not the one here"),
    ],
)
def test_workers_that_are_not_as_this_machine_are_refused(session: Session, change, says: str) -> None:
    fleet = Fleet(Workers(set()), session)  # type: ignore
    said = greet(1, 10.0)
    assert fleet._admit("a", said) is not None
    assert fleet._admit("b", {**said, **change}) is None
    assert "worker b is refused" in fleet.refused["b"] and says in fleet.refused["b"]


def test_kernels_of_one_device_are_compiled_alike(session: Session) -> None:
    fleet = Fleet(Workers(set()), session)  # type: ignore
    said = greet(1, 10.0)
    other = said["device"].replace('"model": "', '"model": "another ')
    compiled = {n: ("0" * 16, text) for n, (_, text) in said["kernels"].items()}
    assert fleet._admit("a", {**said, "kernels": compiled}) is None, "this very machine has a code for it"
    assert fleet._admit("b", {**said, "kernels": compiled, "device": other}) is not None
    assert fleet._admit("c", {**said, "device": other}) is None and "compiler" in fleet.refused["c"]


def test_a_device_that_is_not_there_is_refused(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    said = greet(1, 10.0)
    monkeypatch.setattr(Workers, "submit", lambda self, w, f, *args: Answer(w, args, "finished", said))
    with pytest.raises(UsageError, match=f"--device zz: .*{session.device.id}"):
        Fleet(Workers({"a.1"}), session, ("zz",)).gather()  # type: ignore
    chosen = Fleet(Workers({"a.1"}), session, (session.device.id[:4],))  # type: ignore
    chosen.gather()
    assert set(chosen.kinds) == {session.device.id}
    with pytest.raises(ClusterError, match="no worker has come"):
        Fleet(Workers(set()), session, patience=0.1).gather()  # type: ignore
