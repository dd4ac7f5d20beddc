"""What scalar functions cost, element by element, as one kernel learns it from the others of its backend.

The kernels of a backend call the same functions: one that has timed `cosh` tells those that have not.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from functools import lru_cache

from waxeq.cost.device import Peaks
from waxeq.cost.features import item_size, roofline
from waxeq.cost.key import Timing, TimingKey

_FARTHER = {"bytes beyond L1": float(1 << 16), "bytes beyond L2": float(1 << 20), "bytes beyond L3": float(1 << 25)}
"""Bytes moved beyond those that common caches hold: what a byte takes grows with how many there are."""
_COSTLY = 16.0
"""Operations that a kernel of generated loops counts a costly function as."""
_LEAST = 0.1
"""Part of a timing that is the function's at least, whatever ceilings say of the rest."""


def full(key: TimingKey, features: Mapping[str, float]) -> Mapping[str, float]:
    """The features of a call, none counted twice: a function that is counted by name is taken out of the operations,
    where it stands for many; and what is gathered from is read as often as there are results, not whole. Bytes beyond
    what caches hold are features of their own."""
    named = sum(v for f, v in features.items() if is_function(f))
    more: dict[str, float] = {}
    if named and "operations" in features:
        more["operations"] = max(0.0, features["operations"] - _COSTLY * named)
    if "bytes" in features and "(Gather " in key.text:
        more["bytes"] = min(features["bytes"], _gathered(key.dims, key.layout))
    moved = more.get("bytes", features.get("bytes", features.get("panel", 0.0)))
    more |= {n: moved - size for n, size in _FARTHER.items() if moved > size}
    return {**features, **more} if more else features


def is_function(feature: str) -> bool:
    """Whether a feature counts the elements of one function, as map:exp:float32 does."""
    return feature.count(":") == 2


@lru_cache(maxsize=1 << 12)
def _gathered(dims: str, layout: str) -> float:
    """Bytes that a gather reads and writes at most: of no operand more elements than its result has."""
    sizes = {k: int(n) for k, _, n in (d.partition("=") for d in dims.split(",") if d)}
    views = [v.partition(":") for v in layout.split(";") if ":" in v]
    counts = [math.prod(sizes[a.partition("*")[0]] for a in axes.split(",") if a) for _, _, axes in views]
    return sum(min(n, counts[0]) * item_size(dtype) for n, (dtype, _, _) in zip(counts, views, strict=True))


def elements(peaks: Peaks, timings: Iterable[Timing]) -> dict[str, float]:
    """Seconds for an element of each function that was timed alone, by feature: of each kernel where most elements
    tell, of several kernels the median."""
    most: dict[tuple[str, str], tuple[float, float]] = {}
    for t in timings:
        features = full(t.key, t.features)
        functions = [f for f in features if is_function(f)]
        if len(functions) == 1 and (count := features[functions[0]]):
            rest = roofline({f: v for f, v in features.items() if f != functions[0]}, t.key.dtype, peaks)
            alone = max(t.seconds - rest, _LEAST * t.seconds) / count
            place = functions[0], t.key.kernel
            most[place] = max(most.get(place, (0.0, 0.0)), (count, alone))
    rates: dict[str, list[float]] = {}
    for (feature, _), (_, alone) in most.items():
        rates.setdefault(feature, []).append(alone)
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
