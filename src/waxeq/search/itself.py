"""The function itself, as Python runs it, beside the plan that was found for it.

The model as written is what the function was traced to, one operation after another. NumPy may have a faster way of its
own for some of it: a plan that is ahead of the model as written can be behind the function.
"""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from waxeq.frontend.calling import called
from waxeq.frontend.trace import Traced
from waxeq.search.curves import key
from waxeq.search.result import Result
from waxeq.search.session import Session
from waxeq.search.sizes import SizedResult
from waxeq.symbolic.family import Family
from waxeq.symbolic.size import written

_TURNS, _SECONDS, _LEAST = 7, 0.2, 0.1
"""Calls of each, and seconds after which no other is made; those that are taken even where the budget is spent."""
_EDGES = 4
"""Edges of intervals at which plans for ranges of sizes are timed so, those of the whole range among them."""
_PART, _BYTES = 0.2, 1 << 24
"""Part of these seconds that a call of the model as written takes at most, and bytes of arguments, which are copied:
NumPy's own ways matter where little is computed."""
_CLEAR = 1.2
"""How much longer the plan must take in the middle of all turns for that to be said."""


def told(session: Session, fn: Callable[..., Any], given: Mapping[str, Any], traced: Traced, result: Result) -> Result:
    """The result, with a note where the function is faster than the plan. It gets copies of its arguments."""
    trial, seconds = result.report.trial, min(_SECONDS, max(_LEAST, session.deadline.left))
    if trial is None or traced.graph.states or session.events.stop_requested:
        return result
    if trial.written > _PART * seconds or _bytes(traced) > _BYTES:
        return result
    program = result.program
    behind = _behind(fn, given, lambda: program.flat_results(traced.inputs), seconds)
    if behind is None:
        return result
    own, plan = behind
    note = (
        f"the function itself takes {own:,.3g} us where this plan takes {plan:,.3g}: NumPy has a faster way for what "
        "it was traced to; call the function"
    )
    return result.reported(replace(result.report, notes=(*result.report.notes, note)))


def told_at_sizes(session: Session, family: Family, result: SizedResult) -> SizedResult:
    """The same at edges of intervals, of plans for ranges of sizes."""
    if not session.options.trial:
        return result
    edges = {key(family.dims, s): (s, i) for i in result.intervals for s in (i.box.corners()[0], i.box.corners()[-1])}
    some = {round(k * (len(edges) - 1) / (_EDGES - 1)) for k in range(_EDGES)}
    places = [row for n, row in enumerate(edges.values()) if n in some]
    seconds = min(_SECONDS, max(_LEAST, session.deadline.left) / len(places))
    rows: list[str] = []
    for sizes, i in places:
        if session.events.stop_requested or any(p.seconds > _PART * seconds for p in i.curve if p.sizes == sizes):
            continue
        traced, given = family.traced(sizes), family.arguments(sizes)
        if traced.graph.states or _bytes(traced) > _BYTES:
            continue
        run = partial(result.program.flat_results, traced.inputs)
        if (behind := _behind(family.fn, given, run, seconds)) is not None:
            own, plan = behind
            rows.append(f"{own:,.3g} us where {written(sizes)}, and the plan {plan:,.3g}")
    if not rows:
        return result
    note = (
        f"the function itself takes {'; '.join(rows)}: NumPy has a faster way for what it was traced to; call the "
        "function there, or optimize it for one size"
    )
    return replace(result, report=replace(result.report, notes=(*result.report.notes, note)))


def _bytes(traced: Traced) -> int:
    """Of what the function is given."""
    return sum(a.nbytes for a in (*traced.inputs.values(), *traced.tensors.values()))


def _behind(
    fn: Callable[..., Any], given: Mapping[str, Any], plan: Callable[[], object], seconds: float
) -> tuple[float, float] | None:
    """Microseconds of the function and of the plan, where it is clearly behind. The function gets copies."""
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            turns = [*_turns(fn, given, plan, seconds)]
    except Exception:  # what needs more than its arguments cannot be timed
        return None
    if median(plan / own for own, plan in turns) < _CLEAR:
        return None
    own, took = (median(row) * 1e6 for row in zip(*turns, strict=True))
    return own, took


def _turns(
    fn: Callable[..., Any], given: Mapping[str, Any], plan: Callable[[], object], seconds: float
) -> Iterator[tuple[float, float]]:
    """Seconds of the function and of the plan, by turns, without the first calls, which touch new memory."""
    until = time.perf_counter() + seconds
    for turn in range(_TURNS + 1):
        arguments = copy.deepcopy(dict(given))
        row = _seconds(lambda own=arguments: called(fn, own)), _seconds(plan)
        if turn:
            yield row
            if time.perf_counter() > until:
                return


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
