"""The child process that saturates: it may be killed, or run out of memory, without harm to anyone.

Protocol over one connection: Rules come in, and Tasks under them; Progress messages go out, each with a snapshot that
is usable as it is, and a PhaseRun for each phase that no limit ended; a Finished ends the task. The process ends when
its connection does.

Whoever waits for a first plan waits for this process to start: it is told models and rules as text, and imports no more
than it takes to run that, NumPy not being among it.
"""

from __future__ import annotations

import gc
import os
import resource
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

from waxeq.egraph.engine import EGraph, import_extension
from waxeq.egraph.program import ModelText, Phase
from waxeq.egraph.snapshot import Snapshot
from waxeq.errors import WaxeqError

_LEAP, _OVER = 16, 2
"""How many times larger an iteration may make the e-graph before one is expected to pass the limit, and by how much the
limit may be passed: iterations that end above that are taken back."""
_OBJECTS = 200_000
"""Objects made until Python looks for cycles among them: a snapshot makes millions of objects and no cycle, and looking
as often as by default took a third of the time."""
_SEARCHED = 0.8
"""Part of the time after which no iteration begins that a plan can be had without."""
_GROWTH = 4.0
"""How many times as long as the last an iteration is expected to take at most, or as many nodes to leave."""


@dataclass(frozen=True)
class Rules:
    """What the tasks that follow have in common: file names and their forms, the prelude first, and constructors beyond
    the basis. They are read once, and before there is a task if they come before it."""

    texts: tuple[tuple[str, tuple[str, ...]], ...]
    constructors: tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True)
class Task:
    """What to saturate, and how. `memory_bytes` is what the e-graph may add to the process."""

    model: ModelText
    phases: tuple[Phase, ...]
    nodes: int
    seconds: float
    memory_bytes: int


@dataclass(frozen=True)
class PhaseRun:
    """What a phase did."""

    name: str
    iterations: int
    nodes: int
    seconds: float
    matches: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Progress:
    """A snapshot to fall back on."""

    snapshot: Snapshot


@dataclass(frozen=True)
class Finished:
    """The end: `stop` is the name of a Stop, `error` a sentence when the rules themselves failed."""

    snapshot: Snapshot | None
    phases: tuple[PhaseRun, ...]
    stop: str
    error: str | None = None


def main(fd: int) -> None:
    """Serve tasks until the other side goes away."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    gc.set_threshold(_OBJECTS)
    import_extension()
    connection = Connection(fd)
    server = _Server(connection)
    while True:
        try:
            message = connection.recv()
        except (EOFError, KeyboardInterrupt):
            return
        try:
            if isinstance(message, Rules):
                server.read(message)
            else:
                server.run(message)
        except MemoryError:
            os._exit(77)
        except BrokenPipeError:
            return


class _Server:
    """Keeps an e-graph with the rules in it, which each task begins from."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.rules = Rules((), ())
        self.egraph: EGraph | None = None

    def read(self, rules: Rules) -> None:
        """Rules for the tasks that follow; what is wrong with them the first of these tells."""
        self.rules, self.egraph = rules, None
        with suppress(WaxeqError):
            self.egraph = self._loaded()

    def _loaded(self) -> EGraph:
        e = EGraph(dict(self.rules.constructors))
        for name, forms in self.rules.texts:
            e.run_all(forms, name)
        e.mark()
        return e

    def run(self, task: Task) -> None:
        """Do a task."""
        _limit_memory(task.memory_bytes)
        try:
            egraph = self.egraph or self._loaded()
            self.egraph = None  # after an error inside it is not to be trusted
            _Run(self.connection, task, egraph).run()
        except WaxeqError as e:
            self.connection.send(Finished(None, (), "Failed", f"{type(e).__name__}: {e}"))
        except (MemoryError, OSError, EOFError):
            raise
        except Exception as e:  # what rules made cannot be read: that is no lack of memory
            self.connection.send(Finished(None, (), "Failed", f"the e-graph cannot be read ({type(e).__name__}: {e})"))
        else:
            egraph.restart()
            self.egraph = egraph


def _limit_memory(extra: int) -> None:
    with open("/proc/self/statm") as f:
        now = int(f.read().split()[0]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)  # of a container, or of ulimit: it cannot be raised
    most = now + extra if hard == resource.RLIM_INFINITY else min(now + extra, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))


class _Run:
    def __init__(self, connection: Connection, task: Task, egraph: EGraph) -> None:
        self.connection, self.task, self.egraph = connection, task, egraph
        self.start = time.perf_counter()
        self.done: list[PhaseRun] = []
        self.shipped, self.reads = 0, 0.0
        """Nodes of the e-graph that was last sent, and seconds for each that reading and sending it took."""

    def run(self) -> None:
        self.egraph.load(self.task.model)
        self._ship()
        stop = "Saturated"
        for phase in self.task.phases:
            stop = self._phase(phase) or stop
        self.connection.send(Finished(self.egraph.snapshot(), tuple(self.done), stop))

    def _ship(self) -> None:
        begun, self.shipped = time.perf_counter(), self.egraph.nodes()
        self.connection.send(Progress(self.egraph.snapshot()))
        self.reads = (time.perf_counter() - begun) / max(1, self.shipped)

    def _phase(self, phase: Phase) -> str | None:
        """Run a phase; the reason if it was cut off."""
        begun, matches, iterations, stop = time.perf_counter(), {}, 0, None
        run = " ".join(f"(run {r})" for r in phase.rulesets)
        nodes = self.egraph.nodes()
        sizes, took = [nodes], list[float]()
        while iterations < phase.iterations:
            stop = None if phase.required else self._over(sizes, took)
            if stop is not None:
                break
            if self._due(nodes):
                self._ship()  # what comes next may be cut off: leave something to fall back on
            near = not phase.required and _LEAP * nodes > self.task.nodes
            if near:
                self.egraph.mark()
            step = self.egraph.step(f"(seq {run} (saturate (run analysis)))")
            before, nodes = nodes, self.egraph.nodes()
            if near and nodes > _OVER * self.task.nodes:
                self.egraph.back()
                nodes, stop = before, "NodeLimit"
                break
            iterations += 1
            sizes.append(nodes)
            took.append(step.seconds)
            for k, n in step.matches.items():
                matches[k] = matches.get(k, 0) + n
            if not step.updated:
                break
        self.done.append(PhaseRun(phase.name, iterations, nodes, time.perf_counter() - begun, matches))
        if stop is None:  # the next may be cut off: what was done so far can be done again
            self.connection.send(self.done[-1])
        return stop

    def _due(self, nodes: int) -> bool:
        """Whether so many nodes are far more than were sent."""
        return nodes > 2 * self.shipped + 2000

    def _over(self, sizes: list[int], took: list[float]) -> str | None:
        """The limit that is met, or that one more iteration of a phase is expected to pass with what must be done after
        it, after iterations that left so many nodes and took so many seconds."""
        nodes = sizes[-1]
        if nodes > self.task.nodes or _endless(sizes, self.task.nodes):
            return "NodeLimit"
        spent, most = time.perf_counter() - self.start, self.task.seconds
        read = nodes * (self._due(nodes) + _grows(sizes))
        late = spent > _SEARCHED * most or spent + _next(took) + self.reads * read > most
        return "TimeLimit" if late else None


def _next(took: list[float]) -> float:
    """Seconds that the next iteration of a phase takes, after some that took so many: nothing ends one that has begun,
    and where they grow it may take longer than all before it. Of a phase that hardly began nothing is known."""
    return took[-1] * _grows(took) if took else 0.0


def _grows(row: list[int] | list[float]) -> float:
    """How many times as large as the last number of a row the next is expected to be: as the last is of the one before
    it, but the first iterations of a phase find little."""
    if len(row) < 2 or row[-2] <= 0:
        return 1.0
    return min(_GROWTH, max(1.0, row[-1] / row[-2]))


def _endless(sizes: list[int], most: int) -> bool:
    """Whether an e-graph of these sizes after the iterations of a phase grows faster and faster, and would pass the
    limit two iterations later: products of numbers that differ by their rounding only (x/n over the square of y/n)
    multiply each other again, none is the last, and the phases that follow had no time left for so many."""
    if len(sizes) < 4:
        return False
    first, second, third = (b / a for a, b in zip(sizes[-4:-1], sizes[-3:], strict=True))
    return first < second < third and third * third * sizes[-1] > most
