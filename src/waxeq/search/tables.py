"""Which timing table a run works with, and what becomes of a run whose table cannot be written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from waxeq.cost.archive import name_another
from waxeq.cost.copying import Seen
from waxeq.cost.device import current_device
from waxeq.cost.table import TimingTable, default_path
from waxeq.cost.unsaved import UnsavedTable, exists, look
from waxeq.errors import FallbackError, TableError, TableWriteError
from waxeq.events import Events, Progress
from waxeq.naming import option
from waxeq.share import share


@dataclass(frozen=True)
class Opened:
    """A table, and a sentence where what is stored in it does not stay."""

    table: TimingTable
    notes: tuple[str, ...] = ()


def open_table(named: Path | None, events: Events | None = None, *, strict: bool = False) -> Opened:
    """The table to work with: the one that is named, which must be writable, or the user's own. In place of a user's
    own that cannot be written there is one in memory, for this run.

    Raises TableError and TableLockedError; FallbackError where `strict` rules out the table in memory.
    """
    try:
        return saved_table(named, events)
    except TableWriteError as e:
        if named is not None:
            raise
        if strict:
            raise FallbackError(f"{option('strict', 'True')} needs a timing table that can be written, but {e}") from e
        note = f"timings of this run are kept in memory and then lost: {e}"
        return Opened(UnsavedTable.at(default_path(), calibration_tables()), (note,))


def saved_table(named: Path | None, events: Events | None = None, *, whole: bool = False) -> Opened:
    """The table to work with when work that is not stored is lost; `whole` as for `TimingTable.open`. Raises TableError
    and TableLockedError."""
    _require_folder(named)
    return Opened(TimingTable.open(named, extra=calibration_tables(), whole=whole, seen=copied(events)))


def _require_folder(named: Path | None) -> None:
    """Raise TableError where the folder of a table that is named is not there: its name may be mistyped, and nobody
    would look for timings in a folder that was made for them. That of the user's own table is made."""
    if named is not None and not named.parent.is_dir():
        raise TableError(f"{named} cannot be made: there is no folder {named.parent}; make it, or {name_another()}")


def copied(events: Events | None) -> Seen:
    """Tells listeners how much of a near copy is made."""
    heard = events or Events()
    return lambda done, total: heard.emit(Progress("near copy of the timing table", done, total))


def table_to_look_with(named: Path | None, events: Events | None = None) -> Opened:
    """As `open_table`, but a table that is not there yet is not made: there is one in memory in its place."""
    _require_folder(named)
    path = named or default_path()
    if exists(path):
        return open_table(named, events)
    note = f"there is no timing table at {path} yet, so timings of this run are not kept; `waxeq optimize` makes one"
    return Opened(UnsavedTable.at(path, calibration_tables()), (note,))


def table_status(named: Path | None, wait: float = 20.0) -> Mapping[str, Any]:
    """What is in the table that is named, which must be there, or in the user's own, if there is one; nothing is made.
    Raises TableError and TableLockedError."""
    if named is not None and not exists(named):
        raise TableError(f"there is no table at {named}")
    return look(named or default_path(), calibration_tables(), wait).status()


def calibration_tables() -> Iterable[str]:
    """The measured Parquet tables that ship with waxeq for machines like this one, on any number of threads; those of
    others would be read for nothing."""
    files = sorted(share("calibration").glob("*.parquet"))
    one = current_device(1)
    own = {replace(one, threads=t).id for t in range(1, one.cores + 1)} if files else set[str]()
    return [str(p) for p in files if p.stem in own]
