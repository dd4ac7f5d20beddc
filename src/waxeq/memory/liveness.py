"""Buffers with lifetimes."""

from __future__ import annotations

from dataclasses import dataclass

ALIGN = 64


@dataclass(frozen=True, slots=True)
class Buffer:
    """`bytes` that are needed from step `first` to step `last`, both included."""

    name: str
    bytes: int
    first: int
    last: int

    @property
    def room(self) -> int:
        """Bytes it takes in the arena: up to the next multiple of the alignment."""
        return -(-self.bytes // ALIGN) * ALIGN

    def meets(self, other: Buffer) -> bool:
        """Whether both are needed at some step."""
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True, slots=True)
class InPlace:
    """A wish: `buffer` may take the memory of `reuses`, which is read for the last time by the step that writes `buffer`."""

    buffer: str
    reuses: str


def most_live(buffers: list[Buffer]) -> int:
    """The largest number of bytes needed at one step: no arena can be smaller (without in-place reuse)."""
    change: dict[int, int] = {}
    for b in buffers:
        change[b.first] = change.get(b.first, 0) + b.room
        change[b.last + 1] = change.get(b.last + 1, 0) - b.room
    now = most = 0
    for step in sorted(change):
        now += change[step]
        most = max(most, now)
    return most
