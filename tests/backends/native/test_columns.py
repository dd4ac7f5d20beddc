"""Columns of one array, read by several operands of a call: neighbours in groups."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import waxeq as wx
from waxeq.backend.call import Call, View, operand
from waxeq.ir.term import Term
from waxeq.testing.conformance import check_call
from waxeq_native.loops import Loops


def _columns(step: int, dtype: str, order: tuple[int, ...], n: int = 1003) -> Call:
    """A chain of functions of columns, in some order, of rows of so many."""
    x = operand(0, "n", dtype)
    for i in range(1, len(order)):
        x = Term("Add", Term("Mul", x, x), operand(i, "n", dtype))
    views = tuple(View(("n",), (n,), (step,), dtype, offset) for offset in order)
    shared = (0,) * len(order)
    return Call("native.loops", x, {"n": n}, views, View.dense("n", {"n": n}, dtype), shared)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8"])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 1, 2, 0)], ids=str)
@pytest.mark.parametrize("step", [3, 4, 5, 8, 12])
def test_columns_are_told_from_the_first_of_them(step: int, order: tuple[int, ...], dtype: str) -> None:
    """A hash of eight columns took three times as long: each was read at a distance, by a pointer of its own."""
    call = _columns(step, dtype, order)
    assert check_call(Loops(), call, np.random.default_rng(0)) is None
    text = Loops().of(call).parts[0].text  # pyright: ignore[reportOptionalMemberAccess]
    assert ("(args[3] + " in text) == (step in (3, 4, 8))


def test_a_few_columns_of_wide_rows_are_no_group() -> None:
    """gcc 12 takes all that is between them apart as well: sixteen of 4096 columns it compiled for minutes."""
    call = _columns(4096, "float32", tuple(range(32)), 64)
    assert check_call(Loops(), call, np.random.default_rng(0)) is None
    assert "(args[3] + " not in Loops().of(call).parts[0].text  # pyright: ignore[reportOptionalMemberAccess]
    assert "(args[3] + " in Loops().of(_columns(16, "float32", (0, 1, 2, 3))).parts[0].text  # pyright: ignore


def test_results_made_together_read_columns_in_groups(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for c in (3, 4, 5):

        def crossed(p, q):
            (x, y, z), (a, b, d) = (r[:, :3].T for r in (p, q))
            return y * d - z * b, z * a - x * d, x * b - y * a

        p, q = (rng.standard_normal((70_000, c)).astype(np.float32) for _ in range(2))
        o = wx.Options(threads=1, budget=2, trial=False, table=tmp_path / "t.duckdb")
        found = wx.optimize(crossed, p, q, options=o).program(p, q)
        for a, b in zip(found, crossed(p, q), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
