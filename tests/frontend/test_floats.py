"""Functions that treat floats in a way of their own, over all float dtypes. bfloat16, which comes from ml_dtypes, is a
float to some of NumPy's functions and none to others."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import scipy.special

from waxeq.frontend.trace import trace
from waxeq.ir.interpret import interpret
from waxeq.ir.types import FLOATS, numpy_dtype

pytestmark = pytest.mark.quick

NUMBERS = [[1.26, -2.5, 2.0, 3.5], [0.5, 3.0, -1.5, 7.3], [2.25, 2.75, 1.0, -4.0]]
GAPS = [[1.26, np.nan, 2.0, np.inf], [np.nan, -np.inf, -1.5, 7.3], [np.nan, np.nan, np.nan, np.nan]]
WEAK, STRONG = 0.3, np.array([0.2, 0.7])
DIGITS = (0, 1, 2, -1)
FOLDS: tuple[Any, ...] = (
    *(np.nanmax, np.nanmin, np.nansum, np.nanprod, np.nanmean, np.nanvar, np.nancumsum, np.nancumprod),
    *(np.max, np.argmax),
)

Case = Callable[[Any], Any]


def run(fn: Case, x: Any) -> list[np.ndarray]:
    traced = trace(fn, {"x": x})
    return list(interpret(traced.graph, {**traced.inputs, **traced.tensors}).values())


def check(fn: Case, x: np.ndarray) -> None:
    """`fn` gives NumPy's values to the digits of x, and its dtypes and shapes."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        want = fn(x.copy())
        got = run(lambda x: fn(x), x)
    digits = 2**-7 if x.dtype.itemsize == 2 and x.dtype.kind != "f" else 4 * float(np.finfo(x.dtype).eps)
    for g, w in zip(got, map(np.asarray, want if isinstance(want, tuple) else (want,)), strict=True):
        assert (g.dtype, g.shape) == (w.dtype, w.shape)
        np.testing.assert_allclose(g.astype(np.float64), w.astype(np.float64), rtol=digits, atol=digits)


def array(rows: Any, dtype: str) -> np.ndarray:
    return np.array(rows).astype(numpy_dtype(dtype))


each_float = pytest.mark.parametrize("dtype", FLOATS)


# -- with what is no number among them


def of_gaps() -> dict[str, Case]:
    rows: dict[str, Case] = {f"round to {d}": lambda x, d=d: np.round(x, d) for d in DIGITS}
    rows |= {f"method, to {d}": lambda x, d=d: x.round(d) for d in DIGITS}
    for f in FOLDS:
        rows[f.__name__] = lambda x, f=f: f(x, axis=1)
        rows[f"{f.__name__} of all"] = lambda x, f=f: f(x)
    return rows | {
        "around": np.around,
        "nanargmax": lambda x: np.nanargmax(x[:2], axis=1),
        "nan_to_num": lambda x: np.nan_to_num(x),
        "nanmedian": lambda x: np.nanmedian(x),
        "nanquantile": lambda x: np.nanquantile(x[:2, :3], WEAK, axis=1),
        "nanquantiles": lambda x: np.nanquantile(x[:2, :3], STRONG, axis=1),
        "nanpercentile": lambda x: np.nanpercentile(x[:2, :3], 30, axis=1),
        "softmax": lambda x: scipy.special.softmax(x, axis=1),
        "isclose": lambda x: np.isclose(x, 2.0),
        "where": lambda x: np.mean(x, axis=1, where=x > 0, dtype=x.dtype),
    }


@each_float
@pytest.mark.parametrize("name", of_gaps())
def test_what_is_no_number_is_treated_as_in_numpy_in_every_float(name: str, dtype: str) -> None:
    check(of_gaps()[name], array(GAPS, dtype))


# -- of numbers alone: ml_dtypes sorts NaN anywhere


def of_numbers() -> dict[str, Case]:
    quantiles = (np.quantile, np.nanquantile)
    rows: dict[str, Case] = {f"{f.__name__} at a number": lambda x, f=f: f(x, WEAK, axis=1) for f in quantiles}
    rows |= {f"{f.__name__} in its own dtype": lambda x, f=f: f(x, np.array(0.25, x.dtype), axis=1) for f in quantiles}
    rows |= {f"{f.__name__} at several": lambda x, f=f: f(x, STRONG, axis=1) for f in quantiles}
    rows |= {f"{f.__name__} at an end": lambda x, f=f: f(x, 1, axis=1) for f in quantiles}
    for f in (scipy.special.softmax, scipy.special.log_softmax, scipy.special.logsumexp):
        rows[f.__name__] = lambda x, f=f: f(x, axis=1)
    return rows | {
        "percentile": lambda x: np.percentile(x, 30),
        "median": lambda x: (np.median(x, axis=1), np.median(x)),
        "gradient": lambda x: np.gradient(x, axis=1),
        "norm": lambda x: (np.linalg.norm(x, axis=1), np.linalg.norm(x, 1)),
        "histogram": lambda x: np.histogram(x, [-1, 0, 2], weights=x),
        "digitize": lambda x: (np.digitize(x, [0, 1, 2]), np.digitize(x, [2, 1, 0], right=True)),
        "digitize by floats": lambda x: np.digitize(x, [0.0, 1.0, 2.0]),
        "digitize by its own": lambda x: np.digitize(x, np.array([0, 1, 2], x.dtype)),
        "searchsorted": lambda x: np.searchsorted(np.arange(3), x),
        "searchsorted in float16": lambda x: np.searchsorted(np.arange(3, dtype=np.float16), x),
        "add.at": lambda x: added(x, np.array([0.5, 2], np.float32)[:, None]),
        "add.at of its own": lambda x: added(x, x[:2]),
        "add.at of integers": lambda x: added(x, np.arange(1, 3)[:, None]),
        "made and written": lambda x: written(x),
    }


def added(x: Any, v: Any) -> Any:
    y = x.copy()
    np.add.at(y, [0, 2], v)
    return y


def written(x: Any) -> Any:
    y, z = np.zeros(x.shape, x.dtype), np.full((4,), 1.5, dtype=x.dtype)
    y[1] = x[0]
    z[:2] = x[0, :2]
    return y, z


@each_float
@pytest.mark.parametrize("name", of_numbers())
def test_numbers_are_treated_as_in_numpy_in_every_float(name: str, dtype: str) -> None:
    check(of_numbers()[name], array(NUMBERS, dtype))


@each_float
def test_positions_are_no_floats(dtype: str) -> None:
    x = array(NUMBERS, dtype)
    for fn in (lambda x: np.packbits(x), lambda x: np.unravel_index(x, (3, 3))):
        with pytest.raises(TypeError):
            fn(x)
        with pytest.raises(Exception, match="raises TypeError"):
            run(fn, x)


def test_rows_of_bfloat16_with_a_nan_have_no_median_and_no_quantile() -> None:
    x = array(GAPS, "bfloat16")
    for fn in (
        lambda x: np.median(x, axis=1),
        lambda x: np.quantile(x, WEAK, axis=1),
        lambda x: np.quantile(x, 1, axis=1),
    ):
        assert np.isnan(run(fn, x)[0].astype(float)).all()
    (found,) = run(lambda x: np.nanmedian(x[:2, :3], axis=1), x)
    np.testing.assert_array_equal(found, np.nanmedian(x[:2, :3].astype(np.float32), axis=1).astype(x.dtype))


# -- arguments and constants


@dataclass
class Layer:
    w: np.ndarray


@each_float
def test_fields_of_dataclasses_are_inputs_in_every_float(dtype: str) -> None:
    traced = trace(lambda layer: layer.w * 2, {"layer": Layer(array(NUMBERS, dtype))})
    assert [(x.name, x.kind) for x in traced.graph.leaves] == [("layer.w", "input")]


@each_float
def test_a_constant_with_a_nan_is_one_however_often_it_is_used(dtype: str) -> None:
    c = array(GAPS, dtype)
    assert len(trace(lambda x: x * c + c, {"x": array(NUMBERS, dtype)}).graph.constants) == 1
