"""Timing one call of a kernel that works on the memory of a device, by the clock of that device."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from waxeq.backend.call import Call
from waxeq.backend.kernel import Instruction, Kernel
from waxeq.backend.storage import CPU, Storage, placed
from waxeq.cost.key import Timing, TimingKey
from waxeq.ir.types import numpy_dtype
from waxeq.runtime.timing import Bench, call_error

_SETS, _CACHE = 4, 64 << 20
"""Copies of a call's memory that are used in turn, where one is smaller than this many bytes of cache."""
_SAMPLE, _MOST, _FEWEST = 2e-4, 40, 3
"""Seconds that a sample takes at least, by repeating the call, and how many samples are taken."""


def time_on(on: Storage, bench: Bench, kernel: Kernel, call: Call, key: TimingKey, seconds: float) -> Timing:
    """Run `call` on random operands in the memory of a device for about `seconds`: raw samples, features, and the error
    against float64. Raises BudgetError where the device has too little memory."""
    moved = call.bytes_read + call.out.bytes
    sets = [_Set(on, bench, kernel, call, n) for n in range(min(_SETS, -(-_CACHE // max(1, moved))))]
    sets[0].run()
    arrays = [v.array(f) for v, f in zip(call.operands, sets[0].flats, strict=True)]
    worst, rms = call_error(call, arrays, sets[0].result())
    steps = [f for s in sets for f in s.steps]
    joined = on.joined(steps) if kernel.form != "transfer" else steps

    def run() -> None:
        for f in joined:
            f()

    run()
    once = on.seconds(run, 1)
    repeats, samples, end = max(1, round(_SAMPLE / once)), list[float](), time.perf_counter() + seconds
    while len(samples) < _FEWEST or (len(samples) < _MOST and time.perf_counter() < end):
        samples.append(max(on.seconds(run, repeats) / len(sets), 1e-9))
        if once > seconds:
            break
    return Timing(key, tuple(samples), worst, rms, dict(kernel.features(call)), time.time())


class _Set:
    """A call on memory of its own: operands where the kernel reads them, a result and scratch where it works."""

    def __init__(self, on: Storage, bench: Bench, kernel: Kernel, call: Call, number: int) -> None:
        self.call, out = call, np.zeros(call.out.extent, numpy_dtype(call.out.dtype))
        self._out: Any = out if kernel.device == CPU else on.uploaded(out)
        self.flats = bench.flats(call, number)
        there = {id(f): f if kernel.origin == CPU else on.uploaded(f) for f in self.flats}
        operands = [placed(v, there[id(f)]) for v, f in zip(call.operands, self.flats, strict=True)]
        work = np.empty(kernel.workspace(call), np.uint8)
        scratch: Any = work if kernel.device == CPU else on.uploaded(work)
        self.steps: Sequence[Instruction] = tuple(kernel.bind(call, operands, placed(call.out, self._out), scratch))
        self._held = (there, scratch)

    def run(self) -> None:
        for f in self.steps:
            f()

    def result(self) -> np.ndarray:
        flat = self._out if isinstance(self._out, np.ndarray) else self._out.get()
        return self.call.out.array(flat)
