"""Meanings that are loops one after another: which loops, what of earlier ones they read, what is refused."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from waxeq.backend.call import View, operand
from waxeq.ir.term import Term
from waxeq_cfamily.abreast import abreast
from waxeq_cfamily.sweeps import Sweep, cut, reach, shifted, sweeps
from waxeq_cfamily.values import Unsupported
from waxeq_cfamily.walks import Walk

pytestmark = pytest.mark.quick

X = operand(0, "ij", "float32")
SIZES = {"i": 40, "j": 300, "a": 38, "b": 298, "c": 36, "d": 296, "e": 40, "k": 34}


def seen(x: Term, rows: int, columns: int, old: str = "ij", new: str = "ab") -> Term:
    return Term("Slice", old[1], new[1], columns, 1, Term("Slice", old[0], new[0], rows, 1, x))


def cross(x: Term, old: str = "ij", new: str = "ab") -> Term:
    """The sum of the four neighbours."""
    up, down, left, right = (seen(x, *at, old, new) for at in ((0, 1), (2, 1), (1, 0), (1, 2)))
    return Term("Add", Term("Add", Term("Add", up, down), left), right)


def bordered(x: Term) -> Term:
    return Term("Pad", "b", "j", 1, 0.0, Term("Pad", "a", "i", 1, 0.0, x))


def found(meaning: Term, axes: str, sizes: Mapping[str, int] = SIZES) -> tuple[Sweep, ...]:
    view = View.dense("ij", sizes, "float32")
    return sweeps(meaning, (view,), View.dense(axes, sizes, "float32"), sizes)


def test_what_is_looked_at_in_several_ways_is_a_loop_of_its_own() -> None:
    one, two = found(cross(cross(X), "ab", "cd"), "cd")
    assert (one.axes, two.axes) == (("a", "b"), ("c", "d"))
    assert (one.reads, two.reads) == ({}, {0: ((0, 2), (0, 2))})
    assert reach((one, two)) == (((0, 2), (0, 2)), ((0, 0), (0, 0)))


def test_what_is_padded_is_read_before_and_behind_its_place() -> None:
    three = found(bordered(cross(bordered(cross(bordered(cross(X)))))), "ij")
    assert [s.axes for s in three] == [("i", "j")] * 3
    assert reach(three)[0] == ((-2, 2), (-2, 2))
    assert list(shifted(three)) == [0, 1]


def test_what_is_read_as_it_is_and_once_is_no_loop() -> None:
    x = Term("Map", "exp", X)
    assert len(cut(Term("Add", Term("Mul", x, x), x), 1)) == 1
    assert len(cut(Term("Add", x, Term("Pad", "a", "i", 1, 0.0, Term("Slice", "i", "a", 0, 1, x))), 1)) == 2


@pytest.mark.parametrize(
    "meaning, axes",
    {
        "one loop": (cross(X), "ab"),
        "a fold": (cross(Term("Mul", X, Term("Sum", "j", X))), "ab"),
        "every other place": (Term("Add", Term("Slice", "i", "k", 0, 1, x := Term("Map", "exp", X)),
                                   Term("Slice", "i", "k", 1, 2, x)), "kj"),
        "backwards": (Term("Add", x, Term("Slice", "i", "e", 39, -1, Term("Ren", "e", "i", x))), "ij"),
    }.values(),
)  # fmt: skip
def test_what_is_no_chain_of_loops_is_refused(meaning: Term, axes: str) -> None:
    with pytest.raises(Unsupported):
        found(meaning, axes)


def test_rows_that_fit_no_cache_are_refused() -> None:
    """A column from the far end is read: all rows would be kept."""
    n = 3000
    sizes = {"i": n, "j": 300, "a": 1, "b": n - 1, "e": n}
    x = Term("Map", "exp", X)
    rolled = Term("Cat", "a", "b", "e", Term("Slice", "i", "a", n - 1, 1, x), Term("Slice", "i", "b", 0, 1, x))
    loops = found(Term("Add", Term("Ren", "e", "i", rolled), x), "ij", sizes)
    with pytest.raises(Unsupported):
        Walk.of(loops, 1)


def test_sweeps_of_several_results_are_made_once() -> None:
    """The second result is read for the first one: it is made like what is none, and copied."""
    two, three = bordered(cross(bordered(cross(X)))), bordered(cross(bordered(cross(bordered(cross(X))))))
    one = abreast([found(three, "ij"), found(two, "ij")], [[0], [0]])
    assert one is not None and one.results in (((0, 1),), ((1, 0),))
    assert [s.reads.keys() for s in one.sweeps] == [set(), {0}, {1}]
    assert len(one.sweeps[-1].values.results) == 2 and one.sweeps[-1].reads[1] == ((-1, 1), (-1, 1))
    assert abreast([found(three, "ij"), found(two, "ij")], [[0], [1]]) is None, "of another operand"
    walk = Walk.of(one.sweeps, 1)
    assert walk.sizes == (40, 300) and walk.first == 2 and walk.kept(1) == 4


def test_tiles_cover_results_of_other_sizes() -> None:
    x = bordered(cross(bordered(cross(X))))
    parts = [found(x, "ij"), found(cross(x), "ab")]
    one = abreast(parts, [[0], [0]])
    assert one is not None and one.results == ((0,), (1,))
    walk = Walk.of(one.sweeps, 1, len(one.results))
    assert [s.sizes() for s in one.sweeps[walk.first :]] == [(40, 300), (38, 298)]
    assert walk.sizes == (40, 300) and walk.along(1) == (0, 2)


@pytest.mark.parametrize("threads", [1, 2, 7])
@pytest.mark.parametrize("rows, columns", [(1, 1), (3, 500), (40, 300), (1000, 20), (2048, 2048), (500, 100_000)])
def test_tiles_cover_the_result_and_rows_fit_the_cache(rows: int, columns: int, threads: int) -> None:
    sizes = {"i": rows, "j": columns, "a": max(0, rows - 2), "b": max(0, columns - 2)}
    w = Walk.of(found(bordered(cross(bordered(cross(X)))), "ij", sizes), threads)
    high, wide = w.tiles()
    assert (high - 1) * w.height < rows <= high * w.height
    assert (wide - 1) * w.width < columns <= wide * w.width
    assert w.bytes <= 1 << 17
    assert w.kept(0) == 4  # three rows are read at a time
    assert w.tasks() == high * wide


def test_what_a_view_shows_in_several_ways_is_a_loop() -> None:
    """Regression: it was computed at every place of every later loop, 3^7 times the text for seven of these."""
    sizes, x = {"i0": 40, "j": 300, "a": 38}, operand(0, ("i0", "j"), "float32")
    for n in range(7):
        sizes |= {f"i{n + 1}": 40 - 2 * (n + 1), f"b{n}": 298}
        inner = Term("Slice", f"i{n}", f"i{n + 1}", 1, 1, x)
        arms = [Term("Slice", "j", f"b{n}", at, 1, inner) for at in range(3)]
        x = Term("Pad", f"b{n}", "j", 1, 0.0, Term("Add", Term("Add", arms[0], arms[1]), arms[2]))
    view = View.dense(("i0", "j"), sizes, "float32")
    loops = sweeps(x, (view,), View.dense(("i7", "j"), sizes, "float32"), sizes)
    assert len(loops) == 7
    assert max(len(s.values.rows) for s in loops) < 30


@pytest.mark.parametrize(
    "columns, rows, away",
    [(1_000_000, 1, 30_000), (16, 200_000, 1500)],
    ids=["along a row", "along the rows"],
)
def test_tiles_of_which_most_is_made_by_others_are_refused(columns: int, rows: int, away: int) -> None:
    """Regression: of a difference of far places, tiles were made 17 times over."""
    sizes = {"i": rows, "j": columns, "a": rows - away, "b": columns - away}
    old, new = ("j", "b") if columns > rows else ("i", "a")
    x = Term("Map", "exp", operand(0, "ij", "float32"))
    far = Term("Zip", "sub", Term("Slice", old, new, away, 1, x), Term("Slice", old, new, 0, 1, x))
    out = View.dense("ib" if columns > rows else "aj", sizes, "float32")
    loops = sweeps(far, (View.dense("ij", sizes, "float32"),), out, sizes)
    with pytest.raises(Unsupported):
        Walk.of(loops, 64)
