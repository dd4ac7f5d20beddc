"""Timing tables that leave nothing behind: in memory, for a run that has no place to write or that only looks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from waxeq.cost import archive, copying, shipped
from waxeq.cost.archive import GONE, bring_in, connect, make_tables, quoted, refusal, require_version
from waxeq.cost.copies import Copies, catch_up, state
from waxeq.cost.copying import Seen
from waxeq.cost.shards import Content, Shards
from waxeq.cost.table import Answer, TimingTable
from waxeq.errors import TableWriteError


@dataclass(frozen=True)
class UnsavedTable(TimingTable):
    """A table in memory, in place of the one at `path`: it begins with what lies there, and is gone with the process.
    Not to be shared between threads."""

    memory: Any = None
    near: Copies = field(default_factory=Copies.in_memory)

    @staticmethod
    def at(path: Path, extra: Iterable[str] = ()) -> UnsavedTable:
        """What can be read at `path`, or nothing. Raises TableError when what lies there is no table."""
        db = connect()
        import duckdb  # which was loaded there

        db.execute("SET threads=1")
        make_tables(db)
        db.execute(GONE)
        try:
            if os.access(path, os.R_OK):
                _copy(db, path)
            bring_in(db, Shards.beside(path).read())
        except duckdb.Error as e:
            raise refusal(path, e) from e
        extra = tuple(extra)
        found = shipped.beside(extra) or copying.of_tables(db, extra)
        table = UnsavedTable(path, extra, memory=db, near=Copies.in_memory(found))
        table._copy_anew()
        return table

    @contextmanager
    def database(self, wait: float | None = None, *, changes: bool = False) -> Iterator[Any]:
        import duckdb

        try:
            yield self.memory
        except duckdb.Error as e:
            raise refusal(self.path, e) from e
        if changes or not catch_up(self.near.own, self.memory):
            self._copy_anew()

    def _copy_anew(self) -> None:
        self.near.own.clear()
        self.near.own.load(copying.rows(self.memory))
        self.near.own.say(state(self.memory))

    def _ask(self, ask: Callable[[Copies, Content], Answer]) -> Answer:
        return ask(self.near, Content())

    def _append(self, lines: Sequence[Mapping[str, Any]]) -> None:
        found = Content()
        for line in lines:
            found.add(line)
        with self.database() as db:
            bring_in(db, found)

    def tidy(self) -> None:
        """Nothing was left anywhere."""

    tidy_at_exit = tidy

    def _lies(self) -> Mapping[str, Any]:
        if exists(self.path):
            size = self.path.stat().st_size if os.path.exists(self.path) else 0
            return {"path": str(self.path), "exists": True, "writable": False, "bytes": size, "near_bytes": 0}
        above = next(p for p in self.path.absolute().parents if exists(p))
        writable = os.access(above, os.W_OK | os.X_OK) and _can_make(above)
        return {"path": str(self.path), "exists": False, "writable": writable, "bytes": 0, "near_bytes": 0}


def _can_make(folder: Path) -> bool:
    """Whether a folder can be made in one: /proc says so of itself, and cannot."""
    try:
        with TemporaryDirectory(prefix=".waxeq-", dir=folder):
            return True
    except OSError:
        return False


def look(path: Path, extra: Iterable[str] = (), wait: float = 20.0, seen: Seen = copying.unseen) -> TimingTable:
    """The table at `path`, which is not made by looking at it: an empty one in memory where there is none, a copy in
    memory where it cannot be written. Raises TableError and TableLockedError as a table does."""
    if not exists(path):
        return UnsavedTable.at(path, extra)
    try:
        return TimingTable.open(path, extra, wait, whole=True, seen=seen)
    except TableWriteError:
        if os.path.exists(path) and not os.access(path, os.R_OK):
            raise
        return UnsavedTable.at(path, extra)


def exists(path: Path) -> bool:
    """Whether there is a table, if only a place for its shards; not where its folder may not be looked into
    (Path.exists raises there)."""
    return any(map(os.path.exists, (path, Shards.beside(path).folder)))


def _copy(db: Any, path: Path) -> None:
    """What the table at `path` holds, into the current database."""
    archive.require_database(path)
    db.execute(f"ATTACH '{quoted(path)}' AS kept {archive.READ_ONLY}")
    require_version(db, "kept", path)
    there = {n for (n,) in db.execute("SELECT table_name FROM duckdb_tables() WHERE database_name = 'kept'").fetchall()}
    for name in sorted({"timings", "memos", "devices", "quarantine"} & there):
        db.execute(f"INSERT INTO {name} SELECT * FROM kept.{name}")
    db.execute("DETACH kept")
