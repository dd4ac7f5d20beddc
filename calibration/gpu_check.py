"""Check waxeq on an NVIDIA GPU: what is right, and how fast it is.

    python calibration/gpu_check.py --prepare gpu_check.kit       # where all of waxeq is installed; needs no GPU
    python calibration/gpu_check.py --out DIR                     # on the machine with the GPU, in under ten minutes

There it needs a checkout, the file of the first command, Python 3.11 or newer, NumPy and the NVIDIA driver; torch,
where it is installed, is what is compared with. What is found is in DIR at once: results.jsonl, a row a case;
timings.jsonl, for `waxeq db merge`; summary.md. The same command goes on where it was cut off.

Exit codes: 0 all was tried and is right; 2 an option makes no sense; 3 the kit cannot be loaded; 5 there is no GPU;
6 something is not right; 7 the time was up first; 130 interrupted, or told to end (SIGTERM).
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src"), str(ROOT / "backends")]

from calibration.gpu.run import Task, again, watch, work  # noqa: E402

from waxeq.errors import WaxeqError  # noqa: E402
from waxeq_cupy.device import VARIABLE, VIRTUAL  # noqa: E402


def say(text: str) -> None:
    """Progress, on stderr."""
    print(text, file=sys.stderr, flush=True)


def options(argv: list[str]) -> argparse.Namespace:
    """What was asked for."""
    head, _, more = (__doc__ or "").partition("\n")
    p = argparse.ArgumentParser(description=head, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--out", type=Path, metavar="DIR", help="where what is found goes")
    p.add_argument("--kit", type=Path, default=Path("gpu_check.kit"), help="what --prepare wrote [%(default)s]")
    p.add_argument("--seconds", type=float, default=540.0, help="when to stop [%(default)s]")
    p.add_argument("--only", action="append", default=[], metavar="SECTION", help="a section; may be repeated")
    p.add_argument("--prepare", type=Path, metavar="FILE", help="write the kit")
    p.add_argument("--small", action="store_true", help="with --prepare: for WAXEQ_CUDA=virtual, at small sizes")
    p.add_argument("--drawn", type=int, default=8, help="with --prepare: random calls of each kernel [%(default)s]")
    p.add_argument("--grid", type=int, default=150, help="with --prepare: calls to be timed for a table [%(default)s]")
    p.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    p.add_argument("--until", type=float, default=0.0, help=argparse.SUPPRESS)
    found = p.parse_args(argv)
    if (found.out is None) == (found.prepare is None):
        p.error("give --out DIR on a machine with a GPU, or --prepare FILE before")
    return found


def run(o: argparse.Namespace) -> int:
    """What was asked for; the exit code."""
    if o.prepare is not None:
        from calibration.gpu.prepare import Scope, write_kit

        os.environ[VARIABLE] = VIRTUAL
        write_kit(o.prepare, Scope(o.drawn, o.grid, o.small), say)
        return 0
    task = Task(o.kit, o.out, tuple(o.only), o.until or time.time() + o.seconds)
    task.check()
    o.out.mkdir(parents=True, exist_ok=True)
    if o.child:
        return work(task, say)
    signal.signal(signal.SIGTERM, _stopped)
    code = watch(task, again(task), say)
    if (summary := o.out / "summary.md").exists():
        print(summary.read_text(encoding="utf-8"))
    return code


def _stopped(*_: object) -> None:
    """Whoever is told to end ends as when interrupted: the process that is watched with it, and with a summary."""
    raise KeyboardInterrupt


def main() -> int:
    """The exit code; every error is one sentence on stderr."""
    try:
        return run(options(sys.argv[1:]))
    except WaxeqError as e:
        say(f"gpu_check: {' '.join(str(e).split())}")
        return e.exit_code
    except KeyboardInterrupt:
        say("gpu_check: interrupted; the same command goes on")
        return 130


if __name__ == "__main__":
    sys.exit(main())
