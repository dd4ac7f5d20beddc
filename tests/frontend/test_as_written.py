"""Ways to write a model that NumPy takes: imports inside, brackets that join, masks that are written, any signature."""

from __future__ import annotations

import builtins
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import waxeq as wx
from waxeq.errors import TargetError, UnsupportedError
from waxeq.frontend.function import trace
from waxeq.frontend.load import load_target
from waxeq.ir.interpret import interpret

pytestmark = pytest.mark.quick

X = np.arange(6, dtype=np.float32) - 2
M = np.arange(6, dtype=np.float32).reshape(2, 3)
I = np.array([3, 15, 25, -15, -5, 7])  # noqa: E741


def check(fn: Any, *arrays: Any) -> None:
    """`fn` gives what NumPy gives: values, dtypes and shapes."""
    want = fn(*(a.copy() for a in arrays))
    traced = trace(fn, *arrays)
    got = list(interpret(traced.graph, {**traced.inputs, **traced.tensors}).values())
    for g, w in zip(got, want if isinstance(want, tuple) else (want,), strict=True):
        assert (g.dtype, g.shape) == (np.asarray(w).dtype, np.shape(w))
        np.testing.assert_allclose(g, w, rtol=1e-6)


def refused(match: str, fn: Any, *arrays: Any) -> None:
    with pytest.raises(UnsupportedError, match=rf"^test_as_written\.py:\d+: .*{match}"):
        trace(fn, *arrays)


# -- imports and functions that NumPy does not dispatch


def softmax_inside(x: Any) -> Any:
    import scipy.special as sp

    return sp.softmax(x)


def names_inside(x: Any) -> Any:
    from numpy import array as made
    from scipy.special import logsumexp

    return made([x[0], logsumexp(x)])


@pytest.mark.parametrize("fn", [softmax_inside, names_inside])
def test_what_is_imported_inside_of_the_model_is_traced(fn: Any) -> None:
    real = builtins.__import__
    check(fn, X)
    assert builtins.__import__ is real


def test_a_model_may_be_the_first_to_import_scipy(tmp_path: Path) -> None:
    text = "import sys\nimport numpy as np\nfrom test_as_written import softmax_inside as f\n"
    text += "from waxeq.frontend.function import trace\nassert 'scipy.special' not in sys.modules\n"
    text += "print([n.op.label for n in trace(f, np.ones(3, 'f')).graph.nodes])\n"
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, env={"PYTHONPATH": path})
    assert done.stdout == "['Softmax']\n", done.stderr


def test_brackets_join_traced_arrays() -> None:
    check(lambda x: np.r_[x, 1, x], X)
    check(lambda x: np.r_[0, x.sum(), 2:4, x], X)
    check(lambda x: np.r_[x, I], X)
    check(lambda m: np.r_[m, m], M)
    check(lambda x: np.c_[x, 2 * x, np.arange(6)], X)
    check(lambda m: np.c_[m, m[:, 0], [5, 6]], M)
    refused(r"np\.r_ with the directive '0,2'", lambda x: np.r_["0,2", x, x], X)


def test_tables_that_are_read_inside_are_indexed_by_traced_arrays() -> None:
    data = np.arange(10, dtype=np.float32).tobytes()
    check(lambda x: np.frombuffer(data, np.float32)[abs(x).astype(int)], X)


class Table:
    rows = np.arange(9.0)


def test_what_makes_a_plain_array_is_named() -> None:
    refused(r"plain ndarray by np\.vectorize\(abs\)\(x\) needs", lambda x: np.vectorize(abs)(x), X)
    refused(r"plain ndarray by Table\.rows\[x\.astype\(int\)\] needs", lambda x: Table.rows[x.astype(int)], X)


# -- Python's own functions of numbers


def test_round_is_that_of_numpy() -> None:
    check(lambda x: round(x[1] / 3, 2), X)
    refused(r"round\(\) to a Python int", lambda x: x * round(x[0]), X)
    with pytest.raises(TargetError, match=r"numpy\.ndarray doesn't define __round__"):
        trace(lambda x: round(x, 1), X)


def test_a_model_that_ends_the_process_is_told() -> None:
    """`waxeq optimize` ended with its code, which said that there is a plan."""
    with pytest.raises(TargetError, match=r"test_as_written.py:\d+: the model raises SystemExit: 0"):
        trace(lambda x: sys.exit(0), X)


def test_a_text_of_what_is_not_known_is_refused() -> None:
    refused(r"as text \(:\.3f\) needs the content", lambda x: x * len(f"{x[0]:.3f}"), X)


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.int8, np.uint8, np.uint64])
def test_whole_numbers_are_rounded_to_tens(dtype: Any) -> None:
    rows = np.arange(-128 if dtype == np.int8 else 0, 128).astype(dtype)
    check(lambda i: (np.round(i, -1), i.round(-2)), rows)
    check(lambda i: np.round(i, -1), I.astype(np.int64))


@pytest.mark.parametrize("places", [1, 3, 5, 8, 19])
def test_halves_of_whole_numbers_are_rounded_to_even_ones(places: int, tmp_path: Path) -> None:
    """650000 was 700000 to five places: rules made a product with 1e-5 of the quotient that it was rounded by."""
    half = np.arange(-999, 1000, 2) * (10**places // 2 if places < 19 else 1)
    found = wx.optimize(
        lambda i: np.round(i, -places), half, options=wx.Options(table=tmp_path / "t.duckdb", trial=False, budget=2)
    )
    np.testing.assert_array_equal(found.program(half), np.round(half, -places))


def test_insert_at_several_places() -> None:
    for at, v in (([1, 3], [7, 8]), ([3, 1], [7, 8]), ([1, 1, -1], 7), (slice(0, 2), [7, 8]), ([2], [7, 8]), ([], 1)):
        check(lambda x, at=at, v=v: np.insert(x, at, v), X)
    check(lambda m: np.insert(m, [0, 2], [[7], [8]], axis=1), M)
    check(lambda m: np.insert(m, np.array([True, False, True]), m[:, :2], axis=1), M)
    refused("places that are data", lambda i: np.insert(i, i[:2], 5), I)


def test_a_product_in_another_dtype() -> None:
    check(lambda m: np.matmul(m, m.T, dtype=np.float64), M)
    with pytest.raises(TargetError, match="cannot cast float32 to int32"):
        trace(lambda m: np.matmul(m, m.T, dtype=np.int32), M)


# -- masks


def augmented(x: Any) -> Any:
    y = x.copy()
    mask = y > 0
    y[mask] += 1
    y[y < 0] *= x[0]
    y[mask] = np.sqrt(y[mask]) / 2 - y[mask]
    return y


def rows(m: Any) -> Any:
    y = m.copy()
    y[m[:, 0] > 1] -= np.array([1, 2, 3])
    return y


def whole(i: Any) -> Any:
    i = i.copy()
    i[i > 5] //= 2
    return i


def by_functions(x: Any) -> Any:
    y, z = x.copy(), x.copy()
    y[x > 0] = np.where(y[x > 0] > 0.5, np.clip(y[x > 0], min=0, max=2), np.round(y[x > 0] * 7, 1))
    z[x > 1] = np.nan_to_num(np.log(z[x > 1] - 1.5), nan=x[0], neginf=0)
    return y, z


def test_elements_that_a_mask_picks_are_written_anew() -> None:
    check(augmented, X)
    check(by_functions, X)
    check(rows, M)
    check(whole, I)


def wrong_dtype(i: Any) -> Any:
    i = i.copy()
    i[i > 5] += 0.5
    return i


def other_mask(x: Any) -> Any:
    y = x.copy()
    y[y > 1] = y[y < 0]
    return y


def test_what_depends_on_how_many_a_mask_picks_is_refused() -> None:
    picks = "number of elements a mask picks"
    for fn in (lambda x: x[x > 0], lambda x: np.median(x[x > 0]), lambda x: len(x[x > 0]) * x,
               lambda x: x[x > 0] + x, lambda x: x + x[x > 0], lambda x: x[x > 0][0], other_mask,
               lambda x: np.where(x[x > 0] > x, 1, 2), lambda x: np.clip(x[x > 0], 0, x), lambda x: np.sort(x[x > 0]),
               lambda x: np.clip(x[x > 0], 0, x[x < 1])):  # fmt: skip
        refused(picks, fn, X)
    with pytest.raises(TypeError):
        wrong_dtype(I)
    with pytest.raises(TargetError, match="float64 cannot be written to an array of int64"):
        trace(wrong_dtype, I)


# -- signatures


class Sum:
    def __call__(self, *xs: Any, **more: Any) -> Any:
        return sum(xs) * more.get("scale", 1.0)


def by_place(a: Any, b: Any, /, c: Any, *rest: Any, d: Any = 1.0) -> Any:
    return a * b + c * d + sum(rest)


def test_parameters_without_names_are_given_by_position() -> None:
    check(np.exp, X)
    check(np.add, X, X)
    check(lambda *xs: xs[0] - xs[1], X, X + 1)
    check(Sum(), X, X)
    check(by_place, X, X, X)
    check(by_place, X, X, X, X, X)
    traced = trace(Sum(), X, X, scale=X)
    assert [*traced.inputs] == ["xs.0", "xs.1", "scale"]
    assert [*trace(by_place, X, X, X, d=X).inputs] == ["a", "b", "c", "d"]


def test_programs_of_functions_without_names_are_called_by_position(tmp_path: Path) -> None:
    options = wx.Options(threads=1, budget=0, trial=False, table=str(tmp_path / "t.duckdb"))
    np.testing.assert_allclose(wx.optimize(np.exp, X, options=options).program(X + 1), np.exp(X + 1), rtol=1e-6)
    program = wx.optimize(lambda *xs: xs[0] - xs[1], X, X, options=options).program
    np.testing.assert_array_equal(program(X, 2 * X), -X)


def test_a_file_may_have_such_a_model(tmp_path: Path) -> None:
    file = tmp_path / "m.py"
    example = "def example_inputs(): return {'x': np.ones(2)}\n"
    file.write_text(f"import numpy as np\ndef model(x, /): return x + 1\n{example}")
    np.testing.assert_array_equal(load_target(str(file)).call(), [2, 2])
