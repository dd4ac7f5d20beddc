"""The last word on plans for ranges of sizes: in a process of its own, are they faster than the model as written?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from waxeq.backend.discover import backends, kernels
from waxeq.runtime.handover import Handed, handed
from waxeq.runtime.measure import compare, in_fresh_process
from waxeq.runtime.sized import SizedProgram, SizedSaved
from waxeq.runtime.turns import take_turns
from waxeq.runtime.written import Written
from waxeq.search.duel import taken, undecided
from waxeq.search.result import Trial
from waxeq.search.session import Session
from waxeq.symbolic.dims import Sizes
from waxeq.symbolic.file import decode_sized, encode_sized
from waxeq.symbolic.plan import Interval, SizedPlans

_PLACES = 3
"""Sizes of an interval that its plan is held against the model at: the ends of its curve and between."""
_PROCESS, _LEAST, _MOST = 2.0, 0.15, 0.5
"""Seconds that a process takes to start, import and load; and that one size may take."""


@dataclass(frozen=True, slots=True)
class SizedTrial:
    """How the plan at some sizes does against the model as written."""

    sizes: Sizes
    trial: Trial


def tried(
    session: Session,
    plans: SizedPlans,
    program: SizedProgram,
    inputs: Callable[[Sizes], Mapping[str, np.ndarray]],
) -> tuple[SizedTrial, ...] | None:
    """Every interval whose plan is not the model as written, at some of its sizes, on the inputs that the model has
    there. None where the budget has no room for that, or the user does not wait."""
    places = [s for i in plans.intervals if not i.plan.as_written for s in _places(i)]
    room = session.deadline.left - _PROCESS
    if not places:
        return ()
    if room < _LEAST * len(places) or session.events.stop_requested:
        return None
    given = {f"{n}:{name}": a for n, sizes in enumerate(places) for name, a in inputs(sizes).items()}
    with handed({"weight": program.tensors, "constant": plans.constants, "input": given}) as arrays:
        job = (arrays, encode_sized(plans), places, min(_MOST, room / len(places)))
        rows = in_fresh_process(
            contest, job, threads=session.options.threads, stopped=lambda: session.events.stop_requested,
            held=arrays.held,
        )  # fmt: skip
    return None if rows is None else tuple(map(SizedTrial, places, rows))


def _places(i: Interval) -> list[Sizes]:
    inside = [p.sizes for p in i.curve if p.sizes in i.box] or [i.box.corners()[-1]]
    last = len(inside) - 1
    return [inside[n] for n in dict.fromkeys(round(k * last / (_PLACES - 1)) for k in range(_PLACES))]


def contest(arrays: Handed, data: Mapping[str, Any], places: Sequence[Sizes], budget: float) -> list[Trial]:
    """Time encoded plans on the arrays that are handed over, at some sizes, against the model as written, as a call
    meets them; runs in a process of its own."""
    installed, (tensors, constants, given) = kernels(backends()), taken(arrays)
    plans = decode_sized(data, constants)
    program, rows = SizedProgram(plans, installed, tensors), list[Trial]()
    for n, sizes in enumerate(places):
        inputs = {name.partition(":")[2]: a for name, a in given.items() if name.partition(":")[0] == str(n)}
        here = SizedSaved(plans, tensors, {}).at(sizes, installed)
        rivals = {
            "plan 0": partial(program.flat_results, inputs),
            "written": partial(Written(here.plan.graph, tensors), inputs),
        }
        times = take_turns(rivals, rounds=200, fewest=3, budget=budget, unsettled=undecided)
        c = compare(times["plan 0"], times["written"])
        rows.append(Trial(times["plan 0"].median, times["written"].median, c.ratio, c.low, c.high, c.verdict))
    return rows
