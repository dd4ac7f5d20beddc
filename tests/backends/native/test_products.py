"""How products of matrices are walked: tiles that several products share, and long rows of scores in blocks."""

from __future__ import annotations

import numpy as np
import pytest

from waxeq.backend.call import Call, View, operand
from waxeq.ir.term import Term
from waxeq.testing.conformance import check_call
from waxeq_cfamily.online import Blocks
from waxeq_native.products import Products

KERNEL = Products()


def _number(x: float) -> Term:
    return Term("Num", x, "float32")


def _gated(rows: int, columns: int, depth: int, threads: int) -> Call:
    """silu(x w1) * (x w2)."""
    sizes = {"m": rows, "n": columns, "k": depth}
    x, w, out = (View.dense(axes, sizes, "float32") for axes in ("mk", "kn", "mn"))
    gate, up = (Term("Sum", "k", Term("Mul", operand(0, "mk", "float32"), operand(i, "kn", "float32"))) for i in (1, 2))
    below = Term("Add", _number(1.0), Term("Map", "exp", Term("Mul", _number(-1.0), gate)))
    meaning = Term("Mul", Term("Mul", gate, Term("Map", "recip", below)), up)
    return Call("native.products", meaning, sizes, (x, w, w), out, fixed=(1, 2), threads=threads)


@pytest.mark.parametrize(("rows", "columns", "threads"), [(3, 1100, 1), (70, 200, 2), (29, 97, 2)])
def test_products_of_the_same_columns_share_tiles(rows: int, columns: int, threads: int) -> None:
    c = _gated(rows, columns, 40, threads)
    work = KERNEL.of(c)
    assert work is not None and work.parts[-1].tasks > 1, "one tile has all columns"
    assert check_call(KERNEL, c, np.random.default_rng(0)) is None


def test_packed_weights_begin_with_a_cache_line() -> None:
    """They lay at any 16 bytes, as malloc gives: where vectors crossed lines, convolutions took 4 % longer."""
    work = KERNEL.of(_gated(128, 64, 64, 1))
    assert work is not None and work.packs
    weights = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
    made = [p.made(weights) for p in work.packs for _ in range(8)]  # all kept: each lies elsewhere
    assert {a.ctypes.data % 64 for a in made} == {0}
    assert all(np.array_equal(np.sort(a), weights.ravel()) for a in made)


def test_tiles_leave_a_share_to_every_thread() -> None:
    tasks = {n: KERNEL.of(_gated(128, 768, 64, n)).parts[-1].tasks for n in (1, 2, 4)}  # type: ignore[union-attr]
    assert tasks[1] == 2 and all(tasks[n] >= 2 * n for n in (2, 4))


@pytest.mark.parametrize(
    ("rows", "columns", "threads", "tile"),
    [
        *((128, 1024, 1, (64, 1024)), (197, 1024, 1, (50, 1024)), (100, 768, 2, (50, 256))),
        (64, 1024, 2, (64, 128)),
    ],
)
def test_tiles_are_about_as_large(rows: int, columns: int, threads: int, tile: tuple[int, int]) -> None:
    """A last tile of five rows of 197 read all columns once more, and of six tiles of 192 of 1024 columns one had 64: a
    thread of two had 9 of 16 parts."""
    values, products = KERNEL._arranged(_gated(rows, columns, 64, threads))
    assert products is not None
    made = KERNEL.tile(values, products[-1:], threads)
    assert (made.rows, made.columns) == tile


def _attention(rows: int, keys: int) -> Call:
    sizes = {"m": rows, "d": 8, "n": keys, "e": 8}
    views = tuple(View.dense(axes, sizes, "float32") for axes in ("md", "nd", "ne", "me"))
    s = Term("Sum", "d", Term("Mul", operand(0, "md", "float32"), operand(1, "nd", "float32")))
    e = Term("Map", "exp", Term("Zip", "sub", s, Term("Red", "max", "n", s)))
    share = Term("Mul", e, Term("Map", "recip", Term("Sum", "n", e)))
    meaning = Term("Sum", "n", Term("Mul", share, operand(2, "ne", "float32")))
    return Call("native.products", meaning, sizes, views[:3], views[3])


def test_long_rows_of_scores_are_taken_in_blocks() -> None:
    """Where scores of many keys leave few rows to a tile, each tile would read all keys."""
    blocks = {}

    class Watched(Products):
        def written(self, call, s):  # type: ignore[no-untyped-def]
            blocks[call.sizes["m"]] = isinstance(s, Blocks)
            return super().written(call, s)

    for rows in (9, 40):
        assert Watched().work(_attention(rows, 4096)) is not None
    assert blocks == {9: False, 40: True}
    assert check_call(KERNEL, _attention(40, 4096), np.random.default_rng(0)) is None
