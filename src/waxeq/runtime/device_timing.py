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
_RUN, _LONGEST, _MORE = 1e-4, 64, 1.5
"""Seconds that a run should take, how often it makes each call for that at most, and how many times as often as before
to be made anew: starting it takes the CPU some 10 us, more where other threads are busy, and a device that waits for
that times the CPU."""


def timed(bench: Bench, kernel: Kernel, call: Call, key: TimingKey, seconds: float) -> Timing:
    """Time a call where its kernel works: on the CPU or on its device. Raises BudgetError."""
    on = kernel.storage()
    return bench.time(kernel, call, key, seconds) if on is None else time_on(on, bench, kernel, call, key, seconds)


def time_on(on: Storage, bench: Bench, kernel: Kernel, call: Call, key: TimingKey, seconds: float) -> Timing:
    """Run `call` on random operands in the memory of a device for about `seconds`: raw samples, features, and the error
    against float64. Raises BudgetError where the device has too little memory."""
    turns = Turns(on, bench, kernel, call)
    worst, rms = turns.error()
    once = turns.steady(seconds)
    while turns.lengthen(once):
        once = turns.steady(seconds)
    repeats, samples, end = max(1, round(_SAMPLE / (once * turns.count))), list[float](), time.perf_counter() + seconds
    while len(samples) < _FEWEST or (len(samples) < _MOST and time.perf_counter() < end):
        samples.append(turns.seconds(repeats))
        if once * turns.count > seconds:
            break
    return Timing(key, tuple(samples), worst, rms, dict(kernel.features(call)), time.time())


class Turns:
    """A call on memory of a device, several times over so that a run finds less of its own in the cache. Raises
    BudgetError where the device has too little memory."""

    def __init__(self, on: Storage, bench: Bench, kernel: Kernel, call: Call) -> None:
        self._on, self._call = on, call
        moved = call.bytes_read + call.out.bytes
        self._sets = [_Set(on, bench, kernel, call, n) for n in range(min(_SETS, -(-_CACHE // max(1, moved))))]
        self._transfers, self._many = kernel.form == "transfer", 1
        self._join()

    def _join(self) -> None:
        steps = [f for _ in range(self._many) for s in self._sets for f in s.steps]
        self._joined = steps if self._transfers else self._on.joined(steps)

    def lengthen(self, seconds: float) -> bool:
        """Make the call, which took so many `seconds`, more often in a run, where starting one may take as long as it
        does; whether that was so."""
        many = min(_LONGEST, round(_RUN / (seconds * len(self._sets))))
        longer = many > _MORE * self._many
        if longer:
            self._many = many
            self._join()
        return longer

    @property
    def count(self) -> int:
        """How often a run makes the call."""
        return self._many * len(self._sets)

    @property
    def flats(self) -> Sequence[Sequence[np.ndarray]]:
        """For each time the flat arrays of the CPU that the operands are views of."""
        return [s.flats for s in self._sets]

    @property
    def steps(self) -> Sequence[Instruction]:
        """What makes the call once."""
        return self._sets[0].steps

    def run(self) -> None:
        """Make the call on each set of memory."""
        for f in self._joined:
            f()

    def seconds(self, repeats: int = 1) -> float:
        """What a call takes, in so many runs."""
        return max(self._on.seconds(self.run, repeats) / self.count, 1e-9)

    def steady(self, most: float) -> float:
        """What a call takes once a run is as all later ones are, as a GPU captures the second; or what it takes in the
        first run, where that is longer than `most` seconds."""
        first = self.seconds()
        if first * self.count > most:
            return first
        self.run()
        return self.seconds()

    def error(self) -> tuple[float, float]:
        """Largest and root mean square error against float64, over the RMS of that."""
        first = self._sets[0]
        first.run()
        arrays = [v.array(f) for v, f in zip(self._call.operands, first.flats, strict=True)]
        return call_error(self._call, arrays, first.result())


class _Set:
    """A call on memory of its own: operands where the kernel reads them, a result and scratch where it works."""

    def __init__(self, on: Storage, bench: Bench, kernel: Kernel, call: Call, number: int) -> None:
        self.call, out = call, np.full(call.out.extent * numpy_dtype(call.out.dtype).itemsize, _POISON, np.uint8)
        out = out.view(numpy_dtype(call.out.dtype))
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


_POISON = 0xFF
"""Every byte of a result before it is computed: NaN in floats."""
