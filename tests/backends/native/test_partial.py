"""The first and last few places of sorted rows: of any length, along any axis, and with all that is special."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import waxeq as wx
from waxeq import Options
from waxeq.backend.call import Call, View, operand
from waxeq.backend.kernel import prepare
from waxeq.ir.term import Term
from waxeq.ir.types import is_float, numpy_dtype
from waxeq.testing.ties import drawn
from waxeq_native import partial
from waxeq_native.partial import (
    ArgOrderStatistic,
    NegatedArgsort,
    NegatedSort,
    OrderStatistic,
    PartialArgsort,
    PartialSort,
)

SHAPES = ((1, 1), (3, 2), (5, 63), (5, 65), (70, 300), (1, 70_001))
DTYPES = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
FLOATS = ("float16", "bfloat16", "float32", "float64")
KINDS = (PartialSort(), PartialArgsort(), NegatedSort(), NegatedArgsort(), OrderStatistic(), ArgOrderStatistic())
SLICED = KINDS[:4]


def called(kernel: PartialSort, shape: tuple[int, int], dtype: str, places: range, threads: int = 1, axis: str = "j",
           order: str = "ij", out: str = "in") -> Call:  # fmt: skip
    """Of a slice along an axis; of one place, where the kernel takes no more. `out`: i stands for the other axis."""
    sizes = dict(zip("ij", shape, strict=True))
    how, head, below = kernel.taken
    x = operand(0, "ij", dtype)
    inner = Term(head, axis, Term("Map", "neg", x) if below == "neg" else x)
    if how == "Gather":
        meaning, out = Term("Gather", axis, Term("Num", float(places[0]), "int64"), inner), out.replace("n", "")
    else:
        meaning = Term("Slice", axis, "n", places.start, places.step, inner)
        sizes["n"] = len(places)
    result = View.dense(out.replace("i", "ji"["ij".index(axis)] if axis == "i" else "i"), sizes, dtype)
    result = View.dense(result.axes, sizes, "int64") if head == "Argsort" else result
    return Call(f"native.{kernel.name}", meaning, sizes, (View.dense(order, sizes, dtype),), result, threads=threads)


def ran(kernel: PartialSort, call: Call, x: np.ndarray) -> np.ndarray:
    """The result of an operand with axes i, j: the axis that is taken from is last."""
    assert kernel.accepts(call), call
    (view,), out = call.operands, np.empty([call.sizes[k] for k in call.out.axes], numpy_dtype(call.out.dtype))
    laid = np.ascontiguousarray(x if view.axes == ("i", "j") else x.T)
    raw = np.empty(kernel.workspace(call) + 64, np.uint8)
    scratch = raw[(8 - raw.ctypes.data) % 64 :][: kernel.workspace(call)]  # as it may lie: no line begins there
    for step in kernel.bind(call, (laid,), out, scratch):
        step()
    return out.T if call.out.axes[0] == "n" and out.ndim == 2 else out


def expected(kernel: PartialSort, x: np.ndarray, axis: int, places: range) -> np.ndarray:
    """Through float64 or 64 bits, which hold every value: ml_dtypes sorts NaN anywhere."""
    how, head, below = kernel.taken
    x = -x if below == "neg" else x
    wide = np.moveaxis(x.astype(np.float64) if x.dtype.kind not in "biu" else x, axis, -1)
    every = np.argsort(wide, -1, kind="stable") if head == "Argsort" else np.sort(wide, -1).astype(x.dtype)
    taken = every[..., list(places)]
    return taken[..., 0] if how == "Gather" else taken


def ends(size: int) -> list[range]:
    """Places near either end, rising and falling."""
    few = min(size, 10)
    ways = [range(few), range(few - 1, -1, -1), range(size - few, size), range(size - 1, size - few - 1, -1)]
    return [*ways, range(0, few, 3), range(few // 2, few // 2 + 1), range(size - 1 - few // 2, size - few // 2)]


@pytest.mark.parametrize(
    ("kernel", "dtype"),
    [(k, d) for k in KINDS for d in (DTYPES + FLOATS if k in KINDS[:2] else ("int8", "uint32", "float16", "float64"))],
    ids=lambda x: getattr(x, "name", x),
)
def test_places_are_those_of_numpy(kernel: PartialSort, dtype: str) -> None:
    """Along either axis and from any layout, on one thread and on three."""
    ways = [("j", "ij", "in"), ("j", "ji", "ni"), ("i", "ij", "in")]
    rows = []
    for n, shape in enumerate((*SHAPES, (70, 300))):
        axis, order, out = ways[(n + len(dtype)) % len(ways)]
        every = ends(shape["ij".index(axis)])
        places = every[(n + len(dtype) + len(kernel.name)) % len(every)]
        rows.append((shape, axis, places, called(kernel, shape, dtype, places, 1 + n % 2 * 2, axis, order, out)))
    prepare((kernel, call) for *_, call in rows)
    for shape, axis, places, call in rows:
        x = drawn(shape, dtype)
        found, meant = ran(kernel, call, x), expected(kernel, x, "ij".index(axis), places)
        same = np.array_equal(found.astype(np.float64), meant.astype(np.float64), equal_nan=True)
        assert same, (shape, axis, places)


@pytest.mark.parametrize("kernel", SLICED, ids=lambda k: k.name)
@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64"])
def test_every_count_of_places_up_to_the_most(kernel: PartialSort, dtype: str) -> None:
    """They fill one vector, or several."""
    x = drawn((2, 200), dtype)
    counts = (1, 8, 9, 17, 64)
    rows = [(p, called(kernel, (2, 200), dtype, p)) for n in counts for p in (range(n), range(200 - n, 200))]
    prepare((kernel, call) for _, call in rows)
    for places, call in rows:
        np.testing.assert_array_equal(ran(kernel, call, x), expected(kernel, x, 1, places), err_msg=str(places))
    assert not kernel.accepts(called(kernel, (2, 200), dtype, range(65)))
    assert not kernel.accepts(called(kernel, (2, 200), dtype, range(60, 68)))


def _either_end(size: int) -> tuple[range, range]:
    return range(min(5, size)), range(max(0, size - 9), size)


@pytest.mark.parametrize("kernel", SLICED, ids=lambda k: k.name)
@pytest.mark.parametrize("threads", [1, 2])
def test_equal_rows_and_rows_in_either_order(kernel: PartialSort, threads: int) -> None:
    """All elements equal, the largest of their type or NaN: places of the first ones, though nothing is below what
    stands where nothing has been found; and rows where each element is better than all before."""
    kinds = (5, "float32"), (300, "float32"), (300, "float64"), (300, "uint8"), (40_000, "float64")
    calls = {
        (size, dtype): [(p, called(kernel, (1, size), dtype, p, threads)) for p in _either_end(size)]
        for size, dtype in kinds
    }
    prepare((kernel, call) for rows in calls.values() for _, call in rows)
    for size, dtype in kinds:
        n = np.arange(size)
        most = np.nan if is_float(dtype) else 255
        values = [0 * n + 1, 0.0 * n + most, n // 3, -(n // 3), np.where(n > size - 4, 0.0, most)]
        for row in values:
            x = row.astype(dtype)[None]
            for places, call in calls[size, dtype]:
                np.testing.assert_array_equal(ran(kernel, call, x), expected(kernel, x, 1, places))


def test_few_long_rows_are_cut_in_pieces_and_others_are_not() -> None:
    def parts(shape: tuple[int, int], threads: int) -> int:
        work = PartialSort().of(called(PartialSort(), shape, "float32", range(5), threads))
        assert work is not None
        return len(work.parts)

    assert parts((1, 200_000), 1) == 1
    assert parts((1, 200_000), 2) == 2
    assert parts((1, 1000), 2) == 1
    assert parts((2, 200_000), 2) == 1


def test_pieces_shorter_than_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """What they lack comes after everything, elements that are the largest of their type too."""
    monkeypatch.setattr(partial, "_LONG", 16)
    for dtype in ("uint8", "float64"):
        for kernel in SLICED:
            x = np.full((1, 65), 255 if dtype == "uint8" else np.nan).astype(dtype)
            x[0, 3::7] = 1
            call = called(kernel, x.shape, dtype, range(40), 2)
            np.testing.assert_array_equal(ran(kernel, call, x), expected(kernel, x, 1, range(40)))


def test_no_places_and_no_rows() -> None:
    for shape, places in (((3, 5), range(0)), ((0, 5), range(2)), ((0, 0), range(0))):
        call = called(PartialSort(), shape, "float32", places)
        assert ran(PartialSort(), call, np.zeros(shape, np.float32)).size == 0
        assert all(n >= 0 for n in PartialSort().features(call).values())


def test_what_is_no_such_part_is_not_taken() -> None:
    call = called(PartialSort(), (4, 50), "float32", range(5))
    assert not any(k.accepts(call) for k in KINDS[1:])
    assert not OrderStatistic().accepts(called(OrderStatistic(), (4, 50), "float32", range(50, 51)))
    bare = Term("Slice", "j", "n", 0, 1, operand(0, "ij", "float32"))
    assert not PartialSort().accepts(Call("native.partial_sort", bare, call.sizes, call.operands, call.out))
    across = Term("Slice", "i", "n", 0, 1, Term("Sort", "j", operand(0, "ij", "float32")))
    out = View.dense("nj", call.sizes, "float32")
    assert not PartialSort().accepts(Call("native.partial_sort", across, call.sizes, call.operands, out))


X = np.random.default_rng(0).standard_normal((20, 400)).astype(np.float32)


@pytest.mark.parametrize(
    ("kernel", "model"),
    [
        ("native.partial_argsort", lambda x: np.argsort(x, axis=1)[:, :8]),
        ("native.partial_argsort", lambda x: np.argpartition(x, 8)[:, :9]),
        ("native.partial_argsort_negated", lambda x: np.argsort(-x, axis=1)[:, :8]),
        ("native.partial_sort", lambda x: np.sort(x)[..., :5]),
        ("native.partial_sort", lambda x: np.sort(x)[..., -5:]),
        ("native.partial_sort", lambda x: np.sort(x)[:, :-6:-1]),
        ("native.partial_sort", lambda x: np.partition(x, 5)[..., :6]),
        ("native.partial_sort", lambda x: np.sort(x, axis=0)[:2]),
        ("native.partial_sort_negated", lambda x: -np.sort(-x)[..., :5]),
        ("native.order_statistic or native.selected", lambda x: np.sort(x)[..., 5]),
        ("native.order_statistic or native.selected", lambda x: np.sort(x, axis=1)[:, -2]),
        ("native.arg_order_statistic", lambda x: np.argsort(x)[..., 3]),
    ],
)
def test_models_have_it(kernel: str, model: Callable[[np.ndarray], np.ndarray], tmp_path: Path) -> None:
    def planned(*backends: str) -> tuple[set[str], np.ndarray]:
        o = Options(threads=1, budget=0.0, trial=False, table=tmp_path / "t.duckdb", backends=backends)
        result = wx.optimize(model, X, options=o)
        return {s.call.kernel for s in result.plan.steps}, result.program(X)

    (used, found), (_, meant) = planned("native", "numpy"), planned("numpy")
    assert used.intersection(kernel.split(" or "))
    np.testing.assert_array_equal(found, meant)
