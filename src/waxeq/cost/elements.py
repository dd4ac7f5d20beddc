"""What scalar functions cost, element by element, as one kernel learns it from the others of its backend.

The kernels of a backend call the same functions: one that has timed `cosh` tells those that have not.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from waxeq.cost.device import Peaks
from waxeq.cost.features import is_function, roofline
from waxeq.cost.geometry import item_size
from waxeq.cost.key import Timing

_LEAST = 0.1
"""Part of a timing that is the function's at least, whatever ceilings say of the rest."""


Elements = Mapping[str, Mapping[str, float]]
"""Seconds for an element of a function, by feature and kernel."""


class Alone(NamedTuple):
    """What a kernel takes for an element of the one function of a call, over so many of them."""

    of: Timing
    function: str
    count: float
    seconds: float


def alone(peaks: Peaks, timings: Iterable[Timing]) -> Iterator[Alone]:
    """What timings of calls with exactly one function tell of it."""
    for t in timings:
        functions = [f for f in t.work if is_function(f)]
        if len(functions) == 1 and (count := t.work[functions[0]]):
            rest = roofline({f: v for f, v in t.work.items() if f != functions[0]}, t.key.dtype, peaks)
            yield Alone(t, functions[0], count, max(t.seconds - rest, _LEAST * t.seconds) / count)


def elements(found: Iterable[Alone]) -> Elements:
    """What each kernel takes for an element of each function, where most elements tell."""
    most: dict[tuple[str, str], tuple[float, float]] = {}
    for a in found:
        place = a.function, a.of.key.kernel
        most[place] = max(most.get(place, (0.0, 0.0)), (a.count, a.seconds))
    rates: dict[str, dict[str, float]] = {}
    for (feature, kernel), (_, seconds) in most.items():
        rates.setdefault(feature, {})[kernel] = seconds
    return rates


def element(feature: str, kernel: str, known: Elements) -> float | None:
    """Seconds for an element of a function: what other kernels take for it in this dtype, times what this one takes in
    other dtypes over what they take there; else what this one takes there, by the bytes of an item; else the median of
    other kernels in this dtype, else in others; None where no kernel has timed it."""
    name, _, dtype = feature.rpartition(":")
    here = known.get(feature, {})
    others = {f: r for f, r in known.items() if f != feature and f.rpartition(":")[0] == name}
    scale = {f: item_size(dtype) / item_size(f.rpartition(":")[2]) for f in others}
    own = {f: r[kernel] for f, r in others.items() if kernel in r}
    found = (
        [v * own[f] / others[f][k] for k, v in here.items() for f in own if k in others[f]]
        or [v * scale[f] for f, v in own.items()]
        or list(here.values())
        or [v * scale[f] for f, r in others.items() for v in r.values()]
    )
    return statistics.median(found) if found else None


def unseen(features: Mapping[str, float], kernel: str, known: Elements, dtype: str, peaks: Peaks) -> float:
    """Seconds for features that no timing of a family has: for functions what the kernel takes for them in other dtypes
    or other kernels of the backend take (`known`, as of `elements`), for the rest what the machine's ceilings allow."""
    rates = {n: r for n in features if is_function(n) and (r := element(n, kernel, known)) is not None}
    rest = roofline({n: v for n, v in features.items() if n not in rates}, dtype, peaks)
    return rest + sum(r * features[n] for n, r in rates.items())
