"""Calibration: timing every kernel over a grid, so that what was never timed can be estimated well."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from waxeq.amounts import number_of
from waxeq.backend.call import Call
from waxeq.cost import parquet
from waxeq.cost.key import TimingKey
from waxeq.cost.table import default_path
from waxeq.egraph.kernels import patterns
from waxeq.errors import PlanError, TableError
from waxeq.events import Events, StageFinished, StageStarted
from waxeq.ir.types import FLOATS
from waxeq.naming import named
from waxeq.options import Options
from waxeq.runtime.files import require_writable
from waxeq.search.samples import samples
from waxeq.search.session import Session
from waxeq.search.tables import saved_table

QUICK = 60.0
"""Seconds after which a quick calibration stops, whatever is left."""
_EACH = 0.0025
_VISITS = 4
"""Times that each call is timed, half a minute apart or more, as a shared machine is slow for that long: with one, a
call timed again differs by an eighth in the median and a tenth of them by half; with the least of four by half of
that."""
_LONGEST = {True: 0.03, False: 0.15}
"""Predicted seconds of one call beyond which it is not worth its time here, quick or not."""
_BATCH = {True: 32, False: 8192}
"""Calls that are timed one after another before any of them is timed again, and stored together; quick or not."""
_PRICED = 512


@dataclass(frozen=True, slots=True)
class Calibration:
    """`rows` timings were taken (calls that the table knew are not timed again) in `seconds`; `left` were not reached,
    None where it was stopped before they were counted.
    `path`: the Parquet file with all timings of the device, if one was asked for. `note`: a sentence when other
    processes disturbed so many that it had better be done again."""

    device: str
    rows: int
    left: int | None
    seconds: float
    path: Path | None
    note: str | None = None


def calibrate(
    options: Options, events: Events, *, out: Path | None = None, quick: bool = False, again: bool = False
) -> Calibration:
    """Time the kernels of `options.backends` on `options.threads` threads into `options.table`.

    `out`: a Parquet file, or a folder to put DEVICE.parquet in. `quick`: a coarse grid, in under a minute. `again`:
    what the table knows is timed too, and stays where it is the faster one. Ctrl-C (or `events.request_stop`) keeps
    what was measured. Raises TableError when something cannot be stored, UsageError for an `out` of another name.
    """
    if out is not None:
        _require_place(out, options.table or default_path())
    unlimited = options.model_copy(update={"budget": QUICK if quick else None})
    with Session.open(unlimited, events, saved_table(options.table, events)) as session:
        events.emit(StageStarted("calibrate", session.device.describe()))
        session.kept = 0.0
        session.begin_ready(FLOATS)
        session.await_ready()
        calls = _wanted(session, quick, again or options.fresh)
        try:
            rows = _measured(session, calls or (), quick, again)
        finally:
            path = _exported(session, out)
        left = None if calls is None else _count(session, calls) - rows
        seconds = session.deadline.elapsed
        events.emit(StageFinished("calibrate", seconds, number_of(rows, "timing")))
        return Calibration(session.device.id, rows, left, seconds, path, session.watch.note)


def _wanted(session: Session, quick: bool, known: bool) -> list[Call] | None:
    """Calls of the grid, those that the table knows only if they are wanted, mixed, so that a run cut short knows a
    little of everything; None for somebody who wants to stop before they are worked out."""
    forms = patterns(session.usable)
    distinct, kept = dict[TimingKey, Call](), list[Call]()
    for s in samples(quick):
        if session.stopped:
            return None
        distinct |= {session.prices.key(c): c for c in s.calls(session.usable, forms, session.options.threads)}
    calls = list(distinct.values())
    for start in range(0, len(calls), _PRICED):
        if session.stopped:
            return None
        some = calls[start : start + _PRICED]
        priced = zip(some, session.prices.of(some), strict=True)
        kept += [c for c, e in priced if (known or e.source != "measured") and e.seconds <= _LONGEST[quick]]
    random.Random(session.options.seed).shuffle(kept)
    return kept


def _measured(session: Session, calls: Sequence[Call], quick: bool, again: bool) -> int:
    """Time the calls in batches, each stored before the next; how many."""
    done = 0
    for start in range(0, len(calls), _BATCH[quick]):
        if session.deadline.expired or session.events.stop_requested:
            break
        done += session.measure(calls[start : start + _BATCH[quick]], _EACH, 1 if quick else _VISITS, again)
    return done


def _count(session: Session, calls: Sequence[Call]) -> int:
    """How many of the calls can be timed: those of kernels that cannot be made ready here never are."""
    return sum(c.kernel not in session.prices.excluded for c in calls)


def _require_place(out: Path, table: Path) -> None:
    """Raise TableError before the work where a Parquet file could not be written after it, UsageError where it would
    take the place of something else."""
    if not out.parent.is_dir():
        raise TableError(f"{out} cannot be written: there is no folder {out.parent}")
    if not out.suffix and not out.is_dir():
        raise TableError(f"there is no folder {out}: make it, or name a file that ends in .parquet")
    if not out.is_dir():
        parquet.require_place(out, table)
    try:
        require_writable(out / "DEVICE.parquet" if out.is_dir() else out, named("out", "output"))
    except PlanError as e:
        raise TableError(str(e)) from e


def _exported(session: Session, out: Path | None) -> Path | None:
    if out is None:
        return None
    path = out / f"{session.device.id}.parquet" if out.is_dir() else out
    codes = {k.code for k in session.kernels.values()}  # what a table that ships knows already was not timed again
    session.table.export_parquet(path, session.device.id, codes)
    return path
