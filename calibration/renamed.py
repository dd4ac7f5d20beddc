"""Name the timings of a machine that is not here by its kernels as they are now, where what these run is what it was.

    python calibration/renamed.py calibration/8f431a4797ab.parquet --since COMMIT \\
        --gpu "NVIDIA H200" --cuda 13000 --driver 580.159.04 --nvrtc 13.0 --cublas 130100
    python calibration/renamed.py calibration/b72fa6de5fba.parquet --since COMMIT \\
        --cpu calibration/machines/zen4.cpuinfo --march znver3

A timing counts only while the text of its kernel is the same, and all that this uses. So an edit that leaves every run
as it was makes a table useless that nobody here can take again. The kernels of the commit that the table is of, and
those of this checkout, are asked what they run.

Of a GPU (launched.py) for the calls that its check has: rows of a kernel all of whose launches are the same get its
name now, whether their own calls are among these or not. So far no version of the way of timing has changed how a GPU's
clock is read: rows of an older one count as of this one.

Of a CPU (compiled.py, preprocessed.py) for the calls that a calibration times: a row gets the name of its kernel now
where the C of its own call is the same to the compiler there, with all that it comes to, and so is all else that makes
a run what it is. Rows of other calls, of kernels of NumPy's and of another way of timing stay as they are.

Others stay as they are and do not count. The options are those that the table was taken with: its rows must have the
names that they give the commit's kernels.

Exit codes: 0 done; 2 an option makes no sense; 3 the table is not of that commit, or of another machine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from waxeq.cost.key import TimingKey

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.append(str(ROOT))
_PARTS = ("", "src", "backends", "rules")
_GPU = ("gpu", "cuda", "driver", "nvrtc", "cublas", "python")
Kernels = Mapping[str, Mapping[str, Any]]
"""By name: the `code` of each kernel, and for its `calls` hashes of what they run."""


class WrongTable(Exception):
    """A table is not what the options say."""


def main(argv: list[str] | None = None) -> int:
    """What was asked for; the exit code."""
    o = options(sys.argv[1:] if argv is None else argv)
    try:
        print(of_gpu(o) if o.cpu is None else of_cpu(o))
    except WrongTable as e:
        print(f"renamed: {e}", file=sys.stderr)
        return 3
    return 0


def options(argv: list[str]) -> argparse.Namespace:
    """What was asked for."""
    head, _, more = (__doc__ or "").partition("\n")
    p = argparse.ArgumentParser(description=head, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("table", type=Path, help="the Parquet file, which is written anew")
    p.add_argument("--since", required=True, metavar="COMMIT", help="the kernels that its rows are named by")
    one = p.add_mutually_exclusive_group(required=True)
    one.add_argument("--gpu", metavar="NAME", help="as the driver calls it")
    one.add_argument("--cpu", type=Path, metavar="FILE", help="what /proc/cpuinfo says there of a core")
    p.add_argument("--march", metavar="NAME", help="what gcc there takes the processor for")
    p.add_argument("--cuda", metavar="N", help="the newest CUDA that the driver takes: 13000 is 13.0")
    p.add_argument("--driver", metavar="RELEASE", help="which release of the driver it was")
    p.add_argument("--nvrtc", metavar="VERSION", help="the compiler that was there, or none")
    p.add_argument("--cublas", default="none", metavar="N", help="the version of cuBLASLt [%(default)s]")
    p.add_argument("--python", default="3.12", metavar="VERSION", help="the Python beside a GPU [%(default)s]")
    o = p.parse_args(argv)
    needed = ("cuda", "driver", "nvrtc") if o.cpu is None else ("march",)
    if missing := [f"--{n}" for n in needed if getattr(o, n) is None]:
        p.error(f"say {' and '.join(missing)} too")
    return o


def of_gpu(o: argparse.Namespace) -> str:
    """Name the rows of a GPU's table; what was done. Raises WrongTable."""
    wanted = {n: getattr(o, n) for n in _GPU}
    before, now = of_both(o.since, lambda tree: asked(tree, "launched.py", wanted, {"WAXEQ_CUDA": "virtual"}))
    return renamed(o.table, before, now, launched(before, now), any_method=True)


def of_cpu(o: argparse.Namespace) -> str:
    """Name the rows of a CPU's table; what was done. Raises WrongTable."""
    from calibration.preprocessed import calls_seen, vector_flags

    from waxeq_native.library import shared

    pairs = (line.partition(":") for line in o.cpu.read_text(encoding="utf-8").splitlines())
    said = {key.strip(): value.strip() for key, _, value in pairs}
    wanted = {
        "cpu": "; ".join((platform.machine(), said["model name"], said["flags"])),
        "flags": vector_flags(shared().compiler.command, o.march, said["flags"]),
        "device": described(o.table),
    }
    with tempfile.TemporaryDirectory() as cache:  # what is compiled for there is of no use here
        more = {"WAXEQ_CACHE": cache}
        before, now = of_both(o.since, lambda tree: calls_seen(asked(tree, "compiled.py", wanted, more)))
    return renamed(o.table, before, now, seen(before, now))


def described(table: Path) -> Mapping[str, Any]:
    """The machine that a CPU's table is of. Raises WrongTable for one of several, and for one whose NumPy is not the
    one here: kernels are named by its BLAS."""
    from waxeq.cost import archive
    from waxeq.cost.device import Device, current_device

    with archive.connect() as db:
        rows = archive.shipped(db, table, "SELECT DISTINCT description {}").fetchall()
    if len(rows) != 1 or rows[0][0] is None:
        raise WrongTable(f"{table} is of {len(rows)} machines")
    there, here = Device.from_json(rows[0][0]), current_device(1)
    for name in ("system", "python", "numpy"):
        if getattr(there, name) != getattr(here, name):
            raise WrongTable(f"{table} was taken with {name} {getattr(there, name)}, here is {getattr(here, name)}")
    if there.blas.rpartition(" ")[0] != here.blas.rpartition(" ")[0]:  # without the processor that it is for
        raise WrongTable(f"{table} was taken with {there.blas}, here is {here.blas}")
    return json.loads(there.json())


# -- what kernels are, each version in a process of its own


def of_both(commit: str, ask: Callable[[Path], Kernels]) -> tuple[Kernels, Kernels]:
    """What the kernels of a commit are, and those of this checkout. Raises WrongTable where there is no such commit."""
    with tempfile.TemporaryDirectory() as folder:
        there = Path(folder) / "tree"
        git = ("git", "-C", str(ROOT), "worktree")
        done = subprocess.run(
            [*git, "add", "--force", "--detach", str(there), commit], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise WrongTable(f"{commit} is no commit here: {done.stderr.strip().splitlines()[-1]}")
        try:
            with ThreadPoolExecutor(2) as both:
                before, now = both.map(ask, (there, ROOT))
        finally:
            subprocess.run([*git, "remove", "--force", str(there)], check=True)
    return before, now


def asked(tree: Path, program: str, wanted: Mapping[str, Any], more: Mapping[str, str]) -> dict[str, Any]:
    """What a program beside this one prints of the kernels of a checkout."""
    path = os.pathsep.join(str(tree / p) for p in _PARTS)
    done = subprocess.run(
        [sys.executable, str(Path(__file__).resolve().with_name(program)), json.dumps(wanted)],
        env={**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1", **more},
        stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    return json.loads(done.stdout)


# -- which rows are of the same runs


def launched(before: Kernels, now: Kernels) -> Callable[[TimingKey], bool]:
    """Whether a kernel launches the same for all calls that both versions take, of which there are some."""

    def all_alike(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
        both = one.keys() & other.keys()
        return bool(both) and all(one[c] == other[c] for c in both)

    alike = {n for n in before.keys() & now.keys() if all_alike(before[n]["calls"], now[n]["calls"])}
    return lambda k: k.kernel in alike


def seen(before: Kernels, now: Kernels) -> Callable[[TimingKey], bool]:
    """Whether a compiler sees the same for a call, and both versions say what."""

    def alike(k: TimingKey) -> bool:
        call = json.dumps([k.text, k.dims, k.layout, k.dtype])
        was = before[k.kernel]["calls"].get(call)
        return was is not None and was == now.get(k.kernel, {"calls": {}})["calls"].get(call)

    return alike


# -- the table


def renamed(
    table: Path, before: Kernels, now: Kernels, alike: Callable[[TimingKey], bool], *, any_method: bool = False
) -> str:
    """Write a table anew; a sentence about what was done. `alike`: whether what is run for a row is the same now, of
    rows that have the names of `before`; `any_method`: also of those that were timed in another way. Raises WrongTable
    where no row is of a kernel of `before`."""
    from waxeq.cost import archive
    from waxeq.cost.key import METHOD, TimingKey
    from waxeq.cost.rows import KEY

    with archive.connect() as db:
        rows = archive.shipped(db, table, f"SELECT digest, {', '.join(KEY)} {{}}").fetchall()
        keys = {row[0]: TimingKey(*row[1:]) for row in rows}  # a call may have been timed several times
        known = {d: k for d, k in keys.items() if k.code == before.get(k.kernel, {}).get("code")}
        if not known:
            raise WrongTable(f"no row of {table} is named by the kernels of that commit, on that machine")
        taken = {d: k for d, k in known.items() if (any_method or k.method == METHOD) and alike(k)}
        to = {d: replace(k, code=now[k.kernel]["code"], method=METHOD) for d, k in taken.items()}
        _write(db, table, to)
    counts = {d for d, k in keys.items() if (to.get(d, k).code, to.get(d, k).method) == (_code(now, k), METHOD)}
    other = sorted({k.kernel for d, k in keys.items() if d not in counts})
    named, many = (sum(row[0] in some for row in rows) for some in ({d for d in to if to[d] != keys[d]}, counts))
    return f"{named} of {len(rows)} rows are named anew, {many} count; others are of {', '.join(other) or 'no kernel'}"


def _code(kernels: Kernels, key: TimingKey) -> str | None:
    return kernels.get(key.kernel, {}).get("code")


def _write(db: Any, table: Path, to: Mapping[str, TimingKey]) -> None:
    """The table with other names for these rows, and what a first run reads in its place."""
    from waxeq.cost import archive, parquet
    from waxeq.cost.key import METHOD
    from waxeq.cost.memos import of_device
    from waxeq.cost.shipping import ship

    db.execute("CREATE TABLE names (old VARCHAR, code VARCHAR, new VARCHAR)")
    archive.insert(db, "names", [(d, k.code, k.digest) for d, k in to.items()])
    peaks = [(of_device(key.partition(":")[0]), payload) for _, key, payload, _ in archive.shipped_peaks(db, table)]
    parquet.copy(
        db,
        table,
        "SELECT t.* REPLACE (coalesce(n.new, t.digest) AS digest, coalesce(n.code, t.code) AS code, "
        f"CASE WHEN n.new IS NULL THEN t.method ELSE {METHOD} END AS method) "
        f"FROM read_parquet('{archive.quoted(table)}') t LEFT JOIN names n ON t.digest = n.old "
        "ORDER BY kernel, text, digest",
        f"COMPRESSION zstd, COMPRESSION_LEVEL 19{parquet.ceilings(peaks)}",
    )
    ship(db, table)


if __name__ == "__main__":
    sys.exit(main())
