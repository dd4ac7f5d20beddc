"""Search plans on an NVIDIA GPU, and time them in turns with torch eager and torch.compile, all as CUDA graphs.

    python calibration/gpu_search.py --out DIR --budget 30 llama_decode_512 mirage_rmsnorm_b8

In float16, of the workloads that `gpu_check.py` has plans of, which are searched where there is no GPU (all of them,
where none is named). All of waxeq must be installed there, and torch. Each is one line of DIR/searched.jsonl when it is
done; what the search timed is in DIR/searched.duckdb, so that the same command goes on with what it knows.
DIR/WORKLOAD.txt says what its plan is and why.

Exit codes: 0 all were searched and are right; 2 there is no such workload; 5 there is no GPU, or WAXEQ_CUDA names none;
6 a plan is not right, or there is none.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src"), str(ROOT / "backends")]

from benchmarks.workload import Workload, mapped  # noqa: E402
from calibration.gpu.against import in_turns, tensor  # noqa: E402
from calibration.gpu.journal import append  # noqa: E402
from calibration.gpu.plans import PLANS, TOLERANCE, WORKLOADS, Bound, arguments  # noqa: E402

import waxeq_cupy  # noqa: E402
from waxeq.compile import optimize_traced  # noqa: E402
from waxeq.errors import UsageError, WaxeqError  # noqa: E402
from waxeq.events import Events  # noqa: E402
from waxeq.frontend.trace import trace  # noqa: E402
from waxeq.options import Options  # noqa: E402
from waxeq.plan.plan import Plan  # noqa: E402
from waxeq.search.session import Session  # noqa: E402
from waxeq_cupy.device import MissingDevice, current  # noqa: E402


def main(argv: list[str] | None = None) -> int:
    """What was asked for; the exit code."""
    o = options(sys.argv[1:] if argv is None else argv)
    try:
        if current().storage is None:
            raise MissingDevice("plans have no memory on this device; WAXEQ_CUDA can be 'virtual', or not set")
    except (MissingDevice, UsageError) as e:
        print(f"gpu_search: {e}", file=sys.stderr)
        return 5
    o.out.mkdir(parents=True, exist_ok=True)
    right = True
    for name in o.workloads or PLANS:
        try:
            row = searched(WORKLOADS[name], o)
            right &= row["error"] <= row["most"]
        except WaxeqError as e:
            row, right = {"workload": name, "failed": str(e)}, False
        append(o.out / "searched.jsonl", row)
        print(row, flush=True)
    return 0 if right else 6


def options(argv: list[str]) -> argparse.Namespace:
    """What was asked for."""
    head, _, more = (__doc__ or "").partition("\n")
    p = argparse.ArgumentParser(description=head, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("workloads", nargs="*", metavar="WORKLOAD", help="any of: " + ", ".join(PLANS))
    p.add_argument("--out", type=Path, required=True, metavar="DIR", help="where what is found goes")
    p.add_argument("--budget", type=float, default=30.0, metavar="SECONDS", help="for each search [%(default)s]")
    p.add_argument("--alone", action="store_true", help="without torch beside it")
    p.add_argument("--small", action="store_true", help="at small sizes, for WAXEQ_CUDA=virtual")
    found = p.parse_args(argv)
    if unknown := [n for n in found.workloads if n not in PLANS]:
        p.error(f"no such workload: {', '.join(unknown)}")
    return found


def searched(w: Workload, o: argparse.Namespace) -> dict[str, Any]:
    """What a search found, how right it is on its third run, which is a graph's, and how fast."""
    given = arguments(w, small=o.small)
    traced = trace(w.fn, given, weights=w.weights, name=w.name)
    asked = Options.of(
        backends=("cupy",), device="cuda", tolerance=TOLERANCE, table=o.out / "searched.duckdb", budget=o.budget
    )
    begun = time.monotonic()
    with Session.open(asked, Events()) as session:
        found = optimize_traced(session, traced)
    row: dict[str, Any] = {"workload": w.name, "searched": time.monotonic() - begun, "found": repr(found)}
    (o.out / f"{w.name}.txt").write_text(f"{found.explain()}\n", encoding="utf-8")
    return row | measured(w, found.plan, given, beside=not o.alone)


def measured(w: Workload, plan: Plan, given: Mapping[str, Any], *, beside: bool) -> dict[str, Any]:
    """Error and seconds of a plan, and of torch in turns with it."""
    storage = current().storage
    assert storage is not None
    ours = Bound(storage, waxeq_cupy.backend().kernels, plan, given)
    row: dict[str, Any] = dict(zip(("error", "most"), ours.error(), strict=True))
    if plan.written:
        return row | {"written": True}
    row |= {"alone": ours.seconds(), "kernels": [s.call.kernel for s in plan.steps]}
    if not beside or "torch" not in w.forms:
        return row
    form, names = w.forms["torch"](), tuple(given)
    tensors = [mapped(v, tensor) for v in given.values()]
    return row | in_turns(
        ours.replayed, [tensors], lambda *xs: form(**dict(zip(names, xs, strict=True))), compiled=True
    )


if __name__ == "__main__":
    sys.exit(main())
