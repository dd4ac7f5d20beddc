"""The near copy: what a run reads of a timing table, in an SQLite file beside it that opens in a millisecond.

The archive says everything and is slow to open; a search wants, for a few thousand calls, the newest timing of each,
for each family some of the newest, and memos. That is kept here, by integer keys in one B-tree, so that it takes as
long with ten million rows as with a thousand. It is made from the archive and follows it (`cost.copies`), and is made
anew whenever it does not fit the archive any more: nothing is lost with it.
"""

from __future__ import annotations

import json
import math
import os
import sqlite3
import struct
from array import array
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path

from waxeq.cost.key import Timing, TimingKey
from waxeq.cost.rows import FAMILY

FORMAT = "3"
RECENT = 500
"""Newest calls of a family that are given for fitting: more make no better fit, and reading them takes time."""
_KINDS = ("timing", "recent", "memo", "device")
_HEAD = struct.Struct("<8sdddH")
_BATCH = 10_000
_TABLES = """
CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT);
CREATE TABLE timings (slot INTEGER PRIMARY KEY, written REAL, packed BLOB);
CREATE TABLE families (id INTEGER PRIMARY KEY, device TEXT, method INTEGER, backend TEXT, kernel TEXT, code TEXT,
  dtype TEXT, UNIQUE (device, method, backend, kernel, code, dtype));
CREATE TABLE recent (family INTEGER, slot INTEGER, written REAL, key TEXT, packed BLOB, PRIMARY KEY (family, slot))
  WITHOUT ROWID;
CREATE TABLE memos (kind TEXT, key TEXT, payload TEXT, written REAL, PRIMARY KEY (kind, key));
CREATE TABLE devices (id TEXT PRIMARY KEY, description TEXT);
"""
_NUMBER = f"SELECT id FROM families WHERE {' AND '.join(f'{n} = ?' for n in FAMILY)}"
_NEWER = "DO UPDATE SET written = excluded.written, packed = excluded.packed WHERE excluded.written >= written"
Row = tuple[str, float, bytes]
"""Digest, when written, and the timing packed."""
Of = tuple[str, int, str, str, str, str]
"""A family: device, method, backend, kernel, code, dtype."""


def slot(digest: str) -> int:
    """Where a digest stands: its first 64 bits, as the signed integer that SQLite keys rows by."""
    return int.from_bytes(bytes.fromhex(digest[:16]), "big", signed=True)


def pack(digest: str, samples: Sequence[float], errors: tuple[float, float], features: str, when: float) -> bytes:
    """A timing without its key. Raises ValueError, TypeError or struct.error for what is none."""
    head = _HEAD.pack(bytes.fromhex(digest[16:32]), when, *errors, len(samples))
    return head + array("d", samples).tobytes() + features.encode()


def unpack(rows: Sequence[tuple[TimingKey, bytes]]) -> list[Timing | None]:
    """The inverse of `pack`, for many at once; None for a row that is no timing."""
    heads = [_HEAD.unpack_from(packed) for _, packed in rows]
    ends = [_HEAD.size + 8 * h[-1] for h in heads]
    texts = _decoded([packed[end:].decode(errors="replace") for (_, packed), end in zip(rows, ends, strict=True)])
    return [
        _timing(key, packed[_HEAD.size : end], head, features)
        for (key, packed), head, end, features in zip(rows, heads, ends, texts, strict=True)
    ]


def _timing(key: TimingKey, samples: bytes, head: tuple, features: object) -> Timing | None:
    _, when, worst, rms, _ = head
    if not isinstance(features, dict):
        return None
    try:
        if not 0.0 <= min(features.values(), default=0.0) <= max(features.values(), default=0.0) < math.inf:
            return None
        return Timing(key, tuple(array("d", samples)), worst, rms, features, when)
    except (ValueError, TypeError):
        return None


def _decoded(texts: Sequence[str]) -> list:
    """JSON texts decoded, all at once as long as each is whole; None for one that is not."""
    with suppress(ValueError):
        found = json.loads(f"[{','.join(texts)}]")
        if len(found) == len(texts):
            return found
    found = []
    for text in texts:
        try:
            found.append(json.loads(text))
        except ValueError:
            found.append(None)
    return found


def packed_digest(slot_: int, packed: bytes) -> str:
    """The digest of a row, from both its halves."""
    return slot_.to_bytes(8, "big", signed=True).hex() + packed[:8].hex()


class Near:
    """An open near copy. Errors of SQLite are raised as they are."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db

    # -- where it lies

    @staticmethod
    def beside(table: Path) -> Path:
        """Where the near copy of a table lies."""
        return table.with_name(table.name + ".near")

    @staticmethod
    def in_memory() -> Near:
        """An empty one that leaves nothing behind."""
        near = Near(sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False))
        near.db.executescript(_TABLES)
        return near

    @staticmethod
    def open(path: Path) -> Near | None:
        """The one at `path`, or None where there is none that can be read."""
        if not path.exists():
            return None
        db = sqlite3.connect(path, isolation_level=None, timeout=20.0)
        near = Near(db)
        try:
            if near.about().get("format") == FORMAT:
                return near
        except sqlite3.DatabaseError:
            pass
        db.close()
        return None

    @staticmethod
    def made(path: Path, fill: Iterable[tuple]) -> Near:
        """A new one at `path`, whole or absent: filled under another name and then moved. `fill` as for `load`. It
        is not taken for a copy of anything before it is told of what (`say`). One writer at a time."""
        whole = path.with_name(f".{path.name}.new")
        try:
            whole.unlink(missing_ok=True)  # of one that was killed
            with closing(sqlite3.connect(whole, isolation_level=None)) as db:
                db.execute("PRAGMA journal_mode=OFF")
                db.execute("PRAGMA synchronous=OFF")
                db.executescript(_TABLES)
                Near(db).load(fill)
            with open(whole, "rb+") as f:
                os.fsync(f.fileno())
            Near.remove(path)  # its journal too: SQLite would play one that a killed writer left back into the new one
            os.replace(whole, path)
        finally:
            whole.unlink(missing_ok=True)
        return Near(sqlite3.connect(path, isolation_level=None, timeout=20.0))

    @staticmethod
    def remove(path: Path) -> None:
        """Nothing near any more; it is made anew when it is needed."""
        for p in (path, path.with_name(path.name + "-journal")):
            with suppress(OSError):
                p.unlink()

    def close(self) -> None:
        """Close the file."""
        self.db.close()

    # -- what it is a copy of

    def about(self) -> dict[str, str]:
        """What it says of itself and of the archive it was made from."""
        return dict(self.db.execute("SELECT name, value FROM about"))

    def say(self, about: Mapping[str, str]) -> None:
        """Note what it is a copy of."""
        rows = {**about, "format": FORMAT}.items()
        self.db.executemany("INSERT OR REPLACE INTO about VALUES (?, ?)", list(rows))

    # -- writing

    def clear(self) -> None:
        """Nothing in it any more."""
        for table in ("timings", "families", "recent", "memos", "devices"):
            self.db.execute(f"DELETE FROM {table}")

    def load(self, rows: Iterable[tuple]) -> None:
        """Fill an empty copy. Rows are ("timing", digest, when, packed), ("recent", family, digest, when, key,
        packed), ("memo", kind, key, payload, when) and ("device", id, description)."""
        self.db.execute("BEGIN")
        self._take(rows)
        self.db.execute("COMMIT")

    def follow(
        self, gone: Iterable[str], thinned: Iterable[Of], rows: Iterable[tuple], about: Mapping[str, str],
        forgotten: Iterable[tuple[str, str]] = (),
    ) -> None:  # fmt: skip
        """Do what was done to the archive, all or nothing: forget calls, by digest, what is for fitting of the families
        that were `thinned`, and memos by kind and key, then take in rows, as for `load`, and note what it is a copy of
        now."""
        self.db.execute("BEGIN IMMEDIATE")
        try:
            self.db.executemany("DELETE FROM timings WHERE slot = ?", ((slot(d),) for d in gone))
            for family in thinned:
                self.db.execute(f"DELETE FROM recent WHERE family = ({_NUMBER})", family)
            self.db.executemany("DELETE FROM memos WHERE kind = ? AND key = ?", forgotten)
            for family in self._take(rows):
                self._trim(family)
            self.say(about)
            self.db.execute("COMMIT")
        except BaseException:
            self.db.execute("ROLLBACK")
            raise

    def _take(self, rows: Iterable[tuple]) -> set[Of]:
        """Take in rows; the families that have some of them for fitting."""
        rows, families = iter(rows), set[Of]()
        while batch := list(islice(rows, _BATCH)):
            of = {kind: [r[1:] for r in batch if r[0] == kind] for kind in _KINDS}
            self.put(of["timing"])
            self._put_recent(of["recent"])
            families |= {family for family, *_ in of["recent"]}
            self.put_memos(of["memo"])
            self.put_devices(of["device"])
        return families

    def put(self, rows: Iterable[Row]) -> None:
        """Timings by digest, the newest of each."""
        sql = f"INSERT INTO timings (slot, written, packed) VALUES (?, ?, ?) ON CONFLICT (slot) {_NEWER}"
        self.db.executemany(sql, ((slot(d), when, packed) for d, when, packed in rows))

    def _put_recent(self, rows: Sequence[tuple[Of, str, float, str, bytes]]) -> None:
        new = f"INSERT OR IGNORE INTO families ({', '.join(FAMILY)}) VALUES (?, ?, ?, ?, ?, ?)"
        of = dict.fromkeys(family for family, *_ in rows)
        self.db.executemany(new, of)
        number = {family: self.db.execute(_NUMBER, family).fetchone()[0] for family in of}
        sql = (
            "INSERT INTO recent (family, slot, written, key, packed) VALUES (?, ?, ?, ?, ?) "
            f"ON CONFLICT (family, slot) {_NEWER}"
        )
        self.db.executemany(sql, ((number[family], slot(digest), *rest) for family, digest, *rest in rows))

    def _trim(self, family: Of) -> None:
        """Of a family only the newest."""
        (number,) = self.db.execute(_NUMBER, family).fetchone()
        keep = "SELECT slot FROM recent WHERE family = ? ORDER BY written DESC, slot LIMIT ?"
        self.db.execute(f"DELETE FROM recent WHERE family = ? AND slot NOT IN ({keep})", [number, number, RECENT])

    def put_memos(self, rows: Iterable[tuple]) -> None:
        """Memos: kind, key, payload, when."""
        self.db.executemany("INSERT OR REPLACE INTO memos VALUES (?, ?, ?, ?)", rows)

    def put_devices(self, rows: Iterable[tuple]) -> None:
        """Devices: id, description."""
        self.db.executemany("INSERT OR REPLACE INTO devices VALUES (?, ?)", rows)

    # -- reading

    def lookup(self, keys: Mapping[str, TimingKey]) -> dict[str, Timing]:
        """The newest timing of each of the keys, by digest, that is known."""
        by_slot = {slot(d): d for d in keys}
        sql = "SELECT slot, packed FROM timings WHERE slot IN (SELECT value FROM json_each(?))"
        found = self.db.execute(sql, [json.dumps(sorted(by_slot))]).fetchall()
        rows = [(by_slot[s], packed) for s, packed in found if packed_digest(s, packed) == by_slot[s]]
        timings = unpack([(keys[d], packed) for d, packed in rows])
        return {d: t for (d, _), t in zip(rows, timings, strict=True) if t is not None}

    def families(self, device: str, method: int) -> dict[str, Timing]:
        """Timings for fitting, by digest, family by family."""
        sql = (
            "SELECT r.slot, r.packed, r.key, f.backend, f.kernel, f.code, f.dtype FROM families f JOIN recent r "
            "ON r.family = f.id WHERE f.device = ? AND f.method = ?"
        )
        found = self.db.execute(sql, [device, method]).fetchall()
        keys = [
            TimingKey(backend, kernel, code, text, dims, layout, dtype, device, threads, method)
            for (_, _, _, backend, kernel, code, dtype), (text, dims, layout, threads) in zip(
                found, _decoded([row[2] for row in found]), strict=True
            )
        ]
        timings = unpack([(key, row[1]) for key, row in zip(keys, found, strict=True)])
        return {packed_digest(r[0], r[1]): t for r, t in zip(found, timings, strict=True) if t is not None}

    def memos(self, kind: str, keys: Sequence[str]) -> dict[str, str]:
        """What is remembered under these keys."""
        sql = "SELECT key, payload FROM memos WHERE kind = ? AND key IN (SELECT value FROM json_each(?))"
        return dict(self.db.execute(sql, [kind, json.dumps(list(keys))]).fetchall())

    def remembers(self, kind: str) -> bool:
        """Whether anything of this kind is remembered."""
        return self.db.execute("SELECT 1 FROM memos WHERE kind = ? LIMIT 1", [kind]).fetchone() is not None

    def remembered(self) -> dict[tuple[str, str], float]:
        """When each memo was written, by kind and key."""
        return {(kind, key): when for kind, key, when in self.db.execute("SELECT kind, key, written FROM memos")}

    def devices(self) -> dict[str, str]:
        """Descriptions of devices by id, in order."""
        return dict(self.db.execute("SELECT id, description FROM devices ORDER BY id").fetchall())


def recent_key(text: str, dims: str, layout: str, threads: int) -> str:
    """What a family leaves open of the key of a call."""
    return json.dumps([text, dims, layout, threads])


def newer(found: dict[str, Timing], new: Iterable[Timing]) -> dict[str, Timing]:
    """Timings by digest, of each the newest."""
    for t in new:
        known = found.get(t.key.digest)
        if known is None or t.when >= known.when:
            found[t.key.digest] = t
    return found


def recent(found: dict[str, Timing]) -> dict[str, Timing]:
    """Of each family no more than the near copy keeps of it."""
    families: dict[tuple, list[tuple[float, str]]] = {}
    for d, t in found.items():
        families.setdefault(t.key.family, []).append((-t.when, d))
    return {d: found[d] for rows in families.values() for _, d in sorted(rows)[:RECENT]}
