"""Blocks: the timings of one family as columns, which is how the near copy of the tables that ship has them.

Those tables never change, so nothing is gained by a row for each timing, and writing and reading them by rows took a
quarter of a second of every first search. A block is unpacked whole, and its timings are made, when they are asked for.
"""

from __future__ import annotations

import json
import zlib
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from waxeq.cost.key import Family, Timing, TimingKey, lower_quartile
from waxeq.cost.near import Of
from waxeq.cost.rows import FAMILY

_DIGEST = 16
_LEVEL = 6
"""Of zlib: level 9 takes four times as long for a hundredth less."""
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


class _Columns(NamedTuple):
    """The columns of a block as bytes: digests, numbers (`_NUMBERS`, then how many samples; each of all timings, then
    the next) and samples as they lie in memory, the rest as JSON."""

    digests: bytes
    numbers: bytes
    samples: bytes
    texts: bytes
    features: bytes


class _Read(NamedTuple):
    """What the columns of a block say, timing by timing; `ends`: where the samples of each begin, and of the last
    end."""

    numbers: list[array]
    ends: list[int]
    samples: array
    texts: list[list[str]]
    features: list[dict[str, float]]

    @staticmethod
    def of(columns: _Columns) -> _Read:
        numbers, n = array("d", columns.numbers), len(columns.digests) // _DIGEST
        rows = [numbers[i * n : (i + 1) * n] for i in range(len(_NUMBERS) + 1)]
        ends = list(accumulate(map(int, rows.pop()), initial=0))
        samples = array("d", columns.samples)
        return _Read(rows, ends, samples, json.loads(columns.texts), json.loads(columns.features))

    def rate(self, at: Iterable[int]) -> float:
        """The most operations a second of a matrix product that a timing at one of these places reached; 0 where none
        is one."""
        ends, samples = self.ends, self.samples
        rates = (
            flops / lower_quartile(samples[ends[i] : ends[i + 1]])
            for i in at
            if (flops := self.features[i].get("flops", 0.0))
        )
        return max(rates, default=0.0)


@dataclass(frozen=True)
class Block:
    """The timings of a family, by digest, of one call the newest last: the least digest, how many calls, the most
    operations a second of a matrix product that one reached (0 where none is one), and the columns: how many bytes each
    has, and all of them packed."""

    of: Of
    first: str
    count: int
    fastest: float
    lengths: tuple[int, ...] = field(repr=False)
    packed: bytes = field(repr=False)

    @staticmethod
    def made(of: Of, columns: _Columns) -> Block:
        """Of at least one timing."""
        at = places(columns.digests)
        packed, first = zlib.compress(b"".join(columns), _LEVEL), columns.digests[:_DIGEST].hex()
        return Block(of, first, len(at), _Read.of(columns).rate(at.values()), tuple(map(len, columns)), packed)

    @cached_property
    def _columns(self) -> _Columns:
        every = zlib.decompress(self.packed)
        return _Columns(*(every[a:b] for a, b in pairwise(accumulate(self.lengths, initial=0))))

    @cached_property
    def places(self) -> Mapping[str, int]:
        """Where the timing of each call stands, by digest."""
        return places(self._columns.digests)

    @cached_property
    def _read(self) -> _Read:
        return _Read.of(self._columns)

    def rate(self) -> float:
        """The most operations a second of a matrix product that one of them reached; 0 where none is one."""
        return self.fastest

    @property
    def family(self) -> Family:
        """The family, without the way of timing."""
        device, _, backend, kernel, code, dtype = self.of
        return Family(backend, kernel, code, dtype, device)

    def timings(self) -> dict[str, Timing]:
        """That of each call, by digest and in their order."""
        device, method, backend, kernel, code, dtype = self.of
        texts, threads = self._read.texts, self._read.numbers[-1]

        def key(i: int) -> TimingKey:
            text, dims, layout = texts[i]
            return TimingKey(backend, kernel, code, text, dims, layout, dtype, device, int(threads[i]), method)

        return dict(zip(self.places, self._timings((i, key(i)) for i in self.places.values()), strict=True))

    def of_calls(self, keys: Mapping[str, TimingKey]) -> dict[str, Timing]:
        """Those of calls, by digest, that are known."""
        known = {d: (self.places[d], k) for d, k in keys.items() if d in self.places}
        return dict(zip(known, self._timings(known.values()), strict=True))

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
        table, samples = np.array([c[n][i] for n in numbers]).tobytes(), c["samples"][i].tobytes()
        texts, features = (f"[{c[n][i]}]".encode() for n in ("texts", "features"))
        yield Block.made(of, _Columns(bytes.fromhex(c["digest"][i]), table, samples, texts, features))


def _column(name: str) -> str:
    return f"list_transform(rows, lambda row: row.{name})"
