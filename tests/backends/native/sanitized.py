"""Run in a process of its own, with the sanitizers' runtime loaded: conformance of kernels built with checks."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
from conftest import compiled_ahead

from waxeq.backend.call import Call, View, operand
from waxeq.backend.direct import FEW, LENT, Direct, Passed, Place
from waxeq.backend.discover import backends
from waxeq.backend.kernel import OUT
from waxeq.ir.term import Term
from waxeq.ir.types import TensorType, numpy_dtype
from waxeq.runtime.arena import aligned
from waxeq.runtime.results import _Slot
from waxeq.testing.calls import generated
from waxeq.testing.conformance import Drawn, check_drawn, drawn
from waxeq_native import library, loops, sliding
from waxeq_native.calling import direct
from waxeq_native.compiler import find
from waxeq_native.steps import Run
from waxeq_native.work import NativeKernel

CHECKS = (
    *("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g1", "-O0", "-Dalways_inline=unused"),
    *("--param", "asan-instrumentation-with-call-threshold=0"),
)
"""Each access is checked as it is written, by a call, not in line: gcc takes a seventh of the time for the tiles. What
is to be inlined always is called: its accesses are the same, and their checks are compiled once."""

TOGETHER = 12
"""Kernels in one unit: what stands before them takes a compiler as long as some of them, and a unit has its limit."""


def main(folder: str, seed: int) -> None:
    gc.freeze()
    gc.set_threshold(10_000)  # looking for cycles among what is drawn took a tenth of the time
    os.environ.pop("LD_PRELOAD", None)  # it is in this process; compilers take twice as long with it
    compiler = find()
    checked = library.Library(Path(folder), replace(compiler, flags=(*compiler.flags, *CHECKS)))
    setattr(library, "shared", lambda: checked)  # noqa: B010
    setattr(sliding, "wide", lambda: True)  # noqa: B010
    (native,) = backends(["native"])
    met, rows = set[tuple[str, float]](), list[Drawn]()
    for name, k in native.kernels.items():
        kind = type(k).__module__, k.error  # of kernels that differ in how they store, one meets every function
        d = drawn(name, k, calls=2 if k.variant_of else 3, seed=seed, alone=kind not in met)
        rows.append(d if d.calls else _rare(d, seed))
        met.add(kind)
    parts = (rows[i : i + TOGETHER] for i in range(0, len(rows), TOGETHER))
    for found in (c for part in parts for c in check_drawn(part)):
        print(found.require())
    print("Together:", _together())
    print("Called:", _called())


def _rare(d: Drawn, seed: int) -> Drawn:
    """The first two calls of a kernel that takes next to none of those that are drawn."""
    rng = np.random.default_rng(seed)
    return replace(d, calls=list(islice(generated(d.name, d.kernel, rng, 120), 2)), rng=rng)


def _together() -> int:
    """Runs calls that are one loop, on memory of just their size; how many were."""
    setattr(loops, "_JOINED", 0)  # noqa: B010
    (native,) = backends(["native"])
    rows = []
    for kernel in ("loops_fast", "loops_fast_stream"):
        k = native.kernels[f"native.{kernel}"]
        for dtype in ("float16", "float32", "float64"):
            for n in (1, 513, 20_001):
                view, x = View.dense("i", {"i": n}, dtype), operand(0, "i", dtype)
                a, e = np.ones(n, numpy_dtype(dtype)), Term("Map", "sin", x)
                meanings = Term("Map", "neg", e), Term("Mul", e, x), Term("Add", e, e)
                rows.append((k, a, [Call(k.name, m, {"i": n}, (view,), view) for m in meanings]))

    def joined(k: NativeKernel, a: np.ndarray, calls: Sequence[Call]) -> Run:
        run = NativeKernel.join([s for c in calls for s in k.bind(c, [a], np.empty_like(a), a[:0])])[0]
        assert isinstance(run, Run)
        return run

    compiled_ahead(joined, rows)
    count = 0
    for row in rows:
        run = joined(*row)
        run()
        count += len(run.loops)
    return count


def _called() -> int:
    """Makes calls in C, of an input that is copied and one that is not, into memory of each kind; how many."""
    return sum(_calls(n, own) for n, own in ((1, True), (513, True), (513, False), (20_001, False)))


def _calls(n: int, own: bool) -> int:
    (native,) = backends(["native"])
    k, t = native.kernels["native.loops"], TensorType("float32", (n,))
    view, out = View.dense("i", {"i": n}, "float32"), np.zeros(n, np.float32)
    both = Term("Add", operand(0, "i", "float32"), operand(1, "i", "float32"))
    copied = np.zeros(n, np.float32)
    steps = k.bind(Call(k.name, both, {"i": n}, (view, view), view), [copied, out + 1], out, out[:0].view(np.uint8))
    inputs = [Passed(t, copied), Passed(t, None, (Place(steps, 1, 0),))]
    slots, made = list[_Slot](), list[Direct]()

    def more() -> None:
        slots.append(_Slot(aligned(n, t.numpy), t))
        made[0].lend(0, (len(slots) - 1) % LENT, slots[-1])

    found = direct(steps[0], inputs, [Passed(t, out if own else None, (Place(steps, OUT, 0),))], more)
    assert found is not None
    made.append(found)
    held = []
    for i in range(3 * LENT):
        x = np.full(n, i, np.float32)
        held.append((found.call((x, x)), 2 * i))
        assert found.call((x,)) is None and found.call((x, x[::-1][:0])) is None and found.call(([], x)) is None
        assert found.alone(found.call, (x, x)) is None
    assert all((got == want).all() for got, want in held)
    assert len(slots) == (FEW if own else 3 * LENT)
    return len(held)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
