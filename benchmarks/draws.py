"""The error of a result that is a number or two: that of one draw of its arguments is chance."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.workload import Arguments, Workload, flat


def error_of_draws(
    workload: Workload,
    arguments: Arguments,
    call: Callable[[], Any],
    error: Callable[[Any, Arguments], float],
) -> float:
    """Root mean square of the errors of a call over as many draws of its arguments as the workload asks for; the first
    is as they are, others have the same numbers in another order. They are written into the arrays, which the call
    reads, and are as before in the end. `error`: that of results, given the arguments."""
    own = list(_drawn(workload, arguments))
    before = [a.copy() for a in own]
    rng, found = np.random.default_rng(1), [error(call(), arguments)]
    try:
        for _ in range(workload.draws - 1):
            for a, first in zip(own, before, strict=True):
                a[...] = rng.permutation(first.reshape(-1)).reshape(a.shape)
            found.append(error(call(), arguments))
    finally:
        for a, first in zip(own, before, strict=True):
            a[...] = first
    return math.sqrt(math.fsum(e * e for e in found) / len(found))


def _drawn(workload: Workload, arguments: Arguments) -> Iterator[np.ndarray]:
    """The arrays that differ from call to call."""
    for name, value in arguments.items():
        if name not in workload.weights:
            yield from flat(value).values()
