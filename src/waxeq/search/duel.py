"""What a contest does in its process: whole plans and the model as written by turns, until it is clear who is faster.

It is a module of its own so that little is imported there: that takes as long as many a contest.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

import numpy as np

from waxeq.backend.discover import backends, kernels
from waxeq.backend.kernel import Kernel
from waxeq.frontend.load import load_target
from waxeq.plan.encode import decode
from waxeq.runtime.handover import Handed
from waxeq.runtime.measure import GAIN, Comparison, Samples, compare, told_apart
from waxeq.runtime.neighbours import Load, Watch
from waxeq.runtime.program import Program
from waxeq.runtime.turns import take_turns
from waxeq.runtime.written import Written

_PROMISING = 1.02
"""A median ratio that is worth another look when its interval does not settle who is faster."""
_FAR, _CLOSE = ((24, 1.05), (6, 1.3)), 1.05
"""Ratios that leave no doubt who is faster, each from so many rounds on; and one that is not worth finding out."""
LONG = 0.04
"""Seconds of a call from which on none goes before it that is not timed: filling caches and waking threads are little
of it, and users wait for the outcome."""
FEWEST = 3
"""Rounds that are taken in any case, where it is not clear before."""
_INTERVAL = 6
"""Rounds from which on the least and the largest ratio hold the median in 19 of 20 contests; fewer have no interval."""

FAR = 0.7
"""Part of an error that far less of it is below: its square is half of the other's."""
MOST = (GAIN, 2 * GAIN - 1)
"""How many times as long as another a plan of clearly less error may take, and one of far less."""
_HARDLY = 0.02
"""Part that a plan of less error may turn out to take longer than it may, of what its rounds leave open."""
_TIED = 24
"""Rounds after which a plan of less error is not asked any more if it takes as long: on a machine where a call takes a
twentieth more or less from moment to moment they tell a hundredth, and three rounds do not."""

Arrays = dict[str, np.ndarray]
Closer = Sequence[Sequence[tuple[int, float]]]
"""Of each plan the numbers of those of clearly less error, that of the least first, and how many times as long each may
take and be kept in its place."""


def laid_out(arrays: Handed) -> tuple[Mapping[str, Kernel], tuple[Arrays, Arrays, Arrays]]:
    """The kernels, and the arrays that are `taken`; what a contest begins with."""
    return kernels(backends()), taken(arrays)


def contest(
    ready: tuple[Mapping[str, Kernel], tuple[Arrays, Arrays, Arrays]],
    texts: Sequence[str],
    closer: Closer,
    origin: tuple[str, str] | None,
    budget: float,
) -> tuple[int, Mapping[str, object], str]:
    """Time encoded plans on what is `laid_out` against the model as written; runs in a process of its own. The number
    of the fastest plan, how it compares, and what there is to say of other processes meanwhile."""
    installed, (tensors, constants, inputs) = ready
    plans = [decode(json.loads(t), constants) for t in texts]
    rivals: dict[str, Callable[[], object]] = {
        f"plan {i}": partial(Program(p, installed, tensors).flat_results, inputs) for i, p in enumerate(plans)
    }
    rivals["written"] = partial(Written(plans[0].graph, tensors), inputs)
    if origin is not None:
        rivals["function"] = load_target(":".join(origin)).call
    watch, load = Watch("the plan and the model as written"), Load.now()
    times = take_turns(
        rivals, rounds=200, fewest=FEWEST, budget=budget, unsettled=partial(undecided, closer=closer), long=LONG
    )
    best = _best_written(times)
    winner = fastest([times[f"plan {i}"] for i in range(len(plans))], times[best], closer)
    plan, written = times[f"plan {winner}"], times[best]
    c = compare(plan, written)
    if c.verdict == "within noise" and c.ratio > _PROMISING:  # a noisy machine: the two alone, for as long again
        pair = {n: rivals[n] for n in (f"plan {winner}", best)}
        again = take_turns(pair, fewest=FEWEST, budget=budget, seed=1, long=LONG)
        plan, written = (Samples(times[n].seconds + again[n].seconds) for n in pair)
        c = compare(plan, written)
    watch.add(load, (t.disturbed for t in times.values()))
    outcome = {
        "plan": plan.median,
        "written": written.median,
        "ratio": c.ratio,
        "low": c.low,
        "high": c.high,
        "verdict": c.verdict,
        "brief": min(len(plan.seconds), len(written.seconds)) < _INTERVAL,
    }
    return winner, outcome, watch.note or ""


def taken(arrays: Handed) -> tuple[Arrays, Arrays, Arrays]:
    """Weights, constants and inputs that were `given`."""
    groups = arrays.taken()
    return groups["weight"], groups["constant"], groups["input"]


def _best_written(times: Mapping[str, Samples]) -> str:
    return min((n for n in times if n[:4] != "plan"), key=lambda n: times[n].median)


def undecided(times: Mapping[str, Samples], closer: Closer = ()) -> Collection[str]:
    """Whose further rounds may change something: the model as written until it is far behind or ahead of the first
    plan, each other plan that may still turn out to be faster than that, and those of less error that may turn out to
    take as long; none when the contest is over."""
    first, near = times["plan 0"], {f"plan {i}": most for row in closer[:1] for i, most in row}
    others = [n for n in times if n[:4] == "plan" and n != "plan 0"]
    others = [n for n in others if not _placed(times[n], first) or (n in near and _tied(times[n], first, near[n]))]
    written = [] if _far(first, times[_best_written(times)]) else [n for n in times if n[:4] != "plan"]
    return ["plan 0", *others, *written] if others or written else ()


def _far(first: Samples, written: Samples) -> bool:
    c, pairs = compare(first, written), min(len(first.seconds), len(written.seconds))
    far = next((r for n, r in _FAR if pairs >= n), math.inf)
    return told_apart(first, written) or c.low > far or c.high < 1 / far


def _placed(other: Samples, first: Samples) -> bool:
    """Whether it is known if another plan is faster than the first, or not worth finding out."""
    c, pairs = compare(other, first), min(len(first.seconds), len(other.seconds))
    return told_apart(other, first) or (pairs >= FEWEST and (c.verdict != "within noise" or c.high < _CLOSE))


def _tied(other: Samples, first: Samples, most: float) -> bool:
    """Whether it is open if another plan takes at most so many times as long as the first."""
    c, pairs = compare(first, other), min(len(first.seconds), len(other.seconds))
    return pairs < _TIED and c.low <= most and not _as_fast(c, most)


def _as_fast(c: Comparison, most: float) -> bool:
    """Whether the second of two takes at most so many times as long as the first."""
    return c.ratio <= most and c.high <= most + _HARDLY


def fastest(times: Sequence[Samples], written: Samples, closer: Closer) -> int:
    """The plan to keep, of those timed in the same rounds: the first, which is predicted to be the fastest, unless
    another is faster beyond the noise; of several such, the one with the lowest median. In its place one that comes
    closer to what the model computes, takes hardly longer, and is as surely faster than the model as written."""
    surely = [i for i, t in enumerate(times) if i and compare(t, times[0]).verdict == "faster"]
    best = min(surely, key=lambda i: times[i].median, default=0)
    found = compare(times[best], written).verdict

    def instead(i: int, most: float) -> bool:
        as_fast = _as_fast(compare(times[best], times[i]), most)
        return as_fast and (found != "faster" or compare(times[i], written).verdict == found)

    return next((i for i, most in closer[best] if instead(i, most)), best)
