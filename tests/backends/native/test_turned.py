"""What lies side by side along another axis than the result: squares of it are turned in registers, where they can."""

from __future__ import annotations

import numpy as np
import pytest

from waxeq.backend.call import Call, View, operand
from waxeq.backend.discover import backends
from waxeq.ir.term import Term
from waxeq.ir.types import numpy_dtype
from waxeq.testing.conformance import check_call
from waxeq_native.work import NativeKernel

(BACKEND,) = backends(["native"])
LOOPS = BACKEND.kernels["native.loops"]
DTYPES = ["float32", "int32", "float64", "int64", "float16", "bfloat16", "int16", "uint8"]


def _call(x: Term, sizes: dict[str, int], threads: int = 1) -> Call:
    y = operand(1, "bij", x.args[2])
    views = View.dense("bji", sizes, x.args[2]), View.dense("bij", sizes, x.args[2])
    meaning = Term("Add", Term("Mul", x, y), x)
    return Call("native.loops", meaning, sizes, views, View.dense("bij", sizes, x.args[2]), threads=threads)


@pytest.mark.parametrize("dtype", DTYPES)
def test_squares_are_turned_at_all_sizes(dtype: str) -> None:
    assert isinstance(LOOPS, NativeKernel)
    shapes = (9, 9), (33, 70), (8, 100), (65, 31)
    calls = [_call(operand(0, "bij", dtype), {"b": 2, "i": i, "j": j}, threads=2) for i, j in shapes]
    LOOPS.prepare([(LOOPS, c) for c in calls])
    for call in calls:
        work = LOOPS.of(call)
        assert work is not None and "wx_turned" in work.parts[0].source
        assert check_call(LOOPS, call, np.random.default_rng(0)) is None


@pytest.mark.parametrize("dtype", [*DTYPES, "bool"])
def test_copies_keep_every_bit(dtype: str) -> None:
    """Payloads of NaN among them, of floats that are computed with as others."""
    kernel, item, calls = BACKEND.kernels["native.copy"], numpy_dtype(dtype).itemsize, list[Call]()
    for i, j in ((9, 9), (33, 70), (16, 100), (65, 31)):
        sizes = {"b": 2, "i": i, "j": j}
        views = (View.dense("bji", sizes, dtype),)
        calls.append(Call("native.copy", operand(0, "bij", dtype), sizes, views, View.dense("bij", sizes, dtype)))
    kernel.prepare([(kernel, c) for c in calls])
    for call in calls:
        _, i, j = call.out.shape
        raw = np.random.default_rng(0).integers(0, 2 if dtype == "bool" else 256, (2, j, i, item), np.uint8)
        x, out = raw.view(numpy_dtype(dtype))[..., 0], np.empty((2, i, j), numpy_dtype(dtype))
        assert kernel.accepts(call)
        for step in kernel.bind(call, [x], out, np.empty(kernel.workspace(call), np.uint8)):
            step()
        assert np.array_equal(out.view(f"V{item}"), np.ascontiguousarray(x.transpose(0, 2, 1)).view(f"V{item}"))


def test_narrow_floats_that_are_compared_are_numbers() -> None:
    x = operand(0, "ij", "bfloat16")
    sizes = {"i": 4, "j": 50}
    meaning = Term("Zip", "le", x, Term("Num", 2.0, "bfloat16"))
    call = Call("native.loops", meaning, sizes, (View.dense("ij", sizes, "bfloat16"),), View.dense("ij", sizes, "bool"))
    assert check_call(LOOPS, call, np.random.default_rng(0)) is None


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_floats_that_are_only_moved_are_their_bits(dtype: str) -> None:
    """What is padded with a number that the dtype has not as it is written, too."""
    sizes = {"i": 40, "j": 50, "k": 53}
    x = Term("Pad", "j", "k", 1, 0.1, operand(0, "ij", dtype))
    views = (View.dense("ij", sizes, dtype),)
    call = Call("native.loops", x, sizes, views, View.dense("ik", sizes, dtype))
    assert isinstance(LOOPS, NativeKernel)
    work = LOOPS.of(call)
    assert work is not None and "float" not in work.parts[0].text
    assert check_call(LOOPS, call, np.random.default_rng(0)) is None


def test_what_is_read_in_part_is_not_turned() -> None:
    """Beyond the edge of a padded matrix there is nothing to read."""
    sizes = {"i": 40, "j": 50, "k": 52}
    x = Term("Pad", "j", "k", 1, 0.0, operand(0, "ij", "float32"))
    call = Call(
        "native.loops", Term("Map", "neg", x), sizes, (View.dense("ji", sizes, "float32"),),
        View.dense("ik", sizes, "float32"),
    )  # fmt: skip
    assert isinstance(LOOPS, NativeKernel)
    work = LOOPS.of(call)
    assert work is not None and "wx_turned(" not in work.parts[0].source
    assert check_call(LOOPS, call, np.random.default_rng(0)) is None


@pytest.mark.parametrize("lies", ["pqi", "qpi"])
def test_what_lies_at_no_even_distance_is_not_turned(lies: str) -> None:
    """Axes that are merged and lie apart have no one step: one was written that C does not know, and with it went all
    kernels of this backend."""
    sizes = {"i": 40, "j": 48, "p": 6, "q": 8}
    merged = Term("Merge", "p", "q", "j", operand(1, lies, "float32"))
    meaning = Term("Add", Term("Add", operand(0, "ij", "float32"), merged), operand(2, "ij", "float32"))
    views = (View.dense("ji", sizes, "float32"), View.dense(lies, sizes, "float32"), View.dense("ij", sizes, "float32"))
    call = Call("native.loops", meaning, sizes, views, View.dense("ij", sizes, "float32"))
    assert LOOPS.accepts(call) and check_call(LOOPS, call, np.random.default_rng(0)) is None


def test_squares_begin_with_lines_of_the_cache() -> None:
    """Of 2000 x 3000 they were 25 x 30, and each wrote parts of lines: 7.3 ms, not 4.1; past the cache, where a line
    must be whole, 59 and not 2.5."""
    sizes = {"i": 2000, "j": 3000}

    def made(dtype: str, kernel: str = "native.loops") -> str | None:
        x, y = View.dense("ji", sizes, dtype), View.dense("ij", sizes, dtype)
        k = BACKEND.kernels[kernel]
        assert isinstance(k, NativeKernel)
        work = k.of(Call(kernel, Term("Map", "neg", operand(0, "ij", dtype)), sizes, (x,), y))
        return None if work is None else work.parts[0].source

    turned = made("float32")
    assert turned is not None and turned.count("_t * 64;") == 2
    assert made("float32", "native.loops_stream") is not None
    assert made("float64", "native.loops_stream") is not None and made("float16", "native.loops_stream") is not None
