"""Work in a fresh process: its answer, its failure in a sentence, and an end when nobody waits."""

from __future__ import annotations

import operator
import threading
import time

import pytest

from waxeq.errors import WaxeqError
from waxeq.runtime.measure import in_fresh_process


def test_an_answer_that_takes_its_time() -> None:
    assert in_fresh_process(operator.mul, (b"ab", 300_000), threads=1) == b"ab" * 300_000
    assert in_fresh_process(time.sleep, (0.5,), threads=1) is None


def test_a_failure_and_a_time_limit() -> None:
    with pytest.raises(WaxeqError, match="the timing process failed: ZeroDivisionError"):
        in_fresh_process(operator.truediv, (1, 0), threads=1)
    with pytest.raises(WaxeqError, match="did not end in 1 s"):
        in_fresh_process(time.sleep, (600,), threads=1, timeout=1)


def test_nobody_waits_any_more() -> None:
    stop = threading.Event()
    threading.Timer(0.5, stop.set).start()
    assert in_fresh_process(time.sleep, (600,), threads=1, stopped=stop.is_set) is None
