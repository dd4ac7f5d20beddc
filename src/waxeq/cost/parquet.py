"""Timings as Parquet files: what ships with waxeq, and what one machine gives another."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from waxeq.cost import archive
from waxeq.cost.archive import NEWEST, quoted
from waxeq.cost.memos import PEAKS, of_device
from waxeq.errors import TableWriteError, UsageError


def require_place(path: Path, table: Path) -> None:
    """Raise UsageError where what is written to `path` would take the place of something else than such a file, or of
    the table itself that is written out."""
    if path.suffix != ".parquet":
        raise UsageError(f"{path}: files of timings are called NAME.parquet; name another, as {path.stem}.parquet")
    if path.resolve() == table.resolve():
        raise UsageError(f"{path} is the timing table itself; name another file")


def write(db: Any, path: Path, device: str, shipped: Sequence[str | Path] = (), codes: Collection[str] = ()) -> int:
    """The newest timing of every call on a device, with samples in single precision, and its ceilings; how many. Of
    `shipped` tables what they know of kernels of these `codes`, and the ceilings where there are no others."""
    key = of_device(device)
    peaks = db.execute("SELECT payload FROM memos WHERE kind = ? AND key = ?", [PEAKS.name, key]).fetchone()
    known = [v for p in shipped for _, k, v, _ in archive.shipped_peaks(db, p) if k == key]
    payload = known[0] if known and peaks is None else peaks[0] if peaks else None
    said = ceilings([] if payload is None else [(key, payload)])
    mine = f"device = '{quoted(device)}'"
    current = ", ".join(f"'{quoted(c)}'" for c in sorted(codes)) or "NULL"
    theirs = (f"SELECT * FROM read_parquet('{quoted(p)}') WHERE {mine} AND code IN ({current})" for p in shipped)
    found = " UNION ALL BY NAME ".join((f"SELECT *, NULL::VARCHAR AS description FROM timings WHERE {mine}", *theirs))
    return copy(
        db,
        path,
        "SELECT t.* EXCLUDE (description) REPLACE (samples::FLOAT[] AS samples), "
        f"coalesce(d.description, t.description) AS description FROM (SELECT * FROM ({found}) {NEWEST}) t "
        "LEFT JOIN devices d ON t.device = d.id ORDER BY kernel, text, digest",
        f"COMPRESSION zstd, COMPRESSION_LEVEL 19{said}",
    )


def write_all(db: Any, path: Path, device: str | None) -> int:
    """All timings, of one device or of all, with raw samples in full, and ceilings; how many."""
    where = "" if device is None else f"WHERE t.device = '{quoted(device)}'"
    peaks = db.execute("SELECT key, payload FROM memos WHERE kind = ? ORDER BY key", [PEAKS.name]).fetchall()
    own = [(key, payload) for key, payload in peaks if device is None or key == of_device(device)]
    return copy(
        db,
        path,
        f"SELECT t.*, d.description FROM timings t LEFT JOIN devices d ON t.device = d.id {where} "
        "ORDER BY t.device, kernel, text, digest, written",
        f"COMPRESSION zstd{ceilings(own)}",
    )


def ceilings(peaks: Sequence[tuple[str, str]]) -> str:
    """Keys and payloads of ceilings as what DuckDB writes beside the rows of a file."""
    rows = ", ".join(f"'{archive.PEAKS}{quoted(key)}': '{quoted(payload)}'" for key, payload in peaks)
    return f", KV_METADATA {{{rows}}}" if rows else ""


def copy(db: Any, path: Path, query: str, how: str) -> int:
    """The file appears whole or not at all. Raises TableWriteError that names it."""
    import duckdb

    whole = path.with_name(f".{path.name}.part")
    archive.hasten(db)
    try:
        row = db.execute(f"COPY ({query}) TO '{quoted(whole)}' (FORMAT parquet, {how})").fetchone()
        whole.replace(path)
    except (duckdb.IOException, OSError) as e:
        why = e.strerror if isinstance(e, OSError) else archive.reason(archive.first_line(e))
        raise TableWriteError(f"{path} cannot be written: {why}; name another place for it") from e
    finally:
        with suppress(OSError):  # which a read-only disk raises for a file that is not there
            whole.unlink()
    return row[0] if row else 0
