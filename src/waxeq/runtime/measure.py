"""How waxeq times things.

Medians, because noise on a shared machine is one-sided and heavy-tailed; pairs of the same round (see turns.py),
because clocks and neighbours drift, so that only times taken side by side compare; a process of its own, because
threads, caches and memory that the compiler itself used would else be part of the result.
"""

from __future__ import annotations

import math
import os
import pickle
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from selectors import EVENT_READ, DefaultSelector
from typing import Any

from waxeq import children
from waxeq.collecting import uncollected
from waxeq.errors import WaxeqError
from waxeq.events import NOTICE
from waxeq.runtime.neighbours import sample

_SAMPLE = 2e-4
_FEWEST, _PATIENCE = 3, 4
"""Samples that are taken at least, and how many times longer than was meant for them."""
GAIN = 1.01
"""The least gain that is believed: less than a hundredth comes and goes with where memory happens to lie."""

WIDE = 1.5
"""An interval that is wider than this factor says little: something disturbed what was timed, or it was too few."""

_DEVIATION, _CONTRAST, _MISTAKEN = 0.25, math.log(2.0), 0.01
"""Of the logarithm of a paired ratio, at least, whatever was seen of it; what would be seen of one that is twice the
other; and how often rivals that take the same time may be told apart at once."""


@dataclass(frozen=True, slots=True)
class Samples:
    """Raw seconds per call, in the order taken. `disturbed`: other processes had the cores for a part of most."""

    seconds: tuple[float, ...]
    disturbed: bool = False

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


@dataclass(frozen=True, slots=True)
class Comparison:
    """How much longer b takes than a: the median of paired ratios b/a with a 95 % bootstrap interval, widened by the
    ratio of the lower quartiles: where a machine has two moods, b must lose in both. `verdict` is about a."""

    ratio: float
    low: float
    high: float
    verdict: str

    @property
    def narrow(self) -> bool:
        """Whether more samples would tell nothing that is believed."""
        return self.high <= GAIN * self.low


def counted(taken: Sequence[tuple[float, bool]], fewest: int = 1) -> Samples:
    """Of what `sample` says of runs those that count; all, as disturbed, where these are fewer than `fewest`."""
    calm = tuple(seconds for seconds, counts in taken if counts)
    enough = len(calm) >= fewest
    return Samples(calm if enough else tuple(seconds for seconds, _ in taken), not enough)


def time_calls(
    fn: Callable[[], object], *, min_seconds: float, max_samples: int = 100, warmup: int = 1, once: float | None = None
) -> Samples:
    """Seconds per call of `fn`; calls shorter than 200 us are repeated within a sample. At least three samples. `once`:
    about what a call takes, where that is known.

    Samples in which a thread waited for a core do not count while there are three others within four times as long.
    """
    for _ in range(warmup):
        fn()
    if once is None:
        start = time.perf_counter()
        fn()
        once = max(time.perf_counter() - start, 1e-9)
    inner = max(1, round(_SAMPLE / once))

    def repeated() -> None:
        for _ in range(inner):
            fn()

    taken, calm = list[tuple[float, bool]](), 0
    with uncollected():
        begun = time.perf_counter()
        while calm < max_samples:
            late = time.perf_counter() - begun
            if late > min_seconds * (1 if calm >= _FEWEST else _PATIENCE) and len(taken) >= _FEWEST:
                break
            seconds, counts = sample(repeated)
            taken.append((seconds / inner, counts))
            calm += counts
    return counted(taken, _FEWEST)


def compare(a: Samples, b: Samples, *, seed: int = 0, resamples: int = 400) -> Comparison:
    """Whether a is faster than b, from samples taken in the same rounds (paired by position)."""
    n = min(len(a.seconds), len(b.seconds))
    ratios = [y / x for x, y in zip(a.seconds[:n], b.seconds[:n], strict=True)]
    rng = random.Random(seed)
    medians = sorted(statistics.median(rng.choices(ratios, k=n)) for _ in range(resamples))
    low, high = medians[int(0.025 * resamples)], medians[int(0.975 * resamples) - 1]
    quiet = _lower_quartile(b) / _lower_quartile(a)
    low, high = min(low, quiet), max(high, quiet)
    verdict = "faster" if low > GAIN else "slower" if high < 1.0 else "within noise"
    return Comparison(statistics.median(ratios), low, high, verdict)


def told_apart(a: Samples, b: Samples) -> bool:
    """Whether the pairs taken so far leave no doubt that one is faster, however often that is asked: Wald's sequential
    test of equal times against times that differ by a factor of two, on logarithms of paired ratios taken as normal
    with the deviation that was seen, or a quarter where that is less. Two pairs do at 1.8, and none below 1.41."""
    logs = [math.log(y / x) for x, y in zip(a.seconds, b.seconds, strict=False)]
    if len(logs) < 2:
        return False
    deviation = max(_DEVIATION, statistics.stdev(logs))
    evidence = (_CONTRAST * abs(math.fsum(logs)) - len(logs) * _CONTRAST**2 / 2) / deviation**2
    return evidence >= math.log(2 / _MISTAKEN)


def _lower_quartile(s: Samples) -> float:
    return sorted(s.seconds)[(len(s.seconds) - 1) // 4]


_PATIENT = 120.0
"""Seconds in which a process has begun, on however slow a machine: it starts Python, imports and reads arrays."""
_DONE = b"."
"""What a process says after each thing that it has done, before its answer; no pickle begins so."""
_CHILD = """
import os, pickle, sys
given = sys.stdin.buffer
sys.path[:0] = pickle.load(given)
import importlib
from waxeq.children import end_with
end_with(int(sys.argv[1]))
out = os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)
sys.stdout = sys.stderr
try:
    found = ()
    while (job := pickle.load(given)) is not None:
        module, name, args = job
        found = (getattr(importlib.import_module(module), name)(*found, *args),)
        out.write(b".")
        out.flush()
    answer = (True, found[0])
except BaseException as e:
    answer = (False, f"{type(e).__name__}: {e}")
out.write(pickle.dumps(answer))
out.flush()
"""


class Fresh:
    """A new Python process, with `threads` threads for BLAS and OpenMP, which inherits the descriptors that are `held`.
    It makes one call. With `begin`, a module-level function and its arguments, that is called before this returns, and
    what it finds is the first argument of the call. It ends with the context.

    Raises WaxeqError where that has not begun after `patience` seconds."""

    def __init__(
        self,
        *,
        threads: int,
        held: Sequence[int] = (),
        begin: tuple[Callable[..., Any], Sequence[Any]] | None = None,
        patience: float = _PATIENT,
    ) -> None:
        limits = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
        self._child = children.start(
            lambda parent: [sys.executable, "-P", "-c", _CHILD, str(parent)],  # a json.py in this folder is no module
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **limits},
            held=held,
            start_new_session=True,  # Ctrl-C goes to the parent alone, which decides
        )
        self._unsent, self._begun, self._muttered = pickle.dumps([p for p in sys.path if p]), b"", b""
        if begin is not None:
            assert self._child.stdin is not None
            with suppress(BrokenPipeError):  # it has died, and the call will say so
                self._child.stdin.write(self._unsent + _job(*begin))
                self._child.stdin.flush()
            self._unsent = b""
            try:
                self._begun, self._muttered = _first_said(self._child, time.monotonic() + patience)
            except BaseException:  # nobody else knows of it yet
                self.__exit__()
                raise

    def __enter__(self) -> Fresh:
        return self

    def __exit__(self, *exc: object) -> None:
        self._child.kill()
        self._child.wait()
        for pipe in filter(None, (self._child.stdin, self._child.stdout, self._child.stderr)):
            with suppress(OSError):  # what was not sent any more
                pipe.close()

    def call(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any],
        *,
        timeout: float = 600.0,
        stopped: Callable[[], bool] = lambda: False,
    ) -> Any:
        """What a module-level function returns there, or None once `stopped` says that nobody waits for it any more.
        Raises WaxeqError when it fails or does not end in time."""
        job = self._unsent + _job(fn, args) + pickle.dumps(None)
        try:
            said = _until(self._child, job, time.monotonic() + timeout, stopped)
        except subprocess.TimeoutExpired as e:
            raise WaxeqError(f"the timing process did not end in {timeout:.0f} s") from e
        if said is None:
            return None
        out, err = (self._begun + said[0]).lstrip(_DONE), self._muttered + said[1]
        if not out:
            raise WaxeqError(f"the timing process died: {_cause(self._child.wait(), err)}")
        fine, value = pickle.loads(out)
        if not fine:
            raise WaxeqError(f"the timing process failed: {value}")
        return value


def _first_said(child: subprocess.Popen, end: float) -> tuple[bytes, bytes]:
    """The first byte of what a process answers, none where it has died, and what it says on stderr until then: it
    would wait for somebody to read that. Raises WaxeqError where it says nothing until the `end`."""
    assert child.stdout is not None and child.stderr is not None
    muttered = b""
    with DefaultSelector() as pipes:
        pipes.register(child.stdout, EVENT_READ)
        pipes.register(child.stderr, EVENT_READ)
        while child.stdout not in (ready := [key.fileobj for key, _ in pipes.select(max(0.0, end - time.monotonic()))]):
            if not ready:
                raise WaxeqError(f"the timing process did not begin in time{_after(muttered)}")
            more = os.read(child.stderr.fileno(), 1 << 16)
            muttered += more
            if not more:
                pipes.unregister(child.stderr)
    return os.read(child.stdout.fileno(), 1), muttered


def _cause(status: int, err: bytes) -> str:
    """What a process ended by, and the end of what it said: one that is killed says nothing."""
    by = f"exit code {status}" if status >= 0 else f"signal {-status}, {signal.strsignal(-status)}"
    hint = " (most likely as memory ran out)" if status == -signal.SIGKILL else ""
    return f"{by}{hint}{_after(err)}"


def _after(err: bytes) -> str:
    """The end of what a process said, to follow what became of it."""
    said = err.decode(errors="replace").strip()[-300:]
    return f"{': ' if said else ''}{said}"


def _job(fn: Callable[..., Any], args: Sequence[Any]) -> bytes:
    return pickle.dumps((fn.__module__, fn.__name__, tuple(args)))


def in_fresh_process(
    fn: Callable[..., Any],
    args: Sequence[Any],
    *,
    threads: int,
    timeout: float = 600.0,
    stopped: Callable[[], bool] = lambda: False,
    held: Sequence[int] = (),
) -> Any:
    """As `Fresh.call` in a process that is started for it."""
    with Fresh(threads=threads, held=held) as process:
        return process.call(fn, args, timeout=timeout, stopped=stopped)


def _until(child: subprocess.Popen, job: bytes, end: float, stopped: Callable[[], bool]) -> tuple[bytes, bytes] | None:
    """What a process that is given a job writes; None when `stopped` comes first. Raises TimeoutExpired."""
    rest: bytes | None = job
    while not stopped():
        try:
            return child.communicate(rest, timeout=NOTICE)
        except subprocess.TimeoutExpired:
            rest = None  # what has not been sent yet is sent on
            if time.monotonic() > end:
                raise
    return None
