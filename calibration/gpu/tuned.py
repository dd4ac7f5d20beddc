"""Plans by the kernels that turn out to be the fastest: each call of a plan by every kernel that makes it, timed.

The kernels of a kit's plans were chosen where there is no GPU, by rooflines, which know nothing of tiles. NVIDIA's
library of products, which is not where a kit is made, is among what is timed where it is installed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from calibration.gpu.check import Check
from calibration.gpu.targets import naive

from waxeq.backend.call import Call, multiplies
from waxeq.backend.kernel import Kernel
from waxeq.cost.key import Timing, TimingKey
from waxeq.memory.plan import assign_plan
from waxeq.plan.plan import Buffer, Plan
from waxeq.runtime.device_timing import time_on

_SECONDS = 0.01
"""For the timing of one call."""


def rivals(call: Call, kernels: Mapping[str, Kernel]) -> Iterator[Call]:
    """The call by its own kernel, and by each that makes the same in another way."""
    yield call
    for name, k in kernels.items():
        other = replace(call, kernel=name)
        able = k.form != "transfer" and (k.dtypes is None or all(v.dtype in k.dtypes for v in call.operands))
        if not able or name == call.kernel or call.out.bytes < k.smallest or (multiplies(call.meaning) and naive(k)):
            continue
        if k.accepts(other) and (not k.variant_of or k.differs(other)):
            yield other


def fastest(c: Check, plan: Plan, most: float) -> tuple[dict[int, str], dict[str, str]]:
    """The kernel of each step that was the fastest, where that is another one than the plan has; and, by name, why
    kernels could not be timed. Timings are kept, and not taken again. `most`: relative RMS error against float64 that a
    kernel may have."""
    known: dict[TimingKey, Timing] = {t.key: t for t in c.timings.taken()}
    found, failed = dict[int, str](), dict[str, str]()
    for n, s in enumerate(plan.steps):
        took: dict[str, float] = {}
        for call in rivals(s.call, c.kernels):
            timing = _timed(c, call, most, known, failed)
            if timing is not None and not timing.rms_relative_error > most:
                took[call.kernel] = timing.seconds
        best = min(took, key=lambda k: took[k], default=s.call.kernel)
        if best != s.call.kernel:
            found[n] = best
    return found, failed


def _timed(c: Check, call: Call, most: float, known: dict[TimingKey, Timing], failed: dict[str, str]) -> Timing | None:
    """What a call takes, known or timed; None where its kernel cannot be compiled or run, which is its own fault
    alone. Raises where the GPU does not answer any more."""
    key = c.timing_key(call)
    if key not in known:
        try:
            known[key] = time_on(c.storage, c.bench, c.kernels[call.kernel], call, key, _SECONDS)
        except Exception as e:
            c.storage.wait()
            failed[call.kernel] = f"{type(e).__name__}: {e}"
            return None
        if not known[key].rms_relative_error > most:
            c.timings.record(known[key])
    return known[key]


def by(plan: Plan, chosen: Mapping[int, str], kernels: Mapping[str, Kernel]) -> Plan:
    """The plan with some steps by other kernels, in arenas that are laid out anew."""
    buffers = {n: b for n, b in plan.buffers.items() if b.role != "workspace"}
    steps = []
    for n, s in enumerate(plan.steps):
        call = replace(s.call, kernel=chosen.get(n, s.call.kernel))
        kernel, name = kernels[call.kernel], None
        if need := kernel.workspace(call):
            name = f"work{n}"
            buffers[name] = Buffer(name, "uint8", need, "workspace", place=kernel.device)
        steps.append(replace(s, call=call, workspace=name, retained=kernel.retained(call)))
    return assign_plan(replace(plan, steps=tuple(steps), buffers=buffers), kernels).check()
