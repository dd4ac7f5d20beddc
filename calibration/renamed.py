"""Name the timings of a GPU that is not here by its kernels as they are now, where what these run is what it was.

    python calibration/renamed.py calibration/8f431a4797ab.parquet --since COMMIT \\
        --gpu "NVIDIA H200" --cuda 13000 --driver 580.159.04 --nvrtc 13.0 --cublas 130100

A timing counts only while the text of its kernel is the same, and all that this uses, how a GPU is driven among it. So
an edit that leaves every launch as it was makes a table useless that nobody here can take again. The kernels of the
commit that the table is of, and those of this checkout, are asked for the launches of the calls that a GPU's check has:
the text of each, and of what stands before it whatever this comes to, without comments.
Rows of a kernel all of whose launches are the same get its name now, whether their own calls are among these or not;
the others stay as they are and do not count. So far no version of the way of timing has changed how a GPU's clock is
read: rows of an older one count as of this one.

The options are those that the table was taken with: its rows must have the names that they give the commit's kernels.

Exit codes: 0 done; 2 an option makes no sense; 3 the table is not of that commit, or of another GPU.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import PropertyMock, patch

ROOT = Path(__file__).resolve().parents[1]
_PARTS = ("", "src", "backends", "rules")
Kernels = Mapping[str, Mapping[str, Any]]
"""By name: the `code` of each kernel, and its `launches`, as hashes by call."""


class WrongTable(Exception):
    """A table is not what the options say."""


def main(argv: list[str] | None = None) -> int:
    """What was asked for; the exit code."""
    o = options(sys.argv[1:] if argv is None else argv)
    if o.describe:
        print(json.dumps(described(o)))
        return 0
    try:
        print(renamed(o.table, of_commit(o), asked(ROOT, o)))
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
    p.add_argument("--gpu", required=True, metavar="NAME", help="as the driver calls it")
    p.add_argument("--cuda", required=True, metavar="N", help="the newest CUDA that the driver takes: 13000 is 13.0")
    p.add_argument("--driver", required=True, metavar="RELEASE", help="which release of the driver it was")
    p.add_argument("--nvrtc", required=True, metavar="VERSION", help="the compiler that was there, or none")
    p.add_argument("--cublas", default="none", metavar="N", help="the version of cuBLASLt [%(default)s]")
    p.add_argument("--python", default="3.12", metavar="VERSION", help="the Python there [%(default)s]")
    p.add_argument("--describe", action="store_true", help=argparse.SUPPRESS)
    return p.parse_args(argv)


# -- what kernels are, in a process that has one version of them


def of_commit(o: argparse.Namespace) -> Kernels:
    """What the kernels of the commit are."""
    with tempfile.TemporaryDirectory() as folder:
        there = Path(folder) / "tree"
        git = ("git", "-C", str(ROOT), "worktree")
        done = subprocess.run(
            [*git, "add", "--force", "--detach", str(there), o.since], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise WrongTable(f"{o.since} is no commit here: {done.stderr.strip().splitlines()[-1]}")
        try:
            return asked(there, o)
        finally:
            subprocess.run([*git, "remove", "--force", str(there)], check=True)


def asked(tree: Path, o: argparse.Namespace) -> Kernels:
    """What the kernels of a checkout are."""
    more = [f"--{n}={v}" for n, v in vars(o).items() if n not in ("table", "describe")]
    path = os.pathsep.join(str(tree / p) for p in _PARTS)
    done = subprocess.run(
        [sys.executable, str(Path(__file__).resolve()), str(o.table), *more, "--describe"],
        env={**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1", "WAXEQ_CUDA": "virtual"},
        stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    return json.loads(done.stdout)


def described(o: argparse.Namespace) -> Kernels:
    """What the kernels that this process imports are."""
    if _newer(o.python) and sys.version_info < (3, 12):
        _write_as_newer_pythons()
    rows: dict[str, dict[str, Any]] = {}
    with _device(o):
        import waxeq_cupy

        known = waxeq_cupy.backend().kernels
        for name, call, launches in _launches(known):
            row = rows.setdefault(name, {"code": known[name].code, "launches": {}})
            row["launches"][call] = launches
    return rows


@contextmanager
def _device(o: argparse.Namespace) -> Iterator[None]:
    """The virtual device says that it is that GPU, with its library of products."""
    from waxeq_cupy.gpu import Gpu
    from waxeq_cupy.virtual import Virtual

    driver = SimpleNamespace(name=o.gpu, version=o.cuda, release=o.driver)
    that = SimpleNamespace(way=Gpu.way, driver=driver, cubins=SimpleNamespace(version=o.nvrtc))
    identity = Gpu.identity.fget(that)  # pyright: ignore[reportOptionalCall, reportArgumentType]
    library = None if o.cublas == "none" else SimpleNamespace(version=o.cublas, takes=lambda m: True)
    with (
        patch.object(Virtual, "identity", PropertyMock(return_value=identity)),
        patch.object(Virtual, "blas", PropertyMock(return_value=library), create=True),
    ):
        yield


def _newer(python: str) -> bool:
    return tuple(map(int, python.split(".")[:2])) >= (3, 12)


def _write_as_newer_pythons() -> None:
    """Since Python 3.12 functions and classes have parameters of types; texts of kernels say that they have none."""
    from waxeq.backend import kept, text

    kept.read, kept.write = lambda *_: None, lambda *_: None  # what is kept is as this Python writes it
    for kind in (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef):
        plain = text._WRITERS[kind]
        text._WRITERS[kind] = lambda node, met, plain=plain: f"{plain(node, met)[:-1]}, type_params=[])"


def _launches(known: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """A kernel, a call of it, and a hash of what it launches or asks the library for, for every call that the check of
    a GPU has."""
    from calibration.gpu.prepare import Scope, _correct, _grid, _targets  # as they are called in any commit
    from calibration.gpu.targets import targets

    from waxeq.search.worker import encode_calls

    wanted, scope = list(targets()), Scope(grid=1 << 30)
    kernels = {n: k for n, k in known.items() if k.form != "transfer"}
    for i in (*_correct(kernels, wanted, scope.drawn), *_targets(kernels, wanted, scope), *_grid(kernels, scope.grid)):
        said = _said(kernels[i.call.kernel], i.call)
        if said is not None:
            yield i.call.kernel, encode_calls([i.call]), hashlib.sha256(said.encode()).hexdigest()


def _said(kernel: Any, call: Any) -> str | None:
    """All that a call has a GPU do; None for one that the kernel does not take."""
    from waxeq_cupy.kernels import prelude

    if hasattr(kernel, "multiplication"):
        return repr(kernel.multiplication(call))
    made = kernel.work(call)
    launches = None if made is None else [f"{x.source}|{x.blocks}|{x.threads}|{x.shared}" for x in made.launches]
    return None if launches is None else "\0".join((needed(prelude(), "".join(launches)), *launches))


def needed(before: str, text: str) -> str:
    """What stands before a kernel's text, without comments and without the functions and macros that the text does not
    come to: functions are inlined wherever they are called, so that of others nothing is compiled."""
    known, functions, rest = _definitions(before)
    met = set[str]()
    more = [_words(_MACRO.sub("", rest)), frozenset(re.findall(r"\w+", text))]
    while more:
        names = (more.pop() & known.keys()) - met
        met |= names
        more += (_words(known[n]) for n in names)
    kept = _MACRO.sub(lambda m: m[0] * (m[1] in met), rest)
    return "\n".join([" ".join(kept.split()), *(known[n] for n in functions if n in met)])


@cache
def _definitions(before: str) -> tuple[Mapping[str, str], Sequence[str], str]:
    """What functions and macros are by name, which are functions, and what else there is: the same for all kernels."""
    bare = without_comments(before)
    known = dict[str, str]()
    for m in (*_FUNCTION.finditer(bare), *_MACRO.finditer(bare)):
        known[m[1]] = known.get(m[1], "") + m[0]
    functions = tuple(dict.fromkeys(m[1] for m in _FUNCTION.finditer(bare)))
    return known, functions, _FUNCTION.sub("", bare)


@cache
def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text))


def without_comments(text: str) -> str:
    """C without its comments."""
    return re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.DOTALL)


_FUNCTION = re.compile(r"^WX_FN (?:\w+ )+\**(\w+)\((?:.*\}$|(?:.*\n)+?\}$)", re.MULTILINE)
"""The whole of a function that is always inlined, by its name."""
_MACRO = re.compile(r"^#define (\w+)(?:.*\\\n)*.*$", re.MULTILINE)
"""The whole of a macro, by its name."""


# -- the table


def renamed(table: Path, before: Kernels, now: Kernels) -> str:
    """Write a table anew; a sentence about what was done. Raises WrongTable where no row is of a kernel of `before`."""
    from waxeq.cost import archive, parquet
    from waxeq.cost.key import METHOD, TimingKey
    from waxeq.cost.memos import of_device
    from waxeq.cost.rows import KEY
    from waxeq.cost.shipping import ship

    with archive.connect() as db:
        rows = archive.shipped(db, table, f"SELECT digest, {', '.join(KEY)} {{}}").fetchall()
        keys = {row[0]: TimingKey(*row[1:]) for row in rows}  # a call may have been timed several times
        known = {k for k in keys.values() if k.code == before.get(k.kernel, {}).get("code")}
        if not known:
            raise WrongTable(f"no row of {table} is named by the kernels of that commit, on that GPU")
        same = {n for n in before if n in now and _same(before[n]["launches"], now[n]["launches"])}
        taken = ((d, k) for d, k in keys.items() if k in known and k.kernel in same)
        to = {d: replace(k, code=now[k.kernel]["code"], method=METHOD) for d, k in taken}
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
    other = sorted({k.kernel for k in keys.values()} - same)
    many = sum(row[0] in to for row in rows)
    return f"{many} of {len(rows)} rows are named anew; other launches: {', '.join(other) or 'none'}"


def _same(before: Mapping[str, str], now: Mapping[str, str]) -> bool:
    """Whether a kernel launches the same for all calls that both versions take, of which there are some."""
    both = before.keys() & now.keys()
    return bool(both) and all(before[c] == now[c] for c in both)


if __name__ == "__main__":
    sys.exit(main())
