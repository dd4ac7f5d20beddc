"""Sweeps that go along a row in lockstep, from registers to registers."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from waxeq.backend.call import Call, View, operand
from waxeq.ir.term import Term
from waxeq.testing import stencils
from waxeq.testing.conformance import check_call, check_kernel
from waxeq_cfamily import lockstep
from waxeq_native import library
from waxeq_native.sliding import Lockstep, Sliding, StreamingLockstep

NOISE = np.random.default_rng(7)
pytestmark = pytest.mark.usefixtures("wide")


def seen(x: Term, rows: int, columns: int) -> Term:
    return Term("Slice", "j", "b", columns, 1, Term("Slice", "i", "a", rows, 1, x))


def bordered(x: Term, border: float = 0.0) -> Term:
    return Term("Pad", "b", "j", 1, border, Term("Pad", "a", "i", 1, border, x))


def jacobi(x: Term, f: Term, dtype: str) -> Term:
    sides = Term("Add", Term("Add", seen(x, 0, 1), seen(x, 2, 1)), Term("Add", seen(x, 1, 0), seen(x, 1, 2)))
    value = Term("Zip", "sub", sides, seen(f, 1, 1))
    scale = Term("Num", 0.25 if dtype.startswith("float") else 3.0, dtype)
    return bordered(Term("Mul", scale, value))


def swept(u: np.ndarray, f: np.ndarray, times: int) -> np.ndarray:
    scale = u.dtype.type(0.25 if u.dtype.kind == "f" else 3)
    for _ in range(times):
        sides = (u[:-2, 1:-1] + u[2:, 1:-1]) + (u[1:-1, :-2] + u[1:-1, 2:])
        u = np.pad(scale * (sides - f[1:-1, 1:-1]), 1)
    return u


def call(rows: int, columns: int, times: int, threads: int = 1, dtype: str = "float32", axes: str = "ij") -> Call:
    x = operand(0, axes, dtype)
    for _ in range(times):
        x = jacobi(x, operand(1, axes, dtype), dtype)
    sizes = {"n": 3, "i": rows, "j": columns, "a": rows - 2, "b": columns - 2}
    sizes = {k: n for k, n in sizes.items() if k in (*axes, "a", "b")}
    view = View.dense(axes, sizes, dtype)
    return Call("native.sliding_lockstep", x, sizes, (view, view), view, threads=threads)


def drawn(c: Call) -> tuple[np.ndarray, np.ndarray]:
    shape, dtype = c.out.shape, np.dtype(c.out.dtype)
    u, f = (NOISE.integers(-99, 99, shape).astype(dtype) for _ in range(2))
    if dtype.kind == "f":
        u[..., shape[-2] // 2, shape[-1] // 2], f[..., shape[-2] // 3, shape[-1] // 3] = np.nan, np.inf
        u[..., 0, -1] = -np.inf
    return u, f


def made(kernel: Sliding, c: Call, operands: tuple[np.ndarray, ...], begin: int = 0) -> np.ndarray:
    """The result, written from so many elements after a line on; nothing else is."""
    n, item = c.out.elements, operands[0].itemsize
    memory = np.full(n + 64, 7, operands[0].dtype)
    first = -memory.ctypes.data % 64 // item + 16 + begin
    out = memory[first : first + n].reshape(c.out.shape)
    (step,) = kernel.bind(c, operands, out, np.empty(0, np.uint8))
    step()
    assert (memory[:first] == 7).all() and (memory[first + n :] == 7).all()
    return out


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    "rows, columns, times",
    [
        (2, 129, 2),
        (3, 160, 2),
        (4, 129, 3),
        (5, 513, 4),
        (6, 200, 2),
        (7, 129, 4),
        (130, 2047, 4),
        (301, 300, 5),
        (37, 257, 6),
    ],
)
def test_sweeps_in_lockstep_are_those_one_after_another(rows: int, columns: int, times: int, threads: int) -> None:
    """NaN and infinities go where they go sweep by sweep, and nowhere else; rows end within vectors."""
    c = call(rows, columns, times, threads)
    u, f = drawn(c)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(made(Lockstep(), c, (u, f), begin=columns % 2), swept(u, f, times))


@pytest.mark.parametrize("begin", [0, 1], ids=["lines", "parts of lines"])
@pytest.mark.parametrize("rows, columns, times", [(2, 128, 2), (33, 160, 2), (130, 2048, 4), (301, 1040, 5)])
def test_results_past_the_cache(rows: int, columns: int, times: int, begin: int) -> None:
    c = call(rows, columns, times, threads=2)
    u, f = drawn(c)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(made(StreamingLockstep(), c, (u, f), begin), swept(u, f, times))


@pytest.mark.parametrize("dtype", ["float64", "int32", "int64", "uint32"])
def test_other_dtypes_and_batches(dtype: str) -> None:
    c = call(40, 150, 3, threads=2, dtype=dtype, axes="nij")
    u, f = drawn(c)
    with np.errstate(invalid="ignore"):
        want = np.stack([swept(a, b, 3) for a, b in zip(u, f, strict=True)])
    np.testing.assert_array_equal(made(Lockstep(), c, (u, f)), want)


def test_sweeps_that_read_those_before_the_last_one() -> None:
    """Waves: each step needs the two before it, and a source of its own along the columns."""
    x, y, speed = operand(0, "ij", "float32"), operand(1, "ij", "float32"), operand(2, "b", "float32")
    for _ in range(3):
        sides = Term("Add", Term("Add", seen(y, 0, 1), seen(y, 2, 1)), Term("Add", seen(y, 1, 0), seen(y, 1, 2)))
        new = bordered(Term("Zip", "sub", Term("Mul", speed, sides), seen(x, 1, 1)))
        x, y = y, new
    sizes = {"i": 90, "j": 333, "a": 88, "b": 331}
    view, line = View.dense("ij", sizes, "float32"), View.dense("b", sizes, "float32")
    c = Call("native.sliding_lockstep", y, sizes, (view, view, line), view, threads=2)
    assert check_call(Lockstep(), c, np.random.default_rng(3)) is None


def test_extremes_and_places_further_away() -> None:
    """Rows two up and down, columns up to three away, and borders of ones."""
    x = operand(0, "ij", "float32")
    for _ in range(2):
        arms = [
            Term("Slice", "j", "b", column, 1, Term("Slice", "i", "a", row, 1, x))
            for row, column in ((0, 3), (4, 3), (2, 0), (2, 6), (1, 2))
        ]
        value = Term("Map", "neg", arms[0])
        for name, arm in zip(("max", "min", "fmax", "fmin"), arms[1:], strict=True):
            value = Term("Zip", name, value, arm)
        x = Term("Pad", "b", "j", 3, 1.0, Term("Pad", "a", "i", 2, 1.0, value))
    sizes = {"i": 70, "j": 300, "a": 66, "b": 294}
    view = View.dense("ij", sizes, "float32")
    c = Call("native.sliding_lockstep", x, sizes, (view,), view)
    assert Lockstep().of(c) is not None and check_call(Lockstep(), c, np.random.default_rng(3)) is None


def test_columns_of_one_array_are_read_once() -> None:
    """What is seen of one array at several places is one vector; sweeps are a vector apart."""
    c = call(300, 640, 4)
    text = Lockstep().work(c).parts[0].source  # type: ignore[union-attr]
    *_, inside = re.findall(r"for \(; c < 39; c\+\+\) \{(.*?)\n +\}\n", text, re.S)
    assert len(re.findall(r"wx_read_float32\(x0", inside)) == 5 + 2 * 3
    assert len(re.findall(r"wx_read_float32\(ring", inside)) == len(re.findall(r"wx_put_float32\(ring", inside)) == 6
    assert "wx_part" not in inside and "wx_pick" not in inside
    assert "prefetch" not in text


def test_next_rows_are_asked_for_a_line_at_each_vector() -> None:
    text = Lockstep().work(call(1504, 1504, 4)).parts[0].source  # type: ignore[union-attr]
    past = StreamingLockstep().work(call(1504, 1504, 4)).parts[0].source  # type: ignore[union-attr]
    assert text.count(", 0, 2);") == past.count(", 0, 2);") == 3 * 2 * 3, "three rows of two arrays, written thrice"
    assert text.count(" * 16, 1);") == 9 and past.count(" * 16, 1);") == 0
    assert past.rstrip().endswith("  wx_streamed();\n}") and "wx_past_float32(out" in past


@pytest.mark.parametrize("seed", range(2))
def test_random_stencils(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of rows that are long enough and end within vectors."""
    monkeypatch.setattr(stencils, "_LINES", (129, 150, 200, 300))
    found = check_kernel("native.sliding_lockstep", Lockstep(), calls=7, seed=seed).require()
    assert found.calls > 4 and len(found.dtypes) > 1


def test_vectors_that_are_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text is right where vectors are shorter; it is not offered there, as registers are too few."""
    (c, u, f), kernel = (c := call(9, 129, 2), *drawn(c)), Lockstep()
    (part,) = kernel.work(c).parts  # type: ignore[union-attr]
    assert part.source.count("__AVX512F__") == 3
    compiler = library.shared().compiler
    flags = (*compiler.flags, "-mno-avx512f", "-mprefer-vector-width=256")
    narrow = library.Library(tmp_path, replace(compiler, flags=flags))
    monkeypatch.setattr(library, "shared", lambda: narrow)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(made(kernel, c, (u, f)), swept(u, f, 2))


def test_what_it_does_not_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short rows, functions that are more than an instruction, more sweeps than registers, and other machines."""
    assert Lockstep().work(call(300, 300, 4)) is not None
    assert Lockstep().work(call(300, 90, 4)) is None
    assert Lockstep().work(call(300, 300, 9)) is None
    c = call(300, 300, 2)
    assert Lockstep().work(replace(c, meaning=Term("Map", "tanh", c.meaning))) is None
    assert StreamingLockstep().work(call(300, 300, 4)) is None
    monkeypatch.setattr(lockstep, "_REGISTERS", 15)
    assert Lockstep().work(call(300, 300, 4)) is None
    monkeypatch.setattr("waxeq_native.sliding.wide", lambda: False)
    assert Lockstep().work(call(300, 300, 2)) is None


CROWDED, APART = (0, 64, 304, -48), (512, 2048, -512)
"""Bytes of a page that one array begins after another."""


def laid(a: np.ndarray, after: int) -> np.ndarray:
    """The array, so many bytes after where pages begin."""
    memory = np.zeros(a.nbytes + 2 * 4096, np.uint8)
    first = -memory.ctypes.data % 4096 + after % 4096
    there = memory[first : first + a.nbytes].view(a.dtype).reshape(a.shape)
    there[...] = a
    return there


def written(c: Call) -> str:
    w = Lockstep().of(c)
    assert w is not None
    return w.parts[0].source


def taken(c: Call, by: int) -> bool:
    """Whether the text takes the loop that reads early, where the second array begins so many bytes after the first."""
    asks = r"crowded = \(\(uintptr_t\)x1 - \(uintptr_t\)x0 \+ (\d+)u\) % 4096 < (\d+);"
    ((add, below),) = re.findall(asks, written(c))
    return (by + int(add)) % 4096 < int(below)


@pytest.mark.parametrize("kernel", [Lockstep(), StreamingLockstep()], ids=["cache", "past"])
@pytest.mark.parametrize(
    "rows, columns, times, dtype, threads",
    [
        (3, 1024, 2, "float32", 1),
        (37, 1024, 4, "float32", 2),
        (61, 2048, 5, "float32", 2),
        (40, 1024, 3, "float64", 1),
        (33, 1024, 4, "int32", 2),
    ],
)
def test_sweeps_are_the_same_wherever_arrays_begin(
    kernel: Lockstep, rows: int, columns: int, times: int, dtype: str, threads: int
) -> None:
    c = call(rows, columns, times, threads, dtype)
    u, f = drawn(c)
    with np.errstate(invalid="ignore"):
        want = swept(u, f, times)
    for by in CROWDED + APART:
        assert taken(c, by) == (by in CROWDED)
        np.testing.assert_array_equal(made(kernel, c, (laid(u, 16), laid(f, 16 + by))), want)


def relaxed(x: Term, f: Term) -> Term:
    """A product of what is read early goes into a sum: one instruction for both rounds once."""
    sides = Term("Add", Term("Add", seen(x, 0, 1), seen(x, 2, 1)), Term("Add", seen(x, 1, 0), seen(x, 1, 2)))
    return bordered(Term("Zip", "sub", Term("Mul", Term("Num", 0.3, "float32"), sides), seen(f, 1, 1)))


def weighted(x: Term, f: Term) -> Term:
    """A product of what is read early goes into a sum with it, and into one with what is not."""
    sides = Term("Add", seen(x, 0, 1), seen(x, 2, 1))
    product = Term("Mul", Term("Num", 0.3, "float32"), sides)
    return bordered(Term("Zip", "sub", Term("Add", product, sides), Term("Zip", "sub", product, seen(f, 1, 1))))


@pytest.mark.parametrize("sweep", [relaxed, weighted])
def test_results_do_not_depend_on_where_arrays_begin(sweep) -> None:  # type: ignore[no-untyped-def]
    x, f = operand(0, "ij", "float32"), operand(1, "ij", "float32")
    for _ in range(3):
        x = sweep(x, f)
    c = replace(call(90, 1024, 3), meaning=x)
    arrays = [NOISE.standard_normal((90, 1024)).astype(np.float32) for _ in range(2)]
    assert taken(c, 0) and "strip" in written(c)
    first, *others = (
        made(Lockstep(), c, (laid(arrays[0], 16), laid(arrays[1], 16 + by))).view(np.uint32) for by in CROWDED + APART
    )
    for other in others:
        np.testing.assert_array_equal(other, first)
    assert check_call(Lockstep(), c, np.random.default_rng(3)) is None


@pytest.mark.parametrize("columns", [129, 200, 300])
@pytest.mark.parametrize("by", [0, 2048])
def test_short_rows_of_wide_arrays(columns: int, by: int) -> None:
    """Rows of fewer vectors than are made early at their beginning."""
    c = call(30, columns, 3)
    c = replace(c, operands=(View(("i", "j"), (30, columns), (1024, 1), "float32"),) * 2)
    u, f = drawn(c)
    wide = [laid(np.full((30, 1024), 9, np.float32), 16 + x)[:, :columns] for x in (0, by)]
    wide[0][...], wide[1][...] = u, f
    assert taken(c, by) == (by == 0)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(made(Lockstep(), c, (wide[0], wide[1])), swept(u, f, 3))


def test_parts_of_rows_are_where_they_are_read() -> None:
    """A source that is read from its column 300 on: what counts is where that one lies."""
    x, f = operand(0, "ij", "float32"), operand(1, "iw", "float32")
    for _ in range(3):
        sides = Term("Add", Term("Add", seen(x, 0, 1), seen(x, 2, 1)), Term("Add", seen(x, 1, 0), seen(x, 1, 2)))
        source = Term("Slice", "w", "b", 301, 1, Term("Slice", "i", "a", 1, 1, f))
        x = bordered(Term("Zip", "sub", sides, source))
    sizes = {"i": 50, "j": 1024, "w": 2048, "a": 48, "b": 1022}
    views = View.dense("ij", sizes, "float32"), View.dense("iw", sizes, "float32")
    c = Call("native.sliding_lockstep", x, sizes, views, views[0], threads=2)
    assert taken(c, -1200) and not taken(c, 0)
    assert check_call(Lockstep(), c, np.random.default_rng(3)) is None


def test_where_nothing_is_made_early() -> None:
    """Rows that do not lie pages apart, and fewer of them than the first cache has room for."""
    assert "crowded" not in written(call(90, 1040, 4)) and "crowded" not in written(call(90, 512, 4))
    assert "crowded" in written(call(90, 1024, 2)) and "crowded" in written(call(90, 512, 4, dtype="float64"))
    c, x = call(90, 1024, 3), operand(0, "ij", "float32")
    for _ in range(3):
        x = bordered(Term("Add", seen(x, 0, 1), seen(x, 2, 1)))
    assert "crowded" not in written(replace(c, meaning=x, operands=c.operands[:1]))


def test_nothing_is_asked_for_twice() -> None:
    """Of the array that is read early the places themselves read nothing."""
    body = written(call(90, 1024, 4)).split("if (crowded) {")[1].split("else for")[0]
    early, place = body.split("int64_t a = c + 14 < 63 ? c + 14 : 63 - 1;")
    reads = [len(re.findall(r"wx_read_float32\(x0 .*? a \* 16", part)) for part in (early, place)]
    assert reads == [5 + 2 * 3, 5 + 2 * 3] and not re.findall(r"wx_read_float32\(x0 .*? c \* 16", body)
    assert len(re.findall(r"wx_read_float32\(strip", body)) == 3


def chained(x: Term, f: Term, dtype: str, scale: float) -> Term:
    """The sum of four sides one after another, as array programs write it."""
    sides = seen(x, 0, 1)
    for row, column in ((2, 1), (1, 0), (1, 2)):
        sides = Term("Add", sides, seen(x, row, column))
    return bordered(Term("Mul", Term("Num", scale, dtype), Term("Zip", "sub", sides, seen(f, 1, 1))))


def chained_call(rows: int, columns: int, times: int, threads: int, dtype: str, scale: float) -> Call:
    x = operand(0, "ij", dtype)
    for _ in range(times):
        x = chained(x, operand(1, "ij", dtype), dtype, scale)
    return replace(call(rows, columns, times, threads, dtype), meaning=x)


@pytest.mark.parametrize("kernel", [Lockstep(), StreamingLockstep()], ids=["cache", "past"])
@pytest.mark.parametrize(
    "rows, columns, times, dtype, threads, scale",
    [
        (2, 160, 2, "float32", 1, 0.3),
        (5, 512, 3, "float32", 2, 0.25),
        (37, 1024, 4, "float32", 2, -3.0),
        (64, 1040, 5, "float32", 1, 0.3),
        (40, 304, 3, "float64", 2, 0.3),
    ],
)
def test_partial_sums_are_rounded_as_sums_are(
    kernel: Lockstep, rows: int, columns: int, times: int, dtype: str, threads: int, scale: float
) -> None:
    """What is made a place early has the bits of the same sum where it is used: a product is rounded before."""
    c = chained_call(rows, columns, times, threads, dtype, scale)
    assert "partial0 = " in written(c)
    u, f = (NOISE.standard_normal((rows, columns)).astype(dtype) for _ in range(2))
    want = u
    for _ in range(times):
        sides = want[:-2, 1:-1] + want[2:, 1:-1] + want[1:-1, :-2] + want[1:-1, 2:]
        want = np.pad(want.dtype.type(scale) * (sides - f[1:-1, 1:-1]), 1)
    np.testing.assert_array_equal(made(kernel, c, (u, f)), want)


def test_partial_sums_of_whole_numbers() -> None:
    c = chained_call(30, 300, 4, 2, "int32", 3)
    assert "partial0 = " in written(c)
    assert check_call(Lockstep(), c, np.random.default_rng(3)) is None


def planned(c: Call) -> lockstep.Lockstep:
    return lockstep.Lockstep.of(Lockstep().walk(c), [*zip(c.operands, range(2), strict=True)])


def test_partial_sums_are_held_in_place_of_what_they_are_of() -> None:
    """Of each row one sum, and not what is above, below and to the left of it; of two sums of two, none is held."""
    found = planned(chained_call(90, 640, 4, 1, "float32", 0.25))
    assert len(found.partials) == 3 * 3 and found.registers == 3 * (3 + 3)
    assert replace(found, partly=False).registers == 3 * (5 + 3)
    assert not planned(call(90, 640, 4)).partials


def test_nothing_is_made_early_of_what_is_made_at_the_same_place() -> None:
    """Sweeps that read nothing to the right are no vector apart: a compiler may join the product with the sum."""
    x = operand(0, "ij", "float32")
    for _ in range(3):
        sides = Term("Add", Term("Add", seen(x, 0, 1), seen(x, 2, 1)), seen(x, 1, 0))
        x = bordered(Term("Mul", Term("Num", 0.3, "float32"), sides))
    c = replace(call(90, 640, 3), meaning=x, operands=(call(90, 640, 3).operands[0],))
    assert "partial" not in written(c)
    assert check_call(Lockstep(), c, np.random.default_rng(3)) is None
