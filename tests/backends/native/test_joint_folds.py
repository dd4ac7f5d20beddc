"""Folds of one array over other axes are one loop: what is read once from memory is folded along all of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waxeq.backend.call import Call, View, operand
from waxeq.backend.discover import backends
from waxeq.ir.term import Term
from waxeq.ir.types import numpy_dtype
from waxeq_cfamily import joint, split
from waxeq_native import joint as native_joint
from waxeq_native import loops
from waxeq_native.steps import OPERANDS, Run, Step

(BACKEND,) = backends(["native"])
ROWS, COLUMNS = 1500, 1501
NUMPY = {"sum": np.sum, "max": np.max, "min": np.min, "prod": np.prod}
TOLERANCE = {"float16": 2e-3, "float32": 2e-5, "float64": 1e-12}


def fold(x: Term, kind: str, axes: str) -> Term:
    for k in axes:
        x = Term("Sum", k, x) if kind == "sum" else Term("Red", kind, k, x)
    return x


def step(
    meaning: Term, axes: str, a: np.ndarray, out: np.ndarray, names: str = "ij", kernel: str = "loops", threads: int = 1
) -> Step:
    """A bound call that folds `axes` of one operand."""
    k = BACKEND.kernels[f"native.{kernel}"]
    sizes = dict(zip(names, a.shape, strict=True))
    item = a.dtype.itemsize
    view = View(tuple(names), a.shape, tuple(s // item for s in a.strides), a.dtype.name)
    to = "".join(n for n in names if n not in axes)
    call = Call(f"native.{kernel}", meaning, sizes, (view,), View.dense(to, sizes, out.dtype.name), threads=threads)
    assert k.accepts(call)
    (made,) = k.bind(call, [a], out, np.empty(k.workspace(call), np.uint8))
    assert isinstance(made, Step)
    return made


def folds(
    a: np.ndarray, rows: Sequence[tuple[str, str]], names: str = "ij", **of: object
) -> tuple[list[Step], list[np.ndarray], list[np.ndarray]]:
    """Steps for (kind, axes), what they write, and what that should be."""
    x, wide = operand(0, names, a.dtype.name), a.astype(np.float64) if a.dtype.kind == "f" else a
    steps, outs, wants = [], [], []
    for kind, axes in rows:
        left = tuple(n for n, k in zip(a.shape, names, strict=True) if k not in axes)
        outs.append(np.full(left, 7, a.dtype))
        steps.append(step(fold(x, kind, axes), axes, a, outs[-1], names, **of))  # type: ignore[arg-type]
        wants.append(NUMPY[kind](wide, axis=tuple(names.index(k) for k in axes)).astype(a.dtype))
    return steps, outs, wants


Folded = Callable[..., tuple[Run, list[np.ndarray], list[np.ndarray]]]


@pytest.fixture
def folded(ahead: Callable[..., None]) -> Folded:
    """What runs the steps of `folds`, what they write and what that should be; what they and their loop need is
    compiled at once."""

    def made(a: np.ndarray, rows: Sequence[tuple[str, str]], names: str = "ij", **of: object) -> Any:
        def bound() -> tuple[Run, list[np.ndarray], list[np.ndarray]]:
            steps, outs, wants = folds(a, rows, names, **of)
            return Run(steps), outs, wants

        ahead(bound, [()])
        return bound()

    return made


def close(got: np.ndarray, want: np.ndarray, terms: int) -> None:
    within = TOLERANCE.get(got.dtype.name, 0.0) * max(1.0, terms) ** 0.5
    np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=within, atol=within)


def draw(dtype: str, *shape: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    if dtype.startswith("int"):
        return rng.integers(-9, 9, shape).astype(dtype)
    return rng.uniform(-1, 1, shape).astype(numpy_dtype(dtype))


def as_one(run: Run) -> list[int]:
    return [len(u.steps) for u in run.loops]


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("kernel", ["loops", "loops_narrow"])
@pytest.mark.parametrize("first", [0, 1])
def test_sums_over_each_axis(threads: int, kernel: str, first: int, folded: Folded) -> None:
    a = draw("float32", ROWS, COLUMNS)
    rows = [("sum", "i"), ("sum", "j")]
    run, outs, wants = folded(a, [rows[first], rows[1 - first]], kernel=kernel, threads=threads)
    assert as_one(run) == [2]
    for _ in range(2):  # what is kept of a run is not added to the next
        run()
        for got, want in zip(outs, wants, strict=True):
            close(got, want, ROWS)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("rows", [1500, 1501, 1503, 1504])
def test_rows_are_summed_and_added_several_at_a_time(dtype: str, rows: int, folded: Folded) -> None:
    """One after another, 64 rows that are added to one had an error of 1.6e-7 in a sum of 4096."""
    a = draw(dtype, rows, 2801)
    run, outs, wants = folded(a, [("sum", "i"), ("sum", "j")], threads=2)
    text = run.loops[0].source
    assert as_one(run) == [2] and "_at + 4 <=" in text
    ahead = {int(n) for n in re.findall(r"__builtin_prefetch\(.*\+ (\d+), 0, 2\);", text)}
    assert ahead == {4 * 2801}, "the next four rows are asked for, into the second cache"
    run()
    for got, want in zip(outs, wants, strict=True):
        close(got, want, rows)
    if dtype == "float32":
        wide = a.astype(np.float64).sum(0)
        assert np.sqrt(np.mean((outs[0] - wide) ** 2) / np.mean(wide**2)) < 1.2e-7


@pytest.mark.parametrize("dtype", ["float16", "float64", "int32", "int64"])
def test_other_dtypes(dtype: str, folded: Folded) -> None:
    run, outs, wants = folded(draw(dtype, 2100, 2201), [("sum", "j"), ("sum", "i"), ("max", "j")], threads=2)
    assert as_one(run) == [3]
    run()
    for got, want in zip(outs, wants, strict=True):
        close(got, want, 2201)


@pytest.mark.parametrize("kind", ["max", "min", "sum"])
def test_not_a_number_and_infinity(kind: str, folded: Folded) -> None:
    a = draw("float32", ROWS, COLUMNS)
    a[3, 5], a[7, 1500], a[1499, 0] = np.nan, np.inf, -np.inf
    run, outs, wants = folded(a, [(kind, "j"), (kind, "i")], threads=2)
    assert as_one(run) == [2]
    run()
    for got, want in zip(outs, wants, strict=True):
        close(got, want, ROWS)


def test_a_matrix_that_lies_with_gaps() -> None:
    whole = draw("float32", ROWS, COLUMNS + 30)
    steps, outs, wants = folds(whole[:, 7 : 7 + COLUMNS], [("sum", "j"), ("sum", "i")], threads=2)
    run = Run(steps)
    assert as_one(run) == [2]
    run()
    for got, want in zip(outs, wants, strict=True):
        close(got, want, ROWS)


def test_functions_before_and_after_folds() -> None:
    """What is folded is computed once for all, and what follows a fold is computed where that is whole."""
    columns = 1504  # whole vectors: those that are left have a text of their own
    a = draw("float32", ROWS, columns)
    e = Term("Map", "exp", operand(0, "ij", "float32"))
    mean = Term("Mul", fold(e, "sum", "j"), Term("Num", 1 / columns, "float32"))
    root = Term("Map", "sqrt", fold(Term("Mul", e, e), "sum", "i"))
    outs = np.empty(ROWS, np.float32), np.empty(columns, np.float32)
    run = Run([
        step(mean, "j", a, outs[0], kernel="loops_fast", threads=2),
        step(root, "i", a, outs[1], kernel="loops_fast", threads=2),
    ])  # fmt: skip
    assert as_one(run) == [2] and run.loops[0].source.count("wx_exp") == 1
    run()
    wide = np.exp(a.astype(np.float64))
    close(outs[0], wide.mean(1), ROWS)
    close(outs[1], np.sqrt((wide * wide).sum(0)), ROWS)


def test_more_axes() -> None:
    a = draw("float32", 41, 300, 257)
    steps, outs, wants = folds(a, [("sum", "k"), ("sum", "ij"), ("sum", "ik")], "ijk", threads=2)
    run = Run(steps)
    run()
    for got, want in zip(outs, wants, strict=True):
        close(got, want, a.size // 257)


def test_what_no_first_cache_holds_is_apart() -> None:
    steps, outs, wants = folds(draw("float32", 300, 20_001), [("sum", "j"), ("sum", "i")], threads=2)
    run = Run(steps)
    assert not run.loops
    run()
    for got, want in zip(outs, wants, strict=True):
        close(got, want, 20_001)


def test_folds_and_chains_are_apart() -> None:
    a, y, z = draw("float32", ROWS, COLUMNS), np.empty(ROWS, np.float32), np.empty((ROWS, COLUMNS), np.float32)
    x = operand(0, "ij", "float32")
    run = Run([step(fold(x, "sum", "j"), "j", a, y), step(Term("Map", "square", x), "", a, z)])
    assert not run.loops
    run()
    np.testing.assert_array_equal(z, a * a)


def test_one_walk_ends_when_its_operands_part() -> None:
    a, b = draw("float32", ROWS, COLUMNS), draw("float32", ROWS, COLUMNS)[::-1].copy()
    steps, outs, _ = folds(a, [("sum", "j"), ("sum", "i")], threads=2)
    run = Run(steps)
    assert as_one(run) == [2]
    run()
    steps[0].point(OPERANDS, b.ctypes.data)
    run()
    assert not run.loops
    close(outs[0], b.astype(np.float64).sum(1), ROWS)
    close(outs[1], a.astype(np.float64).sum(0), ROWS)


@pytest.fixture
def _of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """No array is too small to be gone through once."""
    for module in (loops, joint, native_joint, split):
        for name, low in (("BESIDE", 0), ("_NEAR", -1), ("_LONG", 8), ("_PIECE", 4), ("_MANY", 9), ("_FEW", 4)):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, low)


SOME = [("sum", "".join(k)) for n in (1, 2, 3) for k in combinations("ijk", n)] + [("max", "k"), ("min", "i")]


@pytest.mark.slow
@pytest.mark.usefixtures("_of_any_size")
@pytest.mark.parametrize("threads", [1, 2])
def test_any_folds_of_small_arrays(threads: int) -> None:
    met: list[int] = []

    @settings(max_examples=25, deadline=None)
    @given(
        st.tuples(st.integers(1, 20), st.integers(1, 7), st.integers(1, 40)),
        st.lists(st.sampled_from(SOME), min_size=2, max_size=3, unique=True),
        st.sampled_from(["float32", "float64", "int32"]),
    )
    def check(shape: tuple[int, int, int], rows: list[tuple[str, str]], dtype: str) -> None:
        shape = tuple(n + (n == 1) for n in shape)  # a dimension of size 1 has no axis
        steps, outs, wants = folds(draw(dtype, *shape), rows, "ijk", threads=threads)
        run = Run(steps)
        met.extend(as_one(run))
        run()
        for got, want in zip(outs, wants, strict=True):
            close(got, want, int(np.prod(shape)))

    check()
    assert met, "some are one loop"


def test_a_first_walk_of_one_number_is_no_piece() -> None:
    """What all of a fold waits for is made first, as one number: that walk has no outer axes."""
    a, b = draw("float32", 30, 100, 1000), draw("float32", 30, 100)
    mean = Term("Mul", fold(operand(1, "ij", "float32"), "sum", "ij"), Term("Num", 1 / 3000, "float32"))
    meaning = fold(Term("Map", "square", Term("Zip", "sub", operand(0, "ijk", "float32"), mean)), "sum", "j")
    sizes = dict(zip("ijk", a.shape, strict=True))
    views = View.dense("ijk", sizes, "float32"), View.dense("ij", sizes, "float32")
    call = Call("native.loops", meaning, sizes, views, View.dense("ik", sizes, "float32"), threads=2)
    k, out = BACKEND.kernels["native.loops"], np.empty((30, 1000), np.float32)
    assert k.accepts(call)
    for step in k.bind(call, [a, b], out, np.empty(k.workspace(call), np.uint8)):
        step()
    close(out, ((a.astype(np.float64) - b.astype(np.float64).mean()) ** 2).sum(1), 100)
