"""Rows of the timing table: their columns, and how a timing becomes one and is read back."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from waxeq.cost.features import Features
from waxeq.cost.key import Timing, TimingKey

TIMINGS: Mapping[str, str] = {
    "id": "UBIGINT",
    "digest": "VARCHAR",
    "backend": "VARCHAR",
    "kernel": "VARCHAR",
    "code": "VARCHAR",
    "text": "VARCHAR",
    "dims": "VARCHAR",
    "layout": "VARCHAR",
    "dtype": "VARCHAR",
    "device": "VARCHAR",
    "threads": "INTEGER",
    "method": "INTEGER",
    "text_hash": "VARCHAR",
    "samples": "DOUBLE[]",
    "max_relative_error": "DOUBLE",
    "rms_relative_error": "DOUBLE",
    "features": "VARCHAR",
    "written": "DOUBLE",
}
"""Columns of a timing and their types. `id` names the measurement, `digest` what was measured: a call that is timed
again adds a row, and the newest counts."""

KEY = ("backend", "kernel", "code", "text", "dims", "layout", "dtype", "device", "threads", "method")
COLUMNS = ", ".join(TIMINGS)
FAMILY = ("device", "method", "backend", "kernel", "code", "dtype")
"""Columns that calls have in common that one regression describes."""


def written(t: Timing) -> dict[str, Any]:
    """The row of a timing, as JSON values."""
    k = t.key
    return {
        "id": t.id,
        "digest": k.digest,
        **{n: getattr(k, n) for n in KEY},
        "text_hash": k.text_hash,
        "samples": list(t.samples),
        "max_relative_error": t.max_relative_error,
        "rms_relative_error": t.rms_relative_error,
        "features": Features(t.features).json(),
        "written": t.when,
    }


def read(row: Mapping[str, Any]) -> Timing:
    """The timing of a row. Raises ValueError, KeyError, TypeError or OverflowError for what is no such row, or has no
    room in the columns of one."""
    key = TimingKey(**{n: _TYPES[n](row[n]) for n in KEY})
    samples = tuple(map(float, row["samples"]))
    errors = float(row["max_relative_error"]), float(row["rms_relative_error"])
    return Timing(key, samples, *errors, Features.from_json(row["features"]), finite(row["written"]))


def text(value: object) -> str:
    """A value as text. Raises ValueError for one that no file can hold, as with half of a surrogate pair."""
    found = str(value)
    found.encode()
    return found


def finite(value: Any) -> float:
    """A value as a number. Raises ValueError, TypeError or OverflowError for one that is none, or not finite."""
    found = float(value)
    if not math.isfinite(found):
        raise ValueError(f"{found} is no number")
    return found


def _integer(value: Any) -> int:
    found = int(value)
    if not -_BEYOND <= found < _BEYOND:
        raise ValueError(f"{found} has no room in an INTEGER")
    return found


_BEYOND = 1 << 31
"""The least number that an INTEGER of DuckDB is too small for."""
_TYPES: Mapping[str, Callable[[Any], Any]] = {n: _integer if TIMINGS[n] == "INTEGER" else text for n in KEY}
