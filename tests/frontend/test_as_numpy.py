"""What NumPy does in corners where another meaning is easily traced: done as it does, or refused in a sentence."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import waxeq as wx
from waxeq.errors import BoundsError, TargetError, UnsupportedError
from waxeq.frontend.handlers import HANDLERS, METHODS
from waxeq.frontend.trace import trace
from waxeq.ir.interpret import interpret
from waxeq.ir.types import numpy_dtype

pytestmark = pytest.mark.quick

X = np.arange(12, dtype=np.float32).reshape(3, 4) - 5
I64 = np.arange(6, dtype=np.int64).reshape(2, 3)


def run(fn: Callable[..., Any], *arrays: np.ndarray) -> list[np.ndarray]:
    traced = trace(fn, dict(zip(inspect.signature(fn).parameters, arrays, strict=True)))
    return list(interpret(traced.graph, {**traced.inputs, **traced.tensors}).values())


def check(fn: Callable[..., Any], *arrays: np.ndarray) -> None:
    """`fn` gives what NumPy gives: values, dtypes and shapes."""
    want = fn(*(a.copy() for a in arrays))
    rows = want if isinstance(want, tuple) else (want,)
    for g, w in zip(run(fn, *arrays), map(np.asarray, rows), strict=True):
        assert (g.dtype, g.shape) == (w.dtype, w.shape)
        np.testing.assert_allclose(g, w, rtol=1e-6)


def refused(match: str, fn: Callable[..., Any], *arrays: np.ndarray) -> None:
    with pytest.raises(UnsupportedError, match=rf"^test_as_numpy\.py:\d+: .*{match}"):
        run(fn, *arrays)


# -- folds


@pytest.mark.parametrize("fold", [np.sum, np.prod, np.nansum, np.nanprod])
def test_initial_counts_once_however_many_elements_are_masked(fold: Any) -> None:
    check(lambda x: fold(x, axis=0, where=x > 0, initial=5.0), X)
    check(lambda x: fold(x, where=x > 0, initial=2.0), X)


def test_initial_stands_for_what_is_masked_where_a_fold_has_no_identity() -> None:
    check(lambda x: (x.max(axis=0, where=x > 0, initial=1.5), np.min(x, where=x > 0, initial=3)), X)
    check(lambda x: np.add.reduce(x, axis=1, where=x > 0, initial=5.0), X)


@pytest.mark.parametrize("fold", [np.mean, np.var, np.std, np.average, np.median])
def test_moments_of_bfloat16_are_bfloat16(fold: Any) -> None:
    x = X.astype(numpy_dtype("bfloat16"))
    (got,) = run(lambda x: fold(x, axis=1), x)
    want = np.asarray(fold(x, axis=1))
    assert got.dtype == want.dtype == x.dtype
    np.testing.assert_allclose(got.astype(np.float32), want.astype(np.float32), rtol=2**-7)


def test_a_mean_in_whole_numbers_is_cut() -> None:
    check(lambda x: (np.mean(x, 0, dtype=np.int64), x.mean(dtype=np.int32), np.mean(x * 40, 1, np.int8)), X)
    check(lambda x: np.mean(x, where=x > -3, dtype=np.int64), X)
    refused("variance in whole numbers.*floats", lambda x: np.var(x, 0, dtype=np.int64), X)
    check(lambda x: np.nanmean(x, 0, dtype=np.int64), I64)
    with pytest.raises(TargetError, match=r"TypeError: .*dtype must be inexact"):
        run(lambda x: np.nanmean(x, 0, dtype=np.int64), X)
    refused("np.mean in bools", lambda x: np.mean(x, dtype=bool), X)


# -- methods of ufuncs and of arrays


def test_methods_of_ufuncs_on_known_arrays_are_those_methods() -> None:
    def model(x: Any) -> Any:
        return np.add.reduceat(np.ones(4), [0, 1, 2, 3]) * x, np.subtract.reduce(np.ones(3)) + x

    check(model, X)


def test_a_scatter_that_is_not_traced_is_refused_and_writes_to_no_argument() -> None:
    values = np.array([1.0, 2.0])

    def model(x: Any) -> Any:
        m = np.zeros(4, np.float32)
        np.divide.at(m, [0, 1], values)
        return m + x

    refused(r"np\.divide\.at is not traced; write m\[index\] = np\.divide.*np\.add\.at", model, X)
    assert values.tolist() == [1.0, 2.0]
    refused(r"np\.multiply\.at", lambda x: np.multiply.at(x, [0], 2), X)


def test_methods_take_arguments_in_the_order_of_ndarray() -> None:
    check(lambda x: (x.sum(0, None, None, True), x.prod(1, np.float64, None, True), x.max(0, None, True)), X)
    check(lambda x: (x.mean(0, np.float64, None, True), x.var(0, None, None, 1), x.std(1, None, None, 1, True)), X)
    check(lambda x: (x.argmax(0, None), x.any(0), x.cumsum(1, np.float64), x.clip(-1, 2)), X)
    check(lambda x: (x.astype(np.float64, "C", "unsafe", True, False), x.trace(1, 0, 1, np.float64)), X)


def test_methods_write_where_out_says() -> None:
    def model(x: Any) -> Any:
        y, row, rows, places = np.empty_like(x), np.zeros(4, np.float32), np.zeros((2, 4), np.float32), np.zeros(4, int)
        x.clip(0, 1, out=y)
        x.sum(0, out=row)
        x.argmin(0, places)
        x.take([0, 2], axis=0, out=rows)
        kept = x.compress([True, False, True], 0, np.empty((2, 4), np.float32))
        z = x.round(1, out=np.empty_like(x))
        return y, row, rows, places, kept, z, x.dot(x.T, out=np.empty((3, 3), np.float32))

    check(model, X)
    with pytest.raises(TargetError, match="TypeError: a result of float32 cannot be written to an array of int64"):
        run(lambda x: x.sum(0, out=np.zeros(4, np.int64)), X)


def test_options_of_methods_that_are_not_traced_are_refused() -> None:
    refused(r"ndarray\.astype is not traced with the option 'deep'", lambda x: x.astype(int, deep=1), X)
    refused(r"np\.clip is not traced with the option 'casting'", lambda x: x.clip(0, 1, casting="safe"), X)


def test_methods_that_are_functions_have_their_names() -> None:
    from waxeq.frontend.calls import name_of

    own = {n for n in METHODS if METHODS[n] is not HANDLERS.get(n)}
    reordered = {
        "transpose",
        "reshape",
        "flatten",
        "fill",
        "sort",
        "partition",
        "compress",
        "conj",
        "conjugate",
        "put",
        "view",
    }
    assert own == reordered
    assert all(HANDLERS[name_of(getattr(np, n))] is METHODS[n] for n in METHODS if n not in own)


# -- numbers


def test_padding_by_an_integer_that_no_float_is() -> None:
    most = int(np.iinfo(np.int64).max)
    check(lambda x: np.pad(x, 1, constant_values=most), I64)
    check(lambda x: np.pad(x, 1, constant_values=np.iinfo(np.int64).min), I64)


def test_einsum_computes_in_the_common_dtype_of_all_operands() -> None:
    small = np.array([100, 50, 3], np.int8)
    check(lambda a, b, c: np.einsum("i,i,i->i", a, b, c), small, small, np.array([1.0, 0.5, 2.0]))
    check(lambda a, b, c: np.einsum("i,i,i", a, b, c), small, small, small.astype(np.int64))


def test_python_numbers_are_arrays_in_dot_and_inner() -> None:
    check(lambda x: (np.dot(x, 2.0), np.inner(2.0, x), x.dot(3), np.dot(np.float32(2), x)), X)


def test_isclose_keeps_python_numbers_weak() -> None:
    x = np.array([0.1, 0.5, np.nan], np.float32)
    check(lambda x: (np.isclose(x, 0.1, rtol=0, atol=0), np.isclose(0.1, x, 0, 0), np.isclose(x, 1)), x)
    check(lambda x: (np.isclose(x, np.float64(0.1), 0, 0), np.isclose(x, np.nan, equal_nan=True)), x)
    check(lambda x: (np.allclose(x, True), np.isclose(x, np.inf), np.isclose(x, [0.1, 0.5, 1])), x)


# -- orders of memory


def test_an_order_that_depends_on_memory_is_refused() -> None:
    refused("order 'K', .*use order 'C' or 'F'", lambda x: x.T.ravel(order="K"), X)
    refused("order 'A'", lambda x: np.ravel(x, "A"), X)
    refused("order 'K'", lambda x: x.T.flatten("K"), X)
    check(lambda x: (x[0].ravel("K"), x[:, None, 1].flatten("A"), x.ravel("f"), x.flatten("F")), X)
    with pytest.raises(TargetError, match="ValueError: order 'K' is not permitted"):
        run(lambda x: x.reshape(-1, order="K"), X)


# -- places


@pytest.mark.parametrize("at", [(0, 5), (0, -5), (-4, 0), (3, 0), (2, 4), (-1, -9), (1, -(2**40))])
def test_an_index_outside_its_own_axis_is_an_error_among_several(at: tuple[int, int]) -> None:
    i, j = (np.array(n) for n in at)

    def write(x: Any, i: Any, j: Any) -> Any:
        y = x.copy()
        y[i, j] = 7
        return y

    for fn in (lambda x, i, j: x[i, j], write):
        with pytest.raises(BoundsError, match=r"test_as_numpy\.py:\d+"):
            run(fn, X, i, j)
    with pytest.raises(BoundsError):
        run(lambda x, i: x[i, [at[1] % 4]], X, np.array([at[0], 9]))


@pytest.mark.parametrize("at", [(0, 3), (-3, -4), (2, -1), (-1, 0)])
def test_indices_in_their_axes_are_read_and_written_as_in_numpy(at: tuple[int, int]) -> None:
    def model(x: Any, i: Any, j: Any) -> Any:
        y = x.copy()
        y[i, j] = 70
        return x[i, j], x[i, 1], x[2, j], y, x[None, i, j]

    check(model, X, np.array(at[0], np.int8), np.array([at[1], 0]))


def test_a_plan_refuses_an_index_outside_its_own_axis(tmp_path: Path) -> None:
    options = wx.Options.of(budget=0, trial=False, measure=False, table=str(tmp_path / "t.duckdb"))
    program = wx.optimize(lambda x, i, j: x[i, j] * 2, X, np.array([0, 1]), np.array([3, -1]), options=options).program
    assert np.array_equal(program(X, np.array([2, -1]), np.array([0, -4])), X[[2, -1], [0, -4]] * 2)
    with pytest.raises(IndexError):
        program(X, np.array([0, 0]), np.array([0, 5]))


def test_filling_a_diagonal_that_wraps_is_refused() -> None:
    tall = np.zeros((7, 2))

    def model(x: Any, wrap: bool = True) -> Any:
        b = x.copy()
        np.fill_diagonal(b, 7, wrap=wrap)
        return b

    refused("wrap=True", lambda x: model(x), tall)
    check(lambda x: model(x, False), tall)
    with pytest.raises(TargetError, match="ValueError"):
        run(lambda x: model(x, False), np.zeros((2, 3, 4)))


def test_insert_takes_values_for_each_row() -> None:
    x, column = I64, np.array([7, 8])
    check(lambda x, c: (np.insert(x, 1, c, axis=1), np.insert(x, 0, x[0], axis=0), np.insert(x, 2, 9)), x, column)
    check(lambda x, c: (np.insert(x, 1, c[:, None], axis=0), np.insert(x, 1, c[None], axis=1)), x[:, :1], column)


def test_delete_of_places_that_are_data_is_refused() -> None:
    refused("np.delete of places that are data; give plain numbers", lambda x, i: np.delete(x, i), X, np.array(1))
    check(lambda x: np.delete(x, np.ones(1, int) + 1, axis=-1), X)


def test_select_takes_a_default_of_more_axes() -> None:
    check(lambda c, x, y: np.select([c], [x], y), np.array([True, False, True]), np.arange(3.0), I64)


# -- names


def test_an_output_is_never_named_as_a_state(tmp_path: Path) -> None:
    def model(cache: Any, x: Any) -> Any:
        y = cache * x
        cache += x
        return {"cache": y}

    given = {"cache": np.ones(3), "x": np.arange(3.0)}
    traced = trace(model, given, states=["cache"])
    both = interpret(traced.graph, {**traced.tensors, **traced.inputs})
    assert both["cache"].tolist() == [1.0, 2.0, 3.0]
    assert both[traced.structure["cache"]].tolist() == [0.0, 1.0, 2.0]

    def stateful(cache: wx.State["f64", 3], x: Any) -> Any:  # noqa: F821, UP037
        y = cache * x.sum()
        cache += x[:3]
        return {"cache": np.append(y, y)}

    options = wx.Options.of(budget=0, trial=False, measure=False, table=str(tmp_path / "t.duckdb"))
    program = wx.optimize(stateful, np.ones(3), np.arange(4.0), options=options).program
    assert program(np.arange(4.0))["cache"].tolist() == [6.0] * 6
    assert program(np.arange(4.0))["cache"].tolist() == [6.0, 12.0, 18.0] * 2


# -- powers of bools, ellipses without a place, large positions


def test_bools_to_the_power_of_two_are_int8_as_numpy_squares_them() -> None:
    check(lambda x: tuple((x > 0) ** p for p in (0, 1, 2, 3, 0.5, 2.0, True, np.int8(2), np.int64(2), np.array(2))), X)
    check(lambda x: (pow(x > 0, 2), np.power(x > 0, 2), (x[0, 0] > 0) ** 2, np.square(x > 0)), X)
    with pytest.raises(UnsupportedError, match="negative power"):
        run(lambda x: (x > 0) ** -1, X)


@pytest.mark.parametrize("spec", ["i...->", "i...->i", "...j->j", "...->"])
def test_einsum_refuses_an_ellipsis_that_its_result_has_no_place_for(spec: str) -> None:
    with pytest.raises(TargetError, match=r"ValueError: np\.einsum .* has no '\.\.\.' in its result"):
        run(lambda x: np.einsum(spec, x), X)
    with pytest.raises(TargetError, match="has no"):
        run(lambda x: np.einsum("i...,j...->", x, x), X)


def test_einsum_with_an_ellipsis_of_no_dimensions() -> None:
    check(lambda x: (np.einsum("ij...->i", x), np.einsum("i...,j...->ij", x[0], x[1]), np.einsum("i...", x)), X)


FAR = np.array([0, 2**64 - 1, 1, 2**64 - 2], np.uint64)


def test_positions_beyond_int64_count_from_the_end() -> None:
    known = FAR.copy()

    def written(x: Any, i: Any) -> Any:
        y = np.zeros((6, 6), x.dtype)
        y[i] = 1
        np.add.at(y, (i, i), 2)
        np.put_along_axis(y, i[None], 3, axis=1)
        y[known, 0] = 4
        return y

    check(lambda x, i: (x[:, i], x[i % np.uint64(3), i], x[:, known], np.take(x, known)), X, FAR)
    check(lambda x, i: (np.take(x, i), np.take(x, i, mode="wrap"), np.take(x, i, mode="clip")), X, FAR)
    check(lambda x, i: np.take_along_axis(x, i[None], axis=1), X, FAR)
    check(written, X, FAR)


def test_one_position_beyond_int64_is_out_of_bounds() -> None:
    with pytest.raises(BoundsError):
        run(lambda x, i: x[i], X, np.asarray(2**64 - 1, np.uint64))


# -- choices


@pytest.mark.parametrize("dtype", ["int64", "int8"])
def test_a_number_of_no_choice_is_out_of_bounds_also_where_it_is_negative(dtype: str) -> None:
    def turned(i: Any) -> Any:
        return np.choose(i, [10, 20, 30], mode="wrap"), i.choose([10, 20, 30], mode="clip")

    for wrong in ([0, -1, 2], [0, 3, 2], [-128, 0, 0]):
        with pytest.raises(BoundsError):
            run(lambda i: np.choose(i, [10, 20, 30]), np.array(wrong, dtype))
        with pytest.raises(BoundsError):
            run(lambda i, x: i.choose(x), np.array(wrong, dtype), X[:, :3])
        check(turned, np.array(wrong, dtype))


def test_what_numbers_choices_is_an_integer_that_int64_holds() -> None:
    for match, fn in (
        ("TypeError", lambda x: np.choose(x, [1, 2])),
        ("TypeError", lambda x: np.choose(x.astype(np.uint64), [1, 2], mode="wrap")),
        ("clipmode", lambda x: np.choose(x[:0].astype(int), [1, 2], mode="first")),  # pyright: ignore
    ):
        with pytest.raises(TargetError, match=match):
            run(fn, X)


# -- places of a message


def test_a_selection_that_is_returned_is_named_where_it_was_made() -> None:
    refused("a mask picks", lambda x: x[x > 0], X)

    def model(x: Any) -> Any:
        y = x[x > 0]
        return {"y": (y, x)}

    line = inspect.getsourcelines(model)[1] + 1
    with pytest.raises(UnsupportedError, match=rf"^test_as_numpy\.py:{line}: "):
        run(model, X)
