"""What DuckDB is told: the tables of the archive, their version, and how rows get into them."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from waxeq.amounts import cores
from waxeq.cost import memos
from waxeq.cost.rows import FAMILY, TIMINGS, written
from waxeq.cost.shards import NAME_A_FILE, Content
from waxeq.errors import TableError, TableLockedError, TableWriteError, WaxeqError
from waxeq.events import uninterrupted
from waxeq.naming import option

SCHEMA = 3
"""Version 3 has a quarantine, a mark of the last change, and no index: one over ten million numbers that are random
makes every merge write most of it anew."""
_BEFORE = 2
"""The version that is brought up to this one in place."""
PEAKS = "peaks of "
"""How metadata of a Parquet table that are a device's ceilings are named, before their key."""
MEMORY = "1GiB"
"""What DuckDB may take for itself, however large a table is; what has no room there lies beside the table meanwhile."""
DUCKDB = "(TYPE duckdb)"
READ_ONLY = "(TYPE duckdb, READ_ONLY)"
STORAGE = "(TYPE duckdb, STORAGE_VERSION 'v1.5.0')"
"""How a database is attached that is there, that is only read, that is made: DuckDB would guess a type that is not
said."""
_MAGIC = slice(8, 12)
"""Where a database of DuckDB's says that it is one."""
_OFF = ("autoinstall_known_extensions", "autoload_known_extensions", "python_enable_replacements")
"""What DuckDB does unless told otherwise."""
_HOLDS = """
    SELECT count(*) FROM (SELECT database_name AS place FROM duckdb_tables() UNION ALL
    SELECT database_name FROM duckdb_views() WHERE NOT internal) WHERE place = 't'
"""
"""How much lies in the database that is to be an archive."""
_COLUMNS = ", ".join(f"{n} {t}" for n, t in TIMINGS.items())
_ABOUT = "CREATE TABLE about (schema INTEGER, mark VARCHAR)"
_QUARANTINE = f"CREATE TABLE quarantine ({_COLUMNS}, kind VARCHAR, reason VARCHAR, moved DOUBLE)"
GONE = f"CREATE TEMP TABLE gone (digest VARCHAR, {', '.join(f'{n} {TIMINGS[n]}' for n in FAMILY)})"
"""What was removed in a connection, for copies of the archive: calls, each with its family."""
_TABLES = (
    _ABOUT,
    f"CREATE TABLE timings ({_COLUMNS})",
    "CREATE TABLE memos (kind VARCHAR, key VARCHAR, payload VARCHAR, written DOUBLE, PRIMARY KEY (kind, key))",
    "CREATE TABLE devices (id VARCHAR PRIMARY KEY, description VARCHAR)",
    _QUARANTINE,
)
_UPGRADE = (
    "DROP TABLE about",
    _ABOUT,
    "CREATE TABLE found AS FROM timings",
    "DROP TABLE timings",
    "ALTER TABLE found RENAME TO timings",
    _QUARANTINE,
)


def name_another() -> str:
    """What to do where a table cannot be used."""
    return f"name another table with {option('table')}"


def make_another() -> str:
    """What to do where a table cannot be used and may go."""
    return f"move it aside and a new one is made, or {name_another()}"


def no_place(path: Path, *, named: bool) -> TableWriteError:
    """What to say of a path at which no table can lie, be it `named` or follow from where a user has a home."""
    return TableWriteError(f"{path} is no place for a table; {'' if named else 'set HOME, or '}{name_another()}")


def wal(path: Path) -> Path:
    """Where DuckDB keeps what it has not brought into the file of an archive yet."""
    return path.with_name(path.name + ".wal")


def connect() -> Any:
    """A connection to DuckDB, to nothing yet. It draws no bar: that would be drawn on stdout, among the data. It
    fetches nothing from the network, and takes no name in a query for a variable of Python's."""
    with uninterrupted():
        import duckdb

    db = duckdb.connect(config=dict.fromkeys(_OFF, "false"))
    db.execute("SET enable_progress_bar=false")
    return db


def require_database(path: Path, instead: str | None = None) -> None:
    """Raise TableError where something lies that is no database of DuckDB's; `instead` says what to do. DuckDB would
    take CSV, JSON, Parquet and SQLite for databases, and what is written then replaces them or is lost."""
    if not os.path.exists(path):
        return
    instead = make_another() if instead is None else instead
    if not os.path.isfile(path):
        raise TableError(f"{path} is {f'a folder; {NAME_A_FILE}' if os.path.isdir(path) else f'no file; {instead}'}")
    try:
        with open(path, "rb") as f:
            head = f.read(_MAGIC.stop)
    except OSError:  # whatever opens it says why it cannot be read
        return
    if head[_MAGIC] != b"DUCK":
        raise TableError(f"{path} is no timing table, and no DuckDB database at all; {instead}")


def require_own(path: Path) -> None:
    """Raise TableError where something else than a table lies at `path`, TableWriteError where it cannot be read or is
    read-only."""
    if os.path.isfile(path) and not os.access(path, os.R_OK):
        raise TableWriteError(f"{path} cannot be read: you may not; make it readable, or {name_another()}")
    if os.path.isfile(path) and not os.access(path, os.W_OK):
        raise TableWriteError(f"{path} is read-only; make it writable, or {name_another()}")
    require_database(path)


def attach(db: Any, path: Path) -> None:
    """Make the archive at `path` the current database, made or brought up to this version if need be. Raises
    TableError and TableWriteError. To be called under the table's lock."""
    known = path.exists()
    require_own(path)
    spilled = path.with_name(path.name + ".spill")
    shutil.rmtree(spilled, ignore_errors=True)  # of one that was killed
    for setting in ("threads=1", f"memory_limit='{MEMORY}'", f"temp_directory='{quoted(spilled)}'"):
        db.execute(f"SET {setting}")
    try:
        db.execute(f"ATTACH '{quoted(path)}' AS t {DUCKDB if known else STORAGE}")
    except Exception as e:
        if not known and isinstance(refusal(path, e), TableWriteError):
            path.unlink(missing_ok=True)  # begun on a full disk: an empty file would be refused as damaged ever after
        raise
    db.execute("USE t")
    db.execute(GONE)
    if not db.execute(_HOLDS).fetchone()[0]:
        make_tables(db)
    if require_version(db, "t", path) == _BEFORE:
        _all(db, (*_UPGRADE, _about()))


def hasten(db: Any) -> None:
    """Let DuckDB work on every core, as what is asked next reads the whole archive; a search asks for little."""
    db.execute(f"SET threads={cores()}")


def make_tables(db: Any) -> None:
    """An empty archive in the current database."""
    _all(db, (*_TABLES, _about()))


def _about() -> str:
    return f"INSERT INTO about VALUES ({SCHEMA}, '{secrets.token_hex(8)}')"


def _all(db: Any, statements: Iterable[str]) -> None:
    for sql in ("BEGIN", *statements, "COMMIT"):
        db.execute(sql)


def require_version(db: Any, name: str, path: Path) -> int:
    """The version of the archive that is attached as `name`. Raises TableError when this waxeq cannot read it, and when
    it is a database of somebody else's."""
    there = db.execute(
        "SELECT table_name, column_name FROM duckdb_columns() WHERE database_name = ?", [name]
    ).fetchall()
    if not {("about", "schema"), ("timings", "digest")} <= {*there}:
        raise TableError(f"{path} is no timing table, but another database of DuckDB's; {name_another()}")
    row = db.execute(f"SELECT schema FROM {name}.about").fetchone()
    version = row[0] if row else 0
    if version == SCHEMA or (version, SCHEMA) == (_BEFORE, _BEFORE + 1):
        return version
    newer = version > SCHEMA
    fix = f"upgrade waxeq, or {name_another()}" if newer else "move it aside and a new one is made"
    raise TableError(f"{path} is a table of version {version}, this waxeq reads version {SCHEMA}; {fix}")


def mark(db: Any) -> str:
    """What changes with every change to the archive but additions: what is copied of it follows those."""
    return db.execute("SELECT mark FROM about").fetchone()[0]


def touch(db: Any) -> None:
    """Note that timings in the archive are being changed or removed; inside the transaction that does it."""
    db.execute("UPDATE about SET mark = ?", [secrets.token_hex(8)])


def remove(db: Any, which: str, given: Sequence[object] = ()) -> None:
    """Remove the timings for which a condition holds, inside a transaction, and tell it in the table `gone`."""
    touch(db)
    db.execute(f"INSERT INTO gone SELECT digest, {', '.join(FAMILY)} FROM timings WHERE {which}", given)
    db.execute(f"DELETE FROM timings WHERE {which}", given)


def bring_in(db: Any, found: Content) -> None:
    """Put what shards hold into the archive, all or nothing; what is there already, or in quarantine, is left out."""
    rows = {t.id: t for t in found.timings}
    db.execute("BEGIN")
    for place in ("timings", "quarantine") if rows else ():
        known = db.execute(f"SELECT id FROM {place} WHERE id IN (SELECT unnest(?::UBIGINT[]))", [list(rows)]).fetchall()
        for (i,) in known:
            rows.pop(i, None)
    insert(db, "timings", [tuple(written(t).values()) for t in rows.values()])
    insert(db, "memos", [(*k, *v) for k, v in found.memos.items()], " OR REPLACE")
    insert(db, "devices", list(found.devices.items()), " OR REPLACE")
    db.execute("COMMIT")


def insert(db: Any, table: str, rows: Sequence[tuple], conflict: str = "") -> None:
    """All rows in one statement, column by column: row by row is a hundred times slower."""
    if rows:
        marks = ", ".join(f"unnest(?::{c[1]}[])" for c in db.execute(f"DESCRIBE {table}").fetchall())
        db.execute(f"INSERT{conflict} INTO {table} SELECT {marks}", list(map(list, zip(*rows, strict=True))))


def shipped(db: Any, path: str | Path, sql: str) -> Any:
    """What a query finds in a Parquet table; `FROM` and the place are added to it where it says `{}`. Raises
    TableError that names the file."""
    return _asked(db, path, sql.format(f"FROM read_parquet('{quoted(path)}')"))


def shipped_peaks(db: Any, path: str | Path) -> list[tuple[str, str, str, float]]:
    """Ceilings that a Parquet table brings along, as rows of memos that any other comes before. Raises TableError."""
    found = _asked(db, path, f"SELECT decode(key), decode(value) FROM parquet_kv_metadata('{quoted(path)}')")
    return [(memos.PEAKS.name, k.removeprefix(PEAKS), v, 0.0) for k, v in found.fetchall() if k.startswith(PEAKS)]


def _asked(db: Any, path: str | Path, sql: str) -> Any:
    import duckdb

    try:
        return db.execute(sql)
    except duckdb.Error as e:
        raise TableError(f"the table {path} cannot be read ({first_line(e)}); remove it") from e


def meaning(path: Path, e: Exception) -> BaseException | None:
    """What an error of DuckDB's about the table at `path` means to its user; None for one that is not DuckDB's."""
    if isinstance(e, RuntimeError) and "Query interrupted" in str(e):  # Ctrl-C, as it tells of it
        return KeyboardInterrupt()
    return refusal(path, e) if type(e).__module__.partition(".")[0] in ("duckdb", "_duckdb") else None


def refusal(path: Path, e: Exception) -> WaxeqError:
    """What it means for a table that DuckDB raised an error."""
    text = first_line(e)
    if "Could not set lock" in text:  # by a process of a user who may write where this one may not
        return TableLockedError(f"{path} is held by another process; try again")
    if "Could not write" in text or "No space left" in text:
        return TableWriteError(
            f"{path} cannot be written: {reason(text)}; make room, or {name_another()}; what is stored stays"
        )
    if "Out of Memory" in text or "temp_directory" in text:
        return TableWriteError(
            f"{path} needs more room beside it for a moment: {text}; make some; what is stored stays"
        )
    return TableError(f"{path} cannot be used ({text}); {make_another()}")


def reason(text: str) -> str:
    """What an error of DuckDB ends with: why. Some of them are JSON, in which another field follows."""
    return text.partition('","errno"')[0].rpartition(": ")[2]


def first_line(e: Exception) -> str:
    """The first line of what an error says."""
    return str(e).strip().splitlines()[0]


def quoted(path: str | Path) -> str:
    """A path inside quotes of SQL."""
    return str(path).replace("'", "''")


NEWEST = "QUALIFY row_number() OVER (PARTITION BY digest ORDER BY written DESC, id DESC) = 1"
"""Ends a query of which the newest timing of each call is wanted."""
