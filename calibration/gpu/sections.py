"""The sections of a check, most valuable first; each is cases by name, and what to do for one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import prod
from typing import Any

import numpy as np
from calibration.gpu import machine, sanitize
from calibration.gpu.against import against_plan, against_target
from calibration.gpu.check import Case, Check, Outcome
from calibration.gpu.clocked import cold
from calibration.gpu.journal import LEFT_OUT, RIGHT, WRONG
from calibration.gpu.kit import Item, digest, shown
from calibration.gpu.plans import TOLERANCE, Bound, plan_of, workload
from calibration.gpu.targets import COPIED, Target
from calibration.gpu.tuned import fastest

from waxeq.runtime.device_timing import Turns, time_on
from waxeq.testing.conformance import check_call

_EACH = {"target": 0.05, "grid": 0.004}
"""Seconds for the timing of one call."""
_ERRORS = {"float16": 2e-2, "bfloat16": 1e-1, "float32": 1e-4, "float64": 1e-10}
"""RMS error against float64, over the RMS of that, beyond which a timed call is wrong: sums whose terms were rounded to
the dtype of the result are that far off."""


def _machine(c: Check) -> Iterator[Case]:
    yield "environment", lambda: (RIGHT, machine.environment(c.gpu, c.host, real=c.real))
    yield "copy", lambda: (RIGHT, machine.copy_rate(c.storage, real=c.real))
    yield "copy by a kernel", partial(_copy_rate, c)
    for dtype in ("float16", "float32"):
        yield f"product {dtype}", partial(_product_rate, c, dtype)


def _copy_rate(c: Check) -> Outcome:
    """Bytes read and written a second by a kernel that hardly does anything else: a driver copies by other units, which
    may be slower."""
    found = next((i for i in c.items("target") if i.target == COPIED), None)
    if found is None:
        return LEFT_OUT, {"why": "the kit has no such call"}
    moved = found.call.bytes_read + found.call.out.bytes
    return RIGHT, {"kernel": found.call.kernel, "bytes": moved, "bytes_per_second": moved / _once(c, found)}


def _product_rate(c: Check, dtype: str) -> Outcome:
    """The measured ceiling of all that multiplies: the largest product of the targets by NVIDIA's library, or, where
    that is not here, by the fastest kernel of ours."""
    items = [i for i in c.items("target") if i.target.startswith("product ") and i.target.endswith(f" {dtype}")]
    plain = [i for i in items if len(i.call.operands) == 2]
    most = max((prod(i.call.sizes.values()) for i in plain), default=0)
    largest = [i for i in plain if prod(i.call.sizes.values()) == most]
    if not largest:
        return LEFT_OUT, {"why": "the kit has no such product"}
    library = [i for i in largest if i.call.kernel == "cupy.gemm_cublas"] or largest
    took = {i.call.kernel: _once(c, i) for i in library}
    kernel = min(took, key=lambda n: took[n])
    sizes = dict(largest[0].call.sizes)
    return RIGHT, {"kernel": kernel, "sizes": sizes, "operations_per_second": 2 * most / took[kernel]}


def _once(c: Check, i: Item) -> float:
    """Seconds of a call, in a graph."""
    turns = Turns(c.storage, c.bench, c.kernels[i.call.kernel], i.call)
    turns.run()
    turns.run()
    return min(turns.seconds() for _ in range(3))


def _correct(c: Check) -> Iterator[Case]:
    for i in c.items("correct"):
        yield i.case, partial(_one_correct, c, i)


def _one_correct(c: Check, i: Item) -> Outcome:
    """Against the meaning, poisoned beforehand; and beside what the simulated GPU made of the same operands."""
    rows: list[tuple[str, tuple[float, ...]]] = []
    wrong = check_call(
        c.kernels[i.call.kernel],
        i.call,
        np.random.default_rng(i.seed),
        lambda operands, out: rows.append((digest(operands), shown(out))),
    )
    if wrong is not None:
        return WRONG, {"why": wrong, "call": f"{i.call.meaning} {i.call.dims}"}
    if not i.drawn or not rows or rows[0][0] != i.drawn:
        return RIGHT, {"simulated": "not compared: the operands that were drawn are others"}
    mine, theirs = (np.array(x, float) for x in (rows[0][1], i.shown))
    finite = np.isfinite(mine) & np.isfinite(theirs)
    apart = np.abs(mine[finite] - theirs[finite]).max(initial=0.0)
    same = np.array_equal(mine, theirs, equal_nan=True)
    scale = np.abs(theirs[finite]).max(initial=0.0) or 1.0
    return RIGHT, {"simulated": "same bits" if same else "other bits", "apart": float(apart / scale)}


def _timed(c: Check, section: str) -> Iterator[Case]:
    for i in c.items(section):
        yield i.case, partial(_one_timed, c, i, section)


def _one_timed(c: Check, i: Item, section: str) -> Outcome:
    kernel, call = c.kernels[i.call.kernel], i.call
    timing = time_on(c.storage, c.bench, kernel, call, c.timing_key(call), _EACH[section])
    found: dict[str, Any] = {
        "kernel": call.kernel,
        "seconds": timing.seconds,
        "samples": len(timing.samples),
        "rms_error": timing.rms_relative_error,
        "bytes": call.bytes_read + call.out.bytes,
    }
    if timing.rms_relative_error > max(_ERRORS.get(call.out.dtype, 0.0), 8 * kernel.error):
        return WRONG, {**found, "why": f"relative RMS error {timing.rms_relative_error:.2g} against float64"}
    c.timings.record(timing)
    if section == "target":
        t = c.targets[i.target]
        found |= {"target": t.name, "cold": cold(c.storage, Turns(c.storage, c.bench, kernel, call), c.cache)}
        found["operations"] = 2 * sum(prod(call.sizes[k] for k in axes) for axes in t.operations)
    return RIGHT, found


def _plans(c: Check) -> Iterator[Case]:
    """The plan that was predicted to be the best of each workload before the others; each as it is, and by the fastest
    kernels."""
    first = {workload(name): name for name in reversed(list(c.kit.plans))}
    names = dict.fromkeys((*(n for n in c.kit.plans if n in first.values()), *c.kit.plans))
    for name in names:
        if any(s.call.kernel not in c.kernels for s in plan_of(c, name).steps):
            continue  # what other GPUs alone have
        yield name, partial(_one_plan, c, name)
        yield f"{name}, timed", partial(_one_timed_plan, c, name)


def _one_timed_plan(c: Check, name: str) -> Outcome:
    chosen, failed = fastest(c, plan_of(c, name), TOLERANCE)
    outcome, found = _one_plan(c, name, chosen) if chosen else (LEFT_OUT, {"why": "its own kernels are the fastest"})
    return outcome, {**found, **({"failed": failed} if failed else {})}


def _one_plan(c: Check, name: str, chosen: Mapping[int, str] | None = None) -> Outcome:
    plan = Bound.of_kit(c, name, chosen or {})
    error, allowed = plan.error()
    found = {"workload": workload(name), "rms_error": error, "steps": plan.steps, "plan": name}
    found["chosen"] = [[n, kernel] for n, kernel in (chosen or {}).items()]
    if not error <= allowed:
        return WRONG, {**found, "why": f"relative RMS error {error:.2g} against float64, {allowed:.2g} allowed"}
    return RIGHT, {**found, "seconds": plan.seconds(), "called": plan.called()}


_PEERS = ("compiled", "cublas")
"""What goals are counted by that only a peer can tell."""


def _against(c: Check) -> Iterator[Case]:
    """What goals are counted by first; torch.compile only where one is, as it takes a minute for a product."""
    for name in dict.fromkeys(map(workload, c.kit.plans)):
        yield name, partial(against_plan, c, name)
    for t in sorted(_with_peer(c), key=lambda t: t.goal.of not in _PEERS):
        yield t.name, partial(against_target, c, t, compiled=t.goal.of == "compiled")


def _compiled(c: Check) -> Iterator[Case]:
    """All others against torch.compile."""
    for t in _with_peer(c):
        if t.goal.of != "compiled":
            yield t.name, partial(against_target, c, t, compiled=True)


def _with_peer(c: Check) -> Iterator[Target]:
    return (c.targets[n] for n in dict.fromkeys(i.target for i in c.items("target")) if c.targets[n].peer)


def _sanitized(c: Check) -> Iterator[Case]:
    for tool in sanitize.TOOLS:
        yield tool, partial(sanitize.run, c, tool)


SECTIONS: Mapping[str, Callable[[Check], Iterator[Case]]] = {
    "machine": _machine,
    "correct": _correct,
    "target": partial(_timed, section="target"),
    "plan": _plans,
    "against": _against,
    "grid": partial(_timed, section="grid"),
    "sanitized": _sanitized,
    "compiled": _compiled,
}
