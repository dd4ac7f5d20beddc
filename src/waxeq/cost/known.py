"""Timings for fitting, family by family: of most families a search asks nothing, and theirs are never made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import overload

from waxeq.cost.key import Family, Timing, TimingKey
from waxeq.cost.told import Told


@dataclass(frozen=True)
class Group:
    """The timings of one family: the least digest and how many there are, and what tells the most operations a second
    of a matrix product that one of them reached, and makes them."""

    first: str
    count: int
    rate: Callable[[], float]
    make: Callable[[], Mapping[str, Timing]]

    @staticmethod
    def of(found: Mapping[str, Timing]) -> Group:
        """At least one timing, by digest."""
        timings = {d: found[d] for d in sorted(found)}
        return Group(next(iter(timings)), len(timings), lambda: max(t.rate for t in found.values()), lambda: timings)

    @cached_property
    def timings(self) -> Mapping[str, Timing]:
        """By digest, and in their order."""
        return self.make()


class Known(Sequence[Timing]):
    """Timings in an order that depends on nothing but what they are of: that of their digests. Those of a family are
    made when one of them is looked at, or its group is asked for them. `told`: what most of them tell together."""

    def __init__(self, groups: Mapping[Family, Group], told: Told | None = None) -> None:
        self.told = told or Told()
        self.groups = dict(sorted(groups.items(), key=lambda row: row[1].first))

    @cached_property
    def _all(self) -> list[Timing]:
        found = {d: t for g in self.groups.values() for d, t in g.timings.items()}
        return [found[d] for d in sorted(found)]

    def __len__(self) -> int:
        return sum(g.count for g in self.groups.values())

    def __iter__(self) -> Iterator[Timing]:
        return iter(self._all)

    @overload
    def __getitem__(self, index: int) -> Timing: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Timing]: ...
    def __getitem__(self, index: int | slice) -> Timing | Sequence[Timing]:
        return self._all[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._all == list(other)

    __hash__ = None  # pyright: ignore[reportAssignmentType]


class Rows:
    """What a cost model knows, by family, in the order in which families became known."""

    def __init__(self, known: Known | None = None) -> None:
        self.measured: dict[TimingKey, Timing] = {}
        self._groups: dict[Family, Group | dict[TimingKey, Timing]] = dict(known.groups) if known else {}

    def __iter__(self) -> Iterator[Family]:
        return iter(self._groups)

    def of(self, family: Family) -> dict[TimingKey, Timing]:
        """The timings of a family, which are made now if nobody looked at them yet."""
        found = self._groups.get(family, {})
        if isinstance(found, Group):
            found = self._groups[family] = {t.key: t for t in found.timings.values()}
            self.measured.update(found)
        return found

    def count(self, family: Family) -> int:
        """How many timings there are of a family."""
        found = self._groups.get(family, {})
        return found.count if isinstance(found, Group) else len(found)

    def get(self, key: TimingKey) -> Timing | None:
        """The timing of a call."""
        return self.of(key.family).get(key)

    def put(self, t: Timing) -> None:
        """Take in a timing."""
        known = self._groups[t.key.family] = self.of(t.key.family)
        known[t.key] = self.measured[t.key] = t
