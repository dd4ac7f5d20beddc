"""The comparison with every peer, row by row: what has been measured with this source is not measured again."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.row import Record, measure_row, processor
from benchmarks.workloads import WORKLOADS
from waxeq.cost.device import current_device

ROOT = Path(__file__).resolve().parents[1]
_PACKAGES = ("waxeq", "numpy", "numexpr", "numba", "torch", "jax", "onnxruntime")


@dataclass(frozen=True)
class Terms:
    """What rows are measured under: contestants, threads for all of them, seconds of timing and of waxeq's search for
    each row, a timing table to start from, a folder for what compilers leave behind."""

    peers: tuple[str, ...]
    threads: int
    budget: float
    search: float
    table: Path | None
    caches: str


def compare(
    rows: Sequence[str], terms: Terms, known: Sequence[Record], *, again: bool, done: Callable[[list[Record]], None]
) -> list[Record]:
    """Records of all rows, old and new, those of other machines among them; `done` is told all of them after each row
    that was measured."""
    records = {(r["row"], r["threads"], r["device"]): r for r in known}
    device = about(terms.threads)["device"]
    for name in rows:
        before = records.get((name, terms.threads, device))
        if not again and current(before, terms):
            continue
        record = measure_row(
            name,
            terms.peers,
            threads=terms.threads,
            budget=terms.budget,
            search=terms.search,
            table=terms.table,
            caches=terms.caches,
            before=_comparable(before, terms.threads),
        )
        records[name, terms.threads, device] = {**record, **_asked(terms), **about(terms.threads)}
        done(ordered(list(records.values())))
    return ordered(list(records.values()))


def _comparable(record: Record | None, threads: int) -> Record | None:
    """A record of these versions of peers."""
    same = record is not None and record.get("versions") == about(threads)["versions"]
    return record if same else None


def _asked(terms: Terms) -> Record:
    """Of a search: the seconds that it is asked for, and the table that it begins with."""
    return {"asked": terms.search, "table": None if terms.table is None else str(terms.table)}


def current(record: Record | None, terms: Terms) -> bool:
    """Whether a record holds what a new measurement would tell: same source, machine and versions, all contestants, no
    less time for either, and the same table to start from. Older records say nothing of the last two."""
    if record is None:
        return False
    fresh, asked = about(terms.threads), _asked(terms)
    now = {k: fresh[k] for k in ("source", "device", "versions")} | {"table": asked["table"]}
    same = all(record.get(k) == v for k, v in now.items())
    enough = record["budget"] >= terms.budget and record.get("asked", asked["asked"]) >= asked["asked"]
    return same and enough and set(terms.peers) <= set(record["contestants"])


def ordered(records: Sequence[Record]) -> list[Record]:
    """By machine, in the order of the workloads, by number of threads; rows that exist no more are dropped."""
    place = {n: i for i, n in enumerate(WORKLOADS)}
    kept = [r for r in records if r["row"] in place]
    return sorted(kept, key=lambda r: (processor(r), place[r["row"]], r["threads"]))


def about(threads: int) -> Record:
    """Source, machine, versions and date of a measurement."""
    return {
        "source": source(),
        "device": current_device(threads).describe(),
        "versions": versions(),
        "date": time.strftime("%Y-%m-%d"),
    }


@cache
def source() -> str:
    """Of everything that may change a result: the compiler, its backends, rules, the tables that ship, and the
    workloads, some of which are examples."""
    digest = hashlib.sha256()
    for folder in ("src", "backends", "rules", "calibration", "benchmarks/workloads", "examples"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".egg", ".h", ".c", ".parquet"):
                digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def versions() -> dict[str, str]:
    """Of installed packages."""
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
