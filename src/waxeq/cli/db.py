"""Commands about the timing table: what is in it, what is wrong with it, and moving timings between tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from waxeq.cli.console import aside, finish, working
from waxeq.cli.estimates import db_plot, estimate_rows, looked_at
from waxeq.cli.options import SHOW, Show
from waxeq.events import Events, Note, Progress

if TYPE_CHECKING:
    from waxeq.cost.examine import Finding
    from waxeq.cost.gc import Spare
    from waxeq.cost.table import TimingTable

Table = Path | None
Flag = Parameter(negative=(), show_default=False)


def db_status(*, table: Table = None, show: Show = SHOW) -> None:
    """Say where the timing table lies, what it holds, which of it does not count here any more, and how far estimates
    made from it are off.

    Looking makes none.

    Parameters
    ----------
    table
        Timing table to look at [default: the user's own].
    """
    from waxeq.inspect.paths import estimates_view
    from waxeq.inspect.show import group
    from waxeq.inspect.tables import status_view

    with working(show) as events:
        from waxeq.cost.survey import counts, survey

        store = looked_at(table, events)
        data = dict(store.status())
        if data["exists"]:
            with store.database() as db:
                parts = survey(db, _present())
                data["quarantined"] = db.execute("SELECT count(*) FROM quarantine").fetchone()[0]
                calls = db.execute("SELECT count(DISTINCT hash(digest)) FROM timings").fetchone()[0]
            data["superseded"] = sum(p.rows for p in parts) - calls
            data["parts"], data["rows"] = [asdict(p) for p in parts], counts(parts)
            data["estimates"] = estimate_rows(store)
    finish(
        show, data, lambda d: group(status_view(d), estimates_view(d["estimates"])) if d["exists"] else status_view(d)
    )


def db_doctor(*, fix: Annotated[bool, Flag] = False, table: Table = None, show: Show = SHOW) -> int:
    """Find timings that cannot be right, or do not count here, and explain each.

    Poisoned: no measurement can have made the row. Implausible: faster than the machine can be. Bimodal: the machine
    had two moods while it was timed. Stale and unknown: of kernels or software that are not here any more.

    Exit code 0 when every row can be right, 1 when one cannot and was not put aside.

    Parameters
    ----------
    fix
        Put rows that cannot be right, and bimodal ones, into the table's quarantine, where they do not count;
        `waxeq db gc` drops them.
    table
        Timing table to look at [default: the user's own].
    """
    from waxeq.inspect.tables import findings_view

    with working(show) as events:
        from waxeq.cost.ceilings import Ceilings
        from waxeq.cost.examine import examine, set_aside

        store = _named(table, events) if fix else looked_at(table, events)
        with store.database() as db:
            present = _present()
            ceilings = Ceilings(db, present)
            findings = examine(db, present, ceilings, seen=_rows_seen(events))
        moved = set_aside(store, findings) if fix else 0
        for device, peaks in ceilings.raised.items() if fix else ():
            store.note_peaks(device, peaks)
    data = {"path": str(store.path), "findings": [_finding(f) for f in findings], "put_aside": moved}
    finish(show, data, findings_view)
    return 1 if any(f.kind in ("poisoned", "implausible") for f in findings) and not fix else 0


def db_merge(*others: Path, table: Table = None, show: Show = SHOW) -> None:
    """Bring other tables into this one: .duckdb tables, Parquet files, and JSON lines (single shards or folders of
    them) of machines that have no DuckDB.

    Nothing is stored twice, raw samples stay, and rows that cannot be right go into the quarantine.

    Parameters
    ----------
    others
        Tables to take timings from; they are not changed.
    table
        Timing table to bring them into [default: the user's own].
    """
    from waxeq.errors import UsageError
    from waxeq.inspect.tables import merged_view

    if not others:
        raise UsageError("name at least one table to merge")
    with working(show) as events:
        from waxeq.cost.exchange import merge as bring_in

        store = _opened(table, others, events)
        rows = bring_in(store, others)
    here = _present()
    data = [{**asdict(r), "devices": _described(r.devices, here)} for r in rows]
    finish(show, {"path": str(store.path), "sources": data}, merged_view)


def db_diff(a: Path, b: Path, /, *, across: Annotated[bool, Flag] = False, show: Show = SHOW) -> None:
    """Compare two tables: how many times as long each call takes in B as in A, with an interval of 95 %.

    Parameters
    ----------
    a
        A timing table, a folder of shards or a Parquet file.
    b
        Another one.
    across
        Compare calls on different devices too.
    """
    from waxeq.inspect.tables import diff_view

    with aside():
        from waxeq.cost.exchange import diff as compare

        found = compare(a, b, across=across)
    data = {**asdict(found), "pairs": [{**asdict(p), "same": p.same} for p in found.pairs]}
    finish(show, {"a": str(a), "b": str(b), **data}, diff_view)


def db_export(path: Path, /, *, device: str | None = None, table: Table = None, show: Show = SHOW) -> None:
    """Write all timings as a Parquet file, raw samples and descriptions of the devices included.

    Parameters
    ----------
    path
        The file to write, NAME.parquet.
    device
        Only timings of this device, by its id in `waxeq db status`.
    table
        Timing table to read [default: the user's own].
    """
    from waxeq.inspect.tables import count_view

    with working(show) as events:
        from waxeq.cost.exchange import export as write

        rows = write(looked_at(table, events), path, device)
    finish(show, {"path": str(path), "timings": rows, "done": "written"}, count_view)


def db_import(path: Path, /, *, table: Table = None, show: Show = SHOW) -> None:
    """Take in timings from a Parquet file that `waxeq db export` or `waxeq calibrate -o` wrote.

    Parameters
    ----------
    path
        The file to read.
    table
        Timing table to bring them into [default: the user's own].
    """
    from waxeq.errors import UsageError
    from waxeq.inspect.tables import count_view

    if path.suffix != ".parquet":
        raise UsageError(f"{path} is no Parquet file; `waxeq db merge` takes other tables")
    with working(show) as events:
        from waxeq.cost.exchange import merge as bring_in

        (found,) = bring_in(_opened(table, [path], events), [path])
    data = {"path": str(path), "timings": found.new, "known": found.known, "refused": found.refused, "done": "taken in"}
    finish(show, data, count_view)


def db_gc(
    *,
    dry_run: Annotated[bool, Flag] = False,
    unknown: Annotated[bool, Flag] = False,
    elsewhere: Annotated[bool, Flag] = False,
    table: Table = None,
    show: Show = SHOW,
) -> None:
    """Drop timings that are not needed, say how many, and make the file as small as what is left.

    Dropped are timings that a newer one of the same call replaces, stale ones (the kernel's text, its compiler or this
    machine's software was changed since), and the quarantine.

    Parameters
    ----------
    dry_run
        Say what would be dropped, and drop nothing.
    unknown
        Also drop timings of kernels and devices that nothing is known of here.
    elsewhere
        Also drop timings of other machines.
    table
        Timing table to clean [default: the user's own].
    """
    from waxeq.inspect.tables import spare_view

    with working(show) as events:
        from waxeq.cost.gc import collect, spare
        from waxeq.cost.survey import State

        more: list[State] = [*(("unknown",) if unknown else ()), *(("elsewhere",) if elsewhere else ())]
        states: frozenset[State] = frozenset(("stale", *more))
        store = _named(table, events)
        found = spare(store, _present(), states)
        if not dry_run:
            events.emit(Note(f"dropping {_counted(found)}"))
            found = collect(store, _present(), states, seen=_rows_seen(events))
    data = {**asdict(found), "unused": found.unused, "dry_run": dry_run, "path": str(store.path)}
    finish(show, data, spare_view)


def _rows_seen(events: Events) -> Callable[[int, int], None]:
    return lambda done, total: events.emit(Progress("rows", done, total))


def _counted(s: Spare) -> str:
    dropped = f"timings: {s.superseded:,} superseded, {s.unused:,} unused, {s.quarantined:,} quarantined"
    return f"{dropped}; {s.forgotten:,} old memos; {s.kept:,} timings kept"


def _present() -> Any:
    from waxeq.cost.survey import Present

    with aside():
        return Present.here()


def _finding(f: Finding) -> dict[str, object]:
    ids = list(f.ids) if len(f.ids) == f.rows == 1 else []
    return {**asdict(replace(f, ids=())), "ids": ids, "advice": f.advice}


def _described(devices: Mapping[str, str], here: Any) -> dict[str, str]:
    """Devices by id, each with what differs from this machine."""
    from waxeq.cost.device import Device

    known = {i: Device.from_json(d) for i, d in devices.items()}
    return {i: here.device_state(i, d)[1] or "this machine" for i, d in known.items()}


def _named(named: Table, events: Events) -> TimingTable:
    """The table to change, which must be there."""
    from waxeq.cost.table import TimingTable, default_path
    from waxeq.cost.unsaved import exists
    from waxeq.errors import TableError
    from waxeq.search.tables import calibration_tables, copied

    path = named or default_path()
    if not exists(path):
        raise TableError(f"there is no table at {path}")
    return TimingTable.open(path, calibration_tables(), whole=True, seen=copied(events))


def _opened(named: Table, others: Sequence[Path], events: Events) -> TimingTable:
    """The table to bring timings from others into; made if it is not there, but not for others that are not."""
    from waxeq.cost.exchange import require_others
    from waxeq.cost.table import default_path
    from waxeq.search.tables import saved_table

    require_others(named or default_path(), others)
    return saved_table(named, events, whole=True).table


COMMANDS: Sequence[Callable[..., object]] = (
    db_status, db_plot, db_doctor, db_merge, db_diff, db_export, db_import, db_gc,
)  # fmt: skip
"""The commands; what is typed for them is their names."""
