"""The near copy of the tables that ship: blocks, and ceilings as memos, in a file that is read whole.

Where a table lies such a file lies beside it (`SUFFIX`), made together with it: a first run then reads no Parquet, and
does without DuckDB. One that is not of the table as it is, or is damaged, is not looked at.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from waxeq.cost.blocks import Block
from waxeq.cost.key import Family, Timing, TimingKey
from waxeq.cost.near import Of, slot

SUFFIX = ".blocks"
_FIRST = b"waxeq blocks 1\n"
_MOST = 8
"""Files that are kept in memory: those that ship for a machine, on each number of threads."""
_BAD = (OSError, ValueError, TypeError, KeyError)
"""What reading a file raises that is none, or no longer."""
_Stamp = tuple[int, int, int]


@dataclass(frozen=True)
class Shipped:
    """What a run reads of the tables that ship: blocks by family, and payloads of memos by kind and key."""

    families: Mapping[Of, Block] = field(default_factory=dict)
    remembered: Mapping[tuple[str, str], str] = field(default_factory=dict)

    def lookup(self, keys: Mapping[str, TimingKey]) -> dict[str, Timing]:
        """The timing of each of the keys, by digest, that is known."""
        asked: dict[Of, dict[str, TimingKey]] = {}
        for d, k in keys.items():
            asked.setdefault((k.device, k.method, k.backend, k.kernel, k.code, k.dtype), {})[d] = k
        found: dict[str, Timing] = {}
        for of, calls in asked.items():
            if of in self.families:
                found |= self.families[of].of_calls(calls)
        return {d: found[d] for d in sorted(found, key=slot)}

    def blocks(self, device: str, method: int) -> dict[Family, Block]:
        """The blocks of families of a device that were timed in a way."""
        return {b.family: b for of, b in self.families.items() if of[:2] == (device, method)}

    def memos(self, kind: str, keys: Iterable[str]) -> dict[str, str]:
        """What is remembered under these keys."""
        return {k: self.remembered[kind, k] for k in keys if (kind, k) in self.remembered}

    def remembers(self, kind: str) -> bool:
        """Whether anything of this kind is remembered."""
        return any(k == kind for k, _ in self.remembered)

    def write(self, path: Path, of: str) -> None:
        """As a file, whole or absent, that says what it is a copy `of`. Raises OSError. One writer at a time."""
        blocks = [[b.of, b.first, b.count, b.fastest, b.lengths, len(b.packed)] for b in self.families.values()]
        memos = [[*k, v] for k, v in self.remembered.items()]
        head = json.dumps({"of": of, "memos": memos, "blocks": blocks}).encode()
        rest = b"\n".join((head, b"".join(b.packed for b in self.families.values())))
        new = path.with_name(f".{path.name}.new")
        try:
            new.write_bytes(_FIRST + b"%08x\n" % zlib.crc32(rest) + rest)
            os.replace(new, path)
        except BaseException:
            with suppress(OSError):
                new.unlink()
            raise


def read(path: Path, of: str) -> Shipped | None:
    """The file at `path`, if there is one and it is a copy `of` that. It is read once as long as it stays as it is."""
    stamp = _stamp(path)
    return None if stamp is None else _read(path, of, stamp)


def beside(tables: Sequence[str]) -> Shipped | None:
    """What files beside these tables say; None where one is missing, or two have the same family: which timings of it
    count must be asked of the tables."""
    families, remembered = dict[Of, Block](), dict[tuple[str, str], str]()
    for path in map(Path, tables):
        stamp = _stamp(path)
        found = None if stamp is None else read(path.with_suffix(SUFFIX), _hash(path, stamp))
        if found is None or not families.keys().isdisjoint(found.families):
            return None
        families |= found.families
        remembered |= found.remembered
    return Shipped(families, remembered)


def write_beside(table: Path, found: Shipped) -> None:
    """The file beside a table, of which `found` is what it says. Where it cannot be written, or would be the table
    itself, there is none."""
    stamp = _stamp(table)
    with suppress(OSError):
        if stamp is not None and table.suffix != SUFFIX:
            found.write(table.with_suffix(SUFFIX), _hash(table, stamp))


def _stamp(path: Path) -> _Stamp | None:
    """What tells that a file was changed; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


@lru_cache(_MOST)
def _hash(path: Path, stamp: _Stamp) -> str:
    """What is in a table; nothing where it cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


@lru_cache(_MOST)
def _read(path: Path, of: str, stamp: _Stamp) -> Shipped | None:
    try:
        first, came_to, rest = path.read_bytes().split(b"\n", 2)
        if (first + b"\n", int(came_to, 16)) != (_FIRST, zlib.crc32(rest)):
            return None
        text, packed = rest.split(b"\n", 1)
        said = json.loads(text)
        return _parsed(said, packed) if said["of"] == of else None
    except _BAD:
        return None


def _parsed(said: Mapping, packed: bytes) -> Shipped:
    families, at = dict[Of, Block](), 0
    for of, first, count, fastest, lengths, size in said["blocks"]:
        families[tuple(of)] = Block(tuple(of), first, count, fastest, tuple(lengths), packed[at : at + size])
        at += size
    return Shipped(families, {(kind, key): payload for kind, key, payload in said["memos"]})
