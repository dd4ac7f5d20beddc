"""Ufuncs and their methods, of lists of arrays too."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import waxeq as wx
from waxeq.errors import TargetError, UnsupportedError
from waxeq.frontend.trace import trace
from waxeq.ir.interpret import interpret

pytestmark = pytest.mark.quick

DTYPES = (np.float32, np.float64, np.int32, np.int8, np.uint16, bool)
SHAPES = ((2, 2), (1, 2), (3,), (4, 1))
FOLDS = (np.add, np.multiply, np.maximum, np.minimum, np.logical_or, np.logical_and)
NAMED: dict[Any, Any] = {"larger": np.maximum, np.add: 3, "rows": (np.add, np.exp)}


def numbers(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> np.ndarray:
    """Small whole numbers, which sums of any order agree on."""
    return np.random.default_rng(seed).integers(-3 if np.dtype(dtype).kind in "if" else 0, 4, shape).astype(dtype)


# -- lists of arrays


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_methods_take_lists_of_arrays(check: Callable[..., None], dtype: Any, shape: tuple[int, ...]) -> None:
    x, y = numbers(shape, dtype), numbers(shape, dtype, 1)
    check(lambda x, y: tuple(f.reduce([x, y, x]) for f in FOLDS), x, y)
    check(lambda x, y: tuple(f.reduce((x, y), axis=-1, keepdims=True) for f in FOLDS), x, y)
    check(lambda x, y: tuple(f.accumulate([x, y]) for f in FOLDS), x, y)
    check(lambda x, y: (np.add.reduce([x, y], axis=None), np.multiply.reduce([x, y], axis=(0, 1))), x, y)
    check(
        lambda x, y: (np.add.reduce(array=[x, y]), np.add.outer([x, y], [1, 2]), np.add.reduceat([x, y], [0, 1])), x, y
    )
    check(lambda x, y: (np.maximum([x, y], [y, x]), np.logical_not([x, y]), functools.reduce(np.add, [x, y])), x, y)
    check(lambda x, y: (np.logical_and.reduce([x > 0, y > 0]), np.bitwise_xor.reduce([x > 0, y > 0])), x, y)


@pytest.mark.parametrize("dtype", DTYPES)
def test_reduce_takes_initial_and_where(check: Callable[..., None], dtype: Any) -> None:
    x, y = numbers((2, 2), dtype), numbers((2, 2), dtype, 1)
    check(lambda x, y: tuple(f.reduce([x, y], initial=2) for f in FOLDS), x, y)
    check(lambda x, y: tuple(f.reduce([x, y], axis=0, where=x > y, initial=1) for f in FOLDS), x, y)
    check(lambda x, y: (np.fmax.reduce([x, y], initial=1, where=x > y), np.fmin.reduce(x, axis=-1)), x, y)
    check(lambda x, y: (np.logical_xor.reduce([x, y], where=x > y, initial=True),), x, y)
    check(lambda x, y: (np.bitwise_and.reduce([x > 0, y > 0], where=[True, False], initial=False),), x, y)
    if dtype is not bool:
        check(lambda x, y: np.logaddexp.reduce([x, y], where=x > y, initial=0), x, y)


def test_reduce_in_another_dtype(check: Callable[..., None]) -> None:
    check(
        lambda x: tuple(f.reduce([x, x], 0, np.float64) for f in (np.maximum, np.minimum, np.add)), numbers((3,), "f4")
    )


def test_reduce_of_nan_and_of_nothing(check: Callable[..., None]) -> None:
    x = np.array([1, np.nan, 3])
    check(lambda x, y: tuple(f.reduce([x, y]) for f in (np.maximum, np.minimum, np.fmax, np.fmin)), x, x[::-1].copy())
    check(lambda x, y: (np.minimum.accumulate([x, y]), np.add.reduce([x, [1, 2, 3]])), x, x[::-1].copy())
    empty = np.zeros((2, 0))
    check(lambda x: tuple(f.reduce([x, x], axis=-1, initial=1) for f in (*FOLDS, np.fmax)), empty)
    check(lambda x: (np.add.reduce([x, x], axis=-1), np.logical_and.reduce([x, x], axis=2)), empty)
    for f in (np.maximum, np.fmax):
        with pytest.raises(TargetError, match="zero-size array to reduction operation"):
            wx.trace(lambda x, f=f: f.reduce([x], axis=-1), empty)


def test_arguments_by_name(check: Callable[..., None]) -> None:
    """NumPy gives them to who overrides it twice, by place as well."""
    x = numbers((2, 3), "f4")
    check(lambda x: (np.add.reduceat(x, indices=[0, 1]), np.add.reduceat(indices=[1, 0], array=x)), x)
    check(lambda x: np.maximum.reduceat(array=[x[0], x[1]], indices=[0, 2], axis=1), x)
    check(lambda x: (np.fmax.reduce(x, where=True, initial=None), np.bitwise_or.reduce(array=x > 0, axis=1)), x)


def test_an_initial_value_that_the_dtype_has_not_is_refused_as_by_numpy() -> None:
    with pytest.raises(TargetError, match="OverflowError: Python integer 300 out of bounds for int8"):
        wx.trace(lambda x: np.fmax.reduce(x, initial=300), np.arange(3, dtype=np.int8))


# -- ufuncs as values


def test_a_ufunc_is_one_thing_wherever_a_model_has_it_from() -> None:
    def model(op: Any, x: Any, given: Any = np.exp) -> Any:
        assert op is np.add and given is np.exp and NAMED["larger"] is np.maximum and NAMED["rows"][0] is np.add
        assert NAMED[np.add] == 3 and isinstance(np.add, np.ufunc) and op.nin == 2 and np.add != np.exp
        return op.reduce([x, x])

    trace(model, {"op": np.add, "x": np.ones(3)})
    assert all(type(f) is np.ufunc for f in (NAMED["larger"], *NAMED["rows"], model.__defaults__[0]))


def test_known_lists_are_computed_at_once(check: Callable[..., None]) -> None:
    check(lambda x: x[np.add.accumulate([0, 1, 1])] * np.maximum.reduce([1, 4]) * np.ones(np.add(1, 2)), np.arange(3.0))


# -- reduceat


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("f", FOLDS)
def test_reduceat_of_known_indices(check: Callable[..., None], f: Any, dtype: Any) -> None:
    many = [0, 1, 2, 4, 5, 7, 8, 13, 14, 20, 23]
    for shape, axis in (((7,), 0), ((7, 3), 0), ((2, 24), -1), ((3, 24, 2), 1), ((24, 0), 0), ((1,), 0)):
        x, n = numbers(shape, dtype), shape[axis]
        if x.size and np.dtype(dtype).kind == "f":
            x.flat[x.size // 2] = np.nan
        rows = ([0], [n - 1], [0, n // 2], [*range(0, n, 2)], [n // 2] * 3, [*range(n)], [i % n for i in many])
        for places in (*rows, [i for i in many if i < n], [i for i in many if i < n][::-1], np.array([], int)):
            check(lambda x, i=places, a=axis: f.reduceat(x, i, a), x)
    check(lambda x: f.reduceat(x, [0, 2], dtype=np.float64 if f in FOLDS[:4] else None), numbers((5,), dtype))


@pytest.mark.parametrize(
    ("places", "error"),
    [([5], "IndexError: .*out-of-bounds"), ([-1], "IndexError: .*out-of-bounds"), (0, "ValueError")],
)
def test_reduceat_raises_as_numpy_does(places: Any, error: str) -> None:
    with pytest.raises(TargetError, match=error):
        wx.trace(lambda x: np.add.reduceat(x, places), np.ones(5))


def test_reduceat_of_places_that_are_data_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"np\.add\.reduceat of indices that are data; .*np\.add\.at"):
        wx.trace(lambda x, i: np.add.reduceat(x, i), np.ones(5), np.array([0, 2]))


# -- ldexp

POWERS = np.array([0, 1, -1, 5, -200, 200, -1074, 1023, -1100, 2000, -2000, 3, 7, 30, -30])
SCALED = np.array([1, 0, -0.0, 3.3, np.nan, 1.5, 1, -np.inf, 1e300, 5e-324, 1e308, -7.25, 2.5, 1 / 3, 1 / 3])


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int8, np.int32, bool])
@pytest.mark.parametrize("power", [np.int64, np.int32, np.int16])
def test_ldexp_is_exact(dtype: Any, power: Any) -> None:
    with np.errstate(all="ignore"):
        x = (SCALED if np.dtype(dtype).kind == "f" else np.arange(15) - 7).astype(dtype)
        n = np.clip(POWERS, -2000, 2000).astype(power)

    def model(x: Any, n: Any) -> Any:
        return np.ldexp(x, n), np.ldexp(x, 3), np.ldexp(x, POWERS), np.ldexp(x[:3, None], [1, -200]), np.ldexp(1.5, n)

    traced = wx.trace(model, x, n)
    for g, w in zip(interpret(traced.graph, traced.inputs).values(), model(x, n), strict=True):
        assert (g.dtype, g.shape) == (w.dtype, w.shape)
        np.testing.assert_array_equal(g, w)


@pytest.mark.parametrize("known", [True, False])
def test_ldexp_rounds_once(known: bool) -> None:
    """A first step of 1022 down rounded what the next one rounded again."""
    rng = np.random.default_rng(0)
    x = np.ldexp(rng.uniform(1, 2, 4000), rng.integers(-60, 60, 4000)) * rng.choice([-1, 1], 4000)
    x, n = np.append(x, np.ldexp(2.5000001, -52)), np.append(rng.integers(-1150, -960, 4000), -1023)
    traced = wx.trace(
        (lambda x: np.ldexp(x, n)) if known else (lambda x, n: np.ldexp(x, n)), *([x] if known else [x, n])
    )
    (found,) = interpret(traced.graph, traced.inputs).values()
    np.testing.assert_array_equal(found, np.ldexp(x, n))


def test_ldexp_rounds_once_to_numbers_of_fewer_digits() -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.standard_normal(4000) * 2.0 ** rng.integers(-60, 60, 4000), rng.random(4000) * 1e308])
    n = np.concatenate([rng.integers(-1130, -1000, 4000), rng.integers(-2110, -2030, 4000)])
    traced = wx.trace(lambda x, n: np.ldexp(x, n), x, n)
    (got,) = interpret(traced.graph, traced.inputs).values()
    np.testing.assert_array_equal(got, np.ldexp(x, n))


def test_ldexp_of_nothing_and_of_no_whole_numbers(check: Callable[..., None]) -> None:
    check(lambda x, n: np.ldexp(x, n), np.zeros((0, 3)), np.zeros((0, 1), int))
    for n in (np.ones(2), np.ones(2, np.uint64)):
        with pytest.raises(TargetError, match="TypeError: ufunc 'ldexp' not supported"):
            wx.trace(lambda x, n: np.ldexp(x, n), np.ones(2), n)
