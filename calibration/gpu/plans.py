"""Whole plans on a GPU: Mirage's six graphs and a step of decoding, in float16, at the shapes of the benchmark set."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from benchmarks.workload import Workload, flat, mapped
from benchmarks.workloads import mirage, transformer
from calibration.gpu.clocked import quartile
from calibration.gpu.targets import Goal
from calibration.gpu.tuned import by, rivals

from waxeq.backend.call import Call
from waxeq.backend.kernel import Kernel
from waxeq.backend.storage import Storage
from waxeq.plan.encode import decode, encode
from waxeq.plan.plan import Plan
from waxeq.runtime.program import Program
from waxeq.runtime.verify import Truth

if TYPE_CHECKING:
    from calibration.gpu.check import Check

TOLERANCE = 5e-3
"""Relative RMS error against float64 that plans in float16 may have."""
_REPEATS, _SAMPLES = 5, 12
WORKLOADS: Mapping[str, Workload] = {w.name: w for family in (mirage, transformer) for w in family.WORKLOADS}
PLANS: Mapping[str, Goal] = {
    "llama_decode_512": Goal("compiled", 1.1),
    **dict.fromkeys(
        ("mirage_rmsnorm_b8", "mirage_gated_mlp", "mirage_lora", "mirage_gqa_b8", "mirage_qknorm_b8",
         "mirage_ntrans_b8"), Goal("torch", 1.0),
    ),
}  # fmt: skip
"""Workloads, and what each is to reach."""


def arguments(w: Workload, *, small: bool) -> Mapping[str, Any]:
    """Arguments in float16, the same on every machine."""
    made = w.small() if small and w.small is not None else w.make()
    return {n: mapped(a, lambda x: x.astype(np.float16)) for n, a in made.items()}


def encoded(
    names: Sequence[str], kernels: Mapping[str, Kernel], folder: Path, *, small: bool, say: Callable[[str], object]
) -> tuple[dict[str, Mapping[str, Any]], dict[str, np.ndarray], list[Call]]:
    """The plans of each workload that are predicted to be the fastest on a GPU, as data, by the workload's name and a
    number; constants of their graphs, as "plan/constant"; the calls in them, by each of `kernels` that makes them. None
    of them is run. What was searched is remembered in a table in `folder`."""
    plans, constants, calls = {}, {}, []
    for name, plan in _searched(names, folder, small=small):
        say(f"plan {name}: {len(plan.steps)} kernels")
        plans[name] = encode(plan)
        constants |= {f"{name}/{n}": a for n, a in plan.graph.constants.items()}
        calls += [c for s in plan.steps for c in rivals(s.call, kernels)]
    return plans, constants, calls


def workload(plan: str) -> str:
    """What a plan is of, by the plan's name."""
    return plan.partition(" ")[0]


def plan_of(c: Check, name: str) -> Plan:
    """A plan of the kit."""
    constants = {n.partition("/")[2]: a for n, a in c.kit.constants.items() if n.partition("/")[0] == name}
    return decode(c.kit.plans[name], constants)


class Bound:
    """A plan, bound to its weights on a GPU, with its inputs there; `arguments`: those of its model, by name."""

    def __init__(self, on: Storage, kernels: Mapping[str, Kernel], plan: Plan, arguments: Mapping[str, Any]) -> None:
        self._on = on
        arrays = {p: a for n, v in arguments.items() for p, a in flat(v, n).items()}
        leaves = {x.name: x.kind for x in plan.graph.leaves}
        self._inputs = {n: a for n, a in arrays.items() if leaves.get(n) == "input"}
        self._weights = {n: a for n, a in arrays.items() if leaves.get(n) == "weight"}
        self.program = Program(plan, kernels, self._weights)
        self._there = {n: on.uploaded(a) for n, a in self._inputs.items()}

    @staticmethod
    def of_kit(c: Check, name: str, chosen: Mapping[int, str]) -> Bound:
        """A plan of the kit; `chosen`: other kernels than its own for some steps."""
        plan, small = plan_of(c, name), bool(c.kit.about["small"])
        if chosen:
            plan = by(plan, chosen, c.kernels)
        return Bound(c.storage, c.kernels, plan, arguments(WORKLOADS[workload(name)], small=small))

    @property
    def steps(self) -> int:
        """Calls of kernels."""
        return len(self.program.plan.steps)

    def error(self) -> tuple[float, float]:
        """Relative RMS error against float64 of the result that is furthest off, on the third run, which is a graph's;
        and what it may be: what the model as written has, three times over, and more."""
        for _ in range(2):
            self.program.flat_results(self._inputs)
        rows = Truth.of(self.program.plan.graph, self._inputs, self._weights).accuracy(
            self.program.flat_results(self._inputs)
        )
        worst = max(rows, key=lambda r: r.plan[1])
        return worst.plan[1], max(TOLERANCE, 3 * worst.written[1])

    def replayed(self, repeats: int) -> float:
        """Seconds that the GPU takes for one of so many runs."""
        return self._on.seconds(self.program.again(self._there), repeats)

    def seconds(self) -> float:
        """The lower quartile of what the GPU takes for a run."""
        self.replayed(2)
        return quartile([self.replayed(_REPEATS) for _ in range(_SAMPLES)])

    def called(self) -> float:
        """The same of calls from Python, with inputs and results on the GPU."""

        def call() -> None:
            self.program(**self._there)

        call()
        return quartile([self._on.seconds(call, _REPEATS) for _ in range(_SAMPLES)])


def _searched(names: Sequence[str], folder: Path, *, small: bool) -> Iterator[tuple[str, Any]]:
    from waxeq.compile import proposed
    from waxeq.events import Events
    from waxeq.frontend.trace import trace
    from waxeq.options import Options
    from waxeq.search.session import Session

    options = Options.of(
        backends=("cupy",), device="cuda", cost="roofline", tolerance=TOLERANCE, table=folder / "searched.duckdb",
        budget=None,
    )  # fmt: skip
    for name in names:
        w = WORKLOADS[name]
        traced = trace(w.fn, arguments(w, small=small), weights=w.weights, name=name)
        with Session.open(options, Events()) as session:
            for n, found in enumerate(proposed(session, traced)[0]):
                yield f"{name} {n}", found.plan
