"""What is read at quotients and remainders of places is read along axes of its own."""

from __future__ import annotations

import numpy as np
import pytest

from waxeq.backend.call import Call, View, operand
from waxeq.backend.kernel import prepare
from waxeq.ir.term import Term
from waxeq.testing.conformance import check_call
from waxeq_native.loops import FastLoops, Loops, NarrowLoops

KERNELS = (Loops(), FastLoops(), NarrowLoops())


def _call(meaning: Term, sizes: dict[str, int], reads: tuple[str, ...], axes: str, threads: int = 1) -> Call:
    views = tuple(View.dense(a, sizes, "float32") for a in reads)
    return Call("native.loops", meaning, sizes, views, View.dense(axes, sizes, "float32"), threads=threads)


def larger(times: int, rows: int, columns: int, threads: int = 1) -> Call:
    """Every pixel so many times along both axes, with a sine of it and what is added to the larger image."""
    sizes = {"m": rows, "n": columns, "p": times, "q": times, "i": rows * times, "j": columns * times}
    x = Term("Map", "sin", operand(0, "mn", "float32"))
    image = Term("Merge", "n", "q", "j", Term("Merge", "m", "p", "i", x))
    return _call(Term("Add", image, operand(1, "ij", "float32")), sizes, ("mn", "ij"), "ij", threads)


def tiled(times: int, columns: int) -> Call:
    """A row so many times side by side, times a factor for each place among the tiles."""
    sizes = {"t": times, "n": columns, "m": 5, "j": times * columns}
    x = Term("Mul", operand(0, "mn", "float32"), operand(1, "t", "float32"))
    return _call(Term("Merge", "t", "n", "j", x), sizes, ("mn", "t"), "mj")


def shuffled(times: int, columns: int) -> Call:
    """Channels become pixels."""
    sizes = {"q": times, "n": columns, "m": 5, "j": times * columns}
    return _call(Term("Merge", "n", "q", "j", operand(0, "qmn", "float32")), sizes, ("qmn",), "mj")


CALLS = [
    *(larger(*row) for row in ((2, 7, 40), (3, 5, 33), (7, 4, 21), (2, 1, 1), (1, 3, 50), (2, 40, 300, 2))),
    *(make(n, columns) for make in (tiled, shuffled) for n in (1, 2, 3, 4, 9) for columns in (1, 5, 64, 130)),
]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.name)
def test_what_is_repeated_tiled_and_shuffled_is_what_it_means(kernel: Loops) -> None:
    prepare((kernel, c) for c in CALLS)
    for n, c in enumerate(CALLS):
        assert kernel.accepts(c) and check_call(kernel, c, np.random.default_rng(n)) is None, n


def test_no_place_is_divided_in_a_loop() -> None:
    """An image made twice as large took 1.4 ms, and takes 0.25."""
    for call in (larger(2, 40, 300), tiled(3, 64), shuffled(4, 130)):
        work = Loops().of(call)
        assert work is not None
        loops = work.parts[0].text.split("#pragma omp simd", 1)[1]
        assert "/" not in loops and "%" not in loops


def test_what_is_divided_by_two_numbers_stays_one_axis() -> None:
    """12 places in two by 3 and in two by 4 have no two axes in common."""
    sizes = {"a": 4, "b": 3, "c": 3, "d": 4, "j": 12}
    x = Term("Merge", "a", "b", "j", operand(0, "ab", "float32"))
    y = Term("Merge", "c", "d", "j", operand(1, "cd", "float32"))
    call = _call(Term("Mul", x, Term("Map", "exp", y)), sizes, ("ab", "cd"), "j")
    assert check_call(Loops(), call, np.random.default_rng(0)) is None


def test_what_is_run_through_beside_an_axis_in_two_keeps_its_axis() -> None:
    """A scan has the axis that it runs along, where a fold has not."""
    sizes = {"t": 6, "p": 2, "q": 3, "j": 6, "n": 5}
    x = Term("Merge", "p", "q", "j", operand(0, "tpqn", "float32"))
    for kind in ("min", "sum"):
        call = _call(Term("Zip", "sub", Term("Scan", kind, "t", x), x), sizes, ("tqpn",), "tjn")
        assert Loops().accepts(call)
        for seed in range(4):
            assert check_call(Loops(), call, np.random.default_rng(seed)) is None


def test_what_is_put_beside_something_stays_one_axis() -> None:
    """Loops are cut in sections where it begins: both parts of an axis would go through all of them, and make what is
    costly for every place of both."""
    sizes = {"m": 5, "p": 50, "q": 2, "j": 100, "c": 60, "s": 160}
    repeated = Term("Merge", "p", "q", "j", Term("Map", "sin", operand(0, "mp", "float32")))
    call = _call(Term("Cat", "j", "c", "s", repeated, operand(1, "mc", "float32")), sizes, ("mp", "mc"), "ms")
    assert Loops().features(call)["native:sin:float32"] == 500
    assert check_call(Loops(), call, np.random.default_rng(0)) is None
