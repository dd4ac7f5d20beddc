"""Programs of several results that are computed together."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from scipy.special import erf

import waxeq as wx
from waxeq.backend.call import Call, View, operand
from waxeq.backend.discover import backends, kernels
from waxeq.ir.graph import Graph, Leaf
from waxeq.ir.term import Term
from waxeq.ir.types import TensorType
from waxeq.memory.plan import assign_plan
from waxeq.plan.plan import Buffer, Output, Plan, Step
from waxeq.runtime.bound import Bound
from waxeq.runtime.program import Program
from waxeq_native.joint import STREAMED
from waxeq_native.steps import Run
from waxeq_native.work import NativeKernel


@pytest.mark.parametrize("read", [True, False])
def test_large_results_go_past_the_cache_unless_they_are_read(read: bool) -> None:
    (backend,) = backends(["native"])
    k, n = backend.kernels["native.loops"], (STREAMED >> 2) + 12_345
    view, e = View.dense("i", {"i": n}, "float32"), Term("Map", "exp", operand(0, "i", "float32"))
    x = np.linspace(-2, 2, n, dtype=np.float32)
    y, z, last = (np.empty_like(x) for _ in range(3))
    rows = [(Term("Map", "neg", e), x, y), (Term("Mul", e, e), x, z)]
    rows += [(Term("Map", "neg", operand(0, "i", "float32")), z, last)] * read
    steps = [s for m, a, out in rows for s in k.bind(Call(k.name, m, {"i": n}, (view,), view), [a], out, x[:0])]
    (run,) = NativeKernel.join(steps)
    assert isinstance(run, Run)
    assert [("wx_stream" in u.source) for u in run.loops] == [not read]
    run()
    e = np.exp(x)
    np.testing.assert_allclose(y, -e, rtol=1e-6)
    np.testing.assert_allclose(z, e * e, rtol=1e-6)
    if read:
        np.testing.assert_array_equal(last, -z)


def _black_scholes(spot, strike, years, rate, volatility):
    spread = volatility * np.sqrt(years)
    d1 = (np.log(spot / strike) + (rate + 0.5 * volatility**2) * years) / spread
    d2 = d1 - spread
    discounted = strike * np.exp(-rate * years)
    call = spot * (0.5 * (1 + erf(d1 / math.sqrt(2)))) - discounted * (0.5 * (1 + erf(d2 / math.sqrt(2))))
    put = discounted * (0.5 * (1 + erf(-d2 / math.sqrt(2)))) - spot * (0.5 * (1 + erf(-d1 / math.sqrt(2))))
    return call, put


@pytest.mark.parametrize("threads", [1, 2])
def test_black_scholes_is_one_loop(threads: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    ranges = (50, 150), (50, 150), (0.1, 2), (0, 0.05), (0.1, 0.6)
    args = [rng.uniform(low, high, 300_001).astype(np.float32) for low, high in ranges]
    own = {"backends": ("native",), "trial": False, "measure": False, "threads": threads}
    result = wx.optimize(_black_scholes, *args, options=wx.Options.of(table=tmp_path / "t.duckdb", **own))
    wants = _black_scholes(*(a.astype(np.float64) for a in args))
    held = []
    for i in range(4):  # results that are held, and inputs that move
        held.append(result.program(*([a.copy() for a in args] if i == 2 else args)))
        for got, want in zip(held[-1], wants, strict=True):
            np.testing.assert_allclose(got, want, atol=1e-4)
    for got, want in zip(held[0], wants, strict=True):
        np.testing.assert_allclose(got, want, atol=1e-4)
    runner = result.program._runner
    assert isinstance(runner, Bound) and runner._code is not None
    (run,) = runner._code
    assert isinstance(run, Run) and len(result.plan.steps) == 2 and len(run.phases) == 1
    same = result.program(args[0], args[0], *args[2:])
    for got, want in zip(
        same, _black_scholes(*(a.astype(np.float64) for a in (args[0], *args[:1], *args[2:]))), strict=True
    ):
        np.testing.assert_allclose(got, want, atol=1e-4)


def test_results_on_the_way_are_made_in_pairs_by_one_loop() -> None:
    """The sums above and below the bar of a bilateral filter, a few taps at a time: the second of each two lay where
    the first one's operand had been, so that the weights of every tap were computed for each of them."""
    n, kind = 40_000, "float32"
    installed, view = kernels(backends(["native"])), View.dense("i", {"i": 40_000}, kind)
    own, q = (operand(i, "i", kind) for i in range(2))
    weight = Term("Map", "sin", q)  # which ends, so that no result lies where an operand does
    names = [*"xyz", *(f"{s}{i}" for i in range(4) for s in ("above", "below"))]
    steps = [_step(f"{s}0", Term("Map", "tanh", own), ("x",), view) for s in ("above", "below")]
    for i, tap in enumerate("xyz"):
        for s, term in (("above", Term("Mul", weight, q)), ("below", weight)):
            steps.append(_step(f"{s}{i + 1}", Term("Add", own, term), (f"{s}{i}", tap), view))
    buffers = {b: Buffer(b, kind, n, "input" if b in "xyz" else "temporary") for b in names}
    type_ = TensorType(kind, (n,))
    outputs = tuple(Output(b, type_, b) for b in ("above3", "below3"))
    leaves = tuple(Leaf(b, type_, "input") for b in "xyz")
    plan = assign_plan(Plan("made", Graph(leaves, (), ()), buffers, (), tuple(steps), outputs, ()), installed).check()
    program, rng = Program(plan, installed, {}), np.random.default_rng(0)
    x, y, z = (rng.standard_normal(n, np.float32) for _ in range(3))
    above, below = program(x, y, z)
    taps = [np.sin(a.astype(float)) for a in (x, y, z)]
    np.testing.assert_allclose(
        above, np.tanh(x) + sum(w * a for w, a in zip(taps, (x, y, z), strict=True)), rtol=1e-5, atol=1e-4
    )
    np.testing.assert_allclose(below, np.tanh(x) + sum(taps), rtol=1e-5, atol=1e-4)
    runner = program._runner
    assert isinstance(runner, Bound) and runner._code is not None
    (run,) = runner._code
    assert isinstance(run, Run)
    assert [[run.steps.index(s) for s in u.steps] for u in run.loops][-3:] == [[2, 3], [4, 5], [6, 7]]


def _step(name: str, meaning: Term, reads: tuple[str, ...], view: View) -> Step:
    size = dict(zip(view.axes, view.shape, strict=True))
    return Step(Call("native.loops_fast", meaning, size, (view,) * len(reads), view), reads, name)
