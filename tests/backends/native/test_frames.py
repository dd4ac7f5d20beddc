"""Buffers of generated kernels lie on the stack of whoever calls them: no frame comes near its size."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import pytest

from waxeq.backend.call import Call, View, operand
from waxeq.backend.discover import backends
from waxeq.ir.term import Term
from waxeq_native.work import NativeKernel

(BACKEND,) = backends(["native"])
KERNELS = [k for k in BACKEND.kernels.values() if isinstance(k, NativeKernel)]
STACK = 8 << 20
ITEMS = {"float": 4, "double": 8, "char": 1, "int32_t": 4, "int64_t": 8}


def _softmax(x: Term, k: str) -> Term:
    e = Term("Map", "exp", Term("Zip", "sub", x, Term("Red", "max", k, x)))
    return Term("Mul", e, Term("Map", "recip", Term("Sum", k, e)))


def _calls(keys: int, dtype: str) -> Iterator[Call]:
    """Attention over so many keys, whole and from its scores; a product of long rows with a norm before it."""
    sizes = {"q": 6001, "k": keys, "d": 64, "e": 64}
    s, q = operand(0, "qk", dtype), operand(0, "qd", dtype)
    scores = Term("Sum", "d", Term("Mul", q, operand(1, "kd", dtype)))
    squares = Term("Sum", "k", Term("Mul", s, s))
    normed = Term("Mul", s, Term("Map", "rsqrt", squares))

    def call(meaning: Term, *orders: str) -> Call:
        views = tuple(View.dense(o, sizes, dtype) for o in orders)
        return Call("native.products", meaning, sizes, views, View.dense("qe", sizes, dtype), threads=2)

    yield call(Term("Sum", "k", Term("Mul", _softmax(s, "k"), operand(1, "ke", dtype))), "qk", "ke")
    yield call(Term("Sum", "k", Term("Mul", _softmax(scores, "k"), operand(2, "ke", dtype))), "qd", "kd", "ke")
    yield call(Term("Sum", "k", Term("Mul", normed, operand(1, "ke", dtype))), "qk", "ke")


def _frame(text: str) -> int:
    """Bytes of the arrays that a function declares."""
    found = re.findall(r"WX_ALIGNED (\w+) ([^;]+);", text)
    arrays = [(t, sizes) for t, names in found for sizes in re.findall(r"\w+((?:\[\d+\])+)", names)]
    return sum(ITEMS[t] * math.prod(int(n) for n in re.findall(r"\d+", sizes)) for t, sizes in arrays)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.name)
def test_frames_are_a_part_of_the_stack(kernel: NativeKernel) -> None:
    """A tile of BLAS's rows against 6,001 keys was 8.6 MB, and took the caller's process down."""
    for keys in (1000, 4001, 6001, 100_000):
        for dtype in ("float32", "float64"):
            for c in _calls(keys, dtype):
                w = kernel.work(c)
                for part in () if w is None else w.parts:
                    assert _frame(part.source) <= STACK // 3, (keys, dtype, c.text)


def test_long_attention_has_a_kernel() -> None:
    rows = list(_calls(6001, "float32"))
    accepted = {k.name for k in KERNELS for c in rows[:2] if k.accepts(c)}
    assert {"products", "products_online"} <= accepted
