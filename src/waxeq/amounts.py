"""Values as people write them: times, amounts of memory, tolerances; numbers of things as they read."""

from __future__ import annotations

import os
import re

DEFAULT_TOLERANCE = 1e-5
_TOLERANCES = {"exact": 0.0, "default": DEFAULT_TOLERANCE, "reassociating": DEFAULT_TOLERANCE, "approximate": 1e-3}


def seconds(value: object) -> float | None:
    """Seconds from "30s", "2m", "500ms", "1h" or a number; None for "none". Raises ValueError."""
    if value is None or (isinstance(value, str) and value.lower() == "none"):
        return None
    if isinstance(value, (int, float)):
        return float(value)
    m = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|)\s*", str(value))
    if not m:
        raise ValueError(f"{value!r} is not a time; write it as 30s, 2m or 500ms")
    return float(m[1]) * {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}[m[2]]


def bytes_(value: object) -> int:
    """Bytes from "4GiB", "512MiB", "2GB" or a number. Raises ValueError."""
    if isinstance(value, int):
        return value
    m = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kKMGT]?)(i?)[bB]?\s*", str(value))
    if not m:
        raise ValueError(f"{value!r} is not an amount of memory; write it as 4GiB or 512MiB")
    return int(float(m[1]) * (1024 if m[3] else 1000) ** "_kMGT".index(m[2].replace("K", "k") or "_"))


def parse_tolerance(value: object) -> float:
    """Relative RMS error allowed: a number, or the class of rules to admit: "exact" (0), "reassociating" (1e-5, the
    default), "approximate" (1e-3). Raises ValueError."""
    if isinstance(value, str) and value in _TOLERANCES:
        return _TOLERANCES[value]
    try:
        found = float(str(value))
    except ValueError:
        found = -1.0
    if not 0 <= found < 1:
        raise ValueError(
            f"{value!r} is not a tolerance; write exact, reassociating, approximate or a number such as 1e-4"
        )
    return found


def cores() -> int:
    """Cores this process may use: what NumPy's BLAS takes by default."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def number_of(n: int, what: str) -> str:
    """So many things of a kind: "1 timing", "2,000 timings"."""
    return f"{n:,} {what}{'' if n == 1 else 's'}"
