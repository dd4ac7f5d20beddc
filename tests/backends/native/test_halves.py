"""Weights in sixteen bits: right within what they declare, and choices only where that is allowed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import waxeq as wx
from waxeq.backend.call import Call, View, operand
from waxeq.backend.discover import backends, kernels
from waxeq.backend.kernel import Kernel
from waxeq.ir.term import Term
from waxeq.runtime.timing import relative_error

pytestmark = pytest.mark.skipif("native.loops" not in kernels(backends()), reason="there is no C compiler")
NAMES = ("native.weights_f16", "native.weights_bf16")


def call(kernel: str, rows: int, depth: int, columns: int, turned: bool = False, first: bool = False) -> Call:
    """x[i, k] @ w[k, j], with w stored as (j, k) where `turned`, and the first operand where `first`."""
    sizes = {"i": rows, "k": depth, "j": columns}
    left = View.dense("ik" if rows > 1 else "k", sizes, "float32")
    right = View.dense("jk" if turned else "kj", sizes, "float32")
    out = View.dense("ij" if rows > 1 else "j", sizes, "float32")
    operands = (right, left) if first else (left, right)
    meaning = Term("Sum", "k", Term("Mul", *(operand(n, v.axes, "float32") for n, v in enumerate(operands))))
    used = {k: n for k, n in sizes.items() if k != "i" or rows > 1}
    return Call(kernel, meaning, used, operands, out, fixed=(0 if first else 1,), threads=2)


def computed(kernel: Kernel, c: Call, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    out = np.full(c.out.shape, 7.0, np.float32)
    arrays = (w, x) if c.fixed == (0,) else (x, w)
    assert kernel.accepts(c)
    for f in kernel.bind(c, arrays, out, np.zeros(max(1, kernel.workspace(c)), np.uint8)):
        f()
    return out


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("rows", "depth", "columns", "turned", "first"),
    [(1, 100, 100, False, False), (1, 777, 65, True, False), (2, 64, 64, False, True), (3, 300, 47, True, True),
     (4, 129, 31 * 33, False, False)],
)  # fmt: skip
def test_results_are_as_near_as_declared(name: str, rows, depth, columns, turned, first) -> None:
    kernel, rng = kernels(backends())[name], np.random.default_rng(rows)
    c = call(name, rows, depth, columns, turned, first)
    x = rng.standard_normal((rows, depth) if rows > 1 else depth, dtype=np.float32)
    w = rng.standard_normal((depth, columns), dtype=np.float32)
    got = computed(kernel, c, x, np.ascontiguousarray(w.T) if turned else w)
    worst, rms = relative_error(got, x.astype(np.float64) @ w.astype(np.float64))
    assert 0 < rms < kernel.error and worst < 8 * kernel.error
    assert kernel.retained(c) < 0.75 * w.nbytes + 4096


def test_columns_of_any_size_keep_their_digits() -> None:
    name = "native.weights_f16"
    kernel, rng = kernels(backends())[name], np.random.default_rng(0)
    x, w = rng.standard_normal(64, dtype=np.float32), rng.standard_normal((64, 96), dtype=np.float32)
    w *= np.exp2(rng.integers(-100, 100, 96)).astype(np.float32)
    got, want = computed(kernel, call(name, 1, 64, 96), x, w), x.astype(np.float64) @ w.astype(np.float64)
    length = np.linalg.norm(x.astype(np.float64)) * np.linalg.norm(w.astype(np.float64), axis=0)
    assert np.all(np.abs(got - want) < kernel.error * length)


def test_the_largest_weights_have_a_scale() -> None:
    name = "native.weights_f16"
    x, w = np.full(64, 1e-38, np.float32), np.full((64, 96), 2e38, np.float32)
    got = computed(kernels(backends())[name], call(name, 1, 64, 96), x, w)
    np.testing.assert_allclose(got, 64 * 2.0, rtol=1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_not_finite_stays_so(name: str) -> None:
    x, w = np.ones(64, np.float32), np.ones((64, 96), np.float32)
    w[3, 5], w[4, 6], w[5, 7], w[:, 8] = np.inf, -np.inf, np.nan, 0.0
    with np.errstate(all="ignore"):
        got = computed(kernels(backends())[name], call(name, 1, 64, 96), x, w)
    assert got[5] == np.inf and got[6] == -np.inf and np.isnan(got[7]) and got[8] == 0.0
    assert np.all(got[[0, 1, 9, 95]] == 64.0)


def test_what_they_do_not_take_is_refused() -> None:
    kernel = kernels(backends())[NAMES[0]]
    assert not kernel.accepts(call(NAMES[0], 5, 100, 100)), "many rows are work for the multipliers"
    unfixed = replace(call(NAMES[0], 1, 100, 100), fixed=())
    assert not kernel.accepts(unfixed), "what changes is not worth rounding"


def model(x, w):
    return np.maximum(x @ w, 0)


@pytest.fixture
def optimized(tmp_path: Path) -> Callable[..., wx.Result]:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((1, 512), dtype=np.float32), rng.standard_normal((512, 512), dtype=np.float32)

    def run(tolerance: float) -> wx.Result:
        options = wx.Options(tolerance=tolerance, table=tmp_path / "t.duckdb", trial=False, measure=False)
        return wx.optimize(model, x, w, weights=("w",), options=options)

    return run


def test_they_are_choices_only_where_the_tolerance_allows(optimized: Callable[..., wx.Result]) -> None:
    def used(tolerance: float) -> set[str]:
        found = optimized(tolerance)
        assert found.report.accuracy[0].plan[1] <= tolerance
        searched = (
            p
            for b in found.blocks
            if b.problem
            for rows in (b.problem.makers, b.problem.spare)
            for ps in rows.values()
            for p in ps
        )
        return {p.candidate.call.kernel for p in searched} & set(NAMES)

    assert used(1e-5) == set()
    assert used(1e-3) == {NAMES[0]}
    assert used(1e-2) == set(NAMES)
