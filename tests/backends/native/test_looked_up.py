"""Elements that are read at positions which are looked up: never asked for before they are known, and never refused
where nothing is read; and calls of as many operands as may be fused."""

from __future__ import annotations

import numpy as np
import pytest

from waxeq.backend.call import Call, View, operand
from waxeq.backend.discover import backends
from waxeq.backend.kernel import Kernel, prepare
from waxeq.ir.term import Term, postorder
from waxeq.testing.conformance import check_call
from waxeq_cfamily import asked
from waxeq_native.loops import Loops
from waxeq_native.steps import Run

(BACKEND,) = backends(["native"])
F = "float32"


def call(
    meaning: Term, sizes: dict[str, int], operands: list[tuple[str, str]], out: str, kernel: str = "loops"
) -> Call:
    views = tuple(View.dense(axes, sizes, dtype) for axes, dtype in operands)
    return Call(f"native.{kernel}", meaning, sizes, views, View.dense(out, sizes, F))


def taken(axes: str) -> Term:
    """Of a table (k, j) in each column the line that an index of these axes says."""
    return Term("Gather", "k", operand(1, axes, "int64"), operand(0, "kj", F))


def _row(i: int, j: int) -> Call:
    """Each line over its sum: the next one is asked for between two passes over this one."""
    rows = Term("Gather", "k", operand(1, "ij", "int64"), operand(0, "ikj", F))
    meaning = Term("Zip", "div", rows, Term("Sum", "j", rows))
    return call(meaning, {"i": i, "j": j, "k": 5}, [("ikj", F), ("ij", "int64")], "ij")


LARGE = {"i": 300, "j": 700, "k": 6}
LOOKED_UP = {
    "written past the cache": call(
        Term("Mul", taken("ij"), taken("ij")), LARGE, [("kj", F), ("ij", "int64")], "ij", "loops_stream"
    ),
    "a long sum": call(Term("Sum", "j", taken("ij")), LARGE, [("kj", F), ("ij", "int64")], "i"),
    "lines of the next point": _row(40, 200),
}


@pytest.mark.parametrize("name", LOOKED_UP)
def test_what_is_looked_up_is_not_asked_for_ahead(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its place is known inside the loop alone: the text named it before, and no compiler took that."""
    monkeypatch.setattr(asked, "_CACHED", 0)
    c = LOOKED_UP[name]
    assert BACKEND.kernels[c.kernel].accepts(c)
    assert check_call(BACKEND.kernels[c.kernel], c, np.random.default_rng(0)) is None


def test_positions_that_nothing_is_read_from_may_be_any() -> None:
    """The index of a table that ends where another array begins is not read there, and is no index of the table."""
    at = Term("Add", operand(1, "p", "int64"), Term("Num", -1000.0, "int64"))
    found = Term("Gather", "k", at, operand(0, "kj", F))
    meaning = Term("Map", "neg", Term("Cat", "p", "q", "n", found, operand(2, "qj", F)))
    sizes = {"k": 50, "j": 8, "p": 7, "q": 5, "n": 12}
    c = call(meaning, sizes, [("kj", F), ("p", "int64"), ("qj", F)], "nj")
    rng, k = np.random.default_rng(0), BACKEND.kernels[c.kernel]
    table, rest = rng.standard_normal((50, 8), np.float32), rng.standard_normal((5, 8), np.float32)
    ids, out = rng.integers(1000, 1050, 7), np.empty((12, 8), np.float32)
    (step,) = k.bind(c, [table, ids, rest], out, np.empty(k.workspace(c), np.uint8))
    step()
    np.testing.assert_array_equal(out, -np.concatenate([table[ids - 1000], rest]))
    ids[3] = 1050
    with pytest.raises(IndexError, match="out of bounds"):
        step()


@pytest.mark.parametrize("count", [61, 62, 90])
def test_a_sum_of_many_operands(count: int) -> None:
    meaning = operand(0, "i", F)
    for n in range(1, count):
        meaning = Term("Add", meaning, operand(n, "i", F))
    c = call(meaning, {"i": 37}, [("i", F)] * count, "i")
    assert check_call(BACKEND.kernels[c.kernel], c, np.random.default_rng(0)) is None


_MADE = operand(1, "ij", "int64")
COMPUTED = {
    "as they are": operand(1, "i", "int64"),
    "a sum of two": Term("Add", operand(1, "i", "int64"), operand(1, "i", "int64")),
    "a sum over an axis": Term("Sum", "j", _MADE),
    "the largest along an axis": Term("Red", "max", "j", _MADE),
    "the largest of sums": Term("Red", "max", "j", Term("Sum", "h", operand(1, "ijh", "int64"))),
    "a running sum": Term("Scan", "sum", "i", operand(1, "i", "int64")),
    "chosen of two": Term(
        "Select", Term("Zip", "gt", _MADE, Term("Num", 1.0, "int64")), _MADE, Term("Sum", "j", _MADE)
    ),
    "converted": Term("Cast", "int64", Term("Sum", "j", operand(1, "ij", F))),
}


@pytest.mark.parametrize("name", COMPUTED)
@pytest.mark.parametrize("length", [3, 70])
def test_positions_that_are_computed_are_looked_at(name: str, length: int) -> None:
    """What a fold had made was not: the first element was taken for one outside of the axis."""
    sizes = {"i": 7, "j": length, "h": 2, "k": 5000, "l": 3}
    position = COMPUTED[name]
    (leaf,) = {t for t in postorder(position) if t.head == "In"}
    axes, dtype = "".join(a for a in "ijh" if a in leaf.args[1]), leaf.args[2]
    found = "ijl" if "chosen" in name else "il"
    rng, calls = np.random.default_rng(0), list[tuple[Kernel, Call]]()
    for wrapped in (operand(0, "kl", F), Term("Map", "neg", operand(0, "kl", F))):
        meaning = Term("Gather", "k", position, wrapped)
        for kernel in BACKEND.kernels.values():
            c = call(meaning, sizes, [("kl", F), (axes, dtype)], found, kernel.name.partition(".")[2])
            calls += [(kernel, c)] * kernel.accepts(c)
    assert calls
    prepare(calls)
    for kernel, c in calls:
        table, few = rng.standard_normal((5000, 3), np.float32), np.ones(c.operands[1].shape, dtype)
        out, room = np.empty(c.out.shape, F), np.empty(kernel.workspace(c), np.uint8)
        run = Run(kernel.bind(c, [table, few], out, room))
        run()
        few[...] = 5000
        with pytest.raises(IndexError, match="out of bounds"):
            run()


def test_places_of_merged_axes_are_looked_at_by_their_number() -> None:
    """A step along one of two axes that are read as one leads to no one place, as in the logarithm of a sum of
    exponentials over both: its text ended in a TypeError."""
    x = operand(0, "iabj", F)
    highest = Term("Red", "max", "b", Term("Red", "max", "a", x))
    meaning = Term("Sum", "c", Term("Map", "exp", Term("Zip", "sub", Term("Merge", "a", "b", "c", x), highest)))
    c = call(meaning, {"i": 2, "a": 2, "b": 2, "c": 4, "j": 7}, [("iabj", F)], "ij", "loops_fast")
    assert BACKEND.kernels[c.kernel].accepts(c)
    assert check_call(BACKEND.kernels[c.kernel], c, np.random.default_rng(0)) is None


SPLITS = Term("Zip", "lt", operand(0, "ij", F), Term("Gather", "k", operand(1, "ij", "int64"), operand(2, "rk", F)))
SHARED = {
    "columns of rows": Term("Gather", "k", operand(1, "j", "int64"), operand(0, "rk", F)),
    "columns of planes": Term("Gather", "k", operand(1, "j", "int64"), operand(0, "qrk", F)),
    "leaves of trees": Term(
        "Gather", "l", Term("Sum", "i", Term("Cast", "int64", SPLITS)), operand(3, "jl", F)
    ),
}  # fmt: skip
OPERANDS = {"columns of rows": [("rk", F), ("j", "int64")], "columns of planes": [("qrk", F), ("j", "int64")],
            "leaves of trees": [("ij", F), ("ij", "int64"), ("rk", F), ("jl", F)]}  # fmt: skip


@pytest.mark.parametrize("rows", [1, 2, 8, 13, 50])
@pytest.mark.parametrize("name", SHARED)
def test_positions_that_are_the_same_for_all_rows_are_looked_at_once_for_several(name: str, rows: int) -> None:
    """Each row of an oblivious forest looked at all features of all trees again: 4.0 ms for what takes 0.84."""
    sizes = {"i": 3, "j": 21, "k": 11, "l": 5, "q": 2, "r": rows}
    meaning, given = SHARED[name], OPERANDS[name]
    c = call(meaning, sizes, given, "qrj" if "planes" in name else "rj")
    k = BACKEND.kernels[c.kernel]
    assert check_call(k, c, np.random.default_rng(0)) is None
    assert isinstance(k, Loops)
    work = k.of(c)
    assert work is not None
    lines = work.parts[-1].source.splitlines()
    loops = [n for n, line in enumerate(lines) if line.lstrip().startswith("for (")]
    looked = [n for n, line in enumerate(lines) if "wx_outside(" in line and ", 11)" in line]
    assert looked and (rows == 1 or max(looked) < loops[-1])
    arrays = [np.zeros(v.shape, v.dtype) for v in c.operands]
    (run,) = k.bind(c, arrays, np.empty(c.out.shape, F), np.empty(k.workspace(c), np.uint8))
    run()
    arrays[1][..., -1] = 11
    with pytest.raises(IndexError, match="out of bounds"):
        run()
