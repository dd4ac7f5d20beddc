"""Positions whose range the ops that make them tell: what is read is NumPy's, and what cannot happen is not asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from waxeq.frontend.ranges import Range, known_range
from waxeq.frontend.trace import trace
from waxeq.ir.graph import GraphBuilder
from waxeq.ir.interpret import interpret
from waxeq.ir.types import TensorType
from waxeq.ops.contraction import Einsum
from waxeq.ops.elementwise import Cast, Map, Zip
from waxeq.ops.source import Const

pytestmark = pytest.mark.quick

TABLE = np.arange(48.0).reshape(6, 8)
FLOATS = np.array([-3.5, 0.2, 4.999, 17.0])
INTS = np.array([-7, 0, 3, 90])

Positions = Callable[[Any], Any]


def clipped(x: Any) -> Any:
    return np.clip(x, 0, 5).astype(np.int64)


def beside(x: Any) -> Any:
    return np.floor(np.clip(x, 0, 4.999)).astype(np.int64) + 1


def remainder(x: Any) -> Any:
    return x.astype(np.int64) % 6


def greatest(x: Any) -> Any:
    return np.argmax(np.stack([x, -x, x * 0]), 0)


def ordered(x: Any) -> Any:
    return np.argsort(x)


def least(x: Any) -> Any:
    return np.minimum(np.maximum(x.astype(np.int64), -6), 5)


def count(x: np.ndarray, use: Callable[[Any, Any], Any]) -> int:
    return sum(
        repr(n.op) in ("Zip(f='lt')", "Zip(f='ge')") for _, n in trace(use, {"table": TABLE, "x": x}).graph.values()
    )


@pytest.mark.parametrize("places", [clipped, beside, remainder, greatest, ordered, least])
@pytest.mark.parametrize("x", [FLOATS, INTS], ids=["floats", "ints"])
def test_positions_of_a_known_range_are_numpys(places: Positions, x: np.ndarray) -> None:
    def use(table: Any, x: Any) -> Any:
        return table[places(x), places(x)]

    traced = trace(use, {"table": TABLE, "x": x})
    assert np.array_equal(interpret(traced.graph, traced.inputs)["out"], use(TABLE, x))


@pytest.mark.parametrize("places", [remainder, greatest, ordered])
def test_positions_that_are_within_their_axes_are_not_asked_where_they_are(places: Positions) -> None:
    assert count(FLOATS, lambda table, x: table[places(x), places(x)]) == 0


def test_positions_made_of_floats_that_may_be_nan_are_asked_for_that_alone() -> None:
    assert count(FLOATS, lambda table, x: table[clipped(x), clipped(x)]) == 1


@pytest.mark.parametrize("places", [clipped, beside])
@pytest.mark.parametrize("along", [0, 1])
def test_a_position_made_of_nan_is_outside(places: Positions, along: int) -> None:
    """It is the least integer, and times the length of an axis that is 0 again."""

    def use(table: Any, x: Any, y: Any) -> Any:
        return table[places(x), places(y)]

    given = [np.array([1.0, 2.0]), np.array([1.0, 2.0])]
    traced = trace(use, {"table": TABLE, "x": given[0], "y": given[1]})
    given[along][1] = np.nan
    with pytest.raises(IndexError), np.errstate(invalid="ignore"):
        interpret(traced.graph, {"table": TABLE, "x": given[0], "y": given[1]})


def test_a_maximum_and_a_minimum_bound_what_is_unknown() -> None:
    b = GraphBuilder()
    x = b.leaf("x", TensorType("float32", (3,)))
    low = b(Zip("max"), x, b(Const(0.0, "float32")))
    both = b(Zip("min"), low, b(Const(9.5, "float32")))
    whole = b(Cast("int64"), b(Map("floor"), both))
    assert known_range(b, x) is None
    assert known_range(b, low) == Range(0, np.inf, nan=True)
    assert known_range(b, whole) == Range(0, 9, nan=True)
    assert known_range(b, b(Cast("int64"), low)) == Range(0, np.inf, nan=True)
    assert known_range(b, b(Cast("int8"), both)) == Range(-128, 127)
    assert known_range(b, b(Zip("max"), whole, b(Const(2, "int64")))) == Range(2, 9)


def test_a_bound_is_the_number_that_its_dtype_holds() -> None:
    """In float32 the number below is 255: one place further is outside of an axis of 256, and inside a merged one."""

    def use(table: Any, x: Any) -> Any:
        place = np.minimum(x, np.float32(255 - 1e-7)).astype(np.int64) + 1
        return table[place * 0, place]

    table, x = np.zeros((4, 256)), np.asarray([3.0], np.float32)
    traced = trace(use, {"table": table, "x": x})
    with pytest.raises(IndexError):
        interpret(traced.graph, {"table": table, "x": np.asarray([300.0], np.float32)})


def test_values_that_are_used_again_and_again_are_looked_at_once() -> None:
    b = GraphBuilder()
    x = b(Zip("mod"), b.leaf("x", TensorType("int64", (3,))), b(Const(2, "int64")))
    for _ in range(20):
        x = b(Zip("add"), x, x)
    assert known_range(b, x) == Range(0, 2**20)


def test_products_that_floats_round_tell_nothing_where_they_cancel() -> None:
    """They came to 1, where the range was 0 to 0: a position beside an axis was not looked at."""
    big = 2**29
    x, y = np.array([big + 1, -big, -big]), np.array([big + 1, big, 2])
    assert x @ y == 1
    b = GraphBuilder()
    leaves = [b.leaf(name, TensorType("int64", (3,)), "constant", a) for name, a in (("x", x), ("y", y))]
    assert known_range(b, b(Einsum("i,i->"), *leaves)) is None


def test_sums_of_constants_that_span_much_tell_nothing() -> None:
    """Their products would be laid out along the axes of both."""
    b, wide = GraphBuilder(), np.random.default_rng(0).integers(0, 9, (2000, 1))
    left, right = (
        b.leaf(n, TensorType("int64", a.shape), "constant", a) for n, a in (("l", wide), ("r", wide.T.copy()))
    )
    assert known_range(b, b(Einsum("ij,jk->"), left, right)) is None


@pytest.mark.parametrize(("dtype", "low", "high", "more"), [("uint8", 0, 10, 251), ("int8", 90, 110, 100)])
def test_sums_of_narrow_integers_that_wrap_tell_nothing(dtype: str, low: int, high: int, more: int) -> None:
    """190 is -66 in 8 bits: it was taken for no negative position, and read what lies before a row."""

    def use(table: Any, x: Any) -> Any:
        place = np.clip(x, np.asarray(low, dtype), np.asarray(high, dtype)) + np.asarray(more, dtype)
        return table[(place * 0).astype(np.int64) + 100, place]

    table, x = np.zeros((200, 2)), np.asarray([5, 6], dtype)
    traced = trace(use, {"table": table, "x": x})
    with pytest.raises(IndexError):
        interpret(traced.graph, {"table": table, "x": np.asarray([3, 7], dtype)})


def test_half_of_what_a_cast_makes_of_nan_is_any_number() -> None:
    b = GraphBuilder()
    x = b(Zip("min"), b.leaf("x", TensorType("float32", (3,))), b(Const(-3.0, "float32")))
    whole = b(Cast("int64"), b(Zip("max"), x, b(Const(-9.0, "float32"))))
    assert known_range(b, whole) == Range(-9, -3, nan=True)
    assert known_range(b, b(Cast("int32"), whole)) is None


OF_NAN: list[Positions] = [
    lambda x: clipped(x) - 3,
    lambda x: clipped(x) + (-3),
    lambda x: np.maximum(clipped(x) - 3, 0),
    lambda x: 5 - np.maximum(clipped(x) - 3, 0),
    lambda x: np.maximum(clipped(x) - 3, 0) // 2,
    lambda x: clipped(x) + 2**21 - 2**21,
]


@pytest.mark.parametrize("places", OF_NAN)
def test_what_a_cast_made_of_nan_wraps_below_the_least_integer(places: Positions) -> None:
    """It is the greatest then, which times the length of an axis was the place of an element in another row."""

    def use(table: Any, x: Any, j: Any) -> Any:
        return table[places(x), j]

    table, j = np.zeros((16, 16)), np.zeros(1, np.int64)
    traced = trace(use, {"table": table, "x": np.ones(1), "j": j})
    with np.errstate(invalid="ignore"):
        given = {"table": table, "x": np.full(1, np.nan), "j": j}
        try:
            meant = use(**given)
        except IndexError:
            with pytest.raises(IndexError):
                interpret(traced.graph, given)
        else:
            assert np.array_equal(interpret(traced.graph, given)["out"], meant)


DIGITS = 2 ** np.arange(3)
SUMS: list[Positions] = [
    lambda x: ((x > 0) * DIGITS).sum(-1),
    lambda x: (DIGITS * (x > 0)).sum(-1),
    lambda x: (x > 0).astype(np.int64) @ DIGITS,
    lambda x: np.einsum("ik,k->i", (x > 0).astype(np.int64), DIGITS),
    lambda x: np.einsum("k,ki->i", DIGITS, (x > 0).astype(np.int64).T),
    lambda x: (x > 0).astype(np.int64).sum(-1) + 4,
    lambda x: 7 - ((x > 0) * DIGITS).sum(-1),
    lambda x: np.arange(8)[((x > 0) * DIGITS).sum(-1)],
]


@pytest.mark.parametrize("places", SUMS)
def test_sums_of_digits_are_positions_that_are_within_their_axes(places: Positions) -> None:
    """Which leaf of an oblivious tree a row falls into is the number that its comparisons write: it was asked for each
    row whether there is such a leaf."""
    table, x = np.arange(8.0), np.random.default_rng(0).standard_normal((20, 3))
    traced = trace(lambda table, x: table[places(x)], {"table": table, "x": x})
    comparisons = [n for _, n in traced.graph.values() if repr(n.op) in ("Zip(f='lt')", "Zip(f='ge')")]
    assert not comparisons
    assert np.array_equal(interpret(traced.graph, traced.inputs)["out"], table[places(x)])


@pytest.mark.parametrize("digits", [[1, 2, 5], [1, 2, -9], [2**62, 2**62, 2**62]])
def test_sums_that_leave_an_axis_are_asked_where_they_are(digits: list[int]) -> None:
    table, x, row = np.arange(8.0), np.zeros((20, 3)), np.asarray(digits)
    traced = trace(lambda table, x: table[((x > 0) * row).sum(-1)], {"table": table, "x": x})
    given = np.zeros((20, 3))
    given[7] = [digits[2] > 0, digits[2] > 0, 1]
    with pytest.raises(IndexError):
        interpret(traced.graph, {"table": table, "x": given})
