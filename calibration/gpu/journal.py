"""What a check found, row by row on disk as soon as it is known: JSON lines that only ever grow.

A row names its section and case. Before a case is begun a row says so: where the process ends in the middle of a case,
that is known, and whoever goes on need not repeat what was done.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Place = tuple[str, str]
"""Section and case."""
BEGUN = "begun"
RIGHT, WRONG, FAILED, DIED, LEFT_OUT = "right", "wrong", "failed", "died", "left out"
"""Outcomes: as it should be; computed, and not what it should be; refused with an error; the process ended or hung;
not tried here, and why."""


class Journal:
    """The rows in a file; a line that was cut off when it was written is passed over."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[dict[str, Any]] = []
        whole = path.read_bytes() if path.exists() else b""
        for line in whole.decode(errors="replace").splitlines():
            try:
                row = json.loads(line)
                self.rows.append({**row, "section": row["section"], "case": row["case"], "outcome": row["outcome"]})
            except (ValueError, KeyError, TypeError):
                continue

    @property
    def done(self) -> frozenset[Place]:
        """What has an outcome."""
        return frozenset((r["section"], r["case"]) for r in self.rows if r["outcome"] != BEGUN)

    @property
    def open(self) -> Place | None:
        """What was begun last, where that has no outcome."""
        last = next((r for r in reversed(self.rows) if r["outcome"] == BEGUN), None)
        place = None if last is None else (last["section"], last["case"])
        return None if place in self.done else place

    def begin(self, section: str, case: str) -> None:
        """A case is about to be tried."""
        self.add(section, case, BEGUN)

    def add(self, section: str, case: str, outcome: str, **found: Any) -> None:
        """A row; it is on disk when this returns."""
        row = {"section": section, "case": case, "outcome": outcome, **found}
        self.rows.append(row)
        append(self.path, _plain(row))

    def of(self, section: str) -> list[dict[str, Any]]:
        """The outcomes of a section; the last one counts."""
        rows = {r["case"]: r for r in self.rows if r["section"] == section and r["outcome"] != BEGUN}
        return list(rows.values())


def append(path: Path, row: Mapping[str, Any]) -> None:
    """Add a line to a file of JSON lines, after whatever was cut off there; it is on disk when this returns."""
    with open(path, "ab+") as f:
        if f.tell():
            f.seek(-1, os.SEEK_END)
            if f.read(1) != b"\n":
                f.write(b"\n")
        f.write(json.dumps(row).encode() + b"\n")
        f.flush()
        os.fsync(f.fileno())


def _plain(value: Any) -> Any:
    """As JSON has it: no NaN, no infinities."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, list | tuple) else value
