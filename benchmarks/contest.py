"""Plans and peers timed side by side: one fresh process, rounds in random order, paired ratios, errors in float64."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from waxeq.cli.peers import arrays
from waxeq.runtime.measure import Comparison, Samples, compare, in_fresh_process
from waxeq.runtime.timing import results_error
from waxeq.runtime.turns import take_turns


@dataclass(frozen=True)
class Row:
    """One contestant: median seconds, how much longer it takes than the first one (with a 95 % interval), the relative
    RMS error of its results against float64."""

    name: str
    seconds: float
    versus: Comparison | None
    error: float


def hold(
    example: str, plans: Mapping[str, str], peers: Sequence[str], *, threads: int, budget: float = 10.0
) -> tuple[Row, ...]:
    """Time saved plans (path by name) and peers ("numpy", "jax", "ort") on the inputs of an example."""
    job = (example, dict(plans), tuple(peers), threads, budget)
    times, errors = in_fresh_process(measure, job, threads=threads, timeout=900)
    first = next(iter(plans))
    return tuple(
        Row(
            n,
            Samples(tuple(times[n])).median,
            None if n == first else compare(Samples(tuple(times[first])), Samples(tuple(times[n]))),
            errors[n],
        )
        for n in times
    )


def measure(
    example: str, plans: Mapping[str, str], peers: Sequence[str], threads: int, budget: float
) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Runs in a process of its own."""
    from waxeq.backend.discover import backends, kernels
    from waxeq.frontend.load import load_target
    from waxeq.ir.interpret import interpret
    from waxeq.runtime.program import Program
    from waxeq.runtime.save import load_plan

    if hasattr(os, "sched_setaffinity"):  # holds every library's threads, not only those that read a variable
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    target = load_target(example)
    rivals: dict[str, Callable[[], Any]] = {}
    saved = {n: load_plan(p) for n, p in plans.items()}
    for n, s in saved.items():
        program = Program(s.plan, kernels(backends()), s.tensors)
        rivals[n] = lambda program=program, s=s: tuple(program.flat_results(s.inputs).values())
    one = next(iter(saved.values()))
    for n in peers:
        rivals[n] = _peer(n, target, threads)
    given = {**one.plan.graph.constants, **one.tensors, **one.inputs}
    truth = list(interpret(one.plan.graph, given, oracle=True).values())
    errors = {n: results_error(arrays(run()), truth) for n, run in rivals.items()}
    samples = take_turns(rivals, budget=budget)
    return {n: list(s.seconds) for n, s in samples.items()}, errors


def _peer(name: str, target: Any, threads: int) -> Callable[[], Any]:
    from benchmarks.peers import jax_jit, onnx_runtime

    if name == "numpy":
        return target.call
    if name == "jax":
        return jax_jit(target.fn, target.example)
    return onnx_runtime(target.name, target.example, threads)
