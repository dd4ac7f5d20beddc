"""Rows of a timing table that cannot be right, found and explained; and their quarantine.

A finding is of one of these kinds: "poisoned" (no such measurement can be: numbers that are none, a time in the future,
a digest that is not of its row), "implausible" (faster than the device can be), "bimodal" (two moods of the machine in
one timing), "stale" and "unknown" (of a kernel or a device that is not here, all rows of a part at once).
"""

from __future__ import annotations

import json
import math
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

import numpy as np

from waxeq.cost import archive
from waxeq.cost.ceilings import Ceilings
from waxeq.cost.device import Peaks
from waxeq.cost.features import SHORTEST
from waxeq.cost.key import Timing, TimingKey, lower_quartile
from waxeq.cost.modes import ALIKE, FEWEST, doubtful, modes
from waxeq.cost.rows import KEY, TIMINGS
from waxeq.cost.survey import Part, Present, survey
from waxeq.cost.table import TimingTable

Kind = Literal["poisoned", "implausible", "bimodal", "stale", "unknown"]
_DAY = 86_400.0
_SPREAD = 1000.0
"""How much longer the longest sample may be than the shortest: what lies between is the operating system's doing."""
_MARGIN = 4.0
"""How many times a ceiling may be exceeded: ceilings are measured on a machine that may be busy, and in one cache."""
_BATCH = 491_520
"""Rows that are looked at at once: four row groups of DuckDB's, each of which one thread reads."""
_LISTED, _MOVED_AT_ONCE = 1000, 100_000
"""Findings of a kind that are told one by one, and rows that are put aside at once."""
_ASIDE = "to be put aside by `waxeq db doctor --fix`, and timed again when needed"
_ADVICE: Mapping[str, str] = {
    "poisoned": _ASIDE,
    "implausible": _ASIDE,
    "bimodal": f"{_ASIDE}; let the machine do nothing else then",
    "stale": "not used; to be dropped by `waxeq db gc`",
    "unknown": "not used; install what is missing, or drop with `waxeq db gc --unknown`",
}
"""What reads of one row as of many."""


@dataclass(frozen=True)
class Finding:
    """What is wrong with `rows` rows: `ids` names those that are to be put aside, none for parts that are only not
    used. `what`: the call, or the text of the kernel."""

    kind: Kind
    kernel: str
    device: str
    what: str
    reason: str
    rows: int = 1
    ids: Sequence[int] = ()

    @property
    def advice(self) -> str:
        """What to do about it."""
        return _ADVICE[self.kind]


def examine(
    db: Any,
    present: Present,
    ceilings: Ceilings | None = None,
    now: float | None = None,
    seen: Callable[[int, int], None] = lambda done, total: None,
) -> list[Finding]:
    """Everything that is wrong in the archive that is the current database; parts first, then rows as they lie there.
    Of each kind the first 1,000 rows are told one by one, the rest by kernel. `ceilings`: what rows are held to, where
    not what the archive says; `seen` is told how many rows of how many were looked at."""
    archive.hasten(db)
    found = [_of_part(p) for p in survey(db, present) if p.state in ("stale", "unknown")]
    held_to = ceilings or Ceilings(db, present)
    return found + list(_told(_rows(db, held_to, time.time() if now is None else now, seen)))


def _of_part(p: Part) -> Finding:
    return Finding("stale" if p.state == "stale" else "unknown", p.kernel, p.device, f"code {p.code}", p.why, p.rows)


def _told(rows: Iterable[Finding]) -> Iterator[Finding]:
    """Findings, those that are many together: a table of millions of rows may be wrong in each."""
    listed: dict[Kind, int] = {}
    more: dict[tuple[Kind, str, str], tuple[str, array[int]]] = {}
    for f in rows:
        listed[f.kind] = listed.get(f.kind, 0) + 1
        if listed[f.kind] <= _LISTED:
            yield f
        else:
            more.setdefault((f.kind, f.kernel, f.device), (f.reason, array("Q")))[1].extend(f.ids)
    for (kind, kernel, device), (reason, ids) in more.items():
        yield Finding(kind, kernel, device, "more of them", f"the first of these: {reason}", len(ids), ids)


def _rows(db: Any, ceilings: Ceilings, now: float, seen: Callable[[int, int], None]) -> Iterator[Finding]:
    (end,) = db.execute("SELECT coalesce(max(rowid) + 1, 0) FROM timings").fetchone()
    for begin in range(0, end, _BATCH):
        seen(begin, end)
        for values in _doubtful(db, [*_most(ceilings), begin, min(end, begin + _BATCH), now + _DAY]):
            row = dict(zip(TIMINGS, values, strict=True))
            wrong = wrong_with(row, ceilings.of(row), now)
            if wrong is not None and wrong[0] == "implausible" and ceilings.again(row):
                wrong = wrong_with(row, ceilings.of(row), now)
            if wrong is not None:
                kind, reason = wrong
                what = f"{row['dims']} {row['dtype']}"
                yield Finding(kind, str(row["kernel"]), str(row["device"]), what, reason, 1, (row["id"],))
    seen(end, end)


def _doubtful(db: Any, given: Sequence[object]) -> list[tuple]:
    """Of a batch the rows in which something may be wrong, whole."""
    rows = db.execute(_UNSURE, given).fetchall()
    uneven = [(rowid, samples) for rowid, samples in rows if samples is not None]
    wanted = {rowid for rowid, samples in rows if samples is None}
    wanted |= {uneven[n][0] for n in doubtful([samples for _, samples in uneven])}
    whole = f"SELECT {', '.join(TIMINGS)} FROM timings WHERE rowid IN (SELECT unnest(?::BIGINT[])) ORDER BY written, id"
    return db.execute(whole, [sorted(wanted)]).fetchall() if wanted else []


def _most(ceilings: Ceilings) -> list[list[Any]]:
    """Of each device the id, and operations and bytes a second beyond which its timings are looked at one by one."""
    rows = [(d, _MARGIN * max(p.flops.values()), _MARGIN * max(p.cache_bandwidth, p.bandwidth))
            for d, p in ceilings.known.items()]  # fmt: skip
    return [[row[n] for row in rows] for n in range(3)]


_NUMBER = r"[0-9]+(\.[0-9]+)?(e[+-]?[0-9]{1,2})?"
_FEATURES = rf'\{{("[A-Za-z0-9_.: -]+": ?{_NUMBER}(, ?"[A-Za-z0-9_.: -]+": ?{_NUMBER})*)?\}}'
_TEXTS = KEY[: KEY.index("threads")]


def _feature(name: str) -> str:
    return f"""coalesce(try_cast(regexp_extract(features, '"{name}": ?({_NUMBER})', 1) AS DOUBLE), 0.0)"""


def _quoted(column: str) -> str:
    """A column as JSON text, where it is of plain characters."""
    return f"""'"' || replace(replace({column}, '\\', '\\\\'), '"', '\\"') || '"'"""


_SECONDS = "list_sort(samples)[(len(samples) - 1) // 4 + 1]"
_SAID = " || ', ' || ".join([*map(_quoted, _TEXTS), "threads", "method"])
_SAMPLES = "array_to_string(list_transform(samples, lambda x: x::VARCHAR), ', ')"
_MOVED = " + ".join(map(_feature, ("bytes", "bytes_read", "bytes_written")))
_SOUND = f"""
    len(samples) > 0 AND list_count(samples) = len(samples) AND list_min(samples) > 0
    AND list_max(samples) < 'Infinity'::DOUBLE AND list_max(samples) <= {_SPREAD} * list_min(samples)
    AND written > 0 AND written < latest
    AND max_relative_error >= 0 AND rms_relative_error >= 0 AND rms_relative_error <= max_relative_error
    AND regexp_full_match(concat({", ".join(_TEXTS)}), '[ -~]*')
    AND left(sha256('[' || {_SAID} || ']'), 32) = digest AND left(sha256(text), 16) = text_hash
    AND CASE WHEN list_count(list_filter(samples, lambda x: x::FLOAT::DOUBLE <> x)) = 0 THEN true
        ELSE left(sha256('["' || digest || '", ' || written::VARCHAR || ', [' || {_SAMPLES} || ']]'), 16)
             = format('{{:016x}}', id) END
    AND regexp_full_match(features, '{_FEATURES}')
    AND {_SECONDS} >= {SHORTEST}
    AND (flops IS NULL OR ({_feature("flops")} <= flops * {_SECONDS}
                           AND {_MOVED} <= bandwidth * greatest(1, threads) * {_SECONDS}))
"""
"""What a row is of which `wrong_with` finds nothing wrong but two moods, as far as DuckDB can tell: it is told from a
hundred thousand rows a second. The others may be sound as well, and are looked at one by one. CASE, as all parts of AND
are worked out for all rows."""
_UNEVEN = f"len(samples) >= {FEWEST} AND list_max(samples) >= {ALIKE} * list_min(samples)"
_UNSURE = f"""
    SELECT number, CASE WHEN sound THEN samples END
    FROM (SELECT number, samples, {_UNEVEN} AS uneven, coalesce({_SOUND}, false) AS sound
          FROM (SELECT *, rowid AS number, $6::DOUBLE AS latest FROM timings WHERE rowid >= $4 AND rowid < $5)
          LEFT JOIN (SELECT unnest($1::VARCHAR[]) AS place, unnest($2::DOUBLE[]) AS flops,
                            unnest($3::DOUBLE[]) AS bandwidth) ON device = place)
    WHERE uneven OR NOT sound
"""


def poisoned(db: Any, rows: str, now: float) -> Iterator[tuple[int, str]]:
    """Place (`rowid`) and reason of those rows of a table of the current database that no measurement can have made.
    What DuckDB can tell to be sound is not looked at one by one."""
    given = "NULL::DOUBLE AS flops, NULL::DOUBLE AS bandwidth, ?::DOUBLE AS latest"
    known = f"SELECT *, rowid AS number, {given} FROM {rows}"
    sql = f"SELECT number, {', '.join(TIMINGS)} FROM ({known}) WHERE id IS NULL OR NOT coalesce({_SOUND}, false)"
    found = db.execute(sql, [now + _DAY])
    while batch := found.fetchmany(_LISTED):
        for number, *values in batch:
            if (reason := _poison(dict(zip(TIMINGS, values, strict=True)), now)) is not None:
                yield number, reason


def wrong_with(row: Mapping[str, Any], peaks: Peaks | None, now: float) -> tuple[Kind, str] | None:
    """What is wrong with a row (by column), or None."""
    reason = _poison(row, now)
    if reason is not None:
        return "poisoned", reason
    samples = row["samples"]
    reason = _too_fast(row, peaks)
    if reason is not None:
        return "implausible", reason
    two = modes(samples) if len(samples) >= FEWEST else None
    if two is None:
        return None
    return "bimodal", (
        f"{1 - two.upper:.0%} of {len(samples)} samples take about {two.low:.3g} s, the others {two.high:.3g} s "
        f"(dip {two.dip:.3f}, Ashman's D {two.separation:.1f})"
    )


def _poison(row: Mapping[str, Any], now: float) -> str | None:
    """Why no measurement can have made this row."""
    missing = [n for n in TIMINGS if row[n] is None]
    if missing:
        return f"it has no {', '.join(missing)}"
    samples: Sequence[float] = row["samples"]
    if not samples:
        return "it has no samples"
    odd = [s for s in samples if s is None or not 0.0 < s < math.inf]
    if odd:
        return f"a sample of {odd[0]} s: samples are positive numbers"
    if max(samples) > _SPREAD * min(samples):
        return f"its samples contradict each other: {min(samples):.3g} s and {max(samples):.3g} s"
    if not 0.0 < row["written"] < now + _DAY:
        return f"it was taken at {row['written']:.0f} s since 1970, which is not yet"
    return _errors(row) or _features(row["features"]) or _identity(row)


def _errors(row: Mapping[str, Any]) -> str | None:
    worst, rms = row["max_relative_error"], row["rms_relative_error"]
    if worst < 0 or rms < 0 or rms > worst * 1.000001:
        return f"errors of {worst:.3g} at most and {rms:.3g} in the mean cannot be"
    return None


def _features(text: str) -> str | None:
    try:
        values = list(json.loads(text).values())
        if all(0.0 <= v < math.inf for v in values):
            return None
    except (ValueError, TypeError, AttributeError):
        pass
    return f"its features are no non-negative numbers by name: {text[:60]!r}"


def _identity(row: Mapping[str, Any]) -> str | None:
    """Whether digest and id are of the very row."""
    key = TimingKey(**{n: row[n] for n in KEY})
    if key.digest != row["digest"]:
        return "its digest is not of its key: some column was changed after it was written"
    if key.text_hash != row["text_hash"]:
        return "the hash of its text is not of its text"
    t = Timing(key, tuple(row["samples"]), 0.0, 0.0, {}, row["written"])
    if t.id != row["id"] and not all(float(np.float32(s)) == s for s in t.samples):  # as in Parquet tables
        return "its id is not of its samples: they were changed after it was written"
    return None


def _too_fast(row: Mapping[str, Any], peaks: Peaks | None) -> str | None:
    """Why no machine with these ceilings can be so fast; bytes may come from cache here, on every thread. Source:
    Williams, Waterman, Patterson, "Roofline", CACM 52 (4), 2009."""
    seconds = lower_quartile(row["samples"])
    if seconds < SHORTEST:
        return f"{seconds:.3g} s is less than a call takes that does nothing"
    if peaks is None:
        return None
    features = json.loads(row["features"])
    flops = features.get("flops", 0.0) / seconds
    ceiling = _MARGIN * max(peaks.flops.values())
    if flops > ceiling:
        return f"{flops:.3g} operations a second, more than {_MARGIN:g} times what the device was seen to do"
    moved = sum(features.get(n, 0.0) for n in ("bytes", "bytes_read", "bytes_written")) / seconds
    if "Gather" in row["text"]:  # it reads a few rows of what its features count whole
        return None
    if moved > _MARGIN * max(1, row["threads"]) * max(peaks.cache_bandwidth, peaks.bandwidth):
        return (
            f"{moved:.3g} bytes a second, more than {_MARGIN:g} times what the caches of the device were seen to give"
        )
    return None


def set_aside(table: TimingTable, findings: Sequence[Finding]) -> int:
    """Move the rows of findings into the quarantine, all or none; how many. They are kept there with the reason, and
    `waxeq db gc` drops them."""
    count = sum(len(f.ids) for f in findings)
    if not count:
        return 0
    with table.database() as db:
        db.execute("BEGIN")
        for ids, kinds, reasons in _batches(findings):
            wrong = "(SELECT unnest(?::UBIGINT[]) AS id, unnest(?::VARCHAR[]) AS kind, unnest(?::VARCHAR[]) AS reason)"
            db.execute(
                f"INSERT INTO quarantine SELECT {', '.join(f't.{n}' for n in TIMINGS)}, w.kind, w.reason, ? "
                f"FROM timings t JOIN {wrong} w ON t.id = w.id",
                [time.time(), ids, kinds, reasons],
            )
            archive.remove(db, "id IN (SELECT unnest(?::UBIGINT[]))", [ids])
        db.execute("COMMIT")
    return count


def _batches(findings: Sequence[Finding]) -> Iterator[tuple[list[int], list[str], list[str]]]:
    """Rows that are put aside at once: their ids, and kind and reason of each."""
    rows = ((i, f.kind, f.reason) for f in findings for i in f.ids)
    for batch in iter(lambda: list(islice(rows, _MOVED_AT_ONCE)), []):
        ids, kinds, reasons = map(list, zip(*batch, strict=True))
        yield ids, kinds, reasons
