"""A load test of the timing table: ten million rows, and what one optimization reads of them.

The rows are made up (SQL `range`), in a table of their own that is removed again: nothing here is a timing of a kernel,
and none of it may be merged into a table that is used. What is measured is the table: seconds to open it, to look up
2,000 calls at once, and to read what is wanted for fitting, each in a fresh process.

    python -m benchmarks.table_load --rows 10000000 --folder /tmp
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from waxeq.cost import archive
from waxeq.cost.key import METHOD, TimingKey
from waxeq.cost.near import Near
from waxeq.cost.rows import COLUMNS
from waxeq.cost.table import TimingTable

DEVICES, KERNELS, KEYS = 4, 20, 2000
_KEY = ("'native'", "'native.load' || (i // {d} % {k})", "'c0de' || (i // {d} % {k})",
        "'(Sum a1 (Mul %0 %' || i || '))'", "'i0=' || (i % 1009) || ',i1=' || (i % 4093)",
        "'float32:i0*' || (i % 1009) || ',i1*1;float32:i0*1'", "'float32'", "'load' || (i % {d})")  # fmt: skip
_NAMES = ("backend", "kernel", "code", "text", "dims", "layout", "dtype", "device")


def key(i: int) -> TimingKey:
    """The key of row `i`; the SQL below makes the same."""
    kernel, device = i // DEVICES % KERNELS, i % DEVICES
    return TimingKey(
        "native", f"native.load{kernel}", f"c0de{kernel}", f"(Sum a1 (Mul %0 %{i}))", f"i0={i % 1009},i1={i % 4093}",
        f"float32:i0*{i % 1009},i1*1;float32:i0*1", "float32", f"load{device}", 2,
    )  # fmt: skip


def fill(path: Path, rows: int, begin: int = 0) -> None:
    """Make up rows, from row `begin` on, in the order of a table that several machines were merged into as they
    measured."""
    parts = [p.format(d=DEVICES, k=KERNELS) for p in _KEY]
    said = " || '\", \"' || ".join(parts)
    digest = f"left(sha256('[\"' || {said} || '\", 2, {METHOD}]'), 32)"
    features = "'{\"bytes_read\":' || (i % 100003) || '.0,\"launches\":1.0,\"operations\":' || (i % 1000003) || '.0}'"
    columns = ", ".join(f"{p} AS {n}" for p, n in zip(parts, _NAMES, strict=True))
    made = (
        f"SELECT hash(i) AS id, {digest} AS digest, {columns}, 2 AS threads, {METHOD} AS method, "
        f"left(sha256({parts[3]}), 16) AS text_hash, "
        "[(1e-6 + 1e-7 * random())::FLOAT::DOUBLE FOR x IN range(10)] AS samples, "
        "1e-7 AS max_relative_error, 1e-8 * random() AS rms_relative_error, "
        f"{features} AS features, 1.7e9 + i AS written FROM range({begin}, {begin + rows}) r(i)"
    )
    with archive.connect() as db:
        archive.attach(db, path)
        db.execute("SET threads=2")
        db.execute("BEGIN")
        db.execute(f"INSERT INTO timings BY NAME SELECT {COLUMNS} FROM ({made})")
        db.execute("COMMIT")


def look(path: Path, rows: int, seed: int) -> dict[str, float]:
    """Seconds to open the table and to read what one optimization reads, in this process."""
    keys = [key(DEVICES * n) for n in random.Random(seed).sample(range(rows // DEVICES), KEYS)]
    for k in keys:
        assert k.digest  # the search has it anyway
    begun = time.perf_counter()
    table = TimingTable.open(path)
    opened = time.perf_counter()
    found = table.lookup(keys)
    looked = time.perf_counter()
    fitted = table.families("load0")
    done = time.perf_counter()
    assert len(found) == KEYS, f"{len(found)} of {KEYS} found"
    return {"open": opened - begun, "lookup": looked - opened, "families": done - looked, "total": done - begun,
            "for_fitting": len(fitted)}  # fmt: skip


def examined(path: Path) -> dict[str, float]:
    """What `waxeq db doctor` takes in a process of its own, and what it finds."""
    begun = time.perf_counter()
    run = subprocess.run([sys.executable, "-m", "waxeq", "db", "doctor", "--table", str(path), "--json", "-q"],
                         capture_output=True, check=False)  # fmt: skip
    seconds = time.perf_counter() - begun
    rows: dict[str, int] = {}
    for f in json.loads(run.stdout)["findings"]:
        rows[f["kind"]] = rows.get(f["kind"], 0) + f["rows"]
    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10
    return {"seconds": seconds, "peak_bytes": most, **rows}


def merged(path: Path, rows: int) -> float:
    """Seconds that `waxeq db merge` of a table of 1,000 new timings takes in a process of its own."""
    other = path.with_name("other.duckdb")
    fill(other, 1000, rows)
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-m", "waxeq", "db", "merge", str(other), "--table", str(path), "-q"],
                   capture_output=True, check=True)  # fmt: skip
    return time.perf_counter() - begun


def main(argv: list[str] | None = None) -> None:
    """Fill a table, look into it from fresh processes, and print what it took as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--look", nargs=2, default=None, help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    if given.look is not None:
        print(json.dumps(look(Path(given.look[0]), given.rows, int(given.look[1]))))
        return
    with tempfile.TemporaryDirectory(dir=given.folder, prefix="waxeq-load-") as d:
        path = Path(d) / "load-test.duckdb"
        begun = time.perf_counter()
        fill(path, given.rows)
        filled = time.perf_counter()
        doctor = examined(path)
        opening = time.perf_counter()
        TimingTable.open(path)
        copied = time.perf_counter()
        merging = merged(path, given.rows)
        again = [sys.executable, "-m", "benchmarks.table_load", "--rows", str(given.rows), "--look", str(path)]
        runs = [json.loads(subprocess.run([*again, str(n)], capture_output=True, check=True).stdout) for n in range(5)]
        about = {"rows": given.rows, "fill": filled - begun, "doctor": doctor, "copy": copied - opening,
                 "merge": merging, "bytes": path.stat().st_size,
                 "near_bytes": Near.beside(path).stat().st_size}  # fmt: skip
        print(json.dumps({**about, "runs": runs}, indent=1))


if __name__ == "__main__":
    main()
