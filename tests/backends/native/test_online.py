"""Attention by blocks of keys: an axis that is folded by an online softmax, whatever lies between the products."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from waxeq.backend.call import Call, View, operand
from waxeq.basis.typing import types
from waxeq.ir.term import Term
from waxeq.testing.conformance import check_call
from waxeq_cfamily.online import online
from waxeq_native.products import OnlineProducts, Products

ONLINE, USUAL = OnlineProducts(), Products()

ODD = {"h": 3, "m": 37, "n": 301, "d": 5, "e": 17}
EVEN = {"h": 2, "m": 70, "n": 512, "d": 16, "e": 32}
ONE_ROW = {"h": 2, "m": 1, "n": 1000, "d": 8, "e": 8}


def _leaves(dtype: str) -> tuple[Term, Term, Term]:
    q, k, v = operand(0, "hmd", dtype), operand(1, "hnd", dtype), operand(2, "hne", dtype)
    return Term("Sum", "d", Term("Mul", q, k)), v, operand(3, "mn", dtype)


def _scores(kind: str, dtype: str) -> Term:
    """q k with what may lie between it and the softmax."""
    s, _, bias = _leaves(dtype)
    s = Term("Mul", s, Term("Num", 0.25, dtype))
    if kind == "causal":
        seen = Term("Zip", "le", Term("Iota", "n", "int64"), Term("Iota", "m", "int64"))
        return Term("Select", seen, s, Term("Num", -math.inf, dtype))
    if kind == "bounded":
        return Term("Mul", Term("Map", "tanh", Term("Mul", s, Term("Num", 0.02, dtype))), Term("Num", 50.0, dtype))
    return Term("Add", s, bias) if kind == "bias" else s


def _attention(s: Term, dtype: str, form: str = "whole") -> Term:
    _, v, _ = _leaves(dtype)
    e = Term("Map", "exp", Term("Zip", "sub", s, Term("Red", "max", "n", s)))
    z = Term("Sum", "n", e)
    if form == "whole":
        return Term("Sum", "n", Term("Mul", Term("Zip", "div", e, z), v))
    if form == "factor":
        return Term("Sum", "n", Term("Mul", v, Term("Mul", e, Term("Map", "recip", z))))
    return Term("Zip", "div", Term("Sum", "n", Term("Mul", e, v)), z)


def _call(meaning: Term, sizes: dict[str, int], dtype: str = "float32", fixed: tuple[int, ...] = ()) -> Call:
    axes = ("hmd", "hnd", "hne", "mn")
    used = max(int(t.args[0][1:]) for t in types(meaning) if t.head == "In") + 1
    views = tuple(View.dense(a, sizes, dtype) for a in axes[:used])
    kind = types(meaning)[meaning]
    out = View.dense(sorted(kind.axes, key="hmne".index), sizes, kind.dtype)
    within = {k: n for k, n in sizes.items() if any(k in x.axes for x in types(meaning).values())}
    return Call("native.products_online", meaning, within, views, out, fixed=fixed, threads=2)


CALLS = [
    _call(_attention(_scores("plain", "float32"), "float32"), EVEN, fixed=(1, 2)),
    _call(_attention(_scores("plain", "float64"), "float64", "factor"), EVEN, "float64"),
    _call(_attention(_scores("bias", "float32"), "float32", "after"), ODD),
    _call(_attention(_scores("causal", "float32"), "float32"), ODD),
    _call(_attention(_scores("causal", "float64"), "float64"), {**ODD, "m": 301}, "float64"),
    _call(_attention(_scores("bounded", "float32"), "float32", "factor"), ODD),
    _call(_attention(_scores("bias", "float64"), "float64"), ONE_ROW, "float64"),
]


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    ONLINE.prepare([(ONLINE, c) for c in CALLS])


@pytest.mark.parametrize("c", CALLS, ids=range(len(CALLS)))
def test_blocks_compute_what_is_meant(c: Call) -> None:
    assert ONLINE.accepts(c) and USUAL.accepts(c) and ONLINE.differs(c)
    for seed in range(4):  # each has other operands, some of them of zeros, infinities or NaN
        assert check_call(ONLINE, c, np.random.default_rng(seed)) is None


def _run(c: Call, *operands: np.ndarray) -> np.ndarray:
    out = np.empty(c.out.shape, operands[0].dtype)
    for step in ONLINE.bind(c, operands, out, np.empty(ONLINE.workspace(c), np.uint8)):
        step()
    return out


@np.errstate(all="ignore")
def test_masked_rows_and_nan_are_as_they_are_meant() -> None:
    """A first block that is masked, a last one, all of a row, NaN and infinities among the scores and the values."""
    c = CALLS[2]
    rng = np.random.default_rng(0)
    q, k, v, bias = (rng.standard_normal(x.shape).astype(np.float32) for x in c.operands)
    bias[0, :200], bias[1, 100:], bias[2], bias[3, 7] = -np.inf, -np.inf, -np.inf, np.nan
    bias[4, 299], bias[5, 0], bias[6, :-1], bias[7] = np.nan, np.inf, -np.inf, -np.finfo(np.float32).max
    bias[8, :] = np.linspace(-300, 300, 301)
    bias[9, :] = np.linspace(300, -300, 301)
    v[1, 5, 3], v[2, 300, 2] = np.nan, np.inf
    got = _run(c, q, k, v, bias)
    s = np.einsum("hmd,hnd->hmn", q.astype(np.float64), k) * 0.25 + bias
    s[:, 7] = bias[7]  # in float32 nothing is left beside it
    e = np.exp(s - s.max(-1, keepdims=True))
    want = np.einsum("hmn,hne->hme", e / e.sum(-1, keepdims=True), v.astype(np.float64))
    plain = np.ones(want.shape, bool)
    plain[1, :, 3] = plain[2, :, 2] = False  # 0 * inf, in one order of summing or the other
    assert np.array_equal(np.isnan(got)[plain], np.isnan(want)[plain])
    assert np.isnan(got[:, 2]).all() and np.isfinite(got[:, 0][:, :2]).all() and np.isnan(got[1, 10:, 3]).all()
    np.testing.assert_allclose(got[plain], want[plain], rtol=2e-5, atol=2e-6)


def test_no_buffer_holds_the_scores() -> None:
    """Long sequences have a fused kernel whose memory does not grow with their square; `native.products` takes them in
    blocks by itself."""
    sizes = {"h": 2, "m": 65536, "n": 65536, "d": 64, "e": 64}
    c = _call(_attention(_scores("causal", "float32"), "float32"), sizes)
    work = USUAL.of(c)
    assert work is not None and not ONLINE.differs(c)
    buffers = [int(n) for n in re.findall(r"WX_ALIGNED \w+ \w+\[(\d+)\];", work.parts[-1].text)]
    assert buffers and 4 * sum(buffers) <= 2 << 20, "what lies on the stack"
    assert work.workspace <= c.operands[1].bytes + c.operands[2].bytes, "keys and values in panels"


def test_usual_products_take_long_rows_in_blocks() -> None:
    c = _call(_attention(_scores("plain", "float32"), "float32"), {"h": 1, "m": 9, "n": 40_001, "d": 8, "e": 8})
    assert USUAL.accepts(c) and not ONLINE.differs(c)
    assert check_call(USUAL, c, np.random.default_rng(0)) is None


def test_what_cannot_be_rescaled_is_not_taken() -> None:
    s, v, _ = _leaves("float32")
    top = Term("Red", "max", "n", s)
    e = Term("Map", "exp", Term("Zip", "sub", s, top))
    z, one = Term("Sum", "n", e), Term("Num", 1.0, "float32")
    p = Term("Zip", "div", e, z)

    def with_values(x: Term) -> Term:
        return Term("Sum", "n", Term("Mul", x, v))

    refused = {
        "no maximum": with_values(Term("Map", "exp", s)),
        "another function": with_values(Term("Map", "tanh", Term("Zip", "sub", s, top))),
        "an affine one": with_values(Term("Add", e, one)),
        "a square": Term("Zip", "div", with_values(Term("Mul", e, e)), z),
        "a function of the whole sum": with_values(Term("Map", "tanh", p)),
        "another maximum": with_values(Term("Map", "exp", Term("Zip", "sub", s, Term("Red", "max", "n", p)))),
        "a maximum of multiples": Term("Zip", "div", with_values(e), Term("Red", "max", "n", e)),
        "the scores as well": Term("Mul", p, s),
    }
    for why, meaning in refused.items():
        c = _call(meaning, ODD)
        assert online(ONLINE.values(c)) is None, why
        assert not ONLINE.accepts(c), why


def test_axes_of_one_block_are_left_to_the_usual_walk() -> None:
    c = _call(_attention(_scores("plain", "float32"), "float32"), {**ODD, "n": 8})
    assert USUAL.accepts(c) and not ONLINE.accepts(c)


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_what_is_turned_is_added_to_block_by_block(rows: int) -> None:
    """A result that lies across its rows went through memory that a product was added to, and nothing had set."""
    q, k, v = operand(0, "km", "float32"), operand(1, "kn", "float32"), operand(2, "dn", "float32")
    s = Term("Sum", "k", Term("Mul", q, k))
    e = Term("Map", "exp", Term("Zip", "sub", s, Term("Red", "max", "n", s)))
    meaning = Term("Zip", "div", Term("Sum", "n", Term("Mul", v, e)), Term("Sum", "n", e))
    calls = list[Call]()
    for n, d in ((33, 8), (300, 16), (65, 3)):
        sizes = {"m": rows, "n": n, "k": 16, "d": d}
        alike = View(("m", "k"), (rows, 16), (16, 0), "float32", 0)
        for first in (alike, View.dense("mk", sizes, "float32")):
            views = first, View.dense("kn", sizes, "float32"), View.dense("dn", sizes, "float32")
            calls.append(Call("native.products_online", meaning, sizes, views, View.dense("dm", sizes, "float32")))
    taken = [c for c in calls if ONLINE.accepts(c)]
    ONLINE.prepare([(ONLINE, c) for c in taken])
    for call in taken:
        for seed in range(3):
            assert check_call(ONLINE, call, np.random.default_rng(seed)) is None, call.sizes
