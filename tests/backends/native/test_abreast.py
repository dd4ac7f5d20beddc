"""Sweeps of several calls in one walk over rows: what they have in common is made once."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

import waxeq as wx
from waxeq.backend.call import Call, View, operand
from waxeq.basis.typing import types
from waxeq.basis.ways import swept
from waxeq.ir.term import Term
from waxeq.testing.calls import generated
from waxeq_cfamily import walks as walking
from waxeq_native.sliding import FastSliding, Sliding
from waxeq_native.steps import Run, Step
from waxeq_native.work import NativeKernel

X = operand(0, "ij", "float32")


def diffused(x: Term, wide: float = 0.25) -> Term:
    """What flows in from both sides along each axis, with a border of zeros."""
    for old, new in ("ia", "jb"):
        seen = [Term("Slice", old, new, at, 1, x) for at in range(3)]
        flow = Term("Zip", "sub", Term("Add", seen[0], seen[2]), Term("Mul", Term("Num", wide, "float32"), seen[1]))
        x = Term("Pad", new, old, 1, 0.0, flow)
    return x


def call(meaning: Term, rows: int, columns: int, threads: int = 1) -> Call:
    sizes = {"i": rows, "j": columns, "a": rows - 2, "b": columns - 2}
    axes = tuple(sorted(types(meaning)[meaning].axes, key="iajb".index))
    given = View.dense("ij", sizes, "float32")
    return Call("native.sliding", meaning, sizes, (given,), View.dense(axes, sizes, "float32"), threads=threads)


def bound(k: Sliding, c: Call, operands: Sequence[np.ndarray]) -> tuple[Step, np.ndarray]:
    """A call and where its result goes, every place of which holds 7."""
    flat = np.full(c.out.extent, 7).astype(c.out.dtype)
    out = c.out.array(flat)
    (step,) = k.bind(c, operands, out, np.empty(0, np.uint8))
    assert isinstance(step, Step)
    return step, out


Bound = tuple[Step, np.ndarray]


def both(k: Sliding, calls: Sequence[Call], operands: Sequence[np.ndarray]) -> tuple[list[Bound], list[Bound], Run]:
    """Calls alone, and those that were joined."""
    alone, joint = ([bound(k, c, operands) for c in calls] for _ in range(2))
    (run,) = NativeKernel.join([step for step, _ in joint])
    assert isinstance(run, Run)
    return alone, joint, run


def together(k: Sliding, calls: Sequence[Call], operands: Sequence[np.ndarray]) -> int:
    """How many loops calls are when they are joined; each result must be what it is alone, to the last bit."""
    alone, joint, run = both(k, calls, operands)
    for step, _ in alone:
        step()
    run()
    for (_, want), (_, got) in zip(alone, joint, strict=True):
        np.testing.assert_array_equal(got.view(np.uint8), want.view(np.uint8))
    return len(run.phases)


def once(x: Term) -> Term:
    return Term("Zip", "sub", Term("Slice", "j", "b", 2, 1, x), Term("Slice", "j", "b", 0, 1, x))


TWO = diffused(diffused(X))
RESULTS = {
    "of one size": (TWO, Term("Map", "abs", diffused(diffused(X)))),
    "of which one is read for the other": (diffused(TWO), TWO),
    "of other sizes": (TWO, once(TWO)),
    "three": (once(diffused(TWO)), TWO, Term("Map", "neg", diffused(TWO))),
}


@pytest.mark.parametrize("rows, columns, threads", [(3, 300, 2), (130, 517, 1), (130, 517, 2), (777, 1031, 2)])
@pytest.mark.parametrize("meanings", RESULTS.values(), ids=RESULTS)
def test_results_that_share_sweeps_are_one_walk(
    meanings: tuple[Term, ...], rows: int, columns: int, threads: int, ahead: Callable[..., None]
) -> None:
    """NaN and infinities go where they go in each alone."""
    x = np.random.default_rng(rows).standard_normal((rows, columns), np.float32)
    x[rows // 2, columns // 2], x[rows // 3, columns // 3], x[0, -1] = np.nan, np.inf, -np.inf
    row = Sliding(), [call(m, rows, columns, threads) for m in meanings], [x]
    ahead(both, [row])
    assert together(*row) == 1


def test_what_is_shared_is_written_once() -> None:
    x = np.zeros((200, 300), np.float32)
    steps = [bound(Sliding(), call(m, 200, 300), [x])[0] for m in (TWO, Term("Map", "abs", TWO))]
    (run,) = NativeKernel.join(steps)
    assert isinstance(run, Run)
    (unit,) = run.loops
    alone = Sliding().of(call(TWO, 200, 300))
    assert alone is not None
    step = re.compile(r"const int64_t p0 = now \+ \d;")
    assert len(step.findall(unit.source)) == len(step.findall(alone.parts[0].text)) == 4


def test_what_shares_no_sweep_is_apart() -> None:
    x = np.ones((200, 300), np.float32)
    assert together(Sliding(), [call(TWO, 200, 300), call(diffused(diffused(X, 0.5), 0.5), 200, 300)], [x]) == 2


def test_what_reads_another_result_waits_for_it() -> None:
    first, out = bound(Sliding(), call(TWO, 200, 300), [np.ones((200, 300), np.float32)])
    second, _ = bound(Sliding(), call(TWO, 200, 300), [out])
    (run,) = NativeKernel.join([first, second])
    assert isinstance(run, Run) and not run.loops


def test_sweeps_that_read_the_same_at_the_same_rows_are_one_loop() -> None:
    """Of a structure tensor: each of five products is summed over its neighbours."""
    y = operand(1, "ij", "float32")
    products = [Term("Mul", a, b) for a, b in ((X, X), (X, y), (y, y))]
    summed = [Term("Add", *(Term("Slice", "i", "a", at, 1, p) for at in (0, 2))) for p in products]
    whole = Term("Zip", "sub", Term("Mul", summed[0], summed[2]), summed[1])
    sizes = {"i": 100, "j": 700, "a": 98}
    view = View.dense("ij", sizes, "float32")
    c = Call("native.sliding", whole, sizes, (view, view), View.dense("aj", sizes, "float32"))
    walk = Sliding().walk(c)
    assert walk.groups == ((0, 1, 2), (3,))
    x, y = np.random.default_rng(2).standard_normal((2, 100, 700), np.float32)
    step, out = bound(Sliding(), c, [x, y])
    step()
    xx, xy, yy = (p[:-2] + p[2:] for p in (x * x, x * y, y * y))
    np.testing.assert_allclose(out, xx * yy - xy, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kernel", [Sliding, FastSliding])
def test_any_sweeps_with_what_they_are_made_of(
    kernel: type[Sliding], monkeypatch: pytest.MonkeyPatch, ahead: Callable[..., None]
) -> None:
    """Random sweeps in tiles of a few rows, where most elements are near the edge of one, together with a function of
    their result and with what an earlier one makes."""
    monkeypatch.setattr(walking, "_ROWS", 3)
    monkeypatch.setattr(walking, "_RINGS", 1 << 12)
    monkeypatch.setattr(walking, "_COLUMNS", 32)
    k, rng = kernel(), np.random.default_rng(3)
    rows: list[tuple[Sliding, list[Call], list[np.ndarray]]] = []
    for c in generated(f"native.{k.name}", k, np.random.default_rng(11), 12):
        operands = [v.array(flat) for v, flat in zip(c.operands, _flats(c, rng), strict=True)]
        signed = [Term("Map", "neg", c.meaning)] * (c.out.dtype not in ("bool", "uint8"))
        calls = [c, *(_of(c, m) for m in (*signed, *swept(c.meaning)))]
        able = [x for x in calls if x.out.elements and k.accepts(x)]
        if len(able) > 1:
            rows.append((k, able, operands))
    ahead(both, rows)
    assert sum(together(*row) < len(row[1]) for row in rows) > 3


def _of(c: Call, meaning: Term) -> Call:
    """A call of another meaning of the same operands."""
    kind = types(meaning)[meaning]
    out = View.dense(tuple(sorted(kind.axes)), c.sizes, kind.dtype)
    return Call(c.kernel, meaning, c.sizes, c.operands, out, threads=c.threads)


def _flats(c: Call, rng: np.random.Generator) -> list[np.ndarray]:
    sizes = [
        v.offset + 1 + sum(max(0, (n - 1) * s) for n, s in zip(v.shape, v.strides, strict=True)) for v in c.operands
    ]
    return [rng.integers(0, 5, max(n, v.extent)).astype(v.dtype) for n, v in zip(sizes, c.operands, strict=True)]


def waves(e: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, ...]:
    """Steps of an electric field and of the magnetic ones between its places."""
    for _ in range(2):
        x = x - 0.5 * (e[:, 1:] - e[:, :-1])
        y = y + 0.5 * (e[1:] - e[:-1])
        e = np.pad(e[1:-1, 1:-1] + 0.25 * ((y[1:, 1:-1] - y[:-1, 1:-1]) - (x[1:-1, 1:] - x[1:-1, :-1])), 1)
    return e, x, y


def test_a_program_of_several_results_is_one_walk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step was four calls, and four of them took half as long again."""
    monkeypatch.setattr("waxeq.ir.blocks._WHOLE", 100)
    rng = np.random.default_rng(4)
    args = [rng.standard_normal(s, np.float32) for s in ((301, 303), (301, 302), (300, 303))]
    options = wx.Options.of(
        table=tmp_path / "t.duckdb", backends=("native",), trial=False, measure=False, threads=1, budget=None
    )
    result = wx.optimize(waves, *args, options=options)
    for got, want in zip(result.program(*args), waves(*(a.astype(np.float64) for a in args)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    assert all(s.call.kernel.startswith("native.sliding") for s in result.plan.steps) and len(result.plan.steps) == 3
