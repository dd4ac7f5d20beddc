"""Python numbers among traced arrays: weak in dtype, and NumPy's answer where the dtype does not hold them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from waxeq.errors import TargetError, UnsupportedError
from waxeq.frontend.trace import trace
from waxeq.ir.interpret import interpret

pytestmark = pytest.mark.quick

U = np.array([0, 1, 200, 255], np.uint8)
B = np.array([True, False, True, False])
I32 = np.array([1, 2, -3, 2**31 - 1], np.int32)
X = np.array([1, 2, 3, 4], np.float32)
ARRAYS = {"u": U, "b": B, "i": I32, "x": X}


def check(fn: Callable[..., Any]) -> None:
    """`fn` gives what NumPy gives: values, dtype and shape."""
    traced = trace(fn, ARRAYS)
    (got,) = interpret(traced.graph, traced.inputs).values()
    want = np.asarray(fn(**{k: v.copy() for k, v in ARRAYS.items()}))
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("compare", [np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal])
def test_int64_and_uint64_are_compared_exactly(compare: Any) -> None:
    near = np.array([2**63 - 1, 2**63, 2**64 - 1, 0], np.uint64)
    for signed in (np.array([2**63 - 1, -(2**63), -1, 0]), np.array([-1, 0, 1, -128], np.int8)):
        check(lambda u, b, i, x, s=signed: compare(s + 0 * u[:1].astype(s.dtype), near + u * np.uint64(0)))
        check(lambda u, b, i, x, s=signed: compare(near[:, None] + u * np.uint64(0), s + 0 * u.astype(s.dtype)))


@pytest.mark.parametrize("n", [-1, 256, 1000, 2**70, -(2**70), 2**31])
@pytest.mark.parametrize("compare", [np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal])
def test_comparisons_with_ints_that_the_dtype_does_not_hold_are_answered_exactly(compare: Any, n: int) -> None:
    check(lambda u, b, i, x: compare(u, n))
    check(lambda u, b, i, x: compare(n, u))
    check(lambda u, b, i, x: compare(i, n))
    if abs(n) < 2**63:  # NumPy raises for bools and more
        check(lambda u, b, i, x: compare(b, n))


def test_comparisons_by_operators_and_of_scalars() -> None:
    check(lambda u, b, i, x: (u < 256).sum())
    check(lambda u, b, i, x: -1 < u)  # noqa: SIM300
    check(lambda u, b, i, x: u[0] == -1)
    check(lambda u, b, i, x: i > 2**31)


def test_logic_takes_any_int() -> None:
    check(lambda u, b, i, x: np.logical_and(u, 1000))
    check(lambda u, b, i, x: np.logical_or(u, -1))


@pytest.mark.parametrize("n", [-1, 300, 2**63])
def test_ints_among_choices_are_cut_to_the_dtype(n: int) -> None:
    check(lambda u, b, i, x: np.where(b, u, n))
    check(lambda u, b, i, x: np.where(b, n, u))
    check(lambda u, b, i, x: np.choose(b, [u, n]))


def test_other_choices_stay_as_they_are() -> None:
    check(lambda u, b, i, x: np.where(b, u, 1.5))
    check(lambda u, b, i, x: np.where(b, x, -1))
    check(lambda u, b, i, x: np.where(b, 1, 2))
    check(lambda u, b, i, x: np.where(x, b, 3))
    check(lambda u, b, i, x: np.select([b], [u], -1))


@pytest.mark.parametrize("ends", [(-1, 300), (-1, None), (None, 300), (0, 255), (3, 300), (-7, 100)])
def test_clip_takes_ints_beyond_the_dtype_for_no_bounds(ends: tuple[Any, Any]) -> None:
    check(lambda u, b, i, x: np.clip(u, *ends))
    check(lambda u, b, i, x: u.clip(*ends))
    check(lambda u, b, i, x: np.clip(i, ends[0], 2**40))


def test_choose_takes_bools_and_leaves_numbers_weak() -> None:
    check(lambda u, b, i, x: np.choose(b, [x, x + 2]))
    check(lambda u, b, i, x: np.choose((x > 2).astype(int), [x, 0]))
    check(lambda u, b, i, x: np.choose(b, [x, 0.5]))
    check(lambda u, b, i, x: b.choose([u, [1, 2, 3, 4]]))


@pytest.mark.parametrize(
    "fn",
    [
        lambda u, b, i, x: u + 300,
        lambda u, b, i, x: np.maximum(u, -1),
        lambda u, b, i, x: np.clip(u, 300, 400),
        lambda u, b, i, x: np.insert(u, 0, -1),
        lambda u, b, i, x: np.insert(u, 0, [300]),
        lambda u, b, i, x: np.full_like(u, -1),
        lambda u, b, i, x: np.where(b, u, 2**70),
    ],
)
def test_ints_that_numpy_refuses_are_refused(fn: Any) -> None:
    with pytest.raises(OverflowError):
        fn(U, B, I32, X)
    with pytest.raises((UnsupportedError, TargetError), match=r"test_python_numbers\.py:\d+: .*(bounds|large)"):
        trace(fn, ARRAYS)


@pytest.mark.parametrize("index", [0, slice(0, 2), slice(None, None, 2)])
def test_ints_that_the_dtype_does_not_hold_are_not_written(index: Any) -> None:
    def fn(u: Any, b: Any, i: Any, x: Any) -> Any:
        u = u.copy()
        u[index] = -1
        return u

    with pytest.raises(OverflowError):
        fn(U, B, I32, X)
    with pytest.raises(TargetError, match="-1 out of bounds for uint8"):
        trace(fn, ARRAYS)


def test_insert_of_arrays_cuts_them_as_numpy_does() -> None:
    check(lambda u, b, i, x: np.insert(u, 1, i[0:1] - 2))
    check(lambda u, b, i, x: np.insert(u, -1, np.array([-1, 300])))
    check(lambda u, b, i, x: np.insert(x, 2, 7))
