"""Single places of sorted rows, pairs of neighbours too: of any length, along any axis, with all that is special."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import waxeq as wx
from waxeq import Options
from waxeq.backend.call import Call, View, operand
from waxeq.backend.kernel import prepare
from waxeq.ir.term import Term
from waxeq.ir.types import numpy_dtype
from waxeq.testing.ties import drawn
from waxeq_native import select
from waxeq_native.select import SelectedElement, SelectedPair

PAIR, ELEMENT = SelectedPair(), SelectedElement()
DTYPES = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
FLOATS = ("float16", "bfloat16", "float32", "float64")
SHAPES = ((4, 2), (9, 5), (3, 64), (2, 65), (5, 100), (70, 300), (3, 513), (2, 5001), (1, 70_001))
"""Rows that are short, long and between, for each of which the text is another."""


def called(shape: tuple[int, int], dtype: str, places: range, threads: int = 1, axis: str = "j", order: str = "ij",
           out: str = "in") -> Call:  # fmt: skip
    """Of one place, or of a slice along an axis. `out`: i stands for the other axis."""
    sizes = dict(zip("ij", shape, strict=True))
    inner = Term("Sort", axis, operand(0, "ij", dtype))
    if len(places) == 1:
        meaning, out = Term("Gather", axis, Term("Num", float(places[0]), "int64"), inner), out.replace("n", "")
    else:
        meaning = Term("Slice", axis, "n", places.start, places.step, inner)
        sizes["n"] = len(places)
    result = View.dense(out.replace("i", "j" if axis == "i" else "i"), sizes, dtype)
    kernel = ELEMENT if len(places) == 1 else PAIR
    return Call(f"native.{kernel.name}", meaning, sizes, (View.dense(order, sizes, dtype),), result, threads=threads)


def ran(call: Call, x: np.ndarray) -> np.ndarray:
    """The result of an operand with axes i, j: the axis that is taken from is last."""
    kernel = ELEMENT if call.meaning.head == "Gather" else PAIR
    assert kernel.accepts(call), call
    (view,), out = call.operands, np.empty([call.sizes[k] for k in call.out.axes], numpy_dtype(call.out.dtype))
    laid = np.ascontiguousarray(x if view.axes == ("i", "j") else x.T)
    raw = np.empty(kernel.workspace(call) + 64, np.uint8)
    scratch = raw[(8 - raw.ctypes.data) % 64 :][: kernel.workspace(call)]  # as it may lie: no line begins there
    for step in kernel.bind(call, (laid,), out, scratch):
        step()
    return out.T if call.out.axes[0] == "n" and out.ndim == 2 else out


def same(call: Call, x: np.ndarray, places: range, axis: int = 1) -> bool:
    """Through float64 or 64 bits, which hold every value: ml_dtypes sorts NaN anywhere."""
    wide = np.moveaxis(x.astype(np.float64) if x.dtype.kind not in "biu" else x, axis, -1)
    meant, found = np.sort(wide, -1)[..., list(places)], ran(call, x)
    meant = meant[..., 0] if len(places) == 1 else meant
    return np.array_equal(found.astype(np.float64), meant.astype(np.float64), equal_nan=True)


def ways(size: int) -> list[range]:
    """Medians, what lies at the ends and near them, rising and falling."""
    m = size // 2
    return [range(m, m + 1), range(m - 1, m + 1), range(m, m - 2, -1), range(1), range(size - 1, size), range(2),
            range(size - 2, size), range(size // 4, size // 4 + 2), range(m + m // 2, m + m // 2 + 1)]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES + FLOATS)
def test_places_are_those_of_numpy(dtype: str) -> None:
    """Along either axis and from any layout, on one thread and on three."""
    layouts = [("j", "ij", "in"), ("j", "ji", "ni"), ("i", "ij", "in")]
    rows = []
    for n, (rows_, size) in enumerate((*SHAPES, SHAPES[-1])):
        axis, order, out = layouts[(n + len(dtype)) % len(layouts)]
        shape = (rows_, size) if axis == "j" else (size, rows_)
        for m, places in enumerate(ways(size)):
            if (m + n) % 3 == 0 or m < 2:
                call = called(shape, dtype, places, 1 + 2 * ((n + m) % 2), axis, order, out)
                rows.append((shape, axis, places, call))
    prepare((ELEMENT if c.meaning.head == "Gather" else PAIR, c) for *_, c in rows)
    for shape, axis, places, call in rows:
        assert same(call, drawn(shape, dtype), places, "ij".index(axis)), (shape, axis, places, call.threads)


def rows_that_mislead(size: int, dtype: str) -> list[np.ndarray]:
    """Rows in order, with few values, with most of them the same, and such as a sample at equal distances misses."""
    n = np.arange(size)
    rng = np.random.default_rng(size)
    far = np.exp2(n % 500 - 250.0) if dtype == "float64" else n % 120
    values = [n, -n, n % 2, n % 3, 0 * n, n * (n % 32 == 0), n * (n % 1024 < 3), rng.permutation(n), far,
              np.where(n < size // 2, 1, 2), np.where(n < size // 2 + 1, 1, 2), rng.integers(0, 4, size)]  # fmt: skip
    if dtype.startswith("float"):
        values += [np.full(size, np.nan), np.where(n % 2, np.nan, n), np.where(n % 3, np.inf, -np.inf)]
    return [v.astype(dtype) for v in values]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", ["int16", "uint32", "float32", "float64"])
def test_rows_whose_sample_misleads(dtype: str, threads: int) -> None:
    """What it leaves out is looked for again, and rows of which a round leaves all come to an end."""
    cases = [(size, p, called((1, size), dtype, p, threads)) for size in (66, 600, 40_000) for p in ways(size)[:5]]
    prepare((ELEMENT if c.meaning.head == "Gather" else PAIR, c) for *_, c in cases)
    for size, places, call in cases:
        for n, row in enumerate(rows_that_mislead(size, dtype)):
            assert same(call, row[None], places), (size, places, n)


def test_few_long_rows_are_cut_in_pieces_and_others_are_not() -> None:
    def parts(shape: tuple[int, int], threads: int) -> int:
        work = ELEMENT.of(called(shape, "float32", range(50, 51), threads))
        assert work is not None
        return len(work.parts)

    assert parts((1, 200_000), 1) == 1
    assert parts((1, 200_000), 2) == 3
    assert parts((1, 1000), 2) == 1
    assert parts((2, 200_000), 2) == 1


def test_pieces_shorter_than_a_vector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(select, "_LONG", 64)
    every = ((size, dtype, p) for size, dtype in product((64, 65, 129), ("uint8", "float64")) for p in ways(size))
    cases = [(size, dtype, p, called((1, size), dtype, p, 40)) for size, dtype, p in every]
    prepare((ELEMENT if c.meaning.head == "Gather" else PAIR, c) for *_, c in cases)
    for size, dtype, places, call in cases:
        assert same(call, drawn((1, size), dtype), places), (size, dtype, places)


def test_no_rows() -> None:
    call = called((0, 70), "float32", range(35, 37))
    assert ran(call, np.zeros((0, 70), np.float32)).size == 0
    assert all(n >= 0 for n in PAIR.features(call).values())


def test_what_is_no_such_place_is_not_taken() -> None:
    assert not PAIR.accepts(called((4, 100), "float32", range(50, 53)))
    assert not PAIR.accepts(called((4, 100), "float32", range(50, 54, 2)))
    assert not PAIR.accepts(called((4, 100), "float32", range(99, 101)))
    assert not ELEMENT.accepts(called((4, 100), "float32", range(100, 101)))
    assert not ELEMENT.accepts(called((4, 100), "float32", range(50, 52)))
    call = called((4, 100), "float32", range(50, 52))
    bare = Term("Slice", "j", "n", 0, 1, operand(0, "ij", "float32"))
    assert not PAIR.accepts(Call("native.selected_pair", bare, call.sizes, call.operands, call.out))


X = np.random.default_rng(0).standard_normal((20, 3000)).astype(np.float32)


@pytest.mark.parametrize(
    ("kernel", "model"),
    [
        ("native.selected_pair", lambda x: np.median(x, axis=1)),
        ("native.selected", lambda x: np.median(x[:, 1:], axis=1)),
        ("native.selected", lambda x: np.sort(x)[..., 1000]),
        ("native.selected", lambda x: np.partition(x, 1000)[..., 1000]),
        ("native.selected_pair", lambda x: np.percentile(x, 25, axis=1)),
    ],
)
def test_models_have_it(kernel: str, model: Callable[[np.ndarray], np.ndarray], tmp_path: Path) -> None:
    """Those of NumPy, and NaN where a row has one."""
    o = Options(threads=1, budget=0.0, trial=False, table=tmp_path / "t.duckdb", backends=("native", "numpy"))
    result = wx.optimize(model, X, options=o)
    assert kernel in {s.call.kernel for s in result.plan.steps}
    marred = X.copy()
    marred[3, 70] = np.nan
    for x in (X, marred):
        np.testing.assert_allclose(result.program(x), model(x), rtol=1e-6)
