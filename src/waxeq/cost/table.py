"""The timing table: a DuckDB archive that many processes write to.

Writers append JSON-lines shards, each written whole and renamed into place; a merge under a lock brings shards in.
What is committed is a shard or a row, so a process killed at any point loses nothing that it was told is stored. The
database is open only while it is read or merged, always under the lock: DuckDB's writer would otherwise lock readers
out.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from waxeq.cost.device import Device, Peaks, measure_peaks
from waxeq.cost.key import METHOD, Timing, TimingKey
from waxeq.errors import TableError, TableLockedError

SCHEMA = 1
_WAIT = 20.0
_COLUMNS = (
    "digest VARCHAR PRIMARY KEY, backend VARCHAR, kernel VARCHAR, text VARCHAR, dims VARCHAR, layout VARCHAR, "
    "dtype VARCHAR, device VARCHAR, threads INTEGER, method INTEGER, samples DOUBLE[], max_relative_error DOUBLE, "
    "rms_relative_error DOUBLE, features VARCHAR, written DOUBLE"
)
_NAMES = tuple(c.split()[0] for c in _COLUMNS.split(", "))


def default_path() -> Path:
    """The table of this user."""
    from platformdirs import user_data_path

    return user_data_path("waxeq") / "timings.duckdb"


@dataclass(frozen=True)
class TimingTable:
    """Timings and memos at `path`; `extra` are Parquet tables that are read but never written."""

    path: Path
    extra: tuple[str, ...] = ()

    @staticmethod
    def open(path: str | Path | None = None, extra: Iterable[str] = ()) -> TimingTable:
        """The table at `path`, made if it is not there. Raises TableError, TableLockedError."""
        table = TimingTable(Path(path) if path else default_path(), tuple(extra))
        try:
            table.shards.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise TableError(f"{table.shards} cannot be made: {e.strerror}; name another table with --table") from e
        with table._database():
            pass
        return table

    @property
    def shards(self) -> Path:
        return self.path.with_name(self.path.name + ".shards")

    # -- the database

    @contextmanager
    def _database(self, wait: float = _WAIT) -> Iterator[Any]:
        from filelock import FileLock, Timeout

        lock = FileLock(str(self.path) + ".lock", timeout=wait)
        try:
            with lock:
                db = self._connect()
                try:
                    yield db
                finally:
                    db.close()
        except Timeout as e:
            raise TableLockedError(f"{self.path} has been locked by another process for {wait:.0f} s; try again") from e
        except OSError as e:
            raise TableError(f"{self.path} cannot be used: {e.strerror or e}; name another table with --table") from e

    def _connect(self) -> Any:
        import duckdb

        try:
            db = duckdb.connect()
            db.execute("SET threads=1")
            if not self.path.exists():
                db.execute(f"ATTACH '{_quoted(self.path)}' AS t (STORAGE_VERSION 'v1.5.0')")
            else:
                db.execute(f"ATTACH '{_quoted(self.path)}' AS t")
            db.execute("USE t")
            db.execute("CREATE TABLE IF NOT EXISTS about (schema INTEGER)")
            db.execute(f"CREATE TABLE IF NOT EXISTS timings ({_COLUMNS})")
            db.execute("CREATE TABLE IF NOT EXISTS memos (kind VARCHAR, key VARCHAR, payload VARCHAR, written DOUBLE)")
            row = db.execute("SELECT schema FROM about").fetchone()
            if row is None:
                db.execute("INSERT INTO about VALUES (?)", [SCHEMA])
            elif row[0] != SCHEMA:
                raise TableError(
                    f"{self.path} is a table of version {row[0]}, this waxeq reads version {SCHEMA}; move it aside"
                )
            return db
        except duckdb.Error as e:
            raise TableError(
                f"{self.path} cannot be read ({str(e).splitlines()[0]}); move it aside, a new one is made"
            ) from e

    # -- writing

    def record(self, timings: Sequence[Timing]) -> None:
        """Store timings: committed when this returns, merged now or by whoever comes next."""
        rows = []
        for t in timings:
            k = t.key
            rows.append({
                "kind": "timing", "digest": k.digest, "backend": k.backend, "kernel": k.kernel, "text": k.text,
                "dims": k.dims, "layout": k.layout, "dtype": k.dtype, "device": k.device, "threads": k.threads,
                "method": k.method, "samples": list(t.samples), "max_relative_error": t.max_relative_error,
                "rms_relative_error": t.rms_relative_error, "features": json.dumps(dict(t.features), sort_keys=True),
                "written": t.when,
            })  # fmt: skip
        self._append(rows)

    def memo_put(self, kind: str, key: str, payload: str) -> None:
        """Remember a text under (kind, key)."""
        self._append([{"kind": "memo", "memo": kind, "key": key, "payload": payload, "written": time.time()}])

    def _append(self, rows: list[dict[str, Any]]) -> None:
        if not rows:
            return
        name = f"{time.time_ns()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        temporary = self.shards / f".{name}"
        try:
            with open(temporary, "w") as f:
                f.write("".join(json.dumps(r) + "\n" for r in rows))
                f.flush()
                os.fsync(f.fileno())
            os.replace(temporary, self.shards / f"{name}.jsonl")
        except OSError as e:
            raise TableError(f"{self.shards} cannot be written: {e.strerror}; name another table with --table") from e
        try:
            self.merge(wait=1.0)
        except TableLockedError:
            return  # another process holds the table: the shard is safe where it is

    def merge(self, wait: float = _WAIT) -> int:
        """Bring shards into the database; how many."""
        with self._database(wait) as db:
            return self._merge(db)

    def _merge(self, db: Any) -> int:
        shards = sorted(self.shards.glob("*.jsonl"))
        if not shards:
            return 0
        timings, memos = [], []
        for s in shards:
            for line in s.read_text().splitlines():
                r = json.loads(line)
                if r["kind"] == "timing":
                    timings.append([r[n] for n in _NAMES])
                else:
                    memos.append([r["memo"], r["key"], r["payload"], r["written"]])
        db.execute("BEGIN")
        if timings:
            marks = ", ".join("?" for _ in _NAMES)
            db.executemany(f"INSERT OR REPLACE INTO timings VALUES ({marks})", timings)
        if memos:
            db.executemany("DELETE FROM memos WHERE kind = ? AND key = ?", [m[:2] for m in memos])
            db.executemany("INSERT INTO memos VALUES (?, ?, ?, ?)", memos)
        db.execute("COMMIT")
        for s in shards:
            s.unlink(missing_ok=True)
        return len(shards)

    # -- reading

    def lookup(self, keys: Iterable[TimingKey]) -> dict[TimingKey, Timing]:
        """Timings of those keys that are known, in one join."""
        import duckdb

        by_digest = {k.digest: k for k in keys}
        if not by_digest:
            return {}
        with self._database() as db:
            self._merge(db)
            sql = f"SELECT {', '.join(_NAMES)} FROM timings WHERE digest IN (SELECT unnest(?))"
            rows = db.execute(sql, [list(by_digest)]).fetchall()
            for p in self.extra:
                try:
                    rows = (
                        db.execute(
                            sql.replace("FROM timings", f"FROM read_parquet('{_quoted(p)}')"),
                            [list(by_digest)],
                        ).fetchall()
                        + rows
                    )
                except duckdb.Error as e:
                    raise TableError(f"{p} cannot be read: {str(e).splitlines()[0]}") from e
        return {by_digest[r[0]]: _timing(r, by_digest[r[0]]) for r in rows}

    def families(self, device: str) -> list[Timing]:
        """Every timing of a device, for fitting."""
        with self._database() as db:
            self._merge(db)
            where = "WHERE device = ? AND method = ?"
            rows = []
            for source in (*(f"read_parquet('{_quoted(p)}')" for p in self.extra), "timings"):
                rows += db.execute(f"SELECT {', '.join(_NAMES)} FROM {source} {where}", [device, METHOD]).fetchall()
        latest = {r[0]: r for r in rows}
        return [_timing(r) for r in latest.values()]

    def memo_get(self, kind: str, key: str) -> str | None:
        """What was remembered under (kind, key)."""
        with self._database() as db:
            self._merge(db)
            row = db.execute("SELECT payload FROM memos WHERE kind = ? AND key = ?", [kind, key]).fetchone()
        return row[0] if row else None

    def peaks(self, device: Device) -> Peaks:
        """The device's ceilings: measured once, then remembered."""
        known = self.memo_get("peaks", f"{device.id}:{METHOD}")
        if known is not None:
            return Peaks.from_json(known)
        found = measure_peaks(device.threads)
        self.memo_put("peaks", f"{device.id}:{METHOD}", found.json())
        return found

    def status(self) -> Mapping[str, Any]:
        """Counts for `waxeq db status`."""
        with self._database() as db:
            merged = self._merge(db)
            rows = db.execute("SELECT device, kernel, count(*) FROM timings GROUP BY ALL ORDER BY ALL").fetchall()
            memos = db.execute("SELECT kind, count(*) FROM memos GROUP BY ALL ORDER BY ALL").fetchall()
        return {
            "path": str(self.path),
            "bytes": self.path.stat().st_size,
            "shards_merged": merged,
            "timings": [{"device": d, "kernel": k, "rows": n} for d, k, n in rows],
            "memos": dict(memos),
            "shipped": [Path(p).name for p in self.extra],
        }

    def export_parquet(self, path: str | Path, device: str) -> int:
        """Write one device's timings as Parquet; how many rows."""
        with self._database() as db:
            self._merge(db)
            db.execute(
                f"COPY (SELECT {', '.join(_NAMES)} FROM timings WHERE device = '{device}' ORDER BY digest) "
                f"TO '{_quoted(path)}' (FORMAT parquet, COMPRESSION zstd)"
            )
            row = db.execute("SELECT count(*) FROM timings WHERE device = ?", [device]).fetchone()
        return row[0] if row else 0


def _quoted(path: str | Path) -> str:
    return str(path).replace("'", "''")


def _timing(r: Sequence[Any], key: TimingKey | None = None) -> Timing:
    made = key or TimingKey(*r[1:10])
    return Timing(made, tuple(r[10]), r[11], r[12], json.loads(r[13]), r[14])
