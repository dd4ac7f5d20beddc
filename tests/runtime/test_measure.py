"""Work in a fresh process: its answer, its failure in a sentence, and an end when nobody waits."""

from __future__ import annotations

import operator
import os
import random
import signal
import subprocess
import sys
import threading
import time

import pytest

from waxeq.errors import WaxeqError
from waxeq.runtime.measure import Fresh, Samples, in_fresh_process, told_apart


def test_an_answer_that_takes_its_time() -> None:
    assert in_fresh_process(operator.mul, (b"ab", 300_000), threads=1) == b"ab" * 300_000
    assert in_fresh_process(time.sleep, (0.5,), threads=1) is None


def test_a_failure_and_a_time_limit() -> None:
    with pytest.raises(WaxeqError, match="the timing process failed: ZeroDivisionError"):
        in_fresh_process(operator.truediv, (1, 0), threads=1)
    with pytest.raises(WaxeqError, match="did not end in 1 s"):
        in_fresh_process(time.sleep, (600,), threads=1, timeout=1)


def test_what_a_process_begins_with_is_there_for_its_call() -> None:
    with Fresh(threads=1, begin=(operator.mul, (b"ab", 3))) as process:
        assert process.call(operator.add, (b"c",)) == b"abababc"


def test_a_failure_of_what_a_process_begins_with_is_told_by_the_call() -> None:
    failed = ((operator.truediv, (1, 0)), "failed: ZeroDivisionError"), ((os._exit, (1,)), "died: exit code 1")
    for begin, said in failed:
        with Fresh(threads=1, begin=begin) as process, pytest.raises(WaxeqError, match=f"the timing process {said}"):
            process.call(operator.neg, ())


def test_a_process_that_does_not_begin_is_given_up() -> None:
    """It was waited for without end: a backend of somebody else that hangs when it is loaded."""
    begun = time.monotonic()
    with pytest.raises(WaxeqError, match="did not begin in time: far"):
        Fresh(threads=1, begin=(subprocess.call, (["sh", "-c", "echo far >&2; exec sleep 60"],)), patience=2.0)
    assert time.monotonic() - begun < 30


def test_a_process_that_says_much_while_it_begins_is_heard() -> None:
    """As a backend of somebody else may: both waited for each other, and no budget ended it."""
    begin = subprocess.call, ([sys.executable, "-c", "import sys; sys.stderr.write('x' * (1 << 18))"],)
    with Fresh(threads=1, begin=begin) as process:
        assert process.call(operator.add, (2,)) == 2


def test_who_was_killed_is_said() -> None:
    """A process that is killed has said nothing itself."""
    with pytest.raises(WaxeqError, match=r"died: signal 9, Killed \(most likely as memory ran out\)$"):
        in_fresh_process(signal.raise_signal, (signal.SIGKILL,), threads=1)


def test_nobody_waits_any_more() -> None:
    stop = threading.Event()
    threading.Timer(0.5, stop.set).start()
    assert in_fresh_process(time.sleep, (600,), threads=1, stopped=stop.is_set) is None


def test_equal_rivals_are_seldom_told_apart_however_often_that_is_asked() -> None:
    """By Wald's inequality at most one time in a hundred, with any number of looks."""
    rng = random.Random(0)

    def mistaken() -> bool:
        a, b = ([rng.lognormvariate(0.0, 0.25 / 2**0.5) for _ in range(30)] for _ in "ab")
        return any(told_apart(Samples(tuple(a[:n])), Samples(tuple(b[:n]))) for n in range(2, 31))

    assert sum(mistaken() for _ in range(1000)) <= 15


def test_twice_the_time_is_told_at_the_second_pair_and_a_lone_pair_tells_nothing() -> None:
    assert told_apart(Samples((1.0, 1.1)), Samples((2.0, 2.1))) and told_apart(Samples((2.0, 2.1)), Samples((1.0, 1.1)))
    assert not told_apart(Samples((1.0,)), Samples((9.0,)))
    assert not told_apart(Samples((1.0,) * 100), Samples((1.3,) * 100)), "that is for intervals to tell"
