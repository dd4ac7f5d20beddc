"""Shifts and quotients of whole numbers where C says nothing, or something else than NumPy."""

from __future__ import annotations

import re

import numpy as np
import pytest

from waxeq.backend.call import Call, View, operand
from waxeq.ir.term import Term
from waxeq_native.loops import Loops

KINDS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FUNCTIONS = {
    "shl": np.left_shift,
    "shr": np.right_shift,
    "floordiv": np.floor_divide,
    "mod": np.remainder,
    "fmod": np.fmod,
}


def _numbers(dtype: str) -> np.ndarray:
    """The ends, zero, and what shifts are near the numbers of bits of."""
    i = np.iinfo(dtype)
    near = (*range(4), 7, 8, 9, 15, 16, 31, 32, 33, 63, 64)
    some = {i.min, i.min + 1, i.max, i.max // 3, -64, -9, -8, -7, -2, -1, *near}
    return np.array(sorted(x for x in some if i.min <= x <= i.max), dtype)


@pytest.mark.parametrize(
    ("left", "right", "held"),
    [("int32", "int32", True), ("int32", "int8", False), ("uint8", "int32", False), ("int16", "uint8", False)],
)
def test_products_of_what_is_narrower_than_their_sum_go_by_vectors(left: str, right: str, held: bool) -> None:
    """Gcc makes no vectors around a loop that reads narrower numbers: 64 x 512 x 512 took 10 to 22 ms for 0.8."""
    sizes = {"i": 64, "k": 512, "j": 512}
    x, y = View.dense("ik", sizes, left), View.dense("kj", sizes, right)
    read = (operand(n, axes, dtype) for n, axes, dtype in ((0, "ik", left), (1, "kj", right)))
    wide = (t if d == "int32" else Term("Cast", "int32", t) for t, d in zip(read, (left, right), strict=True))
    call = Call("native.loops", Term("Sum", "k", Term("Mul", *wide)), sizes, (x, y), View.dense("ij", sizes, "int32"))
    kernel = Loops()
    found = kernel.of(call)
    assert found is not None
    assert ("a7_" in found.parts[0].source) == held
    rng = np.random.default_rng(0)
    arrays = [rng.integers(0, 100, v.shape).astype(v.dtype) for v in (x, y)]
    out = np.empty((64, 512), np.int32)
    kernel.prepare([(kernel, call)])
    for step in kernel.bind(call, arrays, out, np.empty(kernel.workspace(call) + 64, np.uint8)):
        step()
    np.testing.assert_array_equal(out, arrays[0].astype(np.int32) @ arrays[1].astype(np.int32))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_pair_is_as_numpy_has_it(name: str) -> None:
    """Models that shift had a kernel of NumPy's between any two of ours."""
    calls, kernel = dict[str, Call](), Loops()
    for dtype in KINDS:
        n = _numbers(dtype).size
        x, y = (View.dense((k,), {k: n}, dtype) for k in "ij")
        meaning = Term("Zip", name, operand(0, "i", dtype), operand(1, "j", dtype))
        sizes = {"i": n, "j": n}
        calls[dtype] = Call("native.loops", meaning, sizes, (x, y), View.dense("ij", sizes, dtype))
    kernel.prepare([(kernel, c) for c in calls.values()])
    for dtype, call in calls.items():
        assert kernel.accepts(call)
        x = _numbers(dtype)
        out = np.empty((x.size, x.size), dtype)
        for step in kernel.bind(call, [x, x], out, np.empty(1 << 12, np.uint8)):
            step()
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(out, FUNCTIONS[name](x[:, None], x), err_msg=dtype)


_BY = (
    1,
    2,
    3,
    5,
    7,
    8,
    10,
    60,
    100,
    127,
    146097,
    2**31 - 1,
    2**31,
    2**32 + 1,
    3_600_000_000,
    10**9 + 7,
    2**53 - 1,
    2**62,
)


@pytest.mark.parametrize("name", ["floordiv", "mod"])
@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint64"])
def test_by_a_known_number(name: str, dtype: str) -> None:
    """64 bits are divided by a product with the reciprocal: of each number there must be none that it is wrong for."""
    kernel, i = Loops(), np.iinfo(dtype)
    rng, rows = np.random.default_rng(0), list[tuple[int, np.ndarray, Call]]()
    for by in (c for c in _BY if c <= i.max):
        near = [m * by + d for m in (-3, -1, 0, 1, 2, i.max // by, i.min // by) for d in (-1, 0, 1)]
        few = np.array([v for v in near if i.min <= v <= i.max], dtype)
        x = np.concatenate([_numbers(dtype), few, rng.integers(i.min, i.max, 3000, dtype, endpoint=True)])
        view = View.dense("i", {"i": x.size}, dtype)
        meaning = Term("Zip", name, operand(0, "i", dtype), Term("Num", float(by), dtype))
        rows.append((by, x, Call("native.loops", meaning, {"i": x.size}, (view,), view)))
    kernel.prepare([(kernel, call) for _, _, call in rows])
    for by, x, call in rows:
        out = np.empty_like(x)
        for step in kernel.bind(call, [x], out, np.empty(0, np.uint8)):
            step()
        np.testing.assert_array_equal(out, FUNCTIONS[name](x, np.asarray(by, dtype)), err_msg=str(by))


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64", "uint64"])
def test_times_a_truth_value(dtype: str, first: bool) -> None:
    """It is a mask: machines without AVX-512 multiply numbers of 64 bits one by one."""
    x = _numbers(dtype)
    which = np.arange(x.size) % 3 == 0
    truth, number = Term("Cast", dtype, operand(0, "i", "bool")), operand(1, "i", dtype)
    meaning = Term("Mul", *((truth, number) if first else (number, truth)))
    sizes = {"i": x.size}
    view = View.dense("i", sizes, dtype)
    call, out = Call("native.loops", meaning, sizes, (View.dense("i", sizes, "bool"), view), view), np.empty_like(x)
    work = Loops().of(call)
    assert work is not None and not re.search(r"r\d+ \* r\d+", work.parts[0].source)
    for step in Loops().bind(call, [which, x], out, np.empty(0, np.uint8)):
        step()
    np.testing.assert_array_equal(out, which * x)
