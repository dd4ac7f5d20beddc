"""What was compiled, on disk: `libraries/<hash of the file>.so`, and `entries/<hash of what was asked>` with the name
of the library that has the answer. When libraries take more room than they may, those not used for longest go.

Any number of processes work on one store. A file is put in place by renaming, whatever is missing is built again, and a
library that is dropped stays with the processes that have loaded it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from waxeq.errors import UsageError
from waxeq.options import bytes_
from waxeq_native.files import replace

LIMIT = 512 << 20
"""Bytes that libraries may take unless WAXEQ_CACHE_SIZE says otherwise."""
YOUNG = 60.0
"""Seconds in which a process that built or found a library has loaded it: so long it is not dropped."""
_ROOM = 0.9
"""The part of the limit that is left filled, so that not every build has to make room."""


def size_limit() -> int:
    """Bytes, as WAXEQ_CACHE_SIZE says: "2GiB". Raises UsageError."""
    text = os.environ.get("WAXEQ_CACHE_SIZE")
    try:
        return LIMIT if text is None else bytes_(text)
    except ValueError as e:
        raise UsageError(f"WAXEQ_CACHE_SIZE: {e}") from None


class Store:
    """The libraries and entries below `directory`, which take at most `limit` bytes."""

    def __init__(self, directory: Path, limit: int = LIMIT) -> None:
        self.directory, self.limit = directory, limit
        self._room: int | None = None

    def entry(self, key: str) -> Path:
        """Where the name of the library lies that answers `key`."""
        return self.directory / "entries" / key[:2] / key

    def library(self, name: str) -> Path:
        """Where a library lies."""
        return self.directory / "libraries" / f"{name}.so"

    def name(self, key: str) -> str:
        """The library that answers `key`. Raises OSError and ValueError where that is not known."""
        return self.entry(key).read_text(encoding="ascii")

    def used(self, name: str) -> Path | None:
        """A library that is about to be loaded; None if it is damaged. Raises OSError where there is none."""
        path = self.library(name)
        with suppress(PermissionError):
            os.utime(path)
        return path if sha256(path.read_bytes()).hexdigest() == name else None

    def put(self, built: Path) -> str:
        """Move what was compiled to its place; its name."""
        name = sha256(built.read_bytes()).hexdigest()
        path = self.library(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        os.utime(built)
        size = built.stat().st_size
        os.replace(built, path)
        self._room = None if self._room is None else self._room - size
        return name

    def answers(self, key: str, name: str) -> None:
        """Note that a library answers `key`."""
        replace(self.entry(key), name.encode())

    def make_room(self, needed: Collection[str] = ()) -> None:
        """Drop what was not used for longest, none of it `needed` (names), if the libraries take more than they may.
        The folder is looked at when this process has filled the room that it saw last."""
        if self._room is not None and self._room >= 0:
            return
        files = dict(self._files())
        taken = sum(size for _, size in files.values())
        if taken > self.limit:
            dropped = self._dropped(files, needed, taken)
            taken -= sum(files[n][1] for n in dropped)
            self._forget(dropped)
        self._room = max(0, self.limit - taken)

    def _dropped(self, files: Mapping[str, tuple[float, int]], needed: Collection[str], taken: int) -> set[str]:
        dropped: set[str] = set()
        for name, (used, size) in sorted(files.items(), key=lambda row: row[1]):
            if taken <= _ROOM * self.limit or used > time.time() - YOUNG:
                break
            if name not in needed:
                with suppress(OSError):
                    self.library(name).unlink(missing_ok=True)
                    dropped.add(name)
                    taken -= size
        return dropped

    def _forget(self, dropped: Collection[str]) -> None:
        """Remove the entries that name what was dropped, unless it was built again meanwhile."""
        for path in (self.directory / "entries").glob("*/*"):
            with suppress(OSError, ValueError):
                name = path.read_text(encoding="ascii")
                if name in dropped and not self.library(name).exists():
                    path.unlink()

    def _files(self) -> Iterator[tuple[str, tuple[float, int]]]:
        """Every library with the time that it was last used and its size."""
        with suppress(OSError), os.scandir(self.directory / "libraries") as rows:
            for row in rows:
                with suppress(OSError):
                    about = row.stat()
                    yield row.name.removesuffix(".so"), (about.st_mtime, about.st_size)

    def taken(self) -> int:
        """Bytes that all libraries take."""
        return sum(size for _, (_, size) in self._files())
