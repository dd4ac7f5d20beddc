"""Means: of equal numbers they are these, whatever loops are made of them."""

from __future__ import annotations

import numpy as np
import pytest

from waxeq.backend.call import Call, View, operand
from waxeq.ir.term import Term
from waxeq.testing.conformance import check_call
from waxeq_cfamily.means import means
from waxeq_native.loops import FastLoops, Loops, NarrowLoops, Streaming

COUNTS = (40, 41, 47, 61, 384, 768)
"""Times one by as many, rounded, some of these are 1 and some are not."""


def _scaled(many: int, axis: str, dtype: str, scale: float | None = None) -> Term:
    scale = float(np.dtype(dtype).type(1) / np.dtype(dtype).type(many)) if scale is None else scale
    return Term("Mul", Term("Num", scale, dtype), Term("Sum", axis, operand(0, "ab", dtype)))


def _call(meaning: Term, kernel: str, sizes: dict[str, int], dtype: str) -> Call:
    x = View.dense("ab", sizes, dtype)
    return Call(f"native.{kernel}", meaning, sizes, (x,), View.dense("ab", sizes, dtype))


def _centred(many: int, axis: str, kernel: str, dtype: str) -> Call:
    sizes = {"a": many, "b": 60} if axis == "a" else {"a": 60, "b": many}
    return _call(Term("Zip", "sub", operand(0, "ab", dtype), _scaled(many, axis, dtype)), kernel, sizes, dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("axis", "ab")
@pytest.mark.parametrize("kind", [Loops, FastLoops, NarrowLoops, Streaming])
def test_nothing_is_left_of_equal_numbers_less_their_mean(kind: type[Loops], axis: str, dtype: str) -> None:
    """A constant column of 40 ones left -1.5e-8 in the last 12 of 60, and divided by its deviation -1."""
    kernel = kind()
    calls = [c for c in (_centred(n, axis, kind.name, dtype) for n in COUNTS) if kernel.accepts(c)]
    assert calls
    kernel.prepare([(kernel, c) for c in calls])
    for call in calls:
        for value in (1, 3, 7, 100):
            x, out = np.full(tuple(call.sizes.values()), value, dtype), np.full(tuple(call.sizes.values()), 9, dtype)
            for step in kernel.bind(call, [x], out, np.empty(kernel.workspace(call), np.uint8)):
                step()
            assert not out.any(), (call.sizes, value, np.unique(out))
        assert check_call(kernel, call, np.random.default_rng(0)) is None


@pytest.mark.parametrize(
    ("many", "scale", "divided"),
    [(40, None, True), (41, None, True), (64, None, False), (40, 0.026, False), (41, 1 / 40, False), (1, 1.0, False)],
)
def test_only_means_are_divided(many: int, scale: float | None, divided: bool) -> None:
    values = Loops().values(_call(_scaled(many, "a", "float32", scale), "loops", {"a": many, "b": 8}, "float32"))
    found = means(values)
    assert any(r.name == "div" for r in found.rows if r.op == "apply") is divided
    assert divided or found is values


def test_means_of_means_are_divided_by_both() -> None:
    x = operand(0, "ab", "float32")
    meaning = Term(
        "Mul", Term("Sum", "a", Term("Sum", "b", x)), Term("Num", float(np.float32(1) / np.float32(15)), "float32")
    )
    view = View.dense("ab", {"a": 3, "b": 5}, "float32")
    call = Call("native.loops", meaning, {"a": 3, "b": 5}, (view,), View.dense("", {}, "float32"))
    assert "15.0" in {r.name for r in means(Loops().values(call)).rows if r.op == "number"}
