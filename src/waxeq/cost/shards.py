"""Shards: what one process has to say to the timing table, each in a file of its own, whole or absent.

A shard is committed when it has its name. It is brought into the database later, by whoever holds the lock; a process
that is killed at any moment leaves shards, or temporary files that nobody reads.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from waxeq.cost import rows
from waxeq.cost.device import Device
from waxeq.cost.key import Timing
from waxeq.errors import TableError

NAME_A_FILE = "name a file in it for the table"
"""What to do where a table is said to be a folder."""

_STALE = 3600.0
"""Seconds after which a temporary file belongs to nobody: writing one takes milliseconds."""
_PROBE = 4096
"""Bytes of a small shard."""


@dataclass
class Content:
    """What shards hold: timings, memos by (kind, key) and descriptions of devices by id. `read` are the files,
    `damaged` those of them with a line that is none of these, and those that could not be read, and why."""

    timings: list[Timing] = field(default_factory=list)
    memos: dict[tuple[str, str], tuple[str, float]] = field(default_factory=dict)
    devices: dict[str, str] = field(default_factory=dict)
    read: list[Path] = field(default_factory=list)
    damaged: dict[Path, str] = field(default_factory=dict)

    def add(self, row: Mapping[str, Any]) -> None:
        """Take in one row. Raises ValueError, KeyError, TypeError or OverflowError for a damaged one."""
        kind = row["kind"]
        if kind == "timing":
            self.timings.append(rows.read(row))
        elif kind == "memo":
            name, key, payload = (rows.text(row[n]) for n in ("memo", "key", "payload"))
            self.memos[name, key] = payload, rows.finite(row["written"])
        elif kind == "device":
            Device.from_json(row["description"])
            self.devices[rows.text(row["id"])] = rows.text(row["description"])
        else:
            raise ValueError(f"a row of kind {kind!r}")

    def join(self, newer: Content) -> None:
        """Take in what came later."""
        self.timings += newer.timings
        self.memos |= newer.memos
        self.devices |= newer.devices
        self.read += newer.read
        self.damaged |= newer.damaged


@dataclass(frozen=True)
class Shards:
    """The shards in a folder."""

    folder: Path

    @staticmethod
    def beside(table: Path) -> Shards:
        """Where writers leave what is not in the database yet. Raises TableError for what can only be a folder."""
        if not table.name:
            raise TableError(f"{table} is a folder; {NAME_A_FILE}")
        return Shards(table.with_name(table.name + ".shards"))

    def write(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Commit rows: when this returns they are on disk. Raises OSError, and then none of them is."""
        name = f"{time.time_ns():020d}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        temporary = self.folder / f".{name}"
        try:
            with open(temporary, "w", encoding="utf-8") as f:
                f.write("".join(json.dumps(row) + "\n" for row in lines))
                f.flush()
                os.fsync(f.fileno())
            os.replace(temporary, self.folder / f"{name}.jsonl")
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise

    def probe(self) -> None:
        """Raise OSError where there is no room for a shard."""
        temporary = self.folder / f".{uuid.uuid4().hex}"
        try:
            temporary.write_bytes(bytes(_PROBE))
        finally:
            temporary.unlink(missing_ok=True)

    def names(self) -> list[Path]:
        """The shards that are there, oldest first."""
        return sorted(self.folder.glob("*.jsonl"))

    def read(self, known: dict[Path, Content] | None = None) -> Content:
        """The content of every shard, oldest first. A damaged line is passed over, its shard noted; a shard that cannot
        be read now is left for another time. `known`: those that were read before, which never change; it is brought up
        to date."""
        found, known = Content(), {} if known is None else known
        there = self.names()
        for path in set(known) - set(there):
            del known[path]
        for path in there:
            content = known[path] if path in known else read_shard(path)
            if content.read:
                known[path] = content
            found.join(content)
        return found

    def done(self, found: Content) -> None:
        """Remove what was brought in; a damaged shard stays beside it under another name, for people to look at."""
        for path in found.read:
            with contextlib.suppress(OSError):
                if path in found.damaged:
                    path.rename(path.with_suffix(".damaged"))
                else:
                    path.unlink(missing_ok=True)
        for path in self.folder.glob(".*"):
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > _STALE:
                    path.unlink()

    def set_aside(self) -> tuple[str, ...]:
        """Names of damaged shards."""
        return tuple(sorted(p.name for p in self.folder.glob("*.damaged")))


def read_shard(path: Path) -> Content:
    """The content of one file of JSON lines. A damaged line is passed over, and the first one noted; so is why a file
    cannot be read, which is not among those that were."""
    found = Content()
    try:
        lines = path.read_bytes().decode("utf-8", errors="replace").splitlines()
    except OSError as e:
        found.damaged[path] = str(e)
        return found
    found.read.append(path)
    for number, line in enumerate(lines, 1):
        try:
            found.add(json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as e:
            found.damaged.setdefault(path, f"line {number}: {type(e).__name__}: {e}")
    return found


def timing_rows(timings: Iterable[Timing]) -> list[dict[str, Any]]:
    """Lines of a shard for timings."""
    return [{"kind": "timing", **rows.written(t)} for t in timings]
