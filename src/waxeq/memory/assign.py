"""Offsets in one arena, greedy by size.

Source: Pisarchyk and Lee, "Efficient memory management for deep neural net inference" (MLSys workshop 2020), greedy-by-size
offset calculation; buffers that run in place of one another are one buffer with the union of their lifetimes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from waxeq.memory.liveness import Buffer, InPlace, most_live


@dataclass(frozen=True, slots=True)
class Assignment:
    """Byte offset of each buffer, the size of the arena, and the bytes that no arrangement can do without."""

    offsets: Mapping[str, int]
    arena_bytes: int
    least_bytes: int


def assign(buffers: Sequence[Buffer], in_place: Sequence[InPlace] = ()) -> Assignment:
    """Place every buffer; the better of two orders (by size, by length of life) is kept. Deterministic."""
    group = _merge(buffers, in_place)
    merged = [_union(members) for members in group.values()]
    by_size = _place(sorted(merged, key=lambda b: (-b.room, b.first, b.name)))
    by_life = _place(sorted(merged, key=lambda b: (b.first - b.last, -b.room, b.name)))
    best = min(by_size, by_life, key=lambda found: found[1])
    offsets = {b.name: best[0][lead] for lead, members in group.items() for b in members}
    return Assignment(offsets, best[1], most_live(merged))


def _merge(buffers: Sequence[Buffer], in_place: Sequence[InPlace]) -> dict[str, list[Buffer]]:
    """Buffers by the first of the chain they take the memory of."""
    by_name = {b.name: b for b in buffers}
    lead = {b.name: b.name for b in buffers}
    for wish in in_place:
        new, old = by_name[wish.buffer], by_name[wish.reuses]
        if new.room == old.room and old.last == new.first:
            lead[wish.buffer] = wish.reuses

    def first(n: str) -> str:
        while lead[n] != n:
            n = lead[n]
        return n

    groups: dict[str, list[Buffer]] = {}
    taken: set[str] = set()
    for b in sorted(buffers, key=lambda b: (b.first, b.name)):
        if lead[b.name] != b.name:
            if lead[b.name] in taken:  # of two that want one operand's memory only the first gets it
                lead[b.name] = b.name
            taken.add(lead[b.name])
        groups.setdefault(first(b.name), []).append(b)
    return groups


def _union(members: list[Buffer]) -> Buffer:
    lead = members[0]
    return Buffer(lead.name, lead.bytes, min(b.first for b in members), max(b.last for b in members))


def _place(order: list[Buffer]) -> tuple[dict[str, int], int]:
    done: list[tuple[int, Buffer]] = []
    offsets: dict[str, int] = {}
    end = 0
    for b in order:
        at, best, room = 0, None, None
        for start, other in ((o, x) for o, x in done if x.room and x.meets(b)):
            gap = start - at
            if gap >= b.room and (room is None or gap < room):
                best, room = at, gap
            at = max(at, start + other.room)
        offsets[b.name] = at if best is None else best
        done.append((offsets[b.name], b))
        done.sort(key=lambda r: (r[0], r[1].name))
        end = max(end, offsets[b.name] + b.room)
    return offsets, end
