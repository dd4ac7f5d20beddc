"""Products of matrices of which one has a few rows: loops fold each line of the other with all of them."""

from __future__ import annotations

import numpy as np
import pytest

from waxeq.backend.call import Call, View, operand
from waxeq.ir.term import Term
from waxeq.testing.conformance import check_call
from waxeq_native.loops import Loops
from waxeq_native.products import ExchangedProducts, Products


def _call(kernel: str, rows: int, lies: str, grouped: bool = False) -> Call:
    """Queries against keys; `grouped`: each head of keys is that of four heads of queries."""
    sizes = {"b": 2, "g": 12, "h": 3, "r": 4, "m": rows, "n": 50, "k": 24}
    own = "bhnk" if grouped else "bgnk"
    keys = operand(0, own, "float32")
    keys = Term("Merge", "h", "r", "g", keys) if grouped else keys
    query = operand(1, "bgmk" if rows else "bgk", "float32")
    meaning = Term("Sum", "k", Term("Mul", keys, query))
    views = (View.dense(lies.replace("g", "h") if grouped else lies, sizes, "float32"),)
    views += (View.dense("bgmk" if rows else "bgk", sizes, "float32"),)
    used = {k: sizes[k] for k in ("bgnkm" if rows else "bgnk") + ("hr" if grouped else "")}
    return Call(kernel, meaning, used, views, View.dense("bgmn" if rows else "bgn", sizes, "float32"))


@pytest.mark.parametrize(
    ("rows", "lies", "taken"),
    [(2, "bgnk", True), (7, "bgnk", True), (8, "bgnk", False), (2, "bgkn", False), (7, "bgkn", False)],
)
def test_loops_take_few_rows_where_keys_lie_along_what_is_folded(rows: int, lies: str, taken: bool) -> None:
    """4 x 64 times 1024 x 64 took 1.0 ms as a product, which turns the keys first, and takes 0.37 as loops."""
    call = _call("native.loops", rows, lies)
    assert Loops().accepts(call) is taken
    if taken:
        assert check_call(Loops(), call, np.random.default_rng(0)) is None


@pytest.mark.parametrize("kernel", [Loops, Products])
@pytest.mark.parametrize("rows", [0, 3])
def test_keys_that_queries_share_are_products(kernel: type[Loops | Products], rows: int) -> None:
    """One axis for heads of both hid the product: scores lay in memory element by element."""
    call = _call(f"native.{kernel.name}", rows, "bgnk", grouped=True)
    assert kernel().matches(call.meaning) and kernel().accepts(call) is (kernel is Products or rows == 0)
    if kernel().accepts(call):
        assert check_call(kernel(), call, np.random.default_rng(1)) is None


def _linear(kernel: str, rows: int, columns: int, depth: int, along: str, fixed: tuple[int, ...] = ()) -> Call:
    """x @ w.T for w that lies `along` the depth or the columns."""
    sizes = {"m": rows, "n": columns, "k": depth}
    meaning = Term("Sum", "k", Term("Mul", operand(0, "mk", "float32"), operand(1, along, "float32")))
    views = View.dense("mk", sizes, "float32"), View.dense(along, sizes, "float32")
    return Call(kernel, meaning, sizes, views, View.dense("mn", sizes, "float32"), fixed=fixed)


@pytest.mark.parametrize(
    ("rows", "along", "fixed", "packed"),
    [
        *((16, "nk", (), False), (32, "nk", (), False), (16, "kn", (), False)),
        *((200, "nk", (), True), (200, "kn", (), True), (16, "nk", (1,), False)),
    ],
)
def test_panels_are_a_phase_of_their_own_where_several_tiles_read_them(
    rows: int, along: str, fixed: tuple[int, ...], packed: bool
) -> None:
    """All of w was turned to panels in memory in each call, whatever read them: 16 x 1024 by 4096 took 3.8 ms, not 2.3.
    Those of weights are made when the call is bound."""
    call = _linear("native.products", rows, 1500, 520, along, fixed)
    assert Products().accepts(call)
    assert (Products().workspace(call) >= 1500 * 520 * 4) is packed
    assert len(Products().of(call).packs) == len(fixed)
    assert check_call(Products(), call, np.random.default_rng(2)) is None


@pytest.mark.parametrize(
    ("rows", "columns", "along", "fixed", "taken"),
    [
        *((16, 40, "nk", (), True), (100, 333, "nk", (), True), (15, 40, "nk", (), False), (32, 40, "nk", (), False)),
        *((32, 300, "kn", (), False), (32, 300, "nk", (1,), False)),
    ],
)
def test_sides_are_exchanged_where_many_columns_lie_along_the_depth(
    rows: int, columns: int, along: str, fixed: tuple[int, ...], taken: bool
) -> None:
    call = _linear("native.products_exchanged", rows, columns, 70, along, fixed)
    assert ExchangedProducts().accepts(call) is taken
    if taken:
        assert check_call(ExchangedProducts(), call, np.random.default_rng(3)) is None
