"""Which of the ways to read its operands a call is tried with."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from waxeq.backend.call import View, operand
from waxeq.events import Events
from waxeq.extract.candidates import Candidate, Space, State, not_in_itself
from waxeq.extract.picks import Loops, picks
from waxeq.frontend.trace import trace
from waxeq.ir.blocks import cut
from waxeq.ir.graph import expand
from waxeq.ir.term import Term
from waxeq.options import Options
from waxeq.search import block as blocks_search
from waxeq.search.session import Session

SIZES = {"i": 512, "j": 512, "k": 4}


def column(axis: str, step: int) -> View:
    return View((axis,), (512,), (step,), "float32")


def between(i: View, j: View) -> Term:
    return Term("Add", operand(0, i.axes, "float32"), operand(1, j.axes, "float32"))


def test_apart_is_what_the_innermost_loop_reads_again_and_again() -> None:
    loops = Loops.of(between(column("i", 1), column("j", 1)), ("i", "j"), SIZES)
    assert loops.apart(column("j", 4))
    assert not loops.apart(column("j", 1))
    assert not loops.apart(column("i", 4)), "a number for the innermost loop"
    assert not loops.apart(View(("i", "j"), (512, 512), (1024, 2), "float32")), "read once"
    few = Loops.of(between(column("i", 1), column("j", 1)), ("i", "j"), {"i": 64, "j": 64})
    assert not few.apart(View(("j",), (64,), (4,), "float32")), "less than the start of a copy"


def test_a_place_that_is_taken_is_no_axis_of_the_loops() -> None:
    rows = Term("Gather", "k", Term("Num", 2.0, "int64"), operand(0, ("j", "k"), "float32"))
    loops = Loops.of(Term("Add", rows, operand(1, ("i",), "float32")), ("i", "j"), SIZES)
    assert loops.apart(View(("j", "k"), (512, 4), (4, 1), "float32"))
    assert loops.nearer(("j", "k")) == ("k", "j")
    assert not loops.apart(View(("k", "j"), (4, 512), (512, 1), "float32"))


def test_all_operands_that_are_read_apart_are_copied_or_none() -> None:
    loops = Loops.of(between(column("i", 1), column("j", 1)), ("i", "j"), SIZES)
    ways = [[(f"seen {n}", column("j", 4)), (f"copied {n}", column("j", 1))] for n in range(5)]
    near = tuple((f"copied {n}", column("j", 1)) for n in range(5))
    assert list(picks(ways, ("i", "j"), loops, both=False)) == [near]
    assert list(picks(ways, ("i", "j"), loops, both=True)) == [tuple(o[0] for o in ways), near]


def test_what_cannot_be_read_nearer_is_read_as_it_lies() -> None:
    loops = Loops.of(between(column("i", 1), column("j", 1)), ("i", "j"), SIZES)
    seen = [("seen", column("j", 4))]
    assert list(picks([seen], ("i", "j"), loops, both=False)) == [tuple(seen)]


def overlaps(b):
    """Boxes beside boxes: n^2 pairs of n rows of four numbers."""
    x0, y0, x1, y1 = b[:, 0], b[:, 1], b[:, 2], b[:, 3]
    width = np.minimum(x1[:, None], x1) - np.maximum(x0[:, None], x0)
    height = np.minimum(y1[:, None], y1) - np.maximum(y0[:, None], y0)
    return np.maximum(width, 0) * np.maximum(height, 0)


def pairs(b):
    """The same of boxes whose two corners are taken together, and what each has of most others."""
    low, high = np.maximum(b[:, None, :2], b[None, :, :2]), np.minimum(b[:, None, 2:], b[None, :, 2:])
    inside = np.clip(high - low, 0, None)
    return (inside[..., 0] * inside[..., 1]).max(1)


def test_columns_of_rows_are_copied_where_loops_read_them_again_and_again(tmp_path: Path) -> None:
    """They were read from rows of four in n^2 loops, which took twice as long: of six operands only the last three were
    tried otherwise."""
    for fn in (overlaps, pairs):
        rows = _of_results(fn, {"b": np.ones((1000, 4), np.float32)}, tmp_path)
        assert rows
        for c, space in rows:
            loops = Loops.of(c.call.meaning, c.out.order, dict(space.snapshot.sizes))
            assert not any(loops.apart(v) for v in c.call.operands), c.call.operands


def test_what_is_put_together_is_read_as_it_is_made_too() -> None:
    """Regression: two of three pieces were read out of all of them put together, which is made of these two, in each of
    the eight ways that are tried; where nothing else was grown for want of time, the model was planned as written."""
    outer, inner, parts = 19, 14, (7, 13)
    view = column("i", 1)
    ways = [[(State(n, ("i",)), view) for n in (outer, inner, own)] for own in parts]
    loops = Loops.of(between(view, view), ("i",), SIZES)
    found = list(not_in_itself(inner, parts, ways, ("i",), loops, both=False))
    numbers = [tuple(s.number for s, _ in pick) for pick in found]
    assert parts in numbers and not any(inner in row for row in numbers)
    many = [[(State(n, ("i",)), view) for n in (outer, inner, own)] for own in range(4)]
    most = [tuple(s.number for s, _ in p) for p in not_in_itself(inner, range(4), many, ("i",), loops, both=False)]
    assert (0, 1, 2, 3) in most


def _of_results(fn, arguments, folder: Path) -> list[tuple[Candidate, Space]]:
    """The loops that make the results of a function on the processor."""
    (block,) = cut(expand(trace(fn, arguments).graph))
    options = Options.of(table=folder / "t.duckdb", threads=1, measure=False, backends=("numpy", "native"))
    with Session.open(options, Events()) as session:
        at = blocks_search.saturated(session, block)
        space, roots = blocks_search.make_space(session.kernels, at.lowered, at.saturation.snapshot)
    rows = blocks_search.grow(space, roots).rows
    return [(c, space) for c in rows if c.out in roots and c.call.kernel == "native.loops"]
