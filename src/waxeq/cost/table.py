"""The timing table: a DuckDB archive that many processes write to, and a near copy of it that they read.

Writers append shards (`cost.shards`), each written whole and renamed into place; a merge under a lock brings shards
into the archive (`cost.archive`), then into the near copy (`cost.copies`), and only then removes them. What is
committed is a shard or a row, so a process killed at any point loses nothing that it was told is stored. Readers look
into the near copy and the shards that wait; the archive is open only while it is merged or looked at whole, always
under the lock: DuckDB's writer would otherwise lock readers out.
"""

from __future__ import annotations

import atexit
import errno
import os
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from waxeq.cost import copying, parquet
from waxeq.cost.archive import attach, bring_in, connect, meaning, name_another, no_place, require_own, wal
from waxeq.cost.copies import Beside, Copies
from waxeq.cost.copying import Seen
from waxeq.cost.device import Device, Peaks, described, measure_peaks
from waxeq.cost.key import METHOD, Timing, TimingKey
from waxeq.cost.known import Known
from waxeq.cost.memos import PEAKS, of_device
from waxeq.cost.near import Near, newer
from waxeq.cost.shards import Content, Shards, timing_rows
from waxeq.cost.shipping import ship
from waxeq.errors import TableError, TableLockedError, TableWriteError, WaxeqError

Answer = TypeVar("Answer")
_SOON = 1.0
"""Seconds that a writer waits for the lock before it leaves its shard to the next merge."""
_MANY = 256
"""Shards that wait from which a reader brings them in: reading each takes a while."""
_AT_EXIT: dict[Path, TimingTable] = {}
"""Tables whose shards are brought in when this process ends, by where they lie whatever folder it is in then."""


def default_path() -> Path:
    """The table of this user; not absolute for a user without a home."""
    from platformdirs import user_data_path

    return user_data_path("waxeq") / "timings.duckdb"


@dataclass(frozen=True)
class TimingTable:
    """Timings and memos at `path`; `extra` are Parquet tables (made by `export_parquet`) that are read but never
    written. `wait`: seconds to wait for another process that holds the table. `seen` is told from how many rows of how
    many a near copy was made: that takes minutes of ten million.

    Where DuckDB is not installed everything stays in shards, which `waxeq db merge` brings into a table elsewhere.

    Every method raises TableError when the table cannot be read, TableWriteError when it cannot be written, and
    TableLockedError when another process holds it for longer than `wait`.
    """

    path: Path
    extra: tuple[str, ...] = ()
    wait: float = 20.0
    seen: Seen = field(default=copying.unseen, compare=False, repr=False)
    _read_before: dict[Path, Content] = field(default_factory=dict, compare=False, repr=False)

    @staticmethod
    def open(
        path: Path | str | None = None, extra: Iterable[str] = (), wait: float = 20.0, *, whole: bool = False,
        seen: Seen = copying.unseen,
    ) -> TimingTable:  # fmt: skip
        """The table at `path`, or the user's own; made if it is not there. As a `whole` it is worked on in the archive:
        every shard is brought in, and no near copy made, which takes minutes of ten million rows."""
        table = TimingTable(Path(path) if path else default_path(), tuple(extra), wait, seen)
        if str(path) == ":memory:" or (path is None and not table.path.is_absolute()):
            # DuckDB would keep it in memory and lose it; or it would lie in whatever folder waxeq is called from
            raise no_place(table.path, named=bool(path))
        with table._nothing_left_if_refused():
            table._make_room()
            table.merge() if whole else table._ask(lambda near, waiting: None)
        return table

    def _make_room(self) -> None:
        """A folder that shards can be written to."""
        try:
            self.shards.folder.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            done = "written" if os.path.exists(self.path) else "made"
            raise TableWriteError(f"{self.path} cannot be {done}: {e.strerror or e}; {name_another()}") from e
        if not os.access(self.shards.folder, os.W_OK | os.X_OK):
            raise TableWriteError(f"{self.shards.folder} is read-only; make it writable, or {name_another()}")
        if not os.path.lexists(self.path):  # nothing else would tell of a full disk before the work
            with self._writing():
                self.shards.probe()

    @contextmanager
    def _nothing_left_if_refused(self) -> Iterator[None]:
        """What is made inside beside a table that is refused goes again; what was there before stays, and so does a
        lock that another process holds."""
        from filelock import FileLock, Timeout

        new = [p for p in (self.shards.folder, self._lock) if not os.path.exists(p)]
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
        """Where writers leave what is not in the archive yet: a folder beside it."""
        return Shards.beside(self.path)

    # -- the archive

    @contextmanager
    def _locked(self, wait: float | None = None) -> Iterator[None]:
        """Under the lock, and what goes wrong as an error with a sentence."""
        from filelock import FileLock, Timeout

        wait = self.wait if wait is None else wait
        try:
            with FileLock(str(self._lock), timeout=wait):
                yield
        except Timeout as e:
            raise TableLockedError(f"{self.path} has been locked by another process for {wait:.0f} s; try again") from e
        except sqlite3.Error as e:
            raise TableError(f"{Near.beside(self.path)} cannot be used ({e}); remove it, it is only a copy") from e
        except OSError as e:
            raise TableWriteError(f"{self.path} cannot be used: {e.strerror or e}; {name_another()}") from e
        except Exception as e:
            if (meant := meaning(self.path, e)) is not None:
                raise meant from e
            raise

    @contextmanager
    def database(self, wait: float | None = None, *, changes: bool = False) -> Iterator[Any]:
        """The archive with every shard brought in, under the lock; the near copy follows what is added, and what is
        removed (`archive.remove`). With `changes` it is about to be changed otherwise, and the near copy is made
        anew."""
        with self._locked(wait):
            if changes:
                self._copies.remove()
            with self._archive(make=changes) as db:
                yield db

    def rewrite(self, make: Callable[[Any, Path], None]) -> None:
        """Put another archive in the place of this one: `make` is given the archive and the path for the new file,
        leaves it whole there, and tells in the table `gone` of what calls nothing is left. The old one stays when
        anything goes wrong; the near copy, which is as large, goes where there is no room for the new one."""
        try:
            self._rewrite(make)
        except TableWriteError as e:
            elsewise = isinstance(e.__cause__, OSError) and e.__cause__.errno != errno.ENOSPC
            if elsewise or not os.path.exists(self._copies.own):
                raise
            self._rewrite(make, alone=True)

    def _rewrite(self, make: Callable[[Any, Path], None], *, alone: bool = False) -> None:
        new = self.path.with_name(f".{self.path.name}.new")
        with self._locked():
            new.unlink(missing_ok=True)  # of one that was killed
            if alone:
                self._copies.remove()
            try:
                with self._archive(follow=False) as db:
                    make(db, new)
                    self._copies.follow_new(db, new)
                with open(new, "rb+") as f:
                    os.fsync(f.fileno())
                os.replace(new, self.path)
            finally:
                for p in (new, wal(new)):
                    p.unlink(missing_ok=True)
            self._current().close()

    @contextmanager
    def _archive(self, *, make: bool = False, follow: bool = True) -> Iterator[Any]:
        """The archive, to whoever has the lock. Shards go when they are in it and in the near copy, which follows; one
        that cannot goes, or is made anew if wanted (`make`). Without `follow` nobody looks at it again once the
        archive is given."""
        copies = self._copies
        with connect() as db:
            new = not os.path.lexists(self.path)
            attach(db, self.path)
            if new:  # its copy has next to nothing to say, and follows from now on
                copies.make(db, copying.unseen)
            follows = copies.knows(db)
            if not follows:  # it is of another archive, and must not be said to be of this one
                copies.remove()
            found = self.shards.read(self._read_before)
            if found.read:
                bring_in(db, found)
            follows = follows and copies.follows(db)
            yield db
            follows = follows and follow and copies.follows(db)
            if make and not follows:
                copies.make(db, self.seen)
        if follow:
            copies.say()
        self.shards.done(found)

    # -- the near copy

    @property
    def _copies(self) -> Beside:
        return Beside(self.path, self.extra)

    def _current(self) -> Copies:
        """The near copies, brought up to date; in memory where they cannot be written, and where there is no DuckDB to
        make them from."""
        require_own(self.path)
        if find_spec("duckdb") is None:
            return Copies.in_memory(self._copies.known_shipped())
        own, shipped = self._copies.open(), None
        if own is None:
            with self._archive(make=True) as db:
                shipped = self._copies.open_shipped(db)  # to connect once more takes 10 ms
            own = self._copies.open()
        if own is None:
            with self._archive() as db:
                own = Near.in_memory()
                own.load(copying.rows(db, self.seen))
        return Copies(own, shipped or self._copies.open_shipped())

    def _ask(self, ask: Callable[[Copies, Content], Answer]) -> Answer:
        """What `ask` finds in the near copy and the shards that wait."""
        if len(self.shards.names()) > _MANY:
            self.tidy()
        with self._locked():
            near = self._current()
            try:
                return ask(near, self.shards.read(self._read_before))
            except sqlite3.DatabaseError:
                near.close()
                self._copies.remove()
                near = self._current()
                return ask(near, self.shards.read(self._read_before))
            finally:
                near.close()

    # -- writing

    def record(self, timings: Sequence[Timing]) -> None:
        """Store timings: committed when this returns, and seen by everyone who reads."""
        self._append(timing_rows(timings))

    def memo_put(self, kind: str, key: str, payload: str) -> None:
        """Remember a text under (kind, key)."""
        self._append([{"kind": "memo", "memo": kind, "key": key, "payload": payload, "written": time.time()}])

    def _append(self, lines: Sequence[Mapping[str, Any]]) -> None:
        if lines:
            with self._writing():
                self.shards.write(lines)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as e:
            why = f"{e.strerror or e}; {'make room, or ' * (e.errno == errno.ENOSPC)}{name_another()}"
            raise TableWriteError(f"{self.shards.folder} cannot be written: {why}") from e

    def tidy(self) -> None:
        """Leave one file rather than many: what cannot be brought in now is safe where it is."""
        with suppress(TableError, TableLockedError):
            if find_spec("duckdb") is not None and self.shards.names():
                self.merge(_SOON)

    def tidy_at_exit(self) -> None:
        """As `tidy`, when this process ends: nobody waits then. One that is killed leaves its shards to the next."""
        if not _AT_EXIT:
            atexit.register(_tidy_all)
        path = self.path.absolute()
        _AT_EXIT[path] = TimingTable(path, self.extra)

    def merge(self, wait: float | None = None) -> tuple[str, ...]:
        """Bring shards into the archive; names of damaged ones, which lie aside (`NAME.damaged`) from now on."""
        with self.database(wait):
            pass
        return self.shards.set_aside()

    # -- reading

    def lookup(self, keys: Iterable[TimingKey]) -> dict[TimingKey, Timing]:
        """The newest timing of each of those keys that is known, all at once."""
        by_digest = {k.digest: k for k in keys}
        if not by_digest:
            return {}

        def ask(near: Copies, waiting: Content) -> dict[str, Timing]:
            return newer(near.lookup(by_digest), [t for t in waiting.timings if t.key.digest in by_digest])

        return {by_digest[d]: t for d, t in self._ask(ask).items()}

    def families(self, device: str) -> Known:
        """The newest timings of the calls that were timed on a device, for fitting: of each family up to RECENT, in an
        order that depends on nothing but what they are of. Most are made only when they are looked at."""

        def ask(near: Copies, waiting: Content) -> Known:
            new = [t for t in waiting.timings if (t.key.device, t.key.method) == (device, METHOD)]
            return near.families(device, METHOD, new)

        return self._ask(ask)

    def memo_get(self, kind: str, key: str) -> str | None:
        """What was remembered under (kind, key)."""
        return self.memos(kind, [key]).get(key)

    def memos(self, kind: str, keys: Iterable[str]) -> dict[str, str]:
        """What was remembered under those keys, all at once; keys of which nothing is known are left out."""
        wanted = list(dict.fromkeys(keys))

        def ask(near: Copies, waiting: Content) -> dict[str, str]:
            new = {k: waiting.memos[kind, k][0] for k in wanted if (kind, k) in waiting.memos}
            return near.memos(kind, wanted) | new

        return self._ask(ask) if wanted else {}

    def remembers(self, kind: str) -> bool:
        """Whether anything of this kind was remembered, whatever its key."""
        return self._ask(lambda near, waiting: near.remembers(kind) or any(k == kind for k, _ in waiting.memos))

    def peaks(self, device: Device) -> Peaks:
        """The device's ceilings: measured once, or of a Parquet table; kept together with what the device is."""
        known = self.known_peaks(device)
        if known is None or device.id not in self.devices():
            known = known or measure_peaks(device.threads)
            self.note_peaks(device, known)
        return known

    def known_peaks(self, device: Device) -> Peaks | None:
        """The device's ceilings, if they are known."""
        known = self.memo_get(PEAKS.name, of_device(device.id))
        return None if known is None else Peaks.from_json(known)

    def note_peaks(self, device: Device, found: Peaks) -> None:
        """Remember a device and its ceilings."""
        self._append([
            {"kind": "device", "id": device.id, "description": device.json()},
            {"kind": "memo", "memo": PEAKS.name, "key": of_device(device.id), "payload": found.json(),
             "written": time.time()},
        ])  # fmt: skip

    def devices(self) -> dict[str, Device]:
        """The devices this table knows, by id; without those whose description is damaged."""
        return described(sorted(self._ask(lambda near, waiting: near.devices() | waiting.devices).items()))

    def status(self) -> Mapping[str, Any]:
        """Counts for `waxeq db status`."""
        with self.database() as db:
            sql = "SELECT device, kernel, count(*), max(written) FROM timings GROUP BY ALL ORDER BY ALL"
            rows = db.execute(sql).fetchall()
            memos = db.execute("SELECT kind, count(*) FROM memos GROUP BY ALL ORDER BY ALL").fetchall()
            devices = db.execute("SELECT id, description FROM devices ORDER BY id").fetchall()
        return {
            **self._lies(),
            "devices": {i: d.describe() for i, d in described(devices).items()},
            "timings": [{"device": d, "kernel": k, "rows": n, "newest": w} for d, k, n, w in rows],
            "memos": dict(memos),
            "damaged": list(self.shards.set_aside()),
            "shipped": [Path(p).name for p in self.extra],
        }

    def _lies(self) -> Mapping[str, Any]:
        """Where the table lies or would, and whether something can be stored there."""
        sizes = [p.stat().st_size if p.exists() else 0 for p in (self.path, self._copies.own)]
        return {"path": str(self.path), "exists": True, "writable": True, "bytes": sizes[0], "near_bytes": sizes[1]}

    # -- Parquet

    def export_parquet(self, path: str | Path, device: str, codes: Collection[str] = ()) -> int:
        """Write the newest timing of every call timed on a device as Parquet, each with the device's description and
        samples in single precision (more digits than a clock has), and of tables that ship what they know of kernels of
        these `codes`; how many. The file appears whole or not at all, and beside it what reads it faster."""
        with self.database() as db:
            count = parquet.write(db, Path(path), device, self.extra, codes)
            ship(db, Path(path))
            return count


def _tidy_all() -> None:
    for table in [*_AT_EXIT.values()]:
        with suppress(Exception, KeyboardInterrupt):  # shards stay where they are, and there is nobody to tell
            table.tidy()
