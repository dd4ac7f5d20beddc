"""`f.at` and functions that put values: every index that writing takes, NumPy's dtypes, its errors, or a sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import waxeq as wx
from waxeq.errors import BoundsError, TargetError, UnsupportedError, WaxeqError
from waxeq.frontend.trace import trace
from waxeq.ir.interpret import interpret

RNG = np.random.default_rng(0)
X = RNG.integers(-9, 9, (4, 5, 3)).astype(np.float32)
ROWS, COLUMNS = np.array([[0, -1, 2], [2, 2, 0]]), np.array([[1, 1, -5], [4, 4, 0]], np.int8)
UFUNCS = (np.add, np.subtract, np.maximum, np.minimum)


def run(fn: Callable[..., Any], *arrays: np.ndarray) -> list[np.ndarray]:
    t = trace(lambda **kw: fn(*kw.values()), {f"x{i}": a for i, a in enumerate(arrays)})
    return list(interpret(t.graph, {**t.inputs, **t.tensors}).values())


def check(fn: Callable[..., Any], *arrays: np.ndarray) -> None:
    with np.errstate(invalid="ignore"):
        want = fn(*(a.copy() for a in arrays))
    for g, w in zip(run(fn, *arrays), map(np.asarray, want if isinstance(want, tuple) else (want,)), strict=True):
        assert (g.dtype, g.shape) == (w.dtype, w.shape)
        np.testing.assert_allclose(g, w, rtol=1e-6)


def at(f: np.ufunc, index: Callable[..., Any], v: Any) -> Callable[..., Any]:
    def model(x: Any, i: Any, j: Any) -> Any:
        y = x.copy()
        f.at(y, index(i, j), v)
        return y

    return model


INDICES: dict[str, Callable[..., Any]] = {
    "a number": lambda i, j: 2,
    "numbers": lambda i, j: (2, -1, 0),
    "a slice": lambda i, j: slice(1, None, 2),
    "slices and numbers": lambda i, j: (..., slice(None, None, -1), 1),
    "a scalar that is data": lambda i, j: i[0, 1],
    "an array": lambda i, j: i,
    "an array in a tuple": lambda i, j: (i,),
    "a known array": lambda i, j: np.array([0, 0, 3]),
    "a list": lambda i, j: [0, 0, 3],
    "two arrays": lambda i, j: (i, j),
    "an array after a slice": lambda i, j: (slice(None), i),
    "an array after an ellipsis": lambda i, j: (..., i),
    "a known array after a slice": lambda i, j: (slice(1, None), [0, 0, 3]),
    "two arrays after a slice": lambda i, j: (slice(1, 3), j, i),
    "an array and a known one": lambda i, j: (i[0], [1, 1, 1]),
    "known arrays": lambda i, j: ([0, 0, 1], [1, 1, 0]),
    "three arrays": lambda i, j: (i, j, i),
    "arrays that are apart": lambda i, j: (i, slice(1, 3), j % 3),
    "known arrays that are apart": lambda i, j: ([0, 0], slice(None), [1, 1]),
    "an array and a number": lambda i, j: (i[0], 3),
    "a known mask": lambda i, j: np.arange(4) > 1,
    "a mask": lambda i, j: i[0, [0, 1, 2, 0]] > 0,
    "nothing": lambda i, j: np.zeros(0, int),
}


@pytest.mark.parametrize("f", UFUNCS)
@pytest.mark.parametrize("where", INDICES)
def test_every_update_counts_at_any_index(f: np.ufunc, where: str) -> None:
    check(at(f, INDICES[where], 3), X, ROWS, COLUMNS)
    if not where.endswith("mask") and where != "nothing":
        region = X[INDICES[where](ROWS, COLUMNS)].shape
        v = np.asarray(RNG.normal(size=region), np.float32)
        check(at(f, INDICES[where], v), X, ROWS, COLUMNS)
        check(at(f, INDICES[where], v[..., :1] if v.ndim else v), X.astype(np.float64), ROWS, COLUMNS)


def test_arrays_that_are_apart_are_written_too() -> None:
    def model(x: Any, i: Any, j: Any) -> Any:
        y, z = x.copy(), x.copy()
        y[i[:, :1], 1:, j[:, :1] % 3] = np.arange(4)
        z[i, :, 2] = x[i, :, 1] * 2
        return y, z

    check(model, X, ROWS, COLUMNS)


def test_masks_that_are_data() -> None:
    def model(x: Any, v: Any) -> Any:
        y, z = x.copy(), x.copy()
        np.add.at(y, x > 0, 2)
        np.subtract.at(z, x[:, 0, 0] > 0, v)
        return y, z

    check(model, X, X[0])
    with pytest.raises(UnsupportedError, match="mask"):
        run(lambda x, v: np.add.at(x.copy(), x > 0, v), X, X)


DTYPES = ("float32", "float16", "float64", "int8", "int64", "uint8", "uint64", "bool")


@pytest.mark.parametrize("f", UFUNCS)
@pytest.mark.parametrize("of", DTYPES)
@pytest.mark.parametrize("by", (*DTYPES, "300", "-3", "2.5", "True"))
def test_dtypes_are_numpys_or_refused(f: np.ufunc, of: str, by: str) -> None:
    """What is computed in a wider dtype and cut after each update is the same, or refused."""
    x = np.array([1, 0, 100, 3]).astype(of)
    v = np.array([1, 200, 3, 7, 1]).astype(by) if by in DTYPES else eval(by)
    i = np.array([0, 1, 2, 1, 3])
    if np.result_type(x, np.asarray(v)).kind == "f" and of == "uint64" and np.asarray(v).dtype.kind == "i":
        x, v = x + np.uint64(2000), v if by in DTYPES else 3  # below zero NumPy's own floats are cut to anything

    def model(a: Any, i: Any, v: Any = v) -> Any:
        y = a.copy()
        f.at(y, i, v)
        return y

    try:
        arrays = (x, i, v) if isinstance(v, np.ndarray) else (x, i)
        try:
            with np.errstate(invalid="ignore"):
                want = model(*(a.copy() for a in arrays))
        except TypeError:
            with pytest.raises(TargetError, match="TypeError"):
                run(model, *arrays)
            return
        (got,) = run(model, *arrays)
    except UnsupportedError as e:
        assert "cast the values first" in str(e) and of[0] in "iub"
        return
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got, want, rtol=1e-3)


def test_nan_is_kept_by_extremes() -> None:
    v = np.array([np.nan, 1, 2, -np.inf], np.float32)
    for f in UFUNCS:
        check(lambda x, v, f=f: at(f, lambda i, j: [0, 1, 0, 2], v)(x, 0, 0), X[0, :, 0], v)


def test_updates_reach_views_and_states_of_the_array() -> None:
    def model(x: Any, i: Any) -> Any:
        y = np.zeros((4, 6))
        row = y[1]
        np.add.at(row, i, x)
        np.maximum.at(y[:, 2:], (slice(None), i), 1)
        return y, row

    check(model, np.arange(3.0), np.array([2, 2, 0]))


def test_errors_are_numpys() -> None:
    for match, fn in (
        ("broadcast", lambda x: np.add.at(x, [0, 1], np.ones((1, 1, 2, 5, 3)))),
        ("IndexError", lambda x: np.add.at(x, [0, 4], 1)),
        ("IndexError", lambda x: np.add.at(x, [0.5], 1)),
        ("IndexError", lambda x: np.put(x, [60], 1)),
        ("IndexError", lambda x: np.put_along_axis(x, np.full((4, 1, 3), 5), 1, 1)),
        ("same number of dim", lambda x: np.put_along_axis(x, np.zeros((4, 1), int), 1, 1)),
        ("rule 'safe'", lambda x: np.place(x, x > 0, np.arange(2))),
        ("same size", lambda x: np.place(x, [True], 1)),
        ("Cannot insert", lambda x: np.place(x, np.ones(x.shape), [])),
        ("clipmode", lambda x: np.put(x, [0], 1, mode="no")),
        ("same size", lambda x: np.putmask(x, x[0] > 0, 1)),
        ("rule 'safe'", lambda x: np.putmask(x, x > 0, np.ones(X.shape))),
        ("rule 'safe'", lambda x: np.copyto(x, 1, where=np.ones(X.shape, np.int8))),
        ("could not broadcast", lambda x: np.copyto(x, 1, where=np.ones((2, *X.shape), bool))),
        ("could not broadcast", lambda x: np.add(x, 1, out=x, where=np.ones((2, *X.shape), bool))),
        ("broadcast", lambda x: np.sum(x, axis=0, where=np.ones((2, *X.shape), bool))),
    ):
        with pytest.raises(WaxeqError, match=match):
            run(lambda x, fn=fn: fn(x.copy()), X)
    for fn in (
        lambda x, i: np.add.at(x, i, 1),
        lambda x, i: np.minimum.at(x, (0, i), 1),
        lambda x, i: np.put(x, i * 12, 1),
        lambda x, i: np.put_along_axis(x[..., 0], i[:, None], 1, 1),
    ):
        with pytest.raises(BoundsError):
            run(lambda x, i, fn=fn: (y := x.copy(), fn(y, i), y)[::2], X, np.array([0, 1, 2, 7]))


def test_what_stays_refused_says_what_to_write() -> None:
    def refused(match: str, fn: Callable[..., Any], *arrays: np.ndarray) -> None:
        with pytest.raises(UnsupportedError, match=rf"^test_updates\.py:\d+: .*{match}"):
            run(fn, *arrays)

    refused("use np.put", lambda x, i: np.put_along_axis(x.copy(), i, 1, None), X, ROWS[0])
    refused("np.place of no values", lambda x: np.place(x.copy(), x > 0, []), X)
    refused("outside of the model", lambda i: np.add.at(X, i, 1), ROWS)


def test_put_takes_any_positions_and_as_many_values_as_there_are() -> None:
    for mode in ("raise", "wrap", "clip"):
        for v in (7, [1.5], np.arange(3), np.arange(40), []):

            def model(x: Any, i: Any, v: Any = v, mode: Any = mode) -> Any:
                y, z = x.copy(), x.copy()
                np.put(y, i, v, mode=mode)
                z.put([5, -70, 99, 5] if mode != "raise" else [0, -60], v, mode)
                return y, z

            check(model, X, ROWS)
            check(model, X.astype(np.int8), ROWS.astype(np.uint8) % 3)
    check(lambda x: (np.put(y := np.zeros(0), np.zeros(0, int), 1), y + x[0, 0, 0])[1:], X)


def test_positions_and_values_are_cast_as_numpy_casts_them() -> None:
    def named(x: Any, i: Any) -> Any:
        y, z = x.copy(), x.copy()
        y.put(indices=i, values=7, mode="wrap")
        np.put(z, [1.0, True], 3)
        np.copyto(z, np.int8(2), where=x > 3)
        np.copyto(z[0], [1, 2, 3])
        return y, z

    check(named, X, ROWS)
    for fn in (
        lambda x, i: np.put(x.copy(), i.astype(float), 1),
        lambda x, i: np.put(x.copy(), i.astype(np.uint64), 1),
        lambda x, i: np.put(x.copy(), np.array([0.5]), 1),
        lambda x, i: np.copyto(i.copy(), x[0, 0, 0]),
        lambda x, i: np.copyto(i.copy(), 2.5),
        lambda x, i: np.copyto(x.astype(np.float16), i[0, 0], casting="safe"),
    ):
        with pytest.raises(TargetError, match="TypeError: Cannot cast"):
            run(fn, X, ROWS)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_put_along_an_axis(axis: int) -> None:
    places = np.argsort(X, axis=axis)[tuple(slice(0, 2) if d == axis % 3 else slice(None) for d in range(3))]
    for v in (7, X[:1, :1, :1], X[:, :1][:, :, :1] if axis == 1 else 2.5):

        def model(x: Any, i: Any, v: Any = v) -> Any:
            y, z = x.copy(), x.copy()
            np.put_along_axis(y, i, v, axis)
            np.put_along_axis(z, np.full([1] * 3, -1), values=v, axis=axis)
            return y, z

        check(model, X, places)
        check(model, X.astype(np.float64), (places - X.shape[axis]).astype(np.int8))


def test_place_takes_values_in_turn() -> None:
    for v in (7, [1.5, 2], np.arange(100, dtype=np.int8), np.arange(7, dtype=np.int8), np.int64(3)):

        def model(x: Any, v: Any = v) -> Any:
            y, z = x.copy(), x.astype(np.int8)
            np.place(y, x > 0, v)
            np.place(z, [[1, 0, 2]] * 20, v)
            return y, z

        check(model, X)


def test_masks_and_diagonals_as_numpy_takes_them() -> None:
    def model(x: Any) -> Any:
        y, z, a, b, c = (x.copy() for _ in range(5))
        np.putmask(y, (x > 0).ravel(), 3)
        np.copyto(z, 7, where=(x > 0)[0])
        for m, v in ((a, [1, 2]), (b, [[1], [2], [3], [4], [5]]), (c, [])):
            np.fill_diagonal(m[:, :, 0], v)
        return y, z, a, b, c

    check(model, X)


@pytest.mark.parametrize(
    ("of", "there", "f", "by", "dtype"),
    [("f2", -30000, np.add, 70000, "f4"), ("f4", 3e38, np.subtract, 5e38, "f8"), ("f4", -1, np.add, 1 + 1e-9, "f8"),
     ("f4", -(2**24), np.add, 2**24 + 1, "i8")],
)  # fmt: skip
def test_floats_are_updated_in_the_dtype_of_both(of: str, there: Any, f: np.ufunc, by: Any, dtype: str) -> None:
    """They were cast to that of the array first, which may not hold them."""

    def model(x: Any, i: Any, v: Any) -> Any:
        y = x.copy()
        f.at(y, i, v)
        return y

    check(model, np.full(3, there, of), np.array([2, 0]), np.full(2, by, dtype))


def counted(labels, weights, image, ys, xs):
    total = np.zeros(10, np.float32)
    np.add.at(total, labels, weights)
    most = np.full(10, -np.inf, np.float32)
    np.maximum.at(most, labels, weights)
    drawn = image * np.float32(0.5)
    np.subtract.at(drawn, (ys, xs), weights)
    return total, most, drawn


def test_a_plan_counts_every_update(tmp_path: Path) -> None:
    options = wx.Options(table=tmp_path / "t.duckdb", trial=False, measure=False, cost="roofline", polish=False)

    def example(seed: int) -> tuple[np.ndarray, ...]:
        rng = np.random.default_rng(seed)
        labels, w = rng.integers(0, 10, 500), rng.normal(size=500).astype(np.float32)
        return labels, w, rng.normal(size=(9, 8)).astype(np.float32), rng.integers(0, 9, 500), rng.integers(-8, 8, 500)

    program: Any = wx.optimize(counted, *example(0), options=options).program
    for seed in range(3):
        for g, w in zip(program(*example(seed)), counted(*example(seed)), strict=True):
            np.testing.assert_allclose(g, w, rtol=1e-4, atol=1e-4)


def sized(x, i, v):
    y, z, u = x.copy(), np.zeros(7, np.float32), np.zeros_like(x)
    np.put_along_axis(y, i[:, None], 7, axis=1)
    np.add.at(z, i, v)
    np.minimum.at(y, (np.arange(x.shape[0]), i), v)
    np.put(u, [1, 0], [3, 4])
    np.place(u, x > 0, [1, 2])
    u[[0], :] = 5
    u[np.arange(x.shape[0]), i] = v
    return y, z, u, x[np.arange(x.shape[0]), i]


def test_one_plan_updates_at_any_size(tmp_path: Path) -> None:
    options = wx.Options(table=tmp_path / "t.duckdb", trial=False, measure=False, cost="roofline", polish=False)
    rng = np.random.default_rng(2)
    x, i, v = rng.normal(size=(50, 3)).astype(np.float32), rng.integers(0, 3, 50), np.ones(50, np.float32)
    dims: Any = {"T": (1, 50, {"x": 0, "i": 0, "v": 0})}
    program: Any = wx.optimize(sized, x, i, v, dims=dims, options=options).program
    for n in (1, 2, 17, 50):
        for g, w in zip(program(x[:n], i[:n], v[:n]), sized(x[:n], i[:n], v[:n]), strict=True):
            np.testing.assert_allclose(g, w, rtol=1e-5)
