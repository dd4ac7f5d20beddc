"""What Python takes around the steps of a plan: nothing where a backend makes whole calls, else as long as small
kernels do. Steps are timed one by one, so that none of their timings has it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from waxeq.backend.direct import Directly
from waxeq.backend.kernel import Kernel
from waxeq.backend.storage import CPU

_CALL, _ARRAY, _RUN, _BLAS = 3, 1, 3, 8
"""What a call takes in Python, in starts of a ufunc: for itself, for each input and result, for each run of steps that
a backend makes one of, and where steps call BLAS, whose threads are seen to.

Measured on a Zen 4, where a start takes 0.28 us, in us (by this): a sort by NumPy took 1.5 (1.4) longer as a plan than
alone, with native steps before and after it 3.2 (3.1), two of them between three runs 3.9 (4.0), two results of four
inputs with two runs 4.2 (4.2), products of matrices 3.9 to 4.4 (4.0)."""
MOST = 1e-4
"""Seconds of a plan from which on nobody notices what is around it."""


def kind(kernels: Sequence[Kernel]) -> Directly | None:
    """What makes whole calls of a program of these kernels; None where nothing does."""
    ways = {k.direct for k in kernels}
    return ways.pop() if len(ways) == 1 else None


def around(kernels: Sequence[Kernel], passed: int, start: float, *, states: bool = False) -> float:
    """Seconds of a call of a program besides those of its steps, whose kernels follow each other so. `passed`: its
    inputs and results; `start`: seconds to start a ufunc; `states`: whether it has such, whose calls are made in
    Python. What runs on other devices was not measured, and counts as nothing."""
    if (kind(kernels) is not None and not states) or any({k.device, k.origin} != {CPU} for k in kernels):
        return 0.0
    runs = sum(way is not None for way, _ in groupby(k.direct for k in kernels))
    return start * (_CALL + _ARRAY * passed + _RUN * runs + _BLAS * any(k.blas for k in kernels))
