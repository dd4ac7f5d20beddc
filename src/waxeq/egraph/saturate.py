"""Saturation within limits that hold: one iteration at a time, in a child process that can be killed."""

from __future__ import annotations

import enum
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe

from waxeq import children
from waxeq.egraph import schema
from waxeq.egraph.loaded import require_loaded
from waxeq.egraph.lower import Lowered
from waxeq.egraph.program import RuleProgram
from waxeq.egraph.snapshot import Snapshot
from waxeq.egraph.worker import Finished, PhaseRun, Rules, Task
from waxeq.errors import BudgetError, RuleError
from waxeq.events import NOTICE
from waxeq.naming import option

_CHILD = """
from waxeq.children import end_with
end_with({})
from waxeq.egraph.worker import main
main({})
"""
_LOADING = 120.0
"""Seconds in which a worker must have read the rules and the model, which takes a fraction of one: no plan can be had
without that, so the budget does not end it, and a machine that does something else for a while does not either."""

_CHEAP = 0.2
"""The share of the time and of the nodes up to which phases are run again after a saturation that was cut off."""


class Stop(enum.Enum):
    """Why a saturation ended."""

    Saturated = "every rule has been applied everywhere"
    NodeLimit = "the e-graph reached its node limit"
    TimeLimit = "the time for saturation was up"
    MemoryLimit = "the e-graph ran out of the memory it may use"
    Interrupted = "the user asked to stop"


@dataclass(frozen=True, slots=True)
class Limits:
    """Most e-nodes, most seconds (the process is killed then), most bytes the e-graph may add to its process."""

    nodes: int = 100_000
    seconds: float = 30.0
    memory_bytes: int = 4 << 30


@dataclass(frozen=True)
class Saturation:
    """The e-graph that was reached, why it stopped, and what each phase did."""

    snapshot: Snapshot
    stop: Stop
    phases: tuple[PhaseRun, ...]


class Worker:
    """A child process that saturates, kept between blocks; started at once, ready a moment later."""

    def __init__(self) -> None:
        self._process: subprocess.Popen | None = None
        self._connection: Connection | None = None
        self._known: Rules | None = None
        self.turn = threading.Lock()
        """Held from a task to its last answer: the next block is saturated beside the search of this one, which may
        want it too."""

    @staticmethod
    def start() -> Worker:
        """A worker that is starting in the background."""
        w = Worker()
        w._spawn()
        return w

    def _spawn(self) -> None:
        ours, theirs = Pipe()
        os.set_inheritable(theirs.fileno(), True)
        paths = os.pathsep.join(p for p in sys.path if p)
        self._process = children.start(
            lambda parent: [sys.executable, "-P", "-c", _CHILD.format(parent, theirs.fileno())],
            held=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": paths, "RAYON_NUM_THREADS": "1"},
            start_new_session=True,  # Ctrl-C goes to the parent alone, which decides
        )
        theirs.close()
        self._connection = ours

    def prepare(self, program: RuleProgram) -> None:
        """Have the worker read the rules of tasks that are to come, so that the first of them need not wait for it."""
        self._send(_rules(program))

    def send(self, program: RuleProgram, task: Task) -> None:
        """Give the worker a task under the rules of `program`, starting it anew if it is gone."""
        self._send(_rules(program), task)

    def _send(self, rules: Rules, *tasks: Task) -> None:
        if self._process is None or self._process.poll() is not None:
            self._renew()
        try:
            self._tell(rules, *tasks)
        except OSError:  # it went while they were on their way
            self._renew()
            self._tell(rules, *tasks)

    def _renew(self) -> None:
        self.close()
        self._spawn()

    def _tell(self, rules: Rules, *tasks: Task) -> None:
        assert self._connection is not None
        for message in tasks if rules == self._known else (rules, *tasks):
            self._connection.send(message)
        self._known = rules

    def receive(self, seconds: float):
        """The next message; None when `seconds` pass first. Raises EOFError or OSError when the worker has died."""
        assert self._connection is not None
        return self._connection.recv() if self._connection.poll(max(0.0, seconds)) else None

    def close(self) -> None:
        """End the process, whatever it is doing."""
        if self._connection is not None:
            self._connection.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = self._connection = self._known = None


def _rules(program: RuleProgram) -> Rules:
    return Rules(((schema.PRELUDE, schema.prelude()), *program.texts), program.constructors)


def saturate(
    lowered: Lowered,
    program: RuleProgram,
    limits: Limits,
    worker: Worker,
    stopped: Callable[[], bool] = lambda: False,
) -> Saturation:
    """Run the phases of `program` on a lowered block; `stopped` says whether the user wants what there is so far.

    Whatever limit is met, the result is usable: at worst the program as written with the kernels that compute it.
    Raises RuleError when a rule is ill-typed or equates two types, BudgetError when not even the program could be read.
    """
    model = schema.model_text(lowered)
    task = Task(model, program.phases, limits.nodes, limits.seconds, limits.memory_bytes)
    with worker.turn:
        try:
            found = _attempt(program, task, lowered, worker, stopped)
            if found.stop in (Stop.Saturated, Stop.NodeLimit) or _has_kernels(found.snapshot, program):
                return found
            return _shortened(program, task, found, lowered, worker)
        except BaseException:
            worker.close()
            raise


def _shortened(program: RuleProgram, task: Task, found: Saturation, lowered: Lowered, worker: Worker) -> Saturation:
    """Cut off before the kernels were in: they are put in on the program as written, after the phases that took little
    of the time, and without any where those are too much once more."""
    most = task.memory_bytes + (1 << 30)
    plain = found
    for names in dict.fromkeys((_cheap(found, task), ())):
        phases = program.repeated(names).phases
        plain = _attempt(program, Task(task.model, phases, task.nodes, 600.0, most), lowered, worker)
        if _has_kernels(plain.snapshot, program):
            break
    return Saturation(plain.snapshot, found.stop, found.phases + plain.phases)


def _cheap(found: Saturation, task: Task) -> tuple[str, ...]:
    """The first phases of what was cut off, as long as together they took a small share of the time and of the nodes; a
    user who asked to stop is not kept waiting for them."""
    names, seconds = list[str](), 0.0
    for p in found.phases:
        seconds += p.seconds
        if found.stop is Stop.Interrupted or seconds > _CHEAP * task.seconds or p.nodes > _CHEAP * task.nodes:
            break
        names.append(p.name)
    return tuple(names)


def _has_kernels(snapshot: Snapshot, program: RuleProgram) -> bool:
    names = {n for n, _ in program.constructors}
    return any(n.head in names for c in snapshot.classes for n in c.nodes)


def _attempt(
    program: RuleProgram, task: Task, lowered: Lowered, worker: Worker, stopped: Callable[[], bool] = lambda: False
) -> Saturation:
    worker.send(program, task)
    again = True
    end = time.monotonic() + _LOADING
    last, done = None, list[PhaseRun]()
    while True:
        try:
            message = worker.receive(min(NOTICE, end - time.monotonic()))
        except (EOFError, OSError):
            worker.close()
            if last is None and again and not stopped():  # it may have been gone before it had the task
                again = False
                worker.send(program, task)
                continue
            return _cut_off(last, done, Stop.MemoryLimit)
        if message is None:
            interrupted = last is not None and stopped()
            if not interrupted and time.monotonic() < end:
                continue
            worker.close()
            return _cut_off(last, done, Stop.Interrupted if interrupted else Stop.TimeLimit)
        if isinstance(message, Finished):
            if message.error is not None or message.snapshot is None:
                raise RuleError(message.error or "the e-graph could not be read")
            return Saturation(message.snapshot, Stop[message.stop], message.phases)
        if isinstance(message, PhaseRun):
            done.append(message)
            continue
        if last is None:
            require_loaded(message.snapshot, lowered)
            end = time.monotonic() + task.seconds + 2.0  # reading the snapshot back is not part of the limit
        last = message


def _cut_off(last, done: list[PhaseRun], stop: Stop) -> Saturation:
    if last is None:
        raise BudgetError(
            f"saturation ended before the model was loaded: {stop.value}; "
            f"raise {option('search_memory')} or {option('budget')}"
        )
    return Saturation(last.snapshot, stop, tuple(done))
