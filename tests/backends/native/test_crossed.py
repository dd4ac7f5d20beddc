"""Folds over pairs: distances and the like, in tiles; and rows added to rows, several at a time."""

from __future__ import annotations

import numpy as np
import pytest

from waxeq.backend.call import Call, View, operand
from waxeq.backend.discover import backends
from waxeq.basis.typing import types
from waxeq.ir.term import Term
from waxeq.testing.conformance import check_call
from waxeq_cfamily.crossed import crossed
from waxeq_native.work import NativeKernel

(BACKEND,) = backends(["native"])
LOOPS = BACKEND.kernels["native.loops"]
SIZES = (
    {"i": 33, "j": 70, "k": 5},
    {"i": 4, "j": 64, "k": 17},
    {"i": 70, "j": 33, "k": 200},
    {"i": 5, "j": 32, "k": 4},
)


def _call(meaning: Term, sizes: dict[str, int], orders: tuple[str, ...], dtype: str, threads: int = 1) -> Call:
    kind = types(meaning)[meaning]
    views = tuple(View.dense(o, sizes, dtype) for o in orders)
    return Call(
        "native.loops", meaning, sizes, views, View.dense(sorted(kind.axes), sizes, kind.dtype), threads=threads
    )


def _pairs(fold: str, dtype: str) -> Term:
    x, y = operand(0, "ik", dtype), operand(1, "jk", dtype)
    d = Term("Zip", "sub", x, y)
    if fold == "sum":
        return Term("Sum", "k", Term("Mul", d, d))
    return Term("Red", fold, "k", Term("Add", x, y))


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
@pytest.mark.parametrize("fold", ["sum", "max", "min"])
@pytest.mark.parametrize("orders", [("ik", "jk"), ("ki", "kj"), ("ik", "kj")])
def test_every_row_meets_every_column(orders: tuple[str, ...], fold: str, dtype: str) -> None:
    calls = [_call(_pairs(fold, dtype), sizes, orders, dtype, threads=2) for sizes in SIZES]
    LOOPS.prepare([(LOOPS, c) for c in calls])  # a compiler is started once for all
    for call in calls:
        assert isinstance(LOOPS, NativeKernel)
        assert crossed(LOOPS.values(call)) is not None, "the walk that is to be tested"
        assert LOOPS.accepts(call)
        assert check_call(LOOPS, call, np.random.default_rng(0)) is None


def test_the_result_goes_on_and_there_may_be_a_batch() -> None:
    x, y = operand(0, "bik", "float32"), operand(1, "bjk", "float32")
    d = Term("Zip", "sub", x, y)
    far = Term("Map", "sqrt", Term("Sum", "k", Term("Mul", d, d)))
    assert (
        check_call(
            LOOPS, _call(far, {"b": 3, "i": 9, "j": 65, "k": 7}, ("bik", "bjk"), "float32"), np.random.default_rng(0)
        )
        is None
    )


def test_results_are_made_from_registers() -> None:
    """Of rows that are held at once and of those that are left: with what else a result reads, of its own place, of its
    row, and of its batch."""
    x, y, z, w, b = (operand(n, a, "float32") for n, a in enumerate(("bik", "bjk", "bij", "bi", "b")))
    d = Term("Zip", "sub", x, y)
    far = Term("Add", Term("Mul", Term("Map", "sqrt", Term("Sum", "k", Term("Mul", d, d))), w), Term("Add", z, b))
    orders = ("bik", "bjk", "bij", "bi", "b")
    for rows in (5, 21, 530):
        call = _call(far, {"b": 2, "i": rows, "j": 65, "k": 64}, orders, "float32")
        assert isinstance(LOOPS, NativeKernel)
        work = LOOPS.of(call)
        assert work is not None and "_done" in work.parts[0].source
        assert check_call(LOOPS, call, np.random.default_rng(0)) is None


def test_two_axes_are_folded() -> None:
    d = Term("Map", "abs", Term("Zip", "sub", operand(0, "ikl", "float32"), operand(1, "jkl", "float32")))
    call = _call(Term("Sum", "k", Term("Sum", "l", d)), {"i": 8, "j": 96, "k": 3, "l": 6}, ("ikl", "jkl"), "float32")
    assert isinstance(LOOPS, NativeKernel) and crossed(LOOPS.values(call)) is not None
    assert check_call(LOOPS, call, np.random.default_rng(0)) is None


@pytest.mark.parametrize("fold", ["sum", "max", "any"])
@pytest.mark.parametrize("rows", [1, 9, 2049])
def test_rows_are_added_to_rows(fold: str, rows: int) -> None:
    dtype = "bool" if fold == "any" else "float32"
    x = operand(0, "ij", dtype)
    meaning = Term("Sum", "i", x) if fold == "sum" else Term("Red", "max" if fold == "any" else fold, "i", x)
    calls = [_call(meaning, {"i": rows, "j": columns}, ("ij",), dtype, threads=2) for columns in (33, 5000)]
    LOOPS.prepare([(LOOPS, c) for c in calls])
    for call in calls:
        assert check_call(LOOPS, call, np.random.default_rng(0)) is None


def test_what_is_no_pair_has_no_tiles() -> None:
    sizes = {"i": 33, "j": 70, "k": 5}
    x, y, z = operand(0, "ik", "float32"), operand(1, "jk", "float32"), operand(1, "ijk", "float32")
    for meaning, orders in (
        (Term("Sum", "k", Term("Add", x, z)), ("ik", "ijk")),  # nothing is read twice
        (Term("Add", x, y), ("ik", "jk")),  # nothing is folded
        (Term("Sum", "k", x), ("ik",)),
    ):
        call = _call(meaning, sizes, orders, "float32")
        assert isinstance(LOOPS, NativeKernel) and crossed(LOOPS.values(call)) is None


def test_columns_are_added_one_at_a_time() -> None:
    """Attention whose result is wanted across: gcc 12 went on for hours over several columns that lie side by side."""
    sizes = {"q": 64, "k": 4096, "e": 8}
    x, v = operand(0, "qk", "float32"), operand(1, "ke", "float32")
    e = Term("Map", "exp", Term("Zip", "sub", x, Term("Red", "max", "k", x)))
    weights = Term("Mul", e, Term("Map", "recip", Term("Sum", "k", e)))
    views = View.dense("qk", sizes, "float32"), View.dense("ke", sizes, "float32")
    meaning = Term("Sum", "k", Term("Mul", weights, v))
    call = Call("native.products", meaning, sizes, views, View.dense("eq", sizes, "float32"))
    products = BACKEND.kernels["native.products"]
    assert products.accepts(call)
    assert check_call(products, call, np.random.default_rng(0)) is None


def test_calls_that_read_other_parts_of_a_buffer_are_the_same_work() -> None:
    """Regression: the cells of a table that is filled one by one each had their work worked out anew, 16 s of them."""
    assert isinstance(LOOPS, NativeKernel)
    x, y = (operand(n, ("i",), "float32") for n in (0, 1))

    def read(*at: int, shared: bool = False) -> Call:
        views = tuple(View(("i",), (4,), (1,), "float32", n) for n in at)
        out = View(("i",), (4,), (1,), "float32")
        return Call(LOOPS.name, Term("Add", x, y), {"i": 4}, views, out, (0, 0) if shared else ())

    of = LOOPS.of
    assert of(read(4, 8)) is of(read(12, 4)) is not of(read(0, 8))
    assert of(read(4, 8, shared=True)) is of(read(12, 16, shared=True)) is not of(read(4, 12, shared=True))
