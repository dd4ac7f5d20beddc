"""What depends on weights alone is computed once: in float64, in pieces, and once for all programs that need it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import waxeq as wx
from waxeq.basis.evaluate import Evaluator, Ideal, NamedArray
from waxeq.ir.term import Term
from waxeq.plan.plan import Fold
from waxeq.runtime import bound
from waxeq.runtime.bound import fold
from waxeq.runtime.program import Program

SIZES = {"i": 300, "j": 900}


def _par(name: str, axes: str) -> Term:
    return Term("Par", name, frozenset(axes), "float32")


@pytest.mark.parametrize("order", ["ij", "ji"])
def test_a_fold_in_pieces_is_the_fold(order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a weight that lies transposed, one that lacks an axis and one that is lacked by all others."""
    rng = np.random.default_rng(0)
    tensors = {"w": rng.standard_normal((900, 300), np.float32), "g": rng.standard_normal(300).astype(np.float32)}
    leaves = {"w": ("j", "i"), "g": ("i",)}
    term = Term("Mul", Term("Map", "exp", _par("g", "i")), Term("Add", _par("w", "ij"), Term("Num", 1e-8, "float32")))
    f = Fold("f", term, SIZES, tuple(order), "float32", leaves)
    want = (np.exp(tensors["g"].astype(np.float64)) * (tensors["w"] + np.float64(np.float32(1e-8)))).astype(np.float32)
    for piece in (100, 1000, 1 << 18):
        monkeypatch.setattr(bound, "_PIECE", piece)
        assert np.array_equal(fold(f, tensors), (want.T if order == "ij" else want).reshape(-1))


def test_what_lies_across_is_folded_in_squares(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: in rows each line of memory was read for 32 of its bytes, and again for the next: twice the time."""
    w = np.random.default_rng(0).standard_normal((900, 3, 300)).astype(np.float32)
    f = Fold("f", _par("w", "ihj"), {**SIZES, "h": 3}, ("i", "h", "j"), "float32", {"w": ("j", "h", "i")})
    monkeypatch.setattr(bound, "_PIECE", 3 * 100**2)
    parts = [tuple(p.stop - p.start for p in parts.values()) for parts in bound._pieces(f)]
    assert set(parts) == {(100, 100)} and len(parts) == 27
    assert np.array_equal(fold(f, {"w": w}), w.transpose(2, 1, 0).reshape(-1))
    along = Fold("f", _par("w", "jhi"), {**SIZES, "h": 3}, ("j", "h", "i"), "float32", {"w": ("j", "h", "i")})
    assert all(p["i"] == slice(0, 300) for p in bound._pieces(along))


def test_a_fold_of_what_lacks_its_first_axis_is_repeated() -> None:
    g = np.arange(300, dtype=np.float32)
    got = fold(Fold("f", _par("g", "i"), SIZES, ("j", "i"), "float32", {"g": ("i",)}), {"g": g})
    assert np.array_equal(got, np.tile(g, 900))


def _sum(k: str, x: Term) -> Term:
    return Term("Sum", k, x)


def _mul(x: Term, y: Term) -> Term:
    return Term("Mul", x, y)


A, B, G = _par("a", "bik"), _par("b", "bkj"), _par("g", "i")
PRODUCTS = {
    "matrices": _sum("k", _mul(A, B)),
    "what is summed stays": _mul(_sum("k", _mul(A, B)), _sum("k", _mul(A, B))),
    "a product that is read twice": Term("Add", _sum("k", _mul(A, B)), _sum("i", _mul(A, B))),
    "one side lacks the axis": _sum("k", _mul(A, G)),
    "both sides lack it": _sum("k", _mul(G, G)),
    "over a batch": _sum("b", _sum("k", _mul(A, B))),
    "a function of a product": _sum("k", Term("Map", "exp", _mul(A, B))),
    "whole numbers": _sum("i", _mul(Term("Iota", "i", "int64"), Term("Iota", "i", "int64"))),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_sums_of_products_are_made_without_the_products(name: str) -> None:
    rng, term = np.random.default_rng(0), PRODUCTS[name]
    sizes = {"b": 3, "i": 5, "k": 40, "j": 7}
    drawn = {n: rng.standard_normal([sizes[k] for k in axes]) for n, axes in (("a", "bik"), ("b", "bkj"), ("g", "i"))}
    drawn["a"][0, 0, :2], drawn["b"][0, 1, 0] = (np.inf, np.nan), 0.0
    leaves = {n: NamedArray(axes, drawn[n]) for n, axes in (("a", tuple("bik")), ("b", tuple("bkj")), ("g", ("i",)))}
    got, want = (Evaluator(sizes, Ideal(), contracts=c).term(term, leaves) for c in (True, False))
    assert set(got.axes) == set(want.axes) and got.data.dtype == want.data.dtype
    np.testing.assert_allclose(got.aligned(want.axes), want.data, rtol=1e-12)


def test_no_product_is_kept_that_one_sum_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of weights of a few megabytes it would have gigabytes."""
    asked = list[str]()
    monkeypatch.setattr(Evaluator, "_mul", lambda *_: asked.append("product"))
    a, b = np.ones((1000, 800), np.float32), np.ones((800, 900), np.float32)
    term = _sum("k", _mul(_par("a", "ik"), _par("b", "kj")))
    sizes = {"i": 1000, "k": 800, "j": 900}
    got = fold(Fold("f", term, sizes, ("i", "j"), "float32", {"a": ("i", "k"), "b": ("k", "j")}), {"a": a, "b": b})
    assert not asked and np.array_equal(got, np.full(900_000, 800, np.float32))


def test_living_programs_share_what_they_fold(tmp_path: Path) -> None:
    w = np.ones((40, 30), np.float32)
    options = wx.Options.of(table=tmp_path / "t.duckdb", trial=False, budget=0, threads=1)
    found = wx.optimize(lambda x, w: x @ np.exp(w).T, np.ones((5, 30), np.float32), w, weights=["w"], options=options)
    one, two = (Program(found.plan, found.kernels, found.tensors) for _ in range(2))
    other = Program(found.plan, found.kernels, {**found.tensors, "w": w + 1})
    (a,), (b,), (c,) = (p.folded.values() for p in (one, two, other))
    assert np.shares_memory(a, b) and not np.shares_memory(a, c) and not np.array_equal(a, c)


def test_weights_that_were_written_to_are_folded_anew(tmp_path: Path) -> None:
    """In place, while another program that folded them before lives."""
    w = np.ones((40, 30), np.float32)
    options = wx.Options.of(table=tmp_path / "t.duckdb", trial=False, budget=0, threads=1)
    found = wx.optimize(lambda x, w: x @ np.exp(w).T, np.ones((5, 30), np.float32), w, weights=["w"], options=options)
    one = Program(found.plan, found.kernels, found.tensors)
    w *= 2
    two = Program(found.plan, found.kernels, found.tensors)
    ((a,), (b,)) = (p.folded.values() for p in (one, two))
    assert np.allclose(a, np.exp(1.0)) and np.allclose(b, np.exp(2.0))


@pytest.mark.parametrize("size", [(3, 0), (0, 3), (0, 0), (1, 1)])
@pytest.mark.parametrize("order", ["ij", "ji"])
def test_weights_without_elements_fold_to_none(order: str, size: tuple[int, int]) -> None:
    """Regression: a last axis of no elements was cut in pieces of none, a ValueError."""
    w = np.ones(size, np.float32)
    f = Fold("f", _par("w", "ij"), dict(zip("ij", size, strict=True)), tuple(order), "float32", {"w": ("i", "j")})
    assert fold(f, {"w": w}).shape == (w.size,)
