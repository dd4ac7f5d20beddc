"""What a call of a plan costs beyond the arithmetic: 64 operations on 64 x 64, against the same by hand in C."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.workloads import WORKLOADS
from waxeq.runtime.timing import results_error

ROW = "tiny_ops_64"
PLAN, HAND = "waxeq, called as users do", "C by hand, called by ctypes into one array that is kept"
_SOURCE = Path(__file__).parent / "overhead.c"


def by_hand(arguments: Mapping[str, np.ndarray]) -> Callable[[], np.ndarray]:
    """A call of overhead.c, built with the compiler and flags of generated kernels, into one array that is kept."""
    from waxeq_native import library

    function = library.unit((_SOURCE,)).tiny_ops
    function.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_int64]
    function.restype = None
    out = np.empty_like(arguments["x"])
    places = [a.ctypes.data for a in (arguments["x"], arguments["a"], arguments["b"], out)]

    def run() -> np.ndarray:
        function(*places, out.size)
        return out

    return run


def take(plan: str, budget: float) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Seconds of calls and errors against float64 of each contestant; runs in a process of its own."""
    from benchmarks.contestants import arrays
    from benchmarks.row import reference
    from waxeq.backend.discover import backends, kernels
    from waxeq.runtime.program import Program
    from waxeq.runtime.save import load_plan
    from waxeq.runtime.turns import take_turns

    workload, saved = WORKLOADS[ROW], load_plan(plan)
    arguments = workload.make()
    program = Program(saved.plan, kernels(backends()), saved.tensors)
    rivals: dict[str, Callable[[], object]] = {
        PLAN: partial(program, *workload.ordered(arguments)),
        HAND: by_hand(arguments),
    }
    truth = reference(workload, arguments)
    errors = {n: results_error(arrays(run()), truth) for n, run in rivals.items()}
    return {n: list(s.seconds) for n, s in take_turns(rivals, budget=budget).items()}, errors
