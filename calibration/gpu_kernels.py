"""Compile every kernel that a search may choose for the examples, for GPUs that are not here.

    python calibration/gpu_kernels.py                  # all of examples/
    python calibration/gpu_kernels.py mlp attention    # some

It needs waxeq, NVRTC (`pip install 'waxeq[cuda-check]'`) and no GPU. Kernels of sm_80 and sm_90, or of sm_90a where
they have its instructions, may spill nothing and have the registers and the shared memory of a multiprocessor. All
examples take about ten minutes on two cores; the tests do the same with a few kernels that have every line of theirs.

Exit codes: 0 all are as they should be; 2 there is no such example; 5 there is no NVRTC; 6 some are not.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src"), str(ROOT / "backends")]

from calibration.gpu.emitted import Built, built, emitted, options, structures, traced  # noqa: E402

from waxeq.errors import AccuracyError, UsageError, WaxeqError  # noqa: E402
from waxeq.events import Events  # noqa: E402
from waxeq.options import cores  # noqa: E402
from waxeq.search.session import Session  # noqa: E402
from waxeq_cupy.device import VARIABLE, VIRTUAL  # noqa: E402
from waxeq_cupy.kernels import Launch  # noqa: E402
from waxeq_cupy.nvrtc import Nvrtc, Resources  # noqa: E402

EXAMPLES = ROOT / "examples"
_SAID = 200
"""Kernels, each counted for every architecture, between two lines that say how many there are by now."""


def kernels_of(paths: Sequence[Path]) -> dict[str, Launch]:
    """Every kernel of some examples, by name; says how many there are."""
    found: dict[str, Launch] = {}
    with tempfile.TemporaryDirectory() as folder, Session.open(options(Path(folder) / "t.duckdb"), Events()) as session:
        for path in paths:
            own = emitted(session, traced(path))
            found |= own
            print(f"{path.stem}: {len(own)} kernels, {structures(own.values())} besides numbers", flush=True)
    return found


def run(names: Sequence[str]) -> int:
    """The exit code. Raises WaxeqError."""
    os.environ[VARIABLE] = VIRTUAL
    there = {p.stem: p for p in sorted(EXAMPLES.glob("*.py"))}
    if unknown := sorted(set(names) - set(there)):
        raise UsageError(f"there is no example {unknown[0]!r}; there are {', '.join(there)}")
    compiler, begin = Nvrtc.found(), time.monotonic()
    kernels = kernels_of([there[n] for n in names or there])
    rows: list[Built] = []
    for row in built(compiler, kernels, cores()):
        rows.append(row)
        if len(rows) % _SAID == 0:
            print(f"compiled {len(rows)} times, {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
        if row.fault:
            print(f"{row.launch.name}, {row.architecture}: {row.fault}\n{row.launch.text}", flush=True)
    _say(rows)
    print(f"{len(kernels)} kernels, {structures(kernels.values())} besides numbers: {time.monotonic() - begin:.0f} s")
    return AccuracyError.exit_code if any(r.fault for r in rows) else 0


def _say(rows: Sequence[Built]) -> None:
    for architecture in dict.fromkeys(r.architecture for r in rows):
        own = [r for r in rows if r.architecture == architecture]
        made = [(r.launch, r.resources) for r in own if isinstance(r.resources, Resources)]
        registers = max((r.registers for _, r in made), default=0)
        shared = max((r.shared + x.shared for x, r in made), default=0)
        bad, stored = sum(bool(r.fault) for r in own), sum(r.spilled > 0 for _, r in made)
        print(f"{architecture}: {len(own)} kernels, {bad} not as they should be, at most {registers} registers and "
              f"{shared} bytes of shared memory, {stored} that store around a division")  # fmt: skip


def main() -> int:
    """The exit code; every error is one sentence on stderr."""
    head, _, more = (__doc__ or "").partition("\n")
    p = argparse.ArgumentParser(description=head, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("example", nargs="*", help="an example by name [all]")
    try:
        return run(p.parse_args().example)
    except WaxeqError as e:
        print(f"gpu_kernels: {' '.join(str(e).split())}", file=sys.stderr)
        return e.exit_code


if __name__ == "__main__":
    sys.exit(main())
