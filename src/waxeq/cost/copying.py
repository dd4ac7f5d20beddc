"""What near copies are filled with: rows of an archive, all or those that were added, and the tables that ship."""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from waxeq.cost.archive import NEWEST, quoted, shipped, shipped_peaks
from waxeq.cost.blocks import blocks
from waxeq.cost.near import RECENT, pack, recent_key
from waxeq.cost.rows import COLUMNS, FAMILY
from waxeq.cost.shipped import Shipped

Seen = Callable[[int, int], None]
"""Told how many rows of how many were copied."""
_FAMILY = ", ".join(FAMILY)
_SAID = "samples, max_relative_error, rms_relative_error, features"
_BATCH = 10_000
_BAD = (ValueError, TypeError, AttributeError, struct.error)
"""What packing raises for a row that is no timing, such as one without samples: it is not copied."""


def unseen(done: int, total: int) -> None:
    """Tells nobody."""


def rows(db: Any, seen: Seen = unseen) -> Iterator[tuple]:
    """Rows for `Near.load` from the archive that is the current database: the newest timing of each call, those of them
    that are for fitting, memos and devices."""
    (total,) = db.execute("SELECT count(*) FROM timings").fetchone()
    for n, row in enumerate(_timings(db, "timings") if total else ()):  # to ask an empty archive takes milliseconds
        if n % max(_BATCH, total // 100) == 0:
            seen(n, total)
        yield row
    seen(total, total)
    yield from _recent(db, "timings") if total else ()
    yield from noted(db, {}, {})


def added(db: Any, since: int) -> Iterator[tuple]:
    """Rows for `Near.load` from those timings of the archive that lie from row `since` on."""
    new = f"(SELECT {COLUMNS} FROM timings WHERE rowid >= {since})"
    yield from _timings(db, new)
    yield from _recent(db, new)


def left(db: Any) -> Iterator[tuple]:
    """Rows for `Near.load` from what the archive still has of the calls that the table `gone` names, and of their
    families."""
    rows = f"SELECT {COLUMNS} FROM timings WHERE"
    yield from _timings(db, f"({rows} digest IN (SELECT digest FROM gone))")
    yield from _recent(db, f"({rows} ({_FAMILY}) IN (SELECT DISTINCT {_FAMILY} FROM gone))")


def forgotten(db: Any, memos: Collection[tuple[str, str]]) -> list[tuple[str, str]]:
    """Memos, by kind and key, that the archive has no more."""
    return [*{*memos}.difference(db.execute("SELECT kind, key FROM memos").fetchall())] if memos else []


def noted(db: Any, memos: Mapping[tuple[str, str], float], devices: Mapping[str, str]) -> Iterator[tuple]:
    """Rows for `Near.load` from memos and devices of the archive, without those that are known: when each memo was
    written, by kind and key, and descriptions by id."""
    said = db.execute("SELECT kind, key, written FROM memos").fetchall()
    new = [(kind, key) for kind, key, when in said if memos.get((kind, key)) != when]
    if new:
        wanted = "SELECT unnest(?::VARCHAR[]) AS kind, unnest(?::VARCHAR[]) AS key"
        sql = f"SELECT kind, key, payload, written FROM memos SEMI JOIN ({wanted}) USING (kind, key) ORDER BY kind, key"
        for row in _each(db, sql, list(map(list, zip(*new, strict=True)))):
            yield ("memo", *row)
    for row in db.execute("SELECT id, description FROM devices ORDER BY id").fetchall():
        if devices.get(row[0]) != row[1]:
            yield ("device", *row)


def of_tables(db: Any, tables: Sequence[str]) -> Shipped:
    """What Parquet tables say. Raises TableError that names one that cannot be read."""
    import duckdb

    found = " UNION ALL ".join(f"SELECT {COLUMNS} FROM read_parquet('{quoted(p)}')" for p in tables)
    try:
        families = {b.of: b for b in blocks(db, f"({found})")}
    except duckdb.Error:
        for path in tables:  # is it one of these?
            shipped(db, path, f"SELECT bit_xor(hash({COLUMNS})) {{}}")
        raise
    rows = [row for path in tables for row in shipped_peaks(db, path)]
    return Shipped(families, {(kind, key): payload for kind, key, payload, _ in rows})


def _timings(db: Any, found: str) -> Iterator[tuple]:
    """In the order in which they lie in the near copy, by digests as signed numbers: filling it goes through it once.
    Of one call the newest is last."""
    order = "digest < '8', digest, written, id"
    for digest, when, *said in _each(db, f"SELECT digest, written, {_SAID} FROM {found} ORDER BY {order}"):
        packed = _packed(digest, when, *said)
        if packed is not None:
            yield "timing", digest, when, packed


def _recent(db: Any, found: str) -> Iterator[tuple]:
    newest = f"SELECT id, digest, written, {_FAMILY} FROM {found} {NEWEST}"
    ranked = f"row_number() OVER (PARTITION BY {_FAMILY} ORDER BY written DESC, digest) <= {RECENT}"
    of = f"SELECT id FROM ({newest}) QUALIFY {ranked}"
    sql = (
        f"SELECT digest, written, text, dims, layout, threads, {_FAMILY}, {_SAID} FROM {found} WHERE id IN ({of}) "
        f"ORDER BY {_FAMILY}, digest"
    )
    for digest, when, text, dims, layout, threads, *rest in _each(db, sql):
        packed = _packed(digest, when, *rest[6:])
        if packed is not None:
            yield "recent", tuple(rest[:6]), digest, when, recent_key(text, dims, layout, threads), packed


def _each(db: Any, sql: str, given: Sequence[object] = ()) -> Iterator[tuple]:
    found = db.execute(sql, given)
    while batch := found.fetchmany(_BATCH):
        yield from batch


def _packed(digest: str, when: float, samples: list[float], worst: float, rms: float, features: str) -> bytes | None:
    try:
        return pack(digest, samples, (worst, rms), features, when)
    except _BAD:
        return None
