"""Features: what a kernel says of a call so that its time can be predicted, and how the machine's ceilings bound each.

The vocabulary, all of them non-negative numbers:

| name | unit | what it counts |
|---|---|---|
| flops | operations | of a tuned matrix product |
| slow_flops | operations | of a plain loop over products |
| bytes, bytes_read, bytes_written | bytes | moved once, in order |
| panel | bytes | of matrix operands, mostly read again from cache |
| strided_bytes | bytes | moved once, out of order |
| slow_bytes | bytes | moved by code that makes temporaries |
| transferred | bytes | copied between the memory of two devices |
| spilled | bytes | of intermediates that leave the cache between stages |
| map:FUNCTION:DTYPE | elements | through one scalar function in cache |
| operations | operations | of generated loops, a costly function counted as several |
| packed | elements | of a matrix brought into another order first |
| launches, calls, batches | calls | started one by one |
| tiles | tiles | of a tiled loop |
| rows, folds, aside, along, padded, strips | | of what sizes and strides tell (`cost.geometry`) |

A name that is not in the list is kept and fitted, but adds nothing to the roofline.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Literal

from waxeq.cost.device import Peaks
from waxeq.cost.geometry import counted, geometry, item_size

Part = Literal["arithmetic", "traffic", "elements", "launches", "nothing"]
KINDS: tuple[Part, ...] = ("arithmetic", "traffic", "elements", "launches", "nothing")

_PARTS: Mapping[str, tuple[Part, float]] = {
    "flops": ("arithmetic", 1.0),
    "slow_flops": ("arithmetic", 20.0),
    "bytes": ("traffic", 1.0),
    "bytes_read": ("traffic", 1.0),
    "bytes_written": ("traffic", 1.0),
    "panel": ("traffic", 0.25),
    "strided_bytes": ("traffic", 4.0),
    "slow_bytes": ("traffic", 10.0),
    "transferred": ("traffic", 1.0),
    "spilled": ("traffic", 1.0),
    "packed": ("elements", 8.0),
    "operations": ("elements", 1.0),
    "launches": ("launches", 1.0),
    "calls": ("launches", 1.0),
    "batches": ("launches", 1.0),
    "tiles": ("launches", 0.0),
    "rows": ("launches", 0.0),
    "folds": ("launches", 0.0),
    "strips": ("launches", 0.0),
    "aside": ("traffic", 0.0),
    "along": ("traffic", 0.0),
    "padded": ("arithmetic", 0.0),
}
_OPERANDS = 3.0
_COSTLY = 8.0
SHORTEST = 2e-9
"""Seconds below which no step of a plan ends: that is called, whatever it does."""
_FARTHER = {"bytes beyond L1": float(1 << 16), "bytes beyond L2": float(1 << 20), "bytes beyond L3": float(1 << 25)}
"""Bytes moved beyond those that common caches hold: what a byte takes grows with how many there are."""
_ELSE = ("panel", "strided_bytes")
"""What a call is said to move instead of plain bytes."""
_MADE, _AT_ONCE = ("flops", "slow_flops", "operations"), 0.5
"""Features that are operations, and the part of a product's time for one that any of them takes: loads are counted
too, and machines make them beside."""
_COUNTED = 16.0
"""Operations that a kernel of generated loops counts a costly function as."""


class Features(Mapping[str, float]):
    """Non-negative numbers by name, immutable. `+` adds name by name: the features of two calls made one after the
    other.

    Raises ValueError for a number that is negative, infinite or NaN.
    """

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, float]) -> None:
        for name, v in values.items():
            if not 0.0 <= v < math.inf:
                raise ValueError(f"feature {name} must be a non-negative number, got {v}")
        self._values = {n: float(values[n]) for n in sorted(values)}

    def __getitem__(self, name: str) -> float:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __add__(self, other: Mapping[str, float]) -> Features:
        return Features({n: self.get(n, 0.0) + other.get(n, 0.0) for n in {**self, **other}})

    def __hash__(self) -> int:
        return hash(tuple(self._values.items()))

    def __repr__(self) -> str:
        return f"Features({self._values})"

    def json(self) -> str:
        """Canonical JSON: names in order, no spaces."""
        return json.dumps(self._values, separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> Features:
        """The inverse of `json`."""
        return Features(json.loads(text))


@lru_cache(maxsize=4096)
def part(name: str) -> tuple[Part, float]:
    """What a feature counts as in the roofline, and how much one unit of it weighs there."""
    if not name.startswith("map:"):
        return _PARTS.get(name, ("nothing", 0.0))
    from waxeq.basis.scalar import SCALARS

    _, function, dtype = (*name.split(":"), "float32")[:3]
    known = SCALARS.get(function)
    costly = known is not None and known.cost == "costly"
    return "elements", _OPERANDS * item_size(dtype) * (_COSTLY if costly else 1.0)


def roofline(features: Mapping[str, float], dtype: str, peaks: Peaks) -> float:
    """Seconds that the machine's ceilings allow: launches, plus element-wise work on data in cache, plus the larger of
    arithmetic and memory traffic. Positive, finite, and never less when a feature is more.

    Source: Williams, Waterman, Patterson, "Roofline", CACM 52 (4), 2009.
    """
    sums: dict[str, float] = dict.fromkeys(KINDS, 0.0)
    for name, v in features.items():
        kind, weight = part(name)
        sums[kind] += weight * v
    # A dtype whose rate was not measured has no BLAS: NumPy computes it in float32 or float64 with conversions around.
    rate = peaks.flops.get(dtype) or min(peaks.flops.values()) / 2
    work = max(sums["arithmetic"] / rate, sums["traffic"] / peaks.bandwidth)
    return work + sums["elements"] / peaks.cache_bandwidth + sums["launches"] * peaks.launch + SHORTEST


def soonest(features: Mapping[str, float], dtype: str, peaks: Peaks) -> float:
    """Seconds that operations take at least, whatever timings of fewer say: nothing makes more of them than a matrix
    product, each of which is a multiplication and an addition. 0 where that was not measured for the dtype."""
    rate = peaks.flops.get(dtype)
    return _AT_ONCE * sum(features.get(n, 0.0) for n in _MADE) / rate if rate else 0.0


_LENGTHS = ("rows", "folds")
"""What sizes and strides tell of loops, but of kernels that say it themselves."""


def whole(features: Mapping[str, float], text: str, dims: str, layout: str, dtype: str) -> Mapping[str, float]:
    """The features of a call of this lowered text, on these sizes and strides, none counted twice: a function that is
    counted by name is taken out of the operations, where it stands for many; and what is gathered from is read as often
    as there are results, not whole. Bytes beyond what caches hold, and what sizes and strides tell, are features of
    their own."""
    return _whole(tuple(features.items()), "(Gather " in text, dims, layout, dtype)


@lru_cache(maxsize=1 << 14)
def _whole(
    said: tuple[tuple[str, float], ...], gathers: bool, dims: str, layout: str, dtype: str
) -> Mapping[str, float]:
    """Kernels that are made alike say the same of a call: of three timings, two were looked at before."""
    features = dict(said)
    named = sum(v for f, v in said if is_function(f))
    more = counted(features, dims, layout, dtype)
    if named and "operations" in features:
        more["operations"] = max(0.0, features["operations"] - _COUNTED * named)
    if "bytes" in features and gathers:
        more["bytes"] = min(features["bytes"], _gathered(dims, layout))
    moved = more.get("bytes", features.get("bytes", 0.0)) or sum(features.get(n, 0.0) for n in _ELSE)
    more |= {n: moved - size for n, size in _FARTHER.items() if moved > size}
    return {**features, **more, **{n: v for n, v in said if n in _LENGTHS}}


def is_function(feature: str) -> bool:
    """Whether a feature counts the elements of one function, as map:exp:float32 does."""
    return feature.count(":") == 2


def _gathered(dims: str, layout: str) -> float:
    """Bytes that a gather reads and writes at most: of no operand more elements than its result has."""
    g = geometry(dims, layout)
    return sum(min(s.elements, g.out.elements) * item_size(s.dtype) for s in (g.out, *g.operands))
