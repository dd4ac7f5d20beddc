"""Dropping what a timing table does not need, and making its file as small as what is left."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from waxeq.cost import archive
from waxeq.cost.archive import STORAGE, quoted, wal
from waxeq.cost.copying import Seen, unseen
from waxeq.cost.memos import KINDS
from waxeq.cost.rows import COLUMNS, FAMILY
from waxeq.cost.survey import Part, Present, State, survey
from waxeq.cost.table import TimingTable

_USED = "(device, kernel, code, method) NOT IN (SELECT device, kernel, code, method FROM unwanted)"
_TWICE = "SELECT hash(digest) AS number FROM timings GROUP BY number HAVING count(*) > 1"
"""Numbers of calls that were timed more than once: to group ten million texts takes DuckDB ten times as long."""
_SUPERSEDED = f"""
    CREATE OR REPLACE TEMP TABLE superseded AS SELECT id FROM timings WHERE {_USED} AND hash(digest) IN ({_TWICE})
    QUALIFY row_number() OVER (PARTITION BY digest ORDER BY written DESC, id DESC) > 1
"""
_BATCH = 983_040
"""Rows that are written at once: eight row groups of DuckDB's."""


_REMEMBERED = 30 * 24 * 3600.0
"""Seconds for which what searches remember is kept: its keys do not tell which models and kernels still are."""
_LASTING = ", ".join(f"'{k.name}'" for k in KINDS if k.lasting)
_FORGOTTEN = f"kind NOT IN ({_LASTING}) AND written < ?"


@dataclass(frozen=True)
class Spare:
    """Rows that are not needed: `superseded` by a newer timing of the same call, of `parts` that are not used here, in
    the quarantine, and what searches remember that is `forgotten` for its age; timings that are `kept`; bytes on disk
    before, and after (equal where nothing was dropped)."""

    superseded: int
    parts: tuple[Part, ...]
    quarantined: int
    forgotten: int
    kept: int
    before: int
    after: int

    @property
    def unused(self) -> int:
        """Rows of parts that are dropped."""
        return sum(p.rows for p in self.parts)


def spare(table: TimingTable, present: Present, states: frozenset[State] = frozenset({"stale"})) -> Spare:
    """What `collect` would drop; `states` of the parts that are not needed."""
    with table.database() as db:
        found = _count(db, table, present, states)
    return found


def collect(
    table: TimingTable, present: Present, states: frozenset[State] = frozenset({"stale"}), seen: Seen = unseen
) -> Spare:
    """Drop what is not needed and write the rest into a file of its own, which takes the place of the old one when it
    is whole: an interruption, or a disk without room, leaves the table as it was. `seen` is told how many rows of how
    many were gone through."""
    counted: list[Spare] = []

    def fill(db: Any) -> None:
        db.execute("CHECKPOINT")  # nothing of the old file may lie beside the new one
        counted.append(_count(db, table, present, states))
        _keep(db, seen)
        db.execute(f"INSERT INTO gone SELECT DISTINCT digest, {', '.join(FAMILY)} FROM t.timings WHERE NOT ({_USED})")
        db.execute(f"INSERT INTO fresh.memos SELECT * FROM t.memos WHERE NOT ({_FORGOTTEN})", [_oldest()])
        db.execute("INSERT INTO fresh.devices SELECT * FROM t.devices")

    table.rewrite(lambda db, path: _in_place_of(db, path, fill))
    before = counted[-1]
    return replace(before, after=table.path.stat().st_size)


def _oldest() -> float:
    """When what is remembered just long enough was written, as seconds since 1970."""
    return time.time() - _REMEMBERED


def _keep(db: Any, seen: Seen) -> None:
    """Write what is needed into the new archive, part by part, as it lies: DuckDB has no room to sort rows of millions
    whole."""
    (end,) = db.execute("SELECT coalesce(max(rowid) + 1, 0) FROM t.timings").fetchone()
    for begin in range(0, end, _BATCH):
        seen(begin, end)
        db.execute(
            f"INSERT INTO fresh.timings SELECT {COLUMNS} FROM t.timings WHERE rowid >= ? AND rowid < ? AND {_USED} "
            "AND NOT EXISTS (SELECT 1 FROM superseded s WHERE s.id = timings.id)", [begin, begin + _BATCH],
        )  # fmt: skip
    seen(end, end)


def _in_place_of(db: Any, path: Path, fill: Any) -> None:
    """A new archive at `path`, from the one that is the current database."""
    db.execute(f"ATTACH '{quoted(path)}' AS fresh {STORAGE}")
    db.execute("USE fresh")
    archive.make_tables(db)
    db.execute("USE t")
    fill(db)
    db.execute("CHECKPOINT fresh")
    db.execute("DETACH fresh")


def _count(db: Any, table: TimingTable, present: Present, states: frozenset[State]) -> Spare:
    archive.hasten(db)
    parts = tuple(p for p in survey(db, present) if p.state in states)
    _unwanted(db, parts)
    (rows,) = db.execute(f"SELECT count(*) FROM timings WHERE {_USED}").fetchone()
    (old,) = db.execute(_SUPERSEDED).fetchone()
    quarantined = db.execute("SELECT count(*) FROM quarantine").fetchone()[0]
    (forgotten,) = db.execute(f"SELECT count(*) FROM memos WHERE {_FORGOTTEN}", [_oldest()]).fetchone()
    size = sum(p.stat().st_size for p in (table.path, wal(table.path)) if p.exists())
    return Spare(old, parts, quarantined, forgotten, rows - old, size, size)


def _unwanted(db: Any, parts: tuple[Part, ...]) -> None:
    """A temporary table of the parts that are not needed."""
    db.execute("CREATE OR REPLACE TEMP TABLE unwanted (device VARCHAR, kernel VARCHAR, code VARCHAR, method INTEGER)")
    if parts:
        rows = [(p.device, p.kernel, p.code, p.method) for p in parts]
        columns = list(map(list, zip(*rows, strict=True)))
        db.execute(
            "INSERT INTO unwanted SELECT unnest(?::VARCHAR[]), unnest(?::VARCHAR[]), unnest(?::VARCHAR[]), "
            "unnest(?::INTEGER[])", columns,
        )  # fmt: skip
