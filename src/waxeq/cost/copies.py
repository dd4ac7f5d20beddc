"""The near copies of a table: one of its archive, which follows it, and one of the tables that ship.

Additions, and nothing else, leave the mark of an archive as it is. A copy knows the mark, up to which row it goes, and
what that row is: it takes in what lies behind, whoever added it and whatever died meanwhile. What is removed is told in
the table `gone` of the connection that removes it. A copy of an archive with another mark is made anew.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

from waxeq.cost import archive, copying, shipped
from waxeq.cost.copying import Seen
from waxeq.cost.key import Family, Timing, TimingKey
from waxeq.cost.known import Group, Known
from waxeq.cost.memos import TOLD, of_device
from waxeq.cost.near import RECENT, Near, newer, recent
from waxeq.cost.rows import FAMILY
from waxeq.cost.shipped import Shipped
from waxeq.cost.told import Told

_FEW = 10_000
"""Rows that a copy takes in whatever its size."""
_PART = 4
"""A copy that has to take in or forget more than one in so many rows is made anew, in the order in which it lies."""


@dataclass(frozen=True)
class Copies:
    """What a run reads: the copy of the archive, and that of the tables that ship. Errors of SQLite are raised."""

    own: Near
    shipped: Shipped

    @staticmethod
    def in_memory(shipped: Shipped | None = None) -> Copies:
        """That of an empty archive, which leaves nothing behind."""
        return Copies(Near.in_memory(), shipped or Shipped())

    def lookup(self, keys: Mapping[str, TimingKey]) -> dict[str, Timing]:
        """The newest timing of each of the keys, by digest, that is known."""
        return newer(self.shipped.lookup(keys), self.own.lookup(keys).values())

    def families(self, device: str, method: int, new: Iterable[Timing] = ()) -> Known:
        """Timings for fitting, `new` ones among them, of each family up to RECENT; those of which all are of tables
        that ship are made when they are asked for."""
        own: dict[Family, dict[str, Timing]] = {}
        for d, t in newer(self.own.families(device, method), new).items():
            own.setdefault(t.key.family, {})[d] = t
        blocks = self.shipped.blocks(device, method)
        groups = {f: Group(b.first, b.count, b.rate, b.timings) for f, b in blocks.items() if f not in own}
        groups |= {f: Group.of(newer(blocks[f].timings(), t.values()) if f in blocks else t) for f, t in own.items()}
        crowded = {f: Group.of(recent(dict(g.timings))) for f, g in groups.items() if g.count > RECENT}
        said = self.shipped.memos(TOLD.name, [of_device(device, method)]).values()
        return Known(groups | crowded, next(map(Told.from_json, said), None))

    def memos(self, kind: str, keys: Sequence[str]) -> dict[str, str]:
        """What is remembered under these keys."""
        return self.shipped.memos(kind, keys) | self.own.memos(kind, keys)

    def remembers(self, kind: str) -> bool:
        """Whether anything of this kind is remembered."""
        return self.own.remembers(kind) or self.shipped.remembers(kind)

    def devices(self) -> dict[str, str]:
        """Descriptions of devices by id."""
        return self.own.devices()

    def close(self) -> None:
        """Close the file that is open."""
        self.own.close()


# -- what follows an archive that is open


def state(db: Any) -> dict[str, str]:
    """What the copy of an archive, which is the current database, is told of it: its mark, how many rows it has, where
    they end, and the id of the last, if it has one."""
    rows, end = db.execute("SELECT count(*), coalesce(max(rowid) + 1, 0) FROM timings").fetchone()
    last = db.execute("SELECT id FROM timings WHERE rowid = ?", [end - 1]).fetchone()
    named = str(last[0]) if last and last[0] is not None else ""
    return {"mark": archive.mark(db), "rows": str(rows), "end": str(end), "last": named}


def behind(about: Mapping[str, str], db: Any) -> int | None:
    """Where the rows begin that an archive has and its copy has not; None where the copy is of no state of it. Rows
    keep their order, but move up into places of those that were removed, at any later time."""
    if about.get("mark") != archive.mark(db) or not {"end", "rows", "last"} <= set(about):
        return None
    begin, last = int(about["end"]), about["last"]
    if last and not db.execute("SELECT 1 FROM timings WHERE rowid = ? AND id = ?", [begin - 1, last]).fetchone():
        (found,) = db.execute("SELECT max(rowid) FROM timings WHERE id = ?", [last]).fetchone()
        begin = -1 if found is None else found + 1
    (more,) = db.execute("SELECT count(*) FROM timings WHERE rowid >= ?", [begin]).fetchone()
    (rows,) = db.execute("SELECT count(*) FROM timings").fetchone()
    return begin if rows - more == int(about["rows"]) else None


def catch_up(near: Near, db: Any, *, told: bool = False) -> bool:
    """Let a copy of an archive follow what was added to it, or what is gone from it; False where it is to be made anew:
    that takes less time, or rows were changed otherwise. `told`: nothing is gone but what the table `gone` tells."""
    about, now = near.about(), state(db)
    gone = db.execute("SELECT digest FROM gone").fetchall()
    begin = int(now["end"]) if gone or told else behind(about, db)
    if begin is None or int(now["end"]) - begin + len(gone) > max(_FEW, int(about["rows"]) // _PART):
        return False
    # before anything of `changes` is asked for: a connection has one answer at a time, and the next takes its place
    families = db.execute(f"SELECT DISTINCT {', '.join(FAMILY)} FROM gone").fetchall() if gone else []
    memos = near.remembered()
    forgotten = copying.forgotten(db, memos)
    changes = chain(
        copying.left(db) if gone else (), copying.added(db, begin) if begin < int(now["end"]) else (),
        copying.noted(db, memos, near.devices()),
    )  # fmt: skip
    first = list(islice(changes, 1))
    if first or forgotten or not now.items() <= about.items():
        near.follow((d for (d,) in gone), families, chain(first, changes), {**now, "of": ""}, forgotten)
    db.execute("DELETE FROM gone")
    return True


# -- where copies lie


@dataclass(frozen=True)
class Beside:
    """The copies that lie beside a table, to whoever has its lock."""

    table: Path
    extra: tuple[str, ...]

    @property
    def own(self) -> Path:
        """Where the copy of the archive lies."""
        return Near.beside(self.table)

    @property
    def shipped(self) -> Path:
        """Where the copy of the tables that ship lies."""
        return self.table.with_name(self.table.name + ".shipped")

    def remove(self) -> None:
        """No copy of the archive any more."""
        Near.remove(self.own)

    def open(self) -> Near | None:
        """The copy of the archive, if it is up to date: that is told without opening the archive. Of an archive that
        is not there yet it is empty."""
        if not os.path.lexists(self.table):
            return Near.in_memory()
        near, of = Near.open(self.own), self._of_archive()
        if near is None or of.items() <= near.about().items():
            return near
        near.close()
        return None

    def open_shipped(self, db: Any = None) -> Shipped:
        """What the tables that ship say: of a file beside each, or of one copy of them all, made if there is none,
        through a connection to DuckDB if one is open. Raises TableError that names one of them that cannot be read."""
        found = self.known_shipped()
        if found is None:
            with archive.connect() if db is None else nullcontext(db) as asked:
                found = copying.of_tables(asked, self.extra)
            with suppress(OSError):
                found.write(self.shipped, _stamp(*map(Path, self.extra)))
        return found

    def known_shipped(self) -> Shipped | None:
        """What the tables that ship say, where that is known without reading them."""
        return shipped.beside(self.extra) or shipped.read(self.shipped, _stamp(*map(Path, self.extra)))

    def follows(self, db: Any, *, told: bool = False) -> bool:
        """Let the copy of the archive, which is open, catch up; one that cannot goes."""
        with self._or_none():
            near = Near.open(self.own)
            if near is not None:
                with closing(near):
                    if catch_up(near, db, told=told):
                        return True
        self.remove()
        return False

    def knows(self, db: Any) -> bool:
        """Whether there is a copy of the archive that can follow it."""
        near = Near.open(self.own)
        if near is None:
            return False
        with closing(near):
            return behind(near.about(), db) is not None

    def follow_new(self, db: Any, new: Path) -> None:
        """Let the copy of the archive, which is open, follow to the one at `new`, which is to take its place; `gone`
        tells of what calls there is nothing in it. Until it has that place, the copy is of no archive."""
        if self.knows(db):
            db.execute(f"ATTACH '{archive.quoted(new)}' AS new_one {archive.READ_ONLY}")
            db.execute("USE new_one")
            try:
                self.follows(db, told=True)
            finally:
                db.execute("USE t")
                db.execute("DETACH new_one")

    def make(self, db: Any, seen: Seen) -> None:
        """Make the copy of the archive anew; there is none where it cannot be written, as on a full disk."""
        with self._or_none(), closing(Near.made(self.own, copying.rows(db, seen))) as near:
            near.say(state(db))

    def say(self) -> None:
        """Note that the copy is of the archive as it lies there now that it is closed; one that cannot be told goes."""
        with self._or_none():
            near = Near.open(self.own)
            if near is not None:
                with closing(near):
                    if not self._of_archive().items() <= near.about().items():
                        near.say(self._of_archive())

    @contextmanager
    def _or_none(self) -> Iterator[None]:
        """Inside the copy is written; one that cannot be is done without: it is faster, and nothing else."""
        try:
            yield
        except (sqlite3.Error, OSError):
            self.remove()

    def _of_archive(self) -> dict[str, str]:
        return {"of": _stamp(self.table, archive.wal(self.table))}


def _stamp(*places: Path) -> str:
    """Names, sizes and times of files, as one text."""
    said = []
    for p in places:
        with suppress(OSError):
            s = p.stat()
            said.append([p.name, s.st_size, s.st_mtime_ns])
    return json.dumps([archive.SCHEMA, *said])
