"""Products of matrices of which one has a few rows: loops fold each line of the other with all of them."""

from __future__ import annotations

import numpy as np
import pytest

from waxeq.backend.call import Call, View, operand
from waxeq.ir.term import Term
from waxeq.testing.conformance import check_call
from waxeq_native.loops import Loops
from waxeq_native.products import Products


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
