"""Limits of nodes, time and memory that really hold: each is exhausted by a rule set that never ends."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from waxeq.backend.discover import backends, kernels
from waxeq.egraph import saturate as saturation
from waxeq.egraph import worker as server
from waxeq.egraph.kernels import forms as kernel_forms
from waxeq.egraph.kernels import patterns
from waxeq.egraph.lower import Lowered, lower
from waxeq.egraph.program import ModelText, Phase, RuleProgram
from waxeq.egraph.saturate import Limits, Saturation, Stop, Worker, saturate
from waxeq.egraph.snapshot import Snapshot
from waxeq.egraph.worker import PhaseRun, Task
from waxeq.errors import RuleError
from waxeq.frontend.trace import trace
from waxeq.ir.graph import expand

PATTERNS = patterns(kernels(backends()))
GROWS = """
(ruleset grow)
(rewrite (Add a b) (Add b a) :ruleset grow :name "grow/commute")
(rewrite (Add (Add a b) c) (Add a (Add b c)) :ruleset grow :name "grow/associate")
"""
ILL_TYPED = '(ruleset bad)\n(rewrite (Add a b) (Cast "float64" a) :ruleset bad :name "bad/types")'
LEAVES = 14
"""A sum of n terms under these rules has 3^n - 2^(n+1) + 1 nodes: four million, more than any limit here."""


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    w = Worker.start()
    yield w
    w.close()


def program(rules: str, name: str, iterations: int = 1000) -> RuleProgram:
    phases = (Phase(name, (name,), iterations), Phase("kernels", ("kernels",), 4, required=True))
    texts = (("test.egg", (rules,)), ("kernels.egg", kernel_forms(PATTERNS.values())))
    return RuleProgram(texts, phases, tuple((c, p.tensors) for c, p in PATTERNS.items()))


def once_and_then() -> RuleProgram:
    """A phase of one iteration before one that never ends."""
    grows = program(GROWS, "grow")
    return replace(grows, phases=(Phase("once", ("grow",), 1), *grows.phases))


def long_sum() -> Lowered:
    def model(**xs: np.ndarray) -> np.ndarray:
        total = xs["x0"]
        for n in sorted(xs)[1:]:
            total = total + xs[n]
        return total @ total

    given = {f"x{i}": np.ones((3, 3), np.float32) for i in range(LEAVES)}
    return lower(expand(trace(model, given).graph))


def check_usable(found: Saturation) -> None:
    """A plan can be made of it: kernels are there, and every class has a type."""
    assert any(n.head in PATTERNS for c in found.snapshot.classes for n in c.nodes)
    assert all(c.dtype for c in found.snapshot.classes) and "out" in found.snapshot.roots


def test_nodes(worker: Worker) -> None:
    found = saturate(long_sum(), program(GROWS, "grow"), Limits(nodes=2_000, seconds=60), worker)
    assert found.stop is Stop.NodeLimit
    check_usable(found)
    assert sum(len(c.nodes) for c in found.snapshot.classes) < 4_500


def test_a_worker_that_is_slow_to_begin_is_waited_for(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    """No plan can be had before the model is read, however small the budget is and whatever else the machine does."""
    late, now, receive = iter([20.0, 20.0]), [0.0], worker.receive

    def receive_late(seconds: float) -> object:
        for pause in late:
            now[0] += pause
            return None
        return receive(60.0)

    monkeypatch.setattr("waxeq.egraph.saturate.time.monotonic", lambda: now[0])
    monkeypatch.setattr(worker, "receive", receive_late)
    check_usable(saturate(long_sum(), program(GROWS, "grow", 1), Limits(seconds=0.5), worker))


@pytest.mark.slow
def test_time(worker: Worker) -> None:
    found = saturate(long_sum(), program(GROWS, "grow"), Limits(nodes=10**9, seconds=1.0), worker)
    assert found.stop is Stop.TimeLimit
    check_usable(found)


def test_what_would_end_late_is_not_begun(worker: Worker) -> None:
    """An e-graph of 90,000 nodes, made in a fifth of a second, took three to read: whoever gave it one was without all
    that it held, three seconds later."""
    found = saturate(long_sum(), program(GROWS, "grow"), Limits(nodes=10**9, seconds=0.5), worker)
    assert found.stop is Stop.TimeLimit
    assert [p.name for p in found.phases] == ["grow", "kernels"] and found.phases[0].iterations > 1
    check_usable(found)


def test_iterations_are_expected_to_grow_as_before() -> None:
    assert [server._grows(row) for row in ([], [5], [0, 5], [5, 10], [10, 5], [1, 100])] == [1, 1, 1, 2, 1, 4]
    assert [server._next(took) for took in ([], [2.0], [1.0, 3.0])] == [0.0, 2.0, 9.0]


@pytest.mark.slow
def test_memory(worker: Worker) -> None:
    limits = Limits(nodes=10**9, seconds=300, memory_bytes=100 << 20)
    found = saturate(long_sum(), program(GROWS, "grow"), limits, worker)
    assert found.stop is Stop.MemoryLimit
    check_usable(found)


def test_cheap_phases_are_kept_where_a_later_one_is_cut_off(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block whose algebra took too long lost what had been simplified before that in a moment."""
    one, attempt, tried = once_and_then(), saturation._attempt, list[tuple[str, ...]]()

    def cut_off(rules: RuleProgram, task: Task, *rest: Any) -> Saturation:
        tried.append(tuple(p.name for p in task.phases))
        if len(tried) > 1:
            return attempt(rules, task, *rest)
        return replace(attempt(rules, replace(task, phases=task.phases[:1]), *rest), stop=Stop.TimeLimit)

    bare = saturate(long_sum(), one.bare(), Limits(), worker)
    monkeypatch.setattr(saturation, "_attempt", cut_off)
    found = saturate(long_sum(), one, Limits(seconds=60), worker)
    assert tried == [("once", "grow", "kernels"), ("once", "kernels")] and found.stop is Stop.TimeLimit
    check_usable(found)
    assert sum(len(c.nodes) for c in found.snapshot.classes) > sum(len(c.nodes) for c in bare.snapshot.classes)


def test_phases_that_took_long_are_not_run_again() -> None:
    """Nor is any where it was the user who asked to stop."""
    task = Task(ModelText((), {}), (), 1000, 10.0, 1)
    runs = (PhaseRun("a", 1, 50, 0.5), PhaseRun("b", 1, 150, 1.0), PhaseRun("c", 1, 150, 0.6))
    found = Saturation(Snapshot((), {}), Stop.TimeLimit, runs)
    assert saturation._cheap(found, task) == ("a", "b")
    assert saturation._cheap(replace(found, stop=Stop.MemoryLimit), replace(task, nodes=500)) == ("a",)
    assert saturation._cheap(replace(found, stop=Stop.Interrupted), task) == ()


@pytest.mark.slow
def test_phases_that_were_done_are_known_of_a_worker_that_was_killed(worker: Worker) -> None:
    found = saturate(long_sum(), once_and_then(), Limits(nodes=10**9, seconds=1.0), worker)
    assert found.stop is Stop.TimeLimit and found.phases[0].name == "once"
    check_usable(found)


def test_a_wish_to_stop(worker: Worker) -> None:
    found = saturate(long_sum(), program(GROWS, "grow"), Limits(10**9, 300), worker, stopped=lambda: True)
    assert found.stop in (Stop.Interrupted, Stop.Saturated)
    check_usable(found)


def test_two_threads_take_turns_at_a_worker(worker: Worker) -> None:
    """Each has the e-graph of its own program."""
    x = np.ones(4)
    lowered = [lower(expand(trace(f, {"x": x}).graph)) for f in (lambda x: np.tanh(x) * 2, lambda x: x @ x + 1)]
    wanted = [saturate(one, program(GROWS, "grow", 1), Limits(), worker).snapshot for one in lowered]
    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(saturate, lowered[i % 2], program(GROWS, "grow", 1), Limits(), worker) for i in range(20)]
        assert all(j.result().snapshot == wanted[i % 2] for i, j in enumerate(jobs))


def test_a_worker_that_is_killed_is_started_again(worker: Worker) -> None:
    first = saturate(long_sum(), program(GROWS, "grow", 1), Limits(), worker)
    assert worker._process is not None
    os.kill(worker._process.pid, 9)
    again = saturate(long_sum(), program(GROWS, "grow", 1), Limits(), worker)
    assert again.snapshot == first.snapshot and again.stop is Stop.Saturated


@pytest.mark.parametrize("error", [BrokenPipeError, ConnectionResetError, OSError])
def test_however_a_pipe_says_that_the_worker_is_gone_it_is_started_again(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, error: type[OSError]
) -> None:
    """A connection that was reset, which is no broken pipe, ended the search."""
    first = saturate(long_sum(), program(GROWS, "grow", 1), Limits(), worker)
    gone = worker._process
    assert gone is not None and worker._connection is not None

    def send(message: object) -> None:
        raise error("the other end is gone")

    monkeypatch.setattr(worker._connection, "send", send)
    again = saturate(long_sum(), program(GROWS, "grow", 1), Limits(), worker)
    assert again.snapshot == first.snapshot and worker._process is not gone and gone.poll() is not None


def test_a_rule_that_equates_two_types_stops_the_run(worker: Worker) -> None:
    with pytest.raises(RuleError):
        saturate(long_sum(), program(ILL_TYPED, "bad"), Limits(), worker)
    assert saturate(long_sum(), program(GROWS, "grow", 1), Limits(), worker).stop is Stop.Saturated


@pytest.mark.parametrize(("hard", "most"), [(resource.RLIM_INFINITY, None), (1 << 40, None), (1 << 20, 1 << 20)])
def test_a_limit_of_the_system_is_kept_to(monkeypatch: pytest.MonkeyPatch, hard: int, most: int | None) -> None:
    """Under `ulimit -v` or in a container the limit cannot be raised; trying to ended every search."""
    told = list[tuple[int, int]]()
    monkeypatch.setattr(resource, "getrlimit", lambda _: (hard, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: told.append(limits))
    server._limit_memory(1 << 30)
    ((soft, kept),) = told
    assert kept == hard and (soft == most if most is not None else soft > 1 << 30)


def test_what_cannot_be_read_is_no_lack_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A class whose nodes rules have taken away ended the worker, which was said to have run out of memory."""

    class Sent:
        def send(self, message: object) -> None:
            assert isinstance(message, server.Finished)
            said.append(str(message.error))

    def fails(self: object) -> None:
        raise KeyError("a class without nodes")

    said = list[str]()
    monkeypatch.setattr(server, "_limit_memory", lambda extra: None)
    monkeypatch.setattr(server._Run, "run", fails)
    server._Server(Sent()).run(server.Task(server.ModelText((), {}), (), 1, 1.0, 1))  # pyright: ignore
    assert len(said) == 1 and "KeyError" in said[0] and "a class without nodes" in said[0]
