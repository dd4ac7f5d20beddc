"""The contest: which plan is the fastest, and is it faster than the model as written?

Whole plans are timed side by side with the model, in a process of its own: what the compiler used of threads, caches
and memory would else be part of the result. Where the budget has no room for that, plan and model run once each here.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial

import numpy as np

from waxeq.backend.discover import backends, kernels
from waxeq.frontend.load import load_target
from waxeq.frontend.trace import Traced
from waxeq.plan.encode import decode
from waxeq.runtime.handover import Groups, Handed, handed
from waxeq.runtime.measure import Samples, compare, in_fresh_process, told_apart
from waxeq.runtime.program import Program
from waxeq.runtime.turns import take_turns
from waxeq.runtime.written import Written
from waxeq.search.result import Result, Trial
from waxeq.search.session import Session

_SETTLED = 1.5
"""An interval that is wider than this factor, and not as far from 1, is not remembered: the next time is another
chance."""
_PROMISING = 1.02
"""A median ratio that is worth another look when its interval does not settle who is faster."""
_FAR, _CLOSE = ((24, 1.05), (6, 1.3)), 1.05
"""Ratios that leave no doubt who is faster, each from so many rounds on; and one that is not worth finding out."""
_LONGEST = 3.0
_FEWEST = 3
"""Rounds that are taken in any case."""
_PROCESS, _RUNS = 2.0, _FEWEST + 2
"""Seconds that a process takes to start, import and load; and how often each contestant runs at least."""
_CLEAR = 1.2
"""What a plan must gain in a single run to be believed."""
BRIEF = "the budget was spent before the trial: the plan and the model as written were timed in a single run each"


def hold(session: Session, traced: Traced, results: Sequence[Result]) -> tuple[int, Trial | None]:
    """Which result is the fastest in a contest of whole plans, and how it does against the model as written; the first
    and None when the user does not wait for the outcome.

    It takes what is left of the budget, at most three seconds or twice that; never less than one timed run, after a
    first, of the first result and of the model.
    """
    texts = [r.text for r in results]
    key = _key(session, texts)
    known = None if session.options.fresh else session.table.memo_get("contest", key)
    if known is not None:
        winner, trial = json.loads(known)
        return winner, replace(Trial(**trial), remembered=True)
    written = partial(Written(results[0].plan.graph, traced.tensors), traced.inputs)
    start = time.perf_counter()
    written()
    once = sum(r.plan.predicted for r in results) + 2 * (time.perf_counter() - start)
    if session.deadline.left < _PROCESS + _RUNS * once:
        return 0, _brief(results[0], traced, written)
    with handed(given(results[0], traced)) as arrays:
        budget = min(_LONGEST, 0.4 * (session.deadline.left - _PROCESS))
        job = (arrays, texts, traced.origin, budget)
        answer = in_fresh_process(
            contest, job, threads=session.options.threads, stopped=lambda: session.events.stop_requested,
            held=arrays.held,
        )  # fmt: skip
    if answer is None:
        return 0, None
    winner, found = answer
    trial = Trial(**found)
    if trial.high < _SETTLED * trial.low or trial.low > _SETTLED or trial.high < 1 / _SETTLED:
        session.table.memo_put("contest", key, json.dumps([winner, asdict(trial)], sort_keys=True))
        alone = _key(session, texts[winner : winner + 1])  # the next time, the winner is all there is
        session.table.memo_put("contest", alone, json.dumps([0, asdict(trial)], sort_keys=True))
    return winner, trial


def _key(session: Session, texts: Sequence[str]) -> str:
    return hashlib.sha256("|".join([*texts, session.device.id]).encode()).hexdigest()


def _brief(result: Result, traced: Traced, written: Callable[[], object]) -> Trial:
    """One run of each, which has no interval."""
    rivals = {"plan": partial(result.program.flat_results, traced.inputs), "written": written}
    times = take_turns(rivals, rounds=1, budget=0.0)
    plan, model = times["plan"].median, times["written"].median
    ratio = model / plan
    verdict = "faster" if ratio > _CLEAR else "slower" if ratio < 1.0 else "within noise"
    return Trial(plan, model, ratio, ratio, ratio, verdict, brief=True)


def given(result: Result, traced: Traced) -> Groups:
    """The arrays that plans of a model are timed on."""
    return {"weight": result.tensors, "constant": result.plan.graph.constants, "input": traced.inputs}


def contest(
    arrays: Handed, texts: Sequence[str], origin: tuple[str, str] | None, budget: float
) -> tuple[int, Mapping[str, object]]:
    """Time encoded plans on the arrays that are `given` against the model as written; runs in a process of its own. The
    number of the fastest plan, and how it compares."""
    installed, (tensors, constants, inputs) = kernels(backends()), taken(arrays)
    plans = [decode(json.loads(t), constants) for t in texts]
    rivals: dict[str, Callable[[], object]] = {
        f"plan {i}": partial(Program(p, installed, tensors).flat_results, inputs) for i, p in enumerate(plans)
    }
    rivals["written"] = partial(Written(plans[0].graph, tensors), inputs)
    if origin is not None:
        rivals["function"] = load_target(":".join(origin)).call
    times = take_turns(rivals, rounds=200, fewest=_FEWEST, budget=budget, unsettled=undecided)
    winner = fastest([times[f"plan {i}"] for i in range(len(plans))])
    best = _best_written(times)
    plan, written = times[f"plan {winner}"], times[best]
    c = compare(plan, written)
    if c.verdict == "within noise" and c.ratio > _PROMISING:  # a noisy machine: the two alone, for as long again
        pair = {n: rivals[n] for n in (f"plan {winner}", best)}
        again = take_turns(pair, fewest=_FEWEST, budget=budget, seed=1)
        plan, written = (Samples(times[n].seconds + again[n].seconds) for n in pair)
        c = compare(plan, written)
    return winner, {
        "plan": plan.median,
        "written": written.median,
        "ratio": c.ratio,
        "low": c.low,
        "high": c.high,
        "verdict": c.verdict,
    }


def taken(arrays: Handed) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Weights, constants and inputs that were `given`."""
    groups = arrays.taken()
    return groups["weight"], groups["constant"], groups["input"]


def _best_written(times: Mapping[str, Samples]) -> str:
    return min((n for n in times if n[:4] != "plan"), key=lambda n: times[n].median)


def undecided(times: Mapping[str, Samples]) -> Collection[str]:
    """Whose further rounds may change something: the model as written until it is far behind or ahead of the first
    plan, and each other plan that may still turn out to be faster than that; none when the contest is over."""
    first = times["plan 0"]
    others = [n for n in times if n[:4] == "plan" and n != "plan 0" and not _placed(times[n], first)]
    written = [] if _far(first, times[_best_written(times)]) else [n for n in times if n[:4] != "plan"]
    return ["plan 0", *others, *written] if others or written else ()


def _far(first: Samples, written: Samples) -> bool:
    c, pairs = compare(first, written), min(len(first.seconds), len(written.seconds))
    far = next((r for n, r in _FAR if pairs >= n), math.inf)
    return told_apart(first, written) or c.low > far or c.high < 1 / far


def _placed(other: Samples, first: Samples) -> bool:
    """Whether it is known if another plan is faster than the first, or not worth finding out."""
    c, pairs = compare(other, first), min(len(first.seconds), len(other.seconds))
    return told_apart(other, first) or (pairs >= _FEWEST and (c.verdict != "within noise" or c.high < _CLOSE))


def fastest(times: Sequence[Samples]) -> int:
    """The plan to keep, of those timed in the same rounds: the first, which is predicted to be the fastest, unless
    another is faster beyond the noise; of several such, the one with the lowest median."""
    surely = [i for i, t in enumerate(times) if i and compare(t, times[0]).verdict == "faster"]
    return min(surely, key=lambda i: times[i].median, default=0)
