"""What scalar functions cost, element by element, as one kernel learns it from the others of its backend.

The kernels of a backend call the same functions: one that has timed `cosh` tells those that have not.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from waxeq.cost.device import Peaks
from waxeq.cost.features import is_function, item_size, roofline
from waxeq.cost.key import Timing

_LEAST = 0.1
"""Part of a timing that is the function's at least, whatever ceilings say of the rest."""


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


def elements(found: Iterable[Alone]) -> dict[str, float]:
    """Seconds for an element of each function, by feature: of each kernel where most elements tell, of several kernels
    the median."""
    most: dict[tuple[str, str], tuple[float, float]] = {}
    for a in found:
        place = a.function, a.of.key.kernel
        most[place] = max(most.get(place, (0.0, 0.0)), (a.count, a.seconds))
    rates: dict[str, list[float]] = {}
    for (feature, _), (_, seconds) in most.items():
        rates.setdefault(feature, []).append(seconds)
    return {f: statistics.median(r) for f, r in rates.items()}


def element(feature: str, known: Mapping[str, float]) -> float | None:
    """Seconds for an element of a function: of its dtype, else of another one by the bytes of an item; None where no
    kernel has timed it."""
    if feature in known:
        return known[feature]
    name, _, dtype = feature.rpartition(":")
    others = [(f, v) for f, v in known.items() if f.rpartition(":")[0] == name]
    scaled = [v * item_size(dtype) / item_size(f.split(":")[-1]) for f, v in others]
    return statistics.median(scaled) if scaled else None


def unseen(features: Mapping[str, float], known: Mapping[str, float], dtype: str, peaks: Peaks) -> float:
    """Seconds for features that no timing of a family has: for functions what other kernels of the backend take
    (`known`, as of `elements`), for the rest what the machine's ceilings allow."""
    rates = {n: r for n in features if is_function(n) and (r := element(n, known)) is not None}
    rest = roofline({n: v for n, v in features.items() if n not in rates}, dtype, peaks)
    return rest + sum(r * features[n] for n, r in rates.items())
