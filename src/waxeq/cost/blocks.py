"""Blocks: the timings of one family as columns, which is how the near copy of the tables that ship has them.

Those tables never change, so nothing is gained by a row for each timing, and writing and reading them by rows took a
quarter of a second of every first search. A block is read whole, and its timings are made when they are asked for.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple

from waxeq.cost.key import Family, Timing, TimingKey, lower_quartile
from waxeq.cost.near import Of
from waxeq.cost.rows import FAMILY

_DIGEST = 16
_NUMBERS = ("written", "max_relative_error", "rms_relative_error", "threads")
"""What there is one number of for each timing, before how many samples it has."""
_NEEDED = (*FAMILY, "digest", *_NUMBERS, "text", "dims", "layout", "features", "samples")
_JOINED = {"digest": "", "texts": ",", "features": ","}
_VALUE = r"(0|[1-9][0-9]{0,39})(\.[0-9]{1,40})?([eE][-+]?[0-9]{1,2})?"
_FEATURE = rf'\s*"[^"\\\x00-\x1f]*"\s*:\s*{_VALUE}\s*'
_SOUND = (
    *(f"{n} IS NOT NULL" for n in _NEEDED), "regexp_full_match(digest, '[0-9a-f]{32}')",
    rf"regexp_full_match(features, '\{{({_FEATURE}(,{_FEATURE})*|\s*)\}}')",
    "list_count(samples) = len(samples)", "list_min(samples) > 0", "list_sum(samples) < 'infinity'::DOUBLE",
)  # fmt: skip
"""What rows of a table are that are timings, to DuckDB: their features are an object of numbers that are not negative.
A block is read at once, and one row that is none would spoil it."""
_ROW = (
    *(f"{n}: {n}::DOUBLE" for n in _NUMBERS), "digest: digest", "count: len(samples)::DOUBLE",
    "samples: samples::DOUBLE[]", "texts: to_json([text, dims, layout])::VARCHAR", "features: features",
)  # fmt: skip


class _Read(NamedTuple):
    """What the columns of a block say, timing by timing; `ends`: where the samples of each begin, and of the last
    end."""

    numbers: list[array]
    ends: list[int]
    samples: array
    texts: list[list[str]]
    features: list[dict[str, float]]


@dataclass(frozen=True)
class Block:
    """The timings of a family, by digest, of one call the newest last: digests, numbers (`_NUMBERS`, then how many
    samples; each of all timings, then the next) and samples as they lie in memory, the rest as JSON."""

    of: Of
    digests: bytes = field(repr=False)
    numbers: bytes = field(repr=False)
    samples: bytes = field(repr=False)
    texts: str = field(repr=False)
    features: str = field(repr=False)

    @staticmethod
    def read(row: Sequence[Any]) -> Block:
        """The one that was written as a row. Raises sqlite3.DatabaseError for one that is not what it was: damage to a
        file shows."""
        *said, came_to = row
        found = Block(tuple(said[: len(FAMILY)]), *said[len(FAMILY) :])
        if found._sum != came_to:
            raise sqlite3.DatabaseError("a block is damaged")
        return found

    @property
    def row(self) -> tuple[Any, ...]:
        """What is written of it."""
        return (*self.of, *self._parts, self._sum)

    @property
    def _parts(self) -> tuple[bytes, bytes, bytes, str, str]:
        return self.digests, self.numbers, self.samples, self.texts, self.features

    @property
    def _sum(self) -> int:
        found = zlib.crc32(repr(self.of).encode())
        for part in self._parts:
            found = zlib.crc32(part.encode() if isinstance(part, str) else part, found)
        return found

    @cached_property
    def _places(self) -> dict[str, int]:
        return places(self.digests)

    def __len__(self) -> int:
        return len(self._places)

    @property
    def family(self) -> Family:
        """The family, without the way of timing."""
        device, _, backend, kernel, code, dtype = self.of
        return Family(backend, kernel, code, dtype, device)

    @property
    def first(self) -> str:
        """The least digest."""
        return self.digests[:_DIGEST].hex()

    @cached_property
    def _read(self) -> _Read:
        numbers, n = array("d", self.numbers), len(self.digests) // _DIGEST
        columns = [numbers[i * n : (i + 1) * n] for i in range(len(_NUMBERS) + 1)]
        ends = list(accumulate(map(int, columns.pop()), initial=0))
        return _Read(columns, ends, array("d", self.samples), json.loads(self.texts), json.loads(self.features))

    def rate(self) -> float:
        """The most operations a second of a matrix product that one of them reached; 0 where none is one."""
        if '"flops"' not in self.features:
            return 0.0
        ends, samples, features = self._read.ends, self._read.samples, self._read.features
        rates = (
            features[i].get("flops", 0.0) / lower_quartile(samples[ends[i] : ends[i + 1]])
            for i in self._places.values()
        )
        return max(rates)

    def timings(self) -> dict[str, Timing]:
        """That of each call, by digest and in their order."""
        device, method, backend, kernel, code, dtype = self.of
        texts, threads = self._read.texts, self._read.numbers[-1]

        def key(i: int) -> TimingKey:
            text, dims, layout = texts[i]
            return TimingKey(backend, kernel, code, text, dims, layout, dtype, device, int(threads[i]), method)

        return dict(zip(self._places, self._timings((i, key(i)) for i in self._places.values()), strict=True))

    def of_calls(self, places: Mapping[int, TimingKey]) -> Iterator[Timing]:
        """Those that stand at these places, each the timing of a call."""
        return self._timings(places.items())

    def _timings(self, places: Iterable[tuple[int, TimingKey]]) -> Iterator[Timing]:
        (when, worst, rms, _), ends, samples, _, features = self._read
        for i, key in places:
            taken = tuple(samples[ends[i] : ends[i + 1]])
            yield Timing(key, taken, worst[i], rms[i], features[i], when[i])


def places(digests: bytes) -> dict[str, int]:
    """Where the timing of each call of a block stands, by digest: of several of one call the newest is last."""
    every, size = digests.hex(), 2 * _DIGEST
    return {every[i : i + size]: i // size for i in range(0, len(every), size)}


def blocks(db: Any, found: str) -> Iterator[Block]:
    """Blocks of rows of timings, of which `found` is what SQL calls them. DuckDB makes the columns of a family: to do
    that row by row in Python takes three times as long as to read them."""
    import numpy as np

    family = ", ".join(FAMILY)
    every = f"SELECT {family}, list({{{', '.join(_ROW)}}} ORDER BY digest, written, id) AS rows FROM {found}"
    sound = f"{every} WHERE {' AND '.join(_SOUND)} GROUP BY {family}"
    numbers = (*_NUMBERS, "count")
    said = [f"{_column(n)} AS {n}" for n in numbers]
    said += [f"list_aggregate({_column(n)}, 'string_agg', '{by}') AS {n}" for n, by in _JOINED.items()]
    said.append(f"flatten({_column('samples')}) AS samples")
    c = db.execute(f"SELECT {family}, {', '.join(said)} FROM ({sound}) ORDER BY {family}").fetchnumpy()
    for i, of in enumerate(zip(*(c[n].tolist() for n in FAMILY), strict=True)):
        table = np.array([c[n][i] for n in numbers]).tobytes()
        samples = c["samples"][i].tobytes()
        yield Block(of, bytes.fromhex(c["digest"][i]), table, samples, f"[{c['texts'][i]}]", f"[{c['features'][i]}]")


def _column(name: str) -> str:
    return f"list_transform(rows, lambda row: row.{name})"
