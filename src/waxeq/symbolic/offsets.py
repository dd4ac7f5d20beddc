"""Offsets in the arena as functions of sizes.

An order is kept rather than numbers: of two buffers that are needed at one call, the one that lies lower at the sizes
the plan was made for lies lower at all sizes. A buffer begins where the highest of those below it ends. So no two of
them share a byte at any size, and where the sizes are those the plan was made for the arena is no larger than the best
that was found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from waxeq.memory.liveness import ALIGN, meets, rounded
from waxeq.symbolic.size import Size


@dataclass(frozen=True)
class Place:
    """Buffers that lie at one offset, and the places below them that are in use at the same time, by number."""

    buffers: tuple[str, ...]
    below: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Life:
    first: int
    last: int


def places(
    lives: Mapping[str, tuple[int, int]], offsets: Mapping[str, int], same: Sequence[tuple[str, str]]
) -> tuple[Place, ...]:
    """The order of an arena. `lives`: first and last call of each buffer; `offsets`: where they lie at the sizes the
    plan was made for; `same`: pairs that lie at one offset."""
    leader = {n: n for n in lives}
    for a, b in same:
        old, new = leader[a], leader[b]
        leader = {n: new if x == old else x for n, x in leader.items()}
    groups: dict[str, list[str]] = {}
    for n in lives:
        groups.setdefault(leader[n], []).append(n)
    rows = sorted(groups.values(), key=lambda g: (min(offsets[n] for n in g), g[0]))
    spans = [[_Life(*lives[n]) for n in g] for g in rows]
    found = []
    for i, g in enumerate(rows):
        below = (j for j in range(i) if any(meets(a, b) for a in spans[i] for b in spans[j]))
        found.append(Place(tuple(g), tuple(below)))
    return tuple(found)


def offsets_at(order: Sequence[Place], sizes: Mapping[str, int]) -> tuple[dict[str, int], int]:
    """The offset of every buffer, and the bytes of the arena. `sizes`: bytes of each buffer."""
    ends: list[int] = []
    found: dict[str, int] = {}
    for p in order:
        at = max((ends[j] for j in p.below), default=0)
        found |= dict.fromkeys(p.buffers, at)
        ends.append(at + rounded(max(sizes[n] for n in p.buffers), ALIGN))
    return found, max(ends, default=0)


def tallest(order: Sequence[Place], sizes: Mapping[str, int]) -> tuple[str, ...]:
    """The buffers, one of each place, that lie on each other up to the end of the arena."""
    offsets, end = offsets_at(order, sizes)
    tops = [max(p.buffers, key=lambda n: sizes[n]) for p in order]
    found: list[str] = []
    within = set(range(len(order)))
    while end:
        i = next(i for i in sorted(within) if offsets[tops[i]] + rounded(sizes[tops[i]], ALIGN) == end)
        found.append(tops[i])
        end, within = offsets[tops[i]], set(order[i].below)
    return tuple(found)


def formulas(order: Sequence[Place], sizes: Mapping[str, Size | int]) -> dict[str, Any]:
    """The same offsets as sympy expressions over the dims, for reading and for proofs."""
    import sympy

    ends: list[Any] = []
    found: dict[str, Any] = {}
    for p in order:
        at = sympy.Max(0, *(ends[j] for j in p.below)) if p.below else sympy.Integer(0)
        found |= dict.fromkeys(p.buffers, at)
        widest = sympy.Max(*(_expr(sizes[n]) for n in p.buffers))
        ends.append(at + ALIGN * sympy.ceiling(widest / ALIGN))
    return found


def _expr(x: Size | int) -> Any:
    import sympy

    return x.expr if isinstance(x, Size) else sympy.Integer(x)
