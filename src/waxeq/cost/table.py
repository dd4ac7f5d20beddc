"""The timing table: a DuckDB archive that many processes write to.

Writers append shards (`cost.shards`), each written whole and renamed into place; a merge under a lock brings shards in.
What is committed is a shard or a row, so a process killed at any point loses nothing that it was told is stored. The
database is open only while it is read or merged, always under the lock: DuckDB's writer would otherwise lock readers
out.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from waxeq.cost.device import Device, Peaks, measure_peaks
from waxeq.cost.key import METHOD, Timing, TimingKey
from waxeq.cost.rows import COLUMNS, TIMINGS, newest, written
from waxeq.cost.shards import Content, Shards, timing_rows
from waxeq.errors import TableError, TableLockedError, TableWriteError, WaxeqError

SCHEMA = 2
NAME_ANOTHER = "name another table with --table"
_SOON = 1.0
"""Seconds that a writer waits for the lock before it leaves its shard to the next merge."""
_STORAGE = " (STORAGE_VERSION 'v1.5.0')"
_TABLES = (
    "CREATE TABLE about (schema INTEGER)",
    f"CREATE TABLE timings ({', '.join(f'{n} {t}' for n, t in TIMINGS.items())}, PRIMARY KEY (id))",
    "CREATE TABLE memos (kind VARCHAR, key VARCHAR, payload VARCHAR, written DOUBLE, PRIMARY KEY (kind, key))",
    "CREATE TABLE devices (id VARCHAR PRIMARY KEY, description VARCHAR)",
    f"INSERT INTO about VALUES ({SCHEMA})",
)


def default_path() -> Path:
    """The table of this user; not absolute for a user without a home."""
    from platformdirs import user_data_path

    return user_data_path("waxeq") / "timings.duckdb"


@dataclass(frozen=True)
class TimingTable:
    """Timings and memos at `path`; `extra` are Parquet tables (made by `export_parquet`) that are read but never
    written. `wait`: seconds to wait for another process that holds the table.

    Every method raises TableError when the table cannot be read, TableWriteError when it cannot be written, and
    TableLockedError when another process holds it for longer than `wait`.
    """

    path: Path
    extra: tuple[str, ...] = ()
    wait: float = 20.0

    @staticmethod
    def open(path: str | Path | None = None, extra: Iterable[str] = (), wait: float = 20.0) -> TimingTable:
        """The table at `path`, or the user's own; made if it is not there."""
        table = TimingTable(Path(path) if path else default_path(), tuple(extra), wait)
        if path is None and not table.path.is_absolute():  # it would lie in whatever folder waxeq is called from
            raise TableWriteError(f"{table.path} is no place for a table, set HOME; or {NAME_ANOTHER}")
        with table._nothing_left_if_refused():
            table._make_room()
            with table._database():
                pass
        return table

    def _make_room(self) -> None:
        """A folder that shards can be written to."""
        try:
            self.shards.folder.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise TableWriteError(f"{self.path} cannot be made: {e.strerror or e}; {NAME_ANOTHER}") from e
        if not os.access(self.shards.folder, os.W_OK | os.X_OK):
            raise TableWriteError(f"{self.shards.folder} is read-only; make it writable, or {NAME_ANOTHER}")

    @contextmanager
    def _nothing_left_if_refused(self) -> Iterator[None]:
        """What is made inside beside a table that is refused goes again; what was there before stays, and so does a
        lock that another process holds."""
        from filelock import FileLock, Timeout

        new = [p for p in (self._lock, self.shards.folder) if not os.path.exists(p)]
        try:
            yield
        except WaxeqError:
            with suppress(OSError, Timeout):
                if self._lock in new and os.path.exists(self._lock):
                    with FileLock(str(self._lock), timeout=0):  # another one that waited for it may have it by now
                        self._lock.unlink()
            with suppress(OSError):
                if self.shards.folder in new:
                    self.shards.folder.rmdir()
            raise

    @property
    def _lock(self) -> Path:
        return self.path.with_name(self.path.name + ".lock")

    @property
    def shards(self) -> Shards:
        """Where writers leave what is not in the database yet: a folder beside it."""
        return Shards.beside(self.path)

    # -- the database

    @contextmanager
    def _database(self, wait: float | None = None) -> Iterator[Any]:
        """The database with every shard brought in, under the lock."""
        import duckdb
        from filelock import FileLock, Timeout

        wait = self.wait if wait is None else wait
        try:
            with FileLock(str(self._lock), timeout=wait), duckdb.connect() as db:
                self._attach(db)
                self._merge(db)
                yield db
        except Timeout as e:
            raise TableLockedError(f"{self.path} has been locked by another process for {wait:.0f} s; try again") from e
        except OSError as e:
            raise TableWriteError(f"{self.path} cannot be used: {e.strerror or e}; {NAME_ANOTHER}") from e
        except duckdb.Error as e:
            raise refusal(self.path, e) from e

    def _attach(self, db: Any) -> None:
        known = self.path.exists()
        if known and not os.access(self.path, os.W_OK):
            raise TableWriteError(f"{self.path} is read-only; make it writable, or {NAME_ANOTHER}")
        db.execute("SET threads=1")
        db.execute(f"ATTACH '{_quoted(self.path)}' AS t{'' if known else _STORAGE}")
        db.execute("USE t")
        if not db.execute("SELECT count(*) FROM duckdb_tables() WHERE database_name = 't'").fetchone()[0]:
            make_tables(db)
        require_version(db, "about", self.path)

    def _merge(self, db: Any) -> None:
        found = self.shards.read()
        if found.read:
            bring_in(db, found)
            self.shards.done(found)

    # -- writing

    def record(self, timings: Sequence[Timing]) -> None:
        """Store timings: committed when this returns, and in the database as soon as anyone reads it."""
        self._append(timing_rows(timings))

    def memo_put(self, kind: str, key: str, payload: str) -> None:
        """Remember a text under (kind, key)."""
        self._append([{"kind": "memo", "memo": kind, "key": key, "payload": payload, "written": time.time()}])

    def _append(self, lines: Sequence[Mapping[str, Any]]) -> None:
        if not lines:
            return
        try:
            self.shards.write(lines)
        except OSError as e:
            raise TableWriteError(f"{self.shards.folder} cannot be written: {e.strerror or e}; {NAME_ANOTHER}") from e

    def tidy(self) -> None:
        """Leave one file rather than many: what cannot be brought in now is safe where it is."""
        with suppress(TableError, TableLockedError):
            self.merge(_SOON)

    def merge(self, wait: float | None = None) -> tuple[str, ...]:
        """Bring shards into the database; names of damaged ones, which lie aside (`NAME.damaged`) from now on."""
        with self._database(wait):
            return self.shards.set_aside()

    # -- reading

    def lookup(self, keys: Iterable[TimingKey]) -> dict[TimingKey, Timing]:
        """The newest timing of each of those keys that is known, in one join."""
        by_digest = {k.digest: k for k in keys}
        if not by_digest:
            return {}
        found = newest(self._rows("digest IN (SELECT unnest(?::VARCHAR[]))", [list(by_digest)]))
        return {by_digest[d]: t for d, t in found.items()}

    def families(self, device: str) -> list[Timing]:
        """The newest timing of every call that was timed on a device, for fitting."""
        return list(newest(self._rows("device = ? AND method = ?", [device, METHOD])).values())

    def _rows(self, where: str, given: list[Any]) -> list[tuple]:
        import duckdb

        found: list[tuple] = []
        with self._database() as db:
            for p in self.extra:
                try:
                    sql = f"SELECT {COLUMNS} FROM read_parquet('{_quoted(p)}') WHERE {where}"
                    found += db.execute(sql, given).fetchall()
                except duckdb.Error as e:
                    raise TableError(f"the table {p} cannot be read ({_first_line(e)}); remove it") from e
            found += db.execute(f"SELECT {COLUMNS} FROM timings WHERE {where}", given).fetchall()
        return found

    def memo_get(self, kind: str, key: str) -> str | None:
        """What was remembered under (kind, key)."""
        with self._database() as db:
            row = db.execute("SELECT payload FROM memos WHERE kind = ? AND key = ?", [kind, key]).fetchone()
        return row[0] if row else None

    def peaks(self, device: Device) -> Peaks:
        """The device's ceilings: measured once, then remembered, together with what the device is."""
        known = self.memo_get("peaks", f"{device.id}:{METHOD}")
        if known is not None:
            return Peaks.from_json(known)
        found = measure_peaks(device.threads)
        self._append([
            {"kind": "device", "id": device.id, "description": device.json()},
            {"kind": "memo", "memo": "peaks", "key": f"{device.id}:{METHOD}", "payload": found.json(),
             "written": time.time()},
        ])  # fmt: skip
        return found

    def devices(self) -> dict[str, Device]:
        """The devices this table knows, by id."""
        with self._database() as db:
            rows = db.execute("SELECT id, description FROM devices ORDER BY id").fetchall()
        return {i: Device.from_json(d) for i, d in rows}

    def status(self) -> Mapping[str, Any]:
        """Counts for `waxeq db status`."""
        with self._database() as db:
            sql = "SELECT device, kernel, count(*), max(written) FROM timings GROUP BY ALL ORDER BY ALL"
            rows = db.execute(sql).fetchall()
            memos = db.execute("SELECT kind, count(*) FROM memos GROUP BY ALL ORDER BY ALL").fetchall()
            devices = db.execute("SELECT id, description FROM devices ORDER BY id").fetchall()
        return {
            **self._lies(),
            "devices": {i: Device.from_json(d).describe() for i, d in devices},
            "timings": [{"device": d, "kernel": k, "rows": n, "newest": w} for d, k, n, w in rows],
            "memos": dict(memos),
            "damaged": list(self.shards.set_aside()),
            "shipped": [Path(p).name for p in self.extra],
        }

    def _lies(self) -> Mapping[str, Any]:
        """Where the table lies or would, and whether something can be stored there."""
        return {"path": str(self.path), "exists": True, "writable": True, "bytes": self.path.stat().st_size}

    # -- Parquet

    def export_parquet(self, path: str | Path, device: str) -> int:
        """Write the newest timing of every call timed on a device as Parquet, each with the device's description and
        samples in single precision (more digits than a clock has); how many. The file appears whole or not at all.
        """
        path = Path(path)
        whole = path.with_name(f".{path.name}.part")
        newest_only = "QUALIFY row_number() OVER (PARTITION BY digest ORDER BY written DESC) = 1"
        with self._database() as db:
            try:
                row = db.execute(
                    "COPY (SELECT t.* REPLACE (samples::FLOAT[] AS samples), d.description FROM timings t "
                    f"LEFT JOIN devices d ON t.device = d.id WHERE t.device = '{_quoted(device)}' {newest_only} "
                    "ORDER BY kernel, text, digest) "
                    f"TO '{_quoted(whole)}' (FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 19)"
                ).fetchone()
                whole.replace(path)
            finally:
                whole.unlink(missing_ok=True)
        return row[0] if row else 0

    def import_parquet(self, path: str | Path) -> int:
        """Take in what `export_parquet` wrote, devices included; how many timings are new."""
        source = f"FROM read_parquet('{_quoted(path)}')"
        with self._database() as db:
            row = db.execute(f"INSERT OR IGNORE INTO timings BY NAME SELECT {COLUMNS} {source}").fetchone()
            db.execute(
                "INSERT OR IGNORE INTO devices SELECT DISTINCT device, description "
                f"{source} WHERE description IS NOT NULL"
            )
        return row[0] if row else 0


# -- what any database that holds a table is told


def make_tables(db: Any) -> None:
    """An empty table in the current database."""
    for sql in ("BEGIN", *_TABLES, "COMMIT"):
        db.execute(sql)


def require_version(db: Any, about: str, path: Path) -> None:
    """Raise TableError when the table whose version is in `about` is none that this waxeq reads."""
    row = db.execute(f"SELECT schema FROM {about}").fetchone()
    version = row[0] if row else None
    if version == SCHEMA:
        return
    newer = version is not None and version > SCHEMA
    fix = "upgrade waxeq, or name another with --table" if newer else "move it aside and a new one is made"
    raise TableError(f"{path} is a table of version {version}, this waxeq reads version {SCHEMA}; {fix}")


def bring_in(db: Any, found: Content) -> None:
    """Put what shards hold into the current database, all or nothing."""
    db.execute("BEGIN")
    _insert(db, "timings", [tuple(written(t).values()) for t in found.timings], "IGNORE")
    _insert(db, "memos", [(*k, *v) for k, v in found.memos.items()], "REPLACE")
    _insert(db, "devices", list(found.devices.items()), "REPLACE")
    db.execute("COMMIT")


def refusal(path: Path, e: Exception) -> WaxeqError:
    """What it means for a table that DuckDB raised an error."""
    text = _first_line(e)
    if "Could not set lock" in text:  # by a process of a user who may write where this one may not
        return TableLockedError(f"{path} is held by another process; try again")
    if "Could not write" in text or "No space left" in text:
        reason = text.rpartition(": ")[2]
        return TableWriteError(
            f"{path} cannot be written: {reason}; make room, or {NAME_ANOTHER}; what is stored stays"
        )
    return TableError(f"{path} cannot be used ({text}); move it aside and a new one is made, or {NAME_ANOTHER}")


def _insert(db: Any, table: str, rows: Sequence[tuple], conflict: str) -> None:
    """All rows in one statement, column by column: row by row is a hundred times slower."""
    if rows:
        marks = ", ".join(f"unnest(?::{c[1]}[])" for c in db.execute(f"DESCRIBE {table}").fetchall())
        db.execute(f"INSERT OR {conflict} INTO {table} SELECT {marks}", list(map(list, zip(*rows, strict=True))))


def _first_line(e: Exception) -> str:
    return str(e).strip().splitlines()[0]


def _quoted(path: str | Path) -> str:
    return str(path).replace("'", "''")
