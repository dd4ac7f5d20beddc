"""What a machine allows: a copy of what must be moved, and the functions that must be evaluated."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

_ELEMENTS, _TIMES = 1 << 16, 8
"""Of the array that functions are evaluated on, which the second-level cache holds, and how often each time it is read:
what starts a call, or reads the array, is then a small part of it, and no evaluation waits for another one."""
EVALUATED = _ELEMENTS * _TIMES
"""Evaluations in a call of what `evaluating` gives."""


def evaluating(name: str, threads: int) -> Callable[[], object]:
    """A function alone, `EVALUATED` times, as fast as waxeq has it."""
    import waxeq as wx

    function = _function(name)

    def repeated(x: Any) -> Any:
        total = function(x)
        for i in range(1, _TIMES):
            total = total + function(x + np.float32(i / 64))
        return total

    x = np.linspace(0.25, 0.75, _ELEMENTS, dtype=np.float32)
    with tempfile.TemporaryDirectory() as folder:
        options = wx.Options.of(threads=threads, budget=3.0, table=Path(folder) / "timings.duckdb")
        program = wx.optimize(repeated, x, options=options).program
    return lambda: program(x)


def _function(name: str) -> Callable[[Any], Any]:
    from scipy import special

    return getattr(np, name, None) or getattr(special, name)


def copying(source: np.ndarray, target: np.ndarray, threads: int) -> Callable[[], object]:
    """A copy of one flat array of bytes into another, by one thread or by all of them, by the C library or by a loop of
    vectors (some processors take long for the instruction that the first is made of), whichever is fastest. Arrays that
    fit a cache are copied within it, as a row's own are."""
    pool = ThreadPoolExecutor(threads)
    parts = list(zip(np.array_split(source, threads), np.array_split(target, threads), strict=True))

    def moved(way: Callable[..., object]) -> Iterator[Callable[[], object]]:
        yield lambda: way(source, out=target)
        if threads > 1:
            yield lambda: list(pool.map(lambda part: way(part[0], out=part[1]), parts))

    ways = (lambda a, out: np.copyto(out, a)), (lambda a, out: np.bitwise_or(a, 0, out=out))
    return min((call for way in ways for call in moved(way)), key=_best)


def _best(call: Callable[[], object]) -> float:
    times = []
    for _ in range(7):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)
