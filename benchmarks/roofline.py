"""What memory allows: a copy that moves as many bytes as a row must."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np


def copy_of(moved: int, threads: int) -> Callable[[], object]:
    """A copy of half as many bytes as are to be moved (it reads and writes them), by one thread or by all of them,
    whichever is faster. Arrays that fit a cache are copied within it, as a row's own are."""
    source, target = (np.ones(max(moved // 2, 1), np.uint8) for _ in range(2))
    pool = ThreadPoolExecutor(threads)
    parts = list(zip(np.array_split(source, threads), np.array_split(target, threads), strict=True))

    def alone() -> object:
        return np.copyto(target, source)

    def together() -> object:
        return list(pool.map(lambda part: np.copyto(part[1], part[0]), parts))

    return min((alone, together), key=_best) if threads > 1 else alone


def _best(call: Callable[[], object]) -> float:
    times = []
    for _ in range(7):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)
