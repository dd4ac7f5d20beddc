"""Times on a GPU: what a device does at most, and what a call takes whose operands no cache holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import numpy as np

from waxeq.backend.kernel import Instruction
from waxeq.backend.storage import DeviceArray, Storage
from waxeq.runtime.device_timing import Turns

_ROUNDS = 9
_RUNS = 10
"""Of a call in one graph."""


def copy_bandwidth(on: Storage, size: int) -> float:
    """Bytes read and written a second by a copy of so many bytes from memory to memory of the device."""
    a, b = (on.empty((size,), np.dtype(np.uint8)) for _ in range(2))
    run = replayed(on, [lambda: on.copy(b, a)] * 4)
    run()
    return 2 * 4 * size / min(on.seconds(run, 1) for _ in range(_ROUNDS))


def replayed(on: Storage, steps: Sequence[Instruction]) -> Callable[[], None]:
    """What runs instructions as plans do: where a device has graphs, as one from the second time on."""
    joined = on.joined(steps)

    def run() -> None:
        for f in joined:
            f()

    run()
    run()
    return run


def cold(on: Storage, turns: Turns, cache: DeviceArray) -> float:
    """Median seconds of a call that finds nothing of its own in the cache: `cache`, larger than that, is copied over
    before each run, and the time of that is taken off."""
    half = cache.size // 2
    to, of = (cache.strided(n * half, (half,), (1,), cache.dtype) for n in range(2))
    flush: list[Any] = [lambda: on.copy(to, of)]
    both, alone = replayed(on, [*flush, *turns.steps] * _RUNS), replayed(on, flush * _RUNS)
    rounds = [on.seconds(both, 1) - on.seconds(alone, 1) for _ in range(_ROUNDS)]
    return max(median(rounds) / _RUNS, 1e-9)


def quartile(samples: Sequence[float]) -> float:
    """The lower quartile, which timings are known by."""
    return sorted(samples)[(len(samples) - 1) // 4]
