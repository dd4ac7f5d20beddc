"""All plans of a model: of each distinct block all choices, equal blocks planned alike; counted, and listed in rising
cost."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from waxeq.errors import PlanError
from waxeq.extract.ways import UNIT, Count, Ways

VERSION = 1
"""Of what `Menu.to_json` writes."""


@dataclass(frozen=True)
class Part:
    """A distinct block: how often it occurs, its ways, how many choices it has in all and how many can be listed, and
    what is to be said of each call."""

    repeats: int
    ways: Ways
    count: Count
    listed: Count
    calls: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class Path:
    """One plan: predicted seconds, and of each part the positions of its calls."""

    seconds: float
    rows: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Menu:
    """The parts of a model."""

    model: str
    parts: tuple[Part, ...]

    @property
    def count(self) -> Count:
        """Plans in which equal blocks are planned alike."""
        return reduce(Count.__mul__, (p.count for p in self.parts), Count(1, True))

    @property
    def listed(self) -> Count:
        """Those of them that `cheapest` goes through."""
        return reduce(Count.__mul__, (p.listed for p in self.parts), Count(1, True))

    @property
    def unlike(self) -> Count:
        """Plans in which equal blocks may be planned differently."""
        return reduce(Count.__mul__, (p.count**p.repeats for p in self.parts), Count(1, True))

    def cheapest(self) -> Iterator[Path]:
        """Every plan that can be listed, in rising predicted cost."""
        lists = [_Remembered(p.ways.cheapest(), p.repeats) for p in self.parts]
        if any(one.at(0) is None for one in lists):
            return
        first: tuple[int, ...] = (0,) * len(lists)
        heap: list[tuple[int, tuple[int, ...]]] = [(_cost(lists, first), first)]
        while heap:
            cost, at = heapq.heappop(heap)
            found = [one.at(i) for one, i in zip(lists, at, strict=True)]
            yield Path(cost * UNIT, tuple(f[1] for f in found if f is not None))
            # each vector comes from one before it only: no place is raised that lies left of one that was
            last = max((n for n, i in enumerate(at) if i), default=0)
            for n in range(last, len(at)):
                following = (*at[:n], at[n] + 1, *at[n + 1 :])
                if lists[n].at(following[n]) is not None:
                    heapq.heappush(heap, (_cost(lists, following), following))

    def to_json(self) -> dict[str, Any]:
        """As plain data, from which listing goes on without any search."""
        return {
            "version": VERSION,
            "model": self.model,
            "parts": [
                {
                    "repeats": p.repeats,
                    "count": [p.count.number, p.count.exact],
                    "listed": [p.listed.number, p.listed.exact],
                    "ways": p.ways.to_json(),
                    "calls": [dict(c) for c in p.calls],
                }
                for p in self.parts
            ],
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Menu:
        """The inverse of `to_json`. Raises PlanError for what is none."""
        try:
            if data["version"] != VERSION:
                raise ValueError("another version")
            parts = tuple(
                Part(int(p["repeats"]), Ways.from_json(p["ways"]), _count(p["count"]), _count(p["listed"]),
                     tuple(p["calls"]))
                for p in data["parts"]
            )  # fmt: skip
            if any(len(p.calls) != len(p.ways.rows) for p in parts):
                raise ValueError("calls and ways do not fit")
            return Menu(str(data["model"]), parts)
        except (KeyError, TypeError, ValueError) as e:
            raise PlanError("it is not a list of paths that this waxeq wrote; remove it and begin anew") from e


def _count(row: Sequence[Any]) -> Count:
    number, exact = row
    return Count(int(number), bool(exact))


class _Remembered:
    """A list that is made as far as it is looked at."""

    def __init__(self, rows: Iterator[tuple[int, tuple[int, ...]]], repeats: int) -> None:
        self._rows, self._repeats = rows, repeats
        self._known: list[tuple[int, tuple[int, ...]]] = []

    def at(self, i: int) -> tuple[int, tuple[int, ...]] | None:
        """Cost (of all repeats) and positions of choice i; None past the end."""
        while len(self._known) <= i:
            found = next(self._rows, None)
            if found is None:
                return None
            self._known.append((found[0] * self._repeats, found[1]))
        return self._known[i]


def _cost(lists: Sequence[_Remembered], at: Sequence[int]) -> int:
    costs = [one.at(i) for one, i in zip(lists, at, strict=True)]
    return sum(c[0] for c in costs if c is not None)
