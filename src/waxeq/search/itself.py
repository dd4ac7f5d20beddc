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
from statistics import median
from typing import Any

import numpy as np

from waxeq.frontend.calling import called
from waxeq.frontend.trace import Traced
from waxeq.search.result import Result
from waxeq.search.session import Session

_TURNS, _SECONDS, _LEAST = 7, 0.2, 0.1
"""Calls of each, and seconds after which no other is made; those that are taken even where the budget is spent."""
_PART, _BYTES = 0.2, 1 << 24
"""Part of these seconds that a call of the model as written takes at most, and bytes of arguments, which are copied:
NumPy's own ways matter where little is computed."""
_CLEAR = 1.2
"""How much longer the plan must take in the middle of all turns for that to be said."""


def told(session: Session, fn: Callable[..., Any], given: Mapping[str, Any], traced: Traced, result: Result) -> Result:
    """The result, with a note where the function is faster than the plan. It gets copies of its arguments."""
    trial, seconds = result.report.trial, min(_SECONDS, max(_LEAST, session.deadline.left))
    size = sum(a.nbytes for a in (*traced.inputs.values(), *traced.tensors.values()))
    if trial is None or traced.graph.states or session.events.stop_requested:
        return result
    if trial.written > _PART * seconds or size > _BYTES:
        return result
    program = result.program
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            turns = [*_turns(fn, given, lambda: program.flat_results(traced.inputs), seconds)]
    except Exception:  # what needs more than its arguments cannot be timed
        return result
    if median(plan / own for own, plan in turns) < _CLEAR:
        return result
    own, plan = (median(row) * 1e6 for row in zip(*turns, strict=True))
    note = (
        f"the function itself takes {own:,.3g} us where this plan takes {plan:,.3g}: NumPy has a faster way for what "
        "it was traced to; call the function"
    )
    return result.reported(replace(result.report, notes=(*result.report.notes, note)))


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
