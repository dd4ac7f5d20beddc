"""Which plan is best at which sizes: cost curves over a grid of sizes, and the sizes where they cross."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, product

from waxeq.symbolic.dims import Box, Dim, Sizes
from waxeq.symbolic.plan import UNTIMED, Interval, Point, SizedPlan

_GAIN = 0.95
"""Part of a plan's time below which another must stay to be switched to: curves that run side by side cross at every
point, and each interval is a plan more."""

Curve = Mapping[tuple[int, ...], Point]


@dataclass(frozen=True)
class Contender:
    """A plan with its cost at the points of a grid (by sizes in the order of the dims); points it cannot run at are
    left out. `turns`: the timings that a point is the median of; those of one turn were taken side by side."""

    plan: SizedPlan
    curve: Curve
    turns: Mapping[tuple[int, ...], tuple[float, ...]] = field(default_factory=dict)

    def seconds(self, point: tuple[int, ...]) -> float:
        return self.curve[point].seconds if point in self.curve else math.inf

    def beats(self, other: Contender, point: tuple[int, ...]) -> bool:
        """Whether this one is clearly the faster at a point: by the medians, and in three of four turns."""
        if not self.seconds(point) < _GAIN * other.seconds(point):
            return False
        pairs = list(zip(self.turns.get(point, ()), other.turns.get(point, ()), strict=False))
        return sum(a < b for a, b in pairs) >= 0.75 * len(pairs)


def grid_of(d: Dim, many: int) -> list[int]:
    """Sizes to look at: both edges, the next ones to them, and some between, in proportion; no multiples of two."""
    edges = {d.low, min(d.low + 1, d.high), d.high}
    steps = max(1, many - 2)
    between = (round(d.low * (d.high / d.low) ** (i / steps)) for i in range(1, steps))
    return sorted(edges | {min(d.high, s + 1 - s % 2) for s in between})


def intervals(dims: Sequence[Dim], grids: Sequence[Sequence[int]], rows: Sequence[Contender]) -> tuple[Interval, ...]:
    """Boxes that cover the ranges, each with the plan that is best in it."""
    cuts = [[d.low, *_cuts(i, grids, rows, d), d.high + 1] for i, d in enumerate(dims)]
    spans = [[(a, b - 1) for a, b in pairwise(sorted(set(c)))] for c in cuts]
    boxes = [Box({d.name: s for d, s in zip(dims, pick, strict=True)}) for pick in product(*spans)]
    found = [(b, _best(b, dims, rows)) for b in boxes]
    if len(dims) == 1:
        found = _merged(found, dims[0].name)
    return tuple(Interval(b, c.plan, _known(c.curve)) for b, c in found)


def _known(curve: Curve) -> tuple[Point, ...]:
    """The points of a curve at which something is known of the plan."""
    return tuple(curve[p] for p in sorted(curve) if curve[p].basis != UNTIMED)


def _cuts(axis: int, grids: Sequence[Sequence[int]], rows: Sequence[Contender], d: Dim) -> list[int]:
    """Sizes along one dim from which on another plan is best, at the middle of the others."""
    rest = [g[len(g) // 2] for g in grids]
    line = [(s, (*rest[:axis], s, *rest[axis + 1 :])) for s in grids[axis]]
    best = _walk(rows, [p for _, p in line])
    found = []
    for ((a, p), (b, q)), (now, then) in zip(pairwise(line), pairwise(best), strict=True):
        if now != then:
            found.append(_crossing(a, b, rows[now], rows[then], p, q))
    return found


def _walk(rows: Sequence[Contender], points: Sequence[tuple[int, ...]]) -> list[int]:
    """The best at each point along a line; one stays while no other is clearly better."""
    found: list[int] = []
    for p in points:
        least = min(range(len(rows)), key=lambda i: rows[i].seconds(p))
        stay = found and rows[found[-1]].seconds(p) < math.inf and not rows[least].beats(rows[found[-1]], p)
        found.append(found[-1] if stay else least)
    return found


def _crossing(a: int, b: int, now: Contender, then: Contender, p: tuple[int, ...], q: tuple[int, ...]) -> int:
    """The least size above a at which the second plan is the better one; where one of them runs at one end only, next
    to that end."""
    ends = [c.seconds(x) for c in (now, then) for x in (p, q)]
    if ends[1] == math.inf or ends[2] == math.inf:
        return b if ends[2] == math.inf else a + 1
    (f, g), (u, v) = ([math.log(max(x, 1e-12)) for x in pair] for pair in (ends[:2], ends[2:]))
    rise = (g - f) - (v - u)
    part = 1.0 if rise <= 0 else min(1.0, max(0.0, (u - f) / rise))
    return min(b, max(a + 1, math.ceil(a * (b / a) ** part)))


def _best(box: Box, dims: Sequence[Dim], rows: Sequence[Contender]) -> Contender:
    """The plan with the least time in a box, by the points of the grid in it or next to it; one that runs at all of
    them."""
    every = sorted({p for r in rows for p in r.curve})
    inside = [p for p in every if dict(zip((d.name for d in dims), p, strict=True)) in box] or [
        _nearest(box, dims, every)
    ]
    return min(rows, key=lambda r: sum(math.log(max(r.seconds(p), 1e-12)) for p in inside))


def _nearest(box: Box, dims: Sequence[Dim], points: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    middle = [math.sqrt(math.prod(box.ranges[d.name])) for d in dims]
    return min(points, key=lambda p: sum(abs(math.log(s / m)) for s, m in zip(p, middle, strict=True)))


def _merged(rows: Sequence[tuple[Box, Contender]], name: str) -> list[tuple[Box, Contender]]:
    """Neighbouring intervals of one plan as one."""
    done: list[tuple[Box, Contender]] = []
    for box, c in rows:
        if done and done[-1][1] is c:
            box = Box({name: (done.pop()[0].ranges[name][0], box.ranges[name][1])})
        done.append((box, c))
    return done


def key(dims: Sequence[Dim], sizes: Sizes) -> tuple[int, ...]:
    """Sizes in the order of the dims."""
    return tuple(sizes[d.name] for d in dims)
