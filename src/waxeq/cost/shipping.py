"""Writing beside a table that ships the file that a first run reads in its place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from waxeq.backend.discover import found as backends_found
from waxeq.cost import copying
from waxeq.cost.copies import Copies
from waxeq.cost.device import Peaks
from waxeq.cost.estimate import CostModel
from waxeq.cost.key import METHOD
from waxeq.cost.memos import PEAKS, TOLD, device_of
from waxeq.cost.shipped import Shipped, write_beside
from waxeq.cost.survey import runs_on_cpu


def ship(db: Any, table: Path) -> None:
    """Write the file beside a Parquet table, through a connection to DuckDB. Raises TableError where the table cannot
    be read."""
    found = copying.of_tables(db, [str(table)])
    write_beside(table, replace(found, remembered={**found.remembered, **told(found)}))


def told(found: Shipped) -> dict[tuple[str, str], str]:
    """Memos of what the timings of each device with known ceilings tell together."""
    memos, on_cpu = {}, runs_on_cpu(backends_found())
    for (kind, key), payload in found.remembered.items():
        if kind == PEAKS.name and (device := device_of(key)) is not None:
            timings = Copies.in_memory(found).families(device, METHOD)
            memos[TOLD.name, key] = CostModel(Peaks.from_json(payload), timings, on_cpu=on_cpu).told().to_json()
    return memos
