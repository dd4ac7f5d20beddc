"""Timing libraries that each have threads of their own, in one process: by turns, each given time to come to rest."""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Callable, Mapping

_REST = 1e-3
"""Seconds without work before a turn: the threads of the library before spin that long before they sleep."""
_TURN = 2e-3
"""Shorter calls are repeated within a turn until about so many seconds have gone by."""
_LONG = 0.05
"""Longer calls need no untimed call that fills caches and wakes threads."""
_FEWEST = 5
"""Rounds taken in any case; after as many, those more than three times slower than the best end."""


def take_turns(
    rivals: Mapping[str, Callable[[], object]], *, budget: float, rounds: int = 400, seed: int = 0
) -> dict[str, tuple[float, ...]]:
    """Raw seconds per call of each rival. In each round every one has a turn, in random (seeded) order; in a turn it is
    called once untimed, then timed. Ends after `budget` seconds, but not before five rounds."""
    rng = random.Random(seed)
    repeats = {n: max(1, round(_TURN / _once(fn))) for n, fn in rivals.items()}
    taken: dict[str, list[float]] = {n: [] for n in rivals}
    running = list(rivals)
    was = gc.isenabled()
    gc.disable()
    try:
        end = time.perf_counter() + budget
        for n in range(rounds):
            if n >= _FEWEST and time.perf_counter() > end:
                break
            for name in rng.sample(running, len(running)):
                long = bool(taken[name]) and taken[name][-1] > _LONG
                taken[name].append(_turn(rivals[name], repeats[name], long))
            if n + 1 == _FEWEST:
                best = min(statistics.median(taken[k]) for k in running)
                running = [k for k in running if statistics.median(taken[k]) <= 3 * best]
    finally:
        if was:
            gc.enable()
    return {n: tuple(t) for n, t in taken.items()}


def _turn(fn: Callable[[], object], repeats: int, long: bool) -> float:
    time.sleep(_REST)
    if not long:
        fn()
    start = time.perf_counter()
    for _ in range(repeats):
        fn()
    return (time.perf_counter() - start) / repeats


def _once(fn: Callable[[], object]) -> float:
    fn()
    start = time.perf_counter()
    fn()
    return max(time.perf_counter() - start, 1e-7)
