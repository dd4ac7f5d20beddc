"""Calls that read one large array run side by side; calls that need each other, or share memory, do not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import waxeq as wx
from waxeq.backend.call import Call, View, operand
from waxeq.backend.discover import backends
from waxeq.backend.discover import kernels as kernels_of
from waxeq.inspect.explain import explain
from waxeq.inspect.report import kernels
from waxeq.ir.term import Term
from waxeq.runtime.bound import Bound
from waxeq_native.steps import Run, Step

(BACKEND,) = backends(["native"])
LOOPS = BACKEND.kernels["native.loops"]
SIZES = {"i": 1500, "j": 1501}  # 9 MB of float32


def _call(fold: str, axis: str, threads: int, sizes: dict[str, int]) -> Call:
    x = operand(0, "ij", "float32")
    meaning = Term("Sum", axis, x) if fold == "sum" else Term("Red", fold, axis, x)
    out = "i" if axis == "j" else "j"
    views = (View.dense("ij", sizes, "float32"),)
    return Call("native.loops", meaning, sizes, views, View.dense(out, sizes, "float32"), threads=threads)


def _step(call: Call, x: np.ndarray, out: np.ndarray, scratch: np.ndarray | None = None) -> Step:
    need = LOOPS.workspace(call)
    scratch = np.empty(need, np.uint8) if scratch is None else scratch[:need]
    (step,) = LOOPS.bind(call, [x], out, scratch)
    assert isinstance(step, Step)
    return step


def _matrix(sizes: dict[str, int]) -> np.ndarray:
    x = np.random.default_rng(0).standard_normal((sizes["i"], sizes["j"])).astype(np.float32)
    x[3, 5] = np.nan
    return x


def _as_one(run: Run) -> bool:
    return len(run.phases) < sum(len(s.phases) for s in run.steps)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_folds_of_one_matrix_are_made_in_one_walk(threads: int) -> None:
    x, m, n = _matrix(SIZES), SIZES["i"], SIZES["j"]
    outs = np.full(m, -7, np.float32), np.full(n, -7, np.float32), np.full(n, -7, np.float32)
    folds = (("sum", "j"), ("sum", "i"), ("max", "i"))
    steps = [_step(_call(f, k, threads, SIZES), x, out) for (f, k), out in zip(folds, outs, strict=True)]
    run = Run(steps)
    assert _as_one(run)
    run()
    np.testing.assert_allclose(outs[0], x.astype(np.float64).sum(1), atol=1e-3)
    np.testing.assert_allclose(outs[1], x.astype(np.float64).sum(0), atol=1e-3)
    np.testing.assert_array_equal(outs[2], x.max(0))


def test_small_arrays_others_and_shared_memory_are_walked_one_after_another() -> None:
    small = {"i": 40, "j": 30}
    x, y = _matrix(SIZES), _matrix(SIZES)
    sums, tops = (_call(f, "i", 2, SIZES) for f in ("sum", "max"))
    a, b = np.empty(SIZES["j"], np.float32), np.empty(SIZES["j"], np.float32)
    scratch = np.empty(1 << 24, np.uint8)
    few = [_call(f, "i", 2, small) for f in ("sum", "max")]
    assert LOOPS.workspace(sums) and LOOPS.workspace(tops)
    alike = [
        [_step(c, x[: small["i"], : small["j"]].copy(), np.empty(small["j"], np.float32)) for c in few],
        [_step(sums, x, a), _step(tops, y, b)],  # other arrays
        [_step(sums, x, a), _step(tops, x, a)],  # one result
        [_step(sums, x, a, scratch), _step(tops, x, b, scratch)],  # one workspace
        [_step(sums, x, a), _step(_call("max", "i", 1, SIZES), x, b)],  # other threads
    ]
    for steps in alike:
        assert not _as_one(Run(steps))
    assert _as_one(Run([_step(sums, x, a, scratch[: 1 << 22]), _step(tops, x, b, scratch[1 << 22 :])]))


def test_plans_keep_apart_what_runs_side_by_side(tmp_path: Path) -> None:
    def model(x):
        scaled = x.sum(0) * 2
        return x.sum(1), x.sum(0), x.max(0) - scaled, (x * scaled).sum(1)

    x = _matrix(SIZES)
    own = {"backends": ("native",), "trial": False, "measure": False, "threads": 2}
    options = wx.Options.of(table=tmp_path / "t.duckdb", **own)
    result = wx.optimize(model, x, options=options)
    program = result.program
    for _ in range(2):
        for got, want in zip(program(x), model(x.astype(np.float64)), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=2e-3)
    runner = program._runner
    assert isinstance(runner, Bound)
    assert any(isinstance(f, Run) and _as_one(f) for f in runner._code or ())
    rows = kernels(result.plan, result.kernels)
    assert {n for r in rows if r["walk"] for n in r["walk"]["over"]} == {"x"}
    assert "go through x together, read once for all" in str(explain(result))
    others = dict.fromkeys(result.kernels, kernels_of(backends(["numpy"]))["numpy.gemm"])
    assert not any(r["walk"] for r in kernels(result.plan, others)), "kernels that are not joined walk alone"
