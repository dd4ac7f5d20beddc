"""Loops inside a border go in vectors that begin with lines of the result."""

from __future__ import annotations

import numpy as np
import pytest

from waxeq.backend.call import Call, View, operand
from waxeq.ir.term import Term
from waxeq.testing.conformance import check_call
from waxeq_native.loops import Loops


def bordered(rows: int, columns: int, border: int, dtype: str = "float32") -> Call:
    """The sum of neighbours in a row, with zeros around."""
    x = operand(0, "ij", dtype)
    inside = columns - 2 * border
    sides = [Term("Slice", "j", "b", at, 1, x) for at in (0, border, 2 * border)]
    total = Term("Add", Term("Add", sides[0], sides[1]), sides[2])
    view = View.dense("ij", {"i": rows, "j": columns}, dtype)
    meaning = Term("Pad", "b", "j", border, 0.0, total)
    return Call("native.loops", meaning, {"i": rows, "j": columns, "b": inside}, (view,), view)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "float16"])
@pytest.mark.parametrize("columns, border", [(34, 1), (96, 1), (97, 3), (130, 1), (500, 2), (300, 16)])
def test_borders_of_all_widths(columns: int, border: int, dtype: str) -> None:
    assert check_call(Loops(), bordered(7, columns, border, dtype), np.random.default_rng(0)) is None


def test_vectors_begin_with_lines_inside_a_border() -> None:
    """All of them lay across two lines, and the last elements of a row were single ones: two thirds of the time of a
    step of heat in a cube of 96^3 is what is left."""
    (part,) = Loops().work(bordered(7, 96, 1)).parts  # type: ignore[union-attr]
    assert "_at & -16) + 16;" in part.source
    (part,) = Loops().work(bordered(7, 96, 16)).parts  # type: ignore[union-attr]
    assert "_at" not in part.source
