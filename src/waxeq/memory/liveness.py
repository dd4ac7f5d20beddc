"""Buffers with lifetimes, and how many bytes are needed at each call."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from waxeq.errors import PlanError

ALIGN = 64
"""Bytes: a cache line, and the widest vector register of the machines NumPy and C kernels run on."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """`bytes` that are needed from call `first` to call `last`, both included, at a multiple of `align`.

    Raises PlanError for a negative size or call, a life that ends before it begins, an alignment that is no power of
    two.
    """

    name: str
    bytes: int
    first: int
    last: int
    align: int = ALIGN

    def __post_init__(self) -> None:
        if self.bytes < 0:
            raise PlanError(f"buffer {self.name} has a negative size ({self.bytes} bytes)")
        if not 0 <= self.first <= self.last:
            raise PlanError(
                f"buffer {self.name} lives from call {self.first} to call {self.last}, which is no lifetime"
            )
        if self.align < 1 or self.align & (self.align - 1):
            raise PlanError(f"buffer {self.name} wants alignment {self.align}, which is not a power of two")


@dataclass(frozen=True, slots=True)
class InPlace:
    """A wish: `buffer` may take the memory of `reuses`, which is read for the last time by the call that writes
    `buffer`.

    It is for the kernel to say that it reads each element of `reuses` before it writes over it.
    """

    buffer: str
    reuses: str


class Lived(Protocol):
    """What has a lifetime in calls: a buffer, or several that share memory."""

    @property
    def first(self) -> int: ...
    @property
    def last(self) -> int: ...


def meets(a: Lived, b: Lived) -> bool:
    """Whether both are needed at some call."""
    return a.first <= b.last and b.first <= a.last


def rounded(size: int, align: int) -> int:
    """The next multiple of `align` (a power of two)."""
    return (size + align - 1) & -align


def busiest(spans: Iterable[tuple[int, int, int]]) -> tuple[int, int]:
    """(most bytes needed at one call, the first call that needs them) of (bytes, first, last) spans; (0, 0) for
    none.
    """
    change: dict[int, int] = {}
    for size, first, last in spans:
        change[first] = change.get(first, 0) + size
        change[last + 1] = change.get(last + 1, 0) - size
    now = most = call = 0
    for step in sorted(change):
        now += change[step]
        if now > most:
            most, call = now, step
    return most, call


def by_name(buffers: Sequence[Buffer]) -> dict[str, Buffer]:
    """The buffers by name. Raises PlanError when two have one name."""
    found = {b.name: b for b in buffers}
    if len(found) != len(buffers):
        names = [b.name for b in buffers]
        raise PlanError(f"two buffers are called {next(n for n in names if names.count(n) > 1)}")
    return found
