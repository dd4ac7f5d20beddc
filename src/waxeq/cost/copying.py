"""What the near copy of an archive is filled with."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

from waxeq.cost.archive import NEWEST, quoted, shipped, shipped_peaks
from waxeq.cost.near import RECENT, pack, recent_key
from waxeq.cost.rows import COLUMNS

_FAMILY = "device, method, backend, kernel, code, dtype"
_SAID = "samples, max_relative_error, rms_relative_error, features"
_BATCH = 10_000
_BAD = (ValueError, TypeError, AttributeError, struct.error)
"""What packing raises for a row that is no timing, such as one without samples: it is not copied."""


def rows(db: Any, extra: Sequence[str]) -> Iterator[tuple]:
    """Rows for `Near.load` from the current database and the Parquet tables `extra`: the newest timing of each call,
    those of them that are for fitting, memos and devices. Raises TableError that names a Parquet table that cannot be
    read."""
    import duckdb

    try:
        yield from _rows(db, extra)
    except duckdb.Error:
        for path in extra:  # is it one of these?
            shipped(db, path, f"SELECT bit_xor(hash({COLUMNS})) {{}}")
        raise


def _rows(db: Any, extra: Sequence[str]) -> Iterator[tuple]:
    tables = ["timings", *(f"read_parquet('{quoted(p)}')" for p in extra)]
    db.execute(
        "CREATE OR REPLACE TEMP VIEW found AS " + " UNION ALL ".join(f"SELECT {COLUMNS} FROM {t}" for t in tables)
    )
    yield from _timings(db)
    yield from _recent(db)
    brought = [row for path in extra for row in shipped_peaks(db, path)]
    for row in brought + db.execute("SELECT kind, key, payload, written FROM memos ORDER BY kind, key").fetchall():
        yield ("memo", *row)
    for row in db.execute("SELECT id, description FROM devices").fetchall():
        yield ("device", *row)
    db.execute("DROP VIEW found")


def _timings(db: Any) -> Iterator[tuple]:
    for digest, when, *said in _each(db, f"SELECT digest, written, {_SAID} FROM found ORDER BY digest, written, id"):
        packed = _packed(digest, when, *said)
        if packed is not None:
            yield "timing", digest, when, packed


def _recent(db: Any) -> Iterator[tuple]:
    newest = f"SELECT id, digest, written, {_FAMILY} FROM found {NEWEST}"
    ranked = f"row_number() OVER (PARTITION BY {_FAMILY} ORDER BY written DESC, digest) <= {RECENT}"
    of = f"SELECT id FROM ({newest}) QUALIFY {ranked}"
    sql = (
        f"SELECT digest, written, text, dims, layout, threads, {_FAMILY}, {_SAID} FROM found WHERE id IN ({of}) "
        f"ORDER BY {_FAMILY}, digest"
    )
    for digest, when, text, dims, layout, threads, *rest in _each(db, sql):
        packed = _packed(digest, when, *rest[6:])
        if packed is not None:
            yield "recent", tuple(rest[:6]), digest, when, recent_key(text, dims, layout, threads), packed


def _each(db: Any, sql: str) -> Iterator[tuple]:
    found = db.execute(sql)
    while batch := found.fetchmany(_BATCH):
        yield from batch


def _packed(digest: str, when: float, samples: list[float], worst: float, rms: float, features: str) -> bytes | None:
    try:
        return pack(digest, samples, (worst, rms), features, when)
    except _BAD:
        return None
