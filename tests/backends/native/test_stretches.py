"""Folds along arrays that are put one after another, or padded, have a loop for each of them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from waxeq.backend.call import Call, View, operand, operand_index
from waxeq.basis.typing import types
from waxeq.ir.term import Term, postorder
from waxeq.testing.conformance import check_call
from waxeq_native.loops import Loops, NarrowLoops

SIZES = {"m": 37, "n": 21, "one": 1}


def along(lengths: Sequence[int], dtype: str = "float32", rest: str = "m") -> tuple[Term, str, dict[str, int]]:
    """Arrays of some lengths put one after another, the axis that they lie along, and the sizes of all axes."""
    sizes, total = {**SIZES, "k0": lengths[0]}, lengths[0]
    found, axis = operand(0, ("k0", *rest), dtype), "k0"
    for i, length in enumerate(lengths[1:], 1):
        total += length
        sizes |= {f"k{i}": length, f"t{i}": total}
        found = Term("Cat", axis, f"k{i}", f"t{i}", found, operand(i, (f"k{i}", *rest), dtype))
        axis = f"t{i}"
    return found, axis, sizes


def called(
    meaning: Term, axes: Sequence[str], sizes: dict[str, int], first: str = "k", threads: int = 1, kernel: str = "loops"
) -> Call:
    """A call whose operands begin with the axes of some letter, or end with them."""
    leaves = sorted((t for t in postorder(meaning) if t.head == "In"), key=operand_index)
    views = tuple(
        View.dense(sorted(t.args[1], key=lambda a: (a[0] != first, a)), sizes, t.args[2])
        for t in dict.fromkeys(leaves)
    )  # fmt: skip
    out = View.dense(axes, sizes, types(meaning)[meaning].dtype)
    return Call(f"native.{kernel}", meaning, sizes, views, out, threads=threads)


def text(call: Call) -> str:
    work = Loops().of(call)
    assert work is not None
    return "\n".join(p.text for p in work.parts)


LENGTHS = {
    "two": (50, 40),
    "four": (9, 1, 30, 17),
    "six": (11, 12, 13, 14, 15, 16),
    "many": (3,) * 20,
    "ones": (1,) * 24,
}


@pytest.mark.parametrize("fold", ["max", "argmin", "squares"])
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
def test_every_element_is_as_the_meaning_has_it(lengths: Sequence[int], fold: str) -> None:
    rows = list[tuple[Loops, Call]]()
    for dtype, first, threads, kernel in (("float32", "k", 1, Loops()), ("float16", "m", 2, NarrowLoops())):
        x, k, sizes = along(lengths, dtype)
        far = Term("Sum", k, Term("Map", "square", Term("Zip", "sub", x, Term("Red", "max", k, x))))
        folded = far if fold == "squares" else Term("Red", fold, k, x)
        call = called(folded, "m", sizes, first, threads, kernel.name)
        rows += [(kernel, call)] * kernel.accepts(call)
    Loops.prepare(rows)
    for (kernel, call), seed in itertools.product(rows, range(2)):
        assert check_call(kernel, call, np.random.default_rng(seed)) is None, call.operands[0]


@pytest.mark.parametrize("first", "km")
def test_no_element_is_looked_for_in_all_arrays(first: str) -> None:
    """The least of 16 costs at each place took 14.7 ms, of which all but 0.3 were questions which array is meant."""
    for lengths in LENGTHS.values():
        x, k, sizes = along(lengths)
        call = called(Term("Red", "argmin", k, x), "m", sizes, first)
        if Loops().accepts(call):
            assert "uint64_t" not in text(call), lengths
        else:
            assert first == "m" and len(lengths) == 20, "what is put together first is faster then"


@pytest.mark.parametrize("size", [5, 13, 29, 61])
def test_stretches_of_a_row_that_is_whole_vectors_have_ends(size: int) -> None:
    """A row of 8 with a border had one vector and no end, and its stretches of 1, 5 and 2 elements none at all."""
    sizes = {**SIZES, "n": size, "p": size + 3}
    x = Term("Pad", "n", "p", 1, -0.5, operand(0, "mn", "float32"))
    for folded, axes in ((Term("Red", "max", "p", x), "m"), (Term("Sum", "m", Term("Sum", "p", x)), "")):
        assert check_call(Loops(), called(folded, axes, sizes, "m"), np.random.default_rng(0)) is None


def test_a_border_is_a_stretch() -> None:
    x = Term("Pad", "n", "p", 3, -1.0, operand(0, "mn", "float32"))
    call = called(Term("Red", "max", "p", x), "m", {**SIZES, "p": 30}, "n")
    assert check_call(Loops(), call, np.random.default_rng(0)) is None
    assert "uint64_t" not in text(call)


def test_folds_of_both_axes_share_accumulators_from_stretch_to_stretch() -> None:
    for lengths, threads in ((LENGTHS["two"], 1), (LENGTHS["four"], 2), (LENGTHS["many"], 2)):
        x, k, sizes = along(lengths, "float32", "mn")
        for meaning, axes in (
            (Term("Sum", "m", Term("Sum", k, x)), "n"),
            (Term("Red", "max", "n", Term("Red", "max", k, x)), "m"),
        ):
            call = called(meaning, axes, sizes, threads=threads)
            assert not Loops().accepts(call) or check_call(Loops(), call, np.random.default_rng(0)) is None
