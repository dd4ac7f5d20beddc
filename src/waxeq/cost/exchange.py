"""Timings from and for other tables: merging, comparing, Parquet files with all that a table knows of a device."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from waxeq.cost import archive, parquet
from waxeq.cost.archive import NEWEST, quoted
from waxeq.cost.device import described
from waxeq.cost.examine import poisoned
from waxeq.cost.memos import KINDS
from waxeq.cost.rows import COLUMNS, KEY, TIMINGS, written
from waxeq.cost.shards import Content, Shards, read_shard
from waxeq.cost.table import TimingTable
from waxeq.cost.unsaved import exists
from waxeq.errors import TableError, TableWriteError, UsageError

_OWN = ", ".join(f"'{k.name}'" for k in KINDS if k.own)
"""Kinds of memos that are not taken from others: what a rule may do here is certified here."""
_IN = "EXISTS (SELECT 1 FROM {} AS place WHERE place.id IS NOT DISTINCT FROM staged.id)"
"""Whether a row of a source is in a table already; no id is as good as any here, or one would hide all others."""


@dataclass
class Merged:
    """What came from one place: timings that were `new`, that were known (if only in quarantine), that were `refused`
    (and are in the quarantine now, with reasons) and memos; `damaged` says which file has a line that is none, and
    which device no description. `devices`: those the timings are of, with what differs from this machine's."""

    source: str
    new: int = 0
    known: int = 0
    refused: int = 0
    memos: int = 0
    damaged: tuple[str, ...] = ()
    devices: Mapping[str, str] = field(default_factory=dict)


def merge(table: TimingTable, others: Sequence[Path]) -> list[Merged]:
    """Bring other tables, folders of shards, single shards (.jsonl) and Parquet files into a table, each whole or not
    at all. What is there already is not stored twice; rows that cannot be right go into the quarantine. Raises
    TableError that names the one that cannot be read; those before it are in then."""
    require_others(table.path, others)
    return [_merge(table, path) for path in others]


def require_others(table: Path, others: Sequence[Path]) -> None:
    """Raise TableError where one of them is not there, or is the table itself."""
    for path in others:
        if not exists(path):
            raise TableError(f"there is no table at {path}")
        if path.resolve() == table.resolve():
            raise TableError(f"{path} is the table itself; name another one to merge")


def _merge(table: TimingTable, path: Path) -> Merged:
    with table.database() as db, _source(db, path) as (found, damaged):
        archive.hasten(db)
        merged = Merged(str(path), damaged=damaged)
        with _reading(path):
            _stage(db, merged, found)
        db.execute("BEGIN")
        known = f"({_IN.format('timings')} OR {_IN.format('quarantine')})"
        merged.known = _one(db, f"SELECT count(*) FROM staged WHERE {known}")
        good, odd = f"kind IS NULL AND NOT {known}", f"kind IS NOT NULL AND NOT {known}"
        merged.new = _one(db, f"INSERT INTO timings SELECT {COLUMNS} FROM staged WHERE {good}")
        merged.refused = _one(db, f"INSERT INTO quarantine SELECT * FROM staged WHERE {odd}")
        merged.memos = _memos(db)
        _devices(db, merged)
        db.execute("COMMIT")
    return merged


def _one(db: Any, sql: str) -> int:
    return db.execute(sql).fetchone()[0]


def _stage(db: Any, merged: Merged, found: str) -> None:
    """A temporary table with the rows of a source, those that cannot be right with the reason."""
    columns = ", ".join(f"{n} {t}" for n, t in TIMINGS.items())
    db.execute(f"CREATE OR REPLACE TEMP TABLE staged ({columns}, kind VARCHAR, reason VARCHAR, moved DOUBLE)")
    db.execute(f"INSERT INTO staged SELECT {COLUMNS}, NULL, NULL, NULL FROM (SELECT DISTINCT ON (id) * FROM {found})")
    now = time.time()
    wrong = [(i, f"from {merged.source}: {reason}") for i, reason in poisoned(db, "staged", now)]
    if wrong:
        places, reasons = map(list, zip(*wrong, strict=True))
        db.execute(
            "UPDATE staged SET kind = 'poisoned', reason = w.reason, moved = ? FROM (SELECT unnest(?::BIGINT[]) "
            "AS number, unnest(?::VARCHAR[]) AS reason) w WHERE staged.rowid = w.number", [now, places, reasons],
        )  # fmt: skip


def _devices(db: Any, merged: Merged) -> None:
    """Take descriptions of devices that are new; one that is damaged is noted."""
    rows = db.execute("SELECT id, description FROM source_devices WHERE id IS NOT NULL ORDER BY id").fetchall()
    merged.devices = {i: d.json() for i, d in described(rows).items()}
    archive.insert(db, "devices", list(merged.devices.items()), " OR IGNORE")
    bad = (f"the description of device {i} is damaged" for i, _ in rows if i not in merged.devices)
    merged.damaged = (*merged.damaged, *bad)


def _memos(db: Any) -> int:
    """Take memos that are new, or newer than what is remembered; how many."""
    sql = (
        "INSERT INTO memos SELECT s.kind, s.key, s.payload, s.written FROM source_memos s LEFT JOIN memos m "
        f"ON s.kind = m.kind AND s.key = m.key WHERE s.kind NOT IN ({_OWN}) "
        "AND (m.key IS NULL OR s.written > m.written) "
        "ON CONFLICT (kind, key) DO UPDATE SET payload = excluded.payload, written = excluded.written"
    )
    return db.execute(sql).fetchone()[0]


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """What DuckDB says while another table is read is about that one, unless it lacks room for what it works on."""
    import duckdb

    try:
        yield
    except duckdb.Error as e:
        if isinstance(archive.refusal(path, e), TableWriteError):
            raise
        raise TableError(f"{path} cannot be read ({archive.first_line(e)}); name another") from e


@contextmanager
def _source(db: Any, path: Path) -> Iterator[tuple[str, tuple[str, ...]]]:
    """What holds the timings of another place, as SQL says it, and which of its files are damaged; its memos and
    devices are in temporary tables."""
    db.execute("CREATE OR REPLACE TEMP TABLE source_memos (kind VARCHAR, key VARCHAR, payload VARCHAR, written DOUBLE)")
    db.execute("CREATE OR REPLACE TEMP TABLE source_devices (id VARCHAR, description VARCHAR)")
    if path.is_dir() or path.suffix == ".jsonl":
        content = Shards(path).read() if path.is_dir() else read_shard(path)
        yield _hold(db, content)
    elif path.suffix == ".parquet":
        about = "INSERT INTO source_devices SELECT DISTINCT device, description {} WHERE description IS NOT NULL"
        with _reading(path):
            archive.shipped(db, path, about)
            archive.insert(db, "source_memos", archive.shipped_peaks(db, path))
        yield f"read_parquet('{quoted(path)}')", ()
    elif not path.exists():
        yield _hold(db, Shards.beside(path).read())
    else:
        with attached(db, path) as waiting:
            held = _hold(db, waiting)
            with _reading(path):
                for name in ("memos", "devices"):
                    db.execute(f"INSERT INTO source_{name} SELECT * FROM other.{name}")
                db.execute(f"INSERT INTO source SELECT {COLUMNS} FROM other.timings")
            yield held


def _hold(db: Any, content: Content) -> tuple[str, tuple[str, ...]]:
    """What shards hold, as a source: what holds its timings, and which files are damaged."""
    db.execute("CREATE OR REPLACE TEMP TABLE source AS SELECT * FROM timings LIMIT 0")
    archive.insert(db, "source", [tuple(written(t).values()) for t in content.timings])
    archive.insert(db, "source_memos", [(*k, *v) for k, v in content.memos.items()])
    archive.insert(db, "source_devices", list(content.devices.items()))
    return "source", tuple(f"{p.name}: {why}" for p, why in content.damaged.items())


@contextmanager
def attached(db: Any, path: Path, name: str = "other") -> Iterator[Content]:
    """Another table, read only, as the database `name`; the shards that wait beside it. Raises TableError."""
    import duckdb

    archive.require_database(path, "name another")
    try:
        db.execute(f"ATTACH '{quoted(path)}' AS {name} {archive.READ_ONLY}")
    except duckdb.Error as e:
        raise archive.refusal(path, e) from e
    try:
        archive.require_version(db, name, path)
        yield Shards.beside(path).read()
    finally:
        db.execute(f"DETACH {name}")


# -- comparing


@dataclass(frozen=True)
class Pair:
    """One call in both tables: how many times as long it takes in B as in A (medians), with an interval of 95 % where
    there are samples enough (`sure`), else of all samples; and the medians in seconds."""

    key: Mapping[str, Any]
    ratio: float
    low: float
    high: float
    sure: bool
    a: float
    b: float

    @property
    def same(self) -> bool:
        """Whether the interval holds 1: no difference was seen."""
        return self.low <= 1.0 <= self.high


@dataclass(frozen=True)
class Difference:
    """Two tables: calls in both, the most different first; how many calls are in one only, by kernel; the devices of
    each, and what differs between those that have most timings."""

    pairs: tuple[Pair, ...]
    only_a: Mapping[str, int]
    only_b: Mapping[str, int]
    devices_a: Mapping[str, str]
    devices_b: Mapping[str, str]
    fingerprint: tuple[str, ...]


def diff(a: Path, b: Path, *, across: bool = False) -> Difference:
    """Compare the newest timings of two tables, folders of shards or Parquet files; `across`: calls on different
    devices (and threads) too. Raises TableError and TableLockedError."""
    for path in (a, b):
        if not exists(path):
            raise TableError(f"there is no table at {path}")
    with archive.connect() as db:
        db.execute(f"CREATE TEMP TABLE timings ({', '.join(f'{n} {t}' for n, t in TIMINGS.items())})")
        for path, name in ((a, "a"), (b, "b")):
            with _source(db, path) as (found, _), _reading(path):
                db.execute(f"CREATE TEMP TABLE {name} AS SELECT {COLUMNS} FROM {found} {NEWEST}")
                db.execute(f"CREATE TEMP TABLE devices_{name} AS SELECT * FROM source_devices")
        same = [n for n in KEY if n not in (("device", "threads") if across else ())]
        return _difference(db, " AND ".join(f"a.{n} = b.{n}" for n in same))


def _difference(db: Any, same: str) -> Difference:
    columns = ", ".join(f"a.{n}" for n in KEY)
    rows = db.execute(f"SELECT {columns}, a.samples, b.samples FROM a JOIN b ON {same} ORDER BY a.digest").fetchall()
    pairs = [p for *key, x, y in rows if (p := pair(dict(zip(KEY, key, strict=True)), x, y)) is not None]
    pairs.sort(key=lambda p: -abs(math.log(p.ratio)))
    only = []
    for x, y in (("a", "b"), ("b", "a")):
        gone = f"SELECT kernel, count(*) FROM {x} AS one WHERE NOT EXISTS (SELECT 1 FROM {y} AS two WHERE "
        sql = gone + same.replace("a.", "one.").replace("b.", "two.") + ") GROUP BY kernel ORDER BY kernel"
        only.append(dict(db.execute(sql).fetchall()))
    devices = [
        described(db.execute(f"SELECT DISTINCT id, description FROM devices_{n} ORDER BY id").fetchall()) for n in "ab"
    ]
    most = [db.execute(f"SELECT device FROM {n} GROUP BY device ORDER BY count(*) DESC, device LIMIT 1").fetchone()
            for n in "ab"]  # fmt: skip
    known = [d[m[0]] for d, m in zip(devices, most, strict=True) if m is not None and m[0] in d]
    differs = known[0].differences(known[1]) if len(known) == 2 else ()
    about = [{i: d.describe() for i, d in ds.items()} for ds in devices]
    return Difference(tuple(pairs), only[0], only[1], about[0], about[1], differs)


def pair(key: Mapping[str, Any], a: Sequence[float], b: Sequence[float]) -> Pair | None:
    """Two sets of samples compared; None where one has none that is a positive number. The interval is that of the two
    medians, each at 97.5 % by its order statistics, so that the ratio's is at least at 95 % whatever the samples'
    distribution. Source: H. A. David and H. N. Nagaraja, "Order Statistics", 3rd edition, 2003, section 7.1."""
    a, b = (sorted(s for s in x or () if s is not None and 0.0 < s < math.inf) for x in (a, b))
    if not a or not b:
        return None
    (low_a, high_a, sure_a), (low_b, high_b, sure_b) = around_median(a), around_median(b)
    m, n = median(a), median(b)
    return Pair(key, n / m, low_b / high_a, high_b / low_a, sure_a and sure_b, m, n)


def median(x: Sequence[float]) -> float:
    """Of sorted values."""
    return 0.5 * (x[(len(x) - 1) // 2] + x[len(x) // 2])


def around_median(x: Sequence[float], level: float = 0.975) -> tuple[float, float, bool]:
    """The narrowest pair of order statistics that holds the median at this level, of sorted values; all of them, and
    False, where they are too few."""
    n, found = len(x), (x[0], x[-1], False)
    outside = 0.0
    for k in range((n + 1) // 2):
        # of logarithms: beyond a thousand samples the number of ways is none that a float can be
        ways = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
        outside += 2 * math.exp(ways - n * math.log(2))
        if 1.0 - outside < level:
            break
        found = (x[k], x[n - 1 - k], True)
    return found


# -- Parquet


def export(table: TimingTable, path: Path, device: str | None = None) -> int:
    """Write all timings, of one device or of all, with raw samples in full and descriptions of devices; how many. The
    file appears whole or not at all. Raises TableError, and UsageError for a name that is none of such files or the
    table's own, and for a device of which there are none."""
    parquet.require_place(path, table.path)
    if not path.parent.is_dir():
        raise TableError(f"{path} cannot be written: there is no folder {path.parent}")
    with table.database() as db:
        if device is not None:
            _require_device(db, device)
        return parquet.write_all(db, path, device)


def _require_device(db: Any, device: str) -> None:
    known = [d for (d,) in db.execute("SELECT DISTINCT device FROM timings ORDER BY device").fetchall()]
    if device not in known:
        there = f"it has those of {', '.join(known)}" if known else "it has none at all"
        raise UsageError(f"the table has no timings of a device {device!r}; {there}")
