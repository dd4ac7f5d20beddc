"""The command where of all packages only NumPy is installed: it runs bundles, and nothing else."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from waxeq.cli import say
from waxeq.errors import UsageError, WaxeqError


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:
        raise UsageError(f"{message}; see waxeq run --help")


def run(argv: Sequence[str]) -> int:
    """Run a command line; its exit code. Raises what comes of Ctrl-C, and of a reader of stdout that is gone."""
    try:
        _run(argv)
        sys.stdout.flush()
        return 0
    except WaxeqError as e:
        say(f"waxeq: {' '.join(str(e).split()).removesuffix('.')}")
        return e.exit_code


def _run(argv: Sequence[str]) -> None:
    if argv[:1] != ["run"] and argv[:1] not in (["-h"], ["--help"]):
        raise UsageError(
            "only `waxeq run FILE.waxeq` works where waxeq's packages are not installed: pip install waxeq"
        )
    p = _Parser("waxeq run", description="Run a bundle, on given inputs or on those that lie in it, and time it.")
    p.add_argument("bundle", type=Path, help="a file that `waxeq bundle` wrote")
    p.add_argument("--input", action="append", default=[], metavar="NAME=FILE.npy", help="may be repeated")
    p.add_argument("--output", "-o", type=Path, help="save the results as an .npz file")
    p.add_argument("--threads", type=int, help="threads of BLAS to use")
    p.add_argument("--json", action="store_true", help="print JSON")
    found = p.parse_args(argv[1:] if argv[0] == "run" else argv)
    from waxeq.cli.running import run_plan
    from waxeq.runtime.bundle import is_bundle

    if not is_bundle(found.bundle):
        raise UsageError(f"{found.bundle} is no bundle (FILE.waxeq): plans need waxeq's packages: pip install waxeq")
    data = run_plan(found.bundle, found.input, found.output, found.threads)
    if found.json:
        print(json.dumps(data, indent=1))
        return
    print(f"{data['model']}: {data['seconds'] * 1e6:.1f} us (median of {data['calls_timed']})")
    for o in data["outputs"]:
        numbers = (f"{k} {o[k]:.6g}" for k in ("min", "mean", "max") if k in o)
        print(" ".join((o["name"], f"{o['dtype']}{o['shape']}", *numbers)))
