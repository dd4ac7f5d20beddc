"""Models as people write them: indexing, writing in place, views; what is refused, where and with which way out."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special
from numpy import zeros
from scipy.special import softmax

import waxeq as wx
from waxeq.errors import TargetError, TypeMismatch, UnsupportedError
from waxeq.frontend.trace import trace
from waxeq.ir.interpret import interpret

pytestmark = pytest.mark.quick


def run(fn: Callable[..., Any], *arrays: np.ndarray) -> Any:
    traced = trace(fn, dict(zip(inspect.signature(fn).parameters, arrays, strict=True)))
    rows = list(interpret(traced.graph, traced.inputs).values())
    return rows if traced.structure is not None else rows[0]


def check(fn: Callable[..., Any], *arrays: np.ndarray) -> None:
    want = fn(*(a.copy() for a in arrays))
    got = run(fn, *arrays)
    for g, w in zip(got, want, strict=True) if isinstance(want, tuple) else [(got, want)]:
        assert (g.dtype, g.shape) == (np.asarray(w).dtype, np.shape(w))
        np.testing.assert_allclose(g, w, rtol=1e-6)


X = np.arange(24.0).reshape(4, 6)
Y = np.arange(60, dtype=np.int64).reshape(3, 4, 5)
I = np.array([2, -1, 0])  # noqa: E741

READS = [
    lambda x: x[1],
    lambda x: x[-1, 2:5],
    lambda x: x[..., 0],
    lambda x: x[::-1, ::2],
    lambda x: x[::-2],
    lambda x: x[5:2:-1, 3:1:-1],
    lambda x: x[1:1],
    lambda x: x[None, :, None, 2],
    lambda x: x[[0, 2]],
    lambda x: x[:, [1, -1]],
    lambda x: x[[0, 1], [2, -3]],
    lambda x: x[1, [2, 3]],
    lambda x: x[[[0], [1]], [2, 3]],
    lambda x: x[np.array([True, False, True, False])],
    lambda x: x[[]],
    lambda x: x[None, [0, 1]],
    lambda x: x[:, None, [0, 1]],
    lambda x: x[np.int32(1), np.array(2)],
]


@pytest.mark.parametrize("read", READS)
def test_reading_by_index(read: Callable[[Any], Any]) -> None:
    check(read, X)


DEEP = [
    lambda x: x[0, :, [1, 2]],
    lambda x: x[:, [0, 1], [1, 2]],
    lambda x: x[[0, 1], :, [1, 2]],
    lambda x: x[[0, 1], None, :, 2],
    lambda x: x[np.arange(60).reshape(3, 4, 5) % 7 == 0],
    lambda x: x[np.array([[True] * 4, [False] * 4, [True, False] * 2])],
    lambda x: x[:, np.array([True, False, True, True]), 1:],
]


@pytest.mark.parametrize("read", DEEP)
def test_reading_three_dimensions_by_index(read: Callable[[Any], Any]) -> None:
    check(read, Y)


def test_reading_by_data() -> None:
    check(lambda x, i: (x[i], x[i[0]], x[:, i], x[i, i], x[1:, i[1], None], x[i, 2], x[i[:, None], i]), X, I)


def test_an_index_out_of_bounds_is_an_error() -> None:
    for read in (lambda x: x[4], lambda x: x[0, 0, 0], lambda x: x[[5]], lambda x: x[:, -7], lambda x: x[1.5]):
        with pytest.raises((TargetError, UnsupportedError)):
            run(read, X)


WRITES = [
    ("slices", lambda x, v: x.__setitem__((slice(1, 3), slice(2, 4)), 7)),
    ("row", lambda x, v: x.__setitem__(1, v[:6])),
    ("column", lambda x, v: x.__setitem__((slice(None), -1), v[:4])),
    ("element", lambda x, v: x.__setitem__((0, 0), v[0])),
    ("all", lambda x, v: x.__setitem__(Ellipsis, v[0])),
    ("steps", lambda x, v: x.__setitem__((slice(None, None, 2), slice(None, None, -3)), v[:2])),
    ("backwards", lambda x, v: x.__setitem__(slice(None, None, -1), v[:6])),
    ("nothing", lambda x, v: x.__setitem__(slice(2, 2), 5)),
    ("list", lambda x, v: x.__setitem__([0, 2, 0], v[:3, None])),
    ("lists", lambda x, v: x.__setitem__(([0, 1], [2, 3]), v[:2])),
    ("known mask", lambda x, v: x.__setitem__(np.arange(6) % 2 == 0, 0) if x.ndim == 1 else None),
    ("mask", lambda x, v: x.__setitem__(x > 5, -1)),
    ("row mask", lambda x, v: x.__setitem__(x[:, 0] > 5, v[:6])),
    ("new axis", lambda x, v: x.__setitem__((None, 1), v[:6])),
    ("narrowed", lambda x, v: x.__setitem__(0, 2.75)),
]


@pytest.mark.parametrize("write", [w for _, w in WRITES], ids=[n for n, _ in WRITES])
@pytest.mark.parametrize("dtype", ["float64", "int32"])
def test_writing_by_index(write: Callable[[Any, Any], None], dtype: str) -> None:
    def model(x: Any, v: Any) -> Any:
        y = x.copy()
        write(y, v)
        return y, x

    check(model, X.astype(dtype), np.arange(10.0, 18.0))


def test_writing_by_data() -> None:
    def model(x: Any, i: Any, v: Any) -> Any:
        a, b, c, d, e = (x.copy() for _ in range(5))
        a[i[0]] = v
        b[:, i] = 1.5
        c[i, i[1]] = v[:3]
        d[1:, i[2]] = v[:3]
        e[i[0], 2] += 10
        return a, b, c, d, e

    check(model, X, I, np.arange(6.0) + 100)


def test_writing_in_place_reaches_bases_and_views() -> None:
    def model(x: Any) -> Any:
        a = x * 1
        row, turned = a[1], a.T
        deep = turned[2:4]
        row += 100
        a[:, 3] = -1
        deep *= 2
        a[2][3] = 55
        expanded = np.expand_dims(a, 0)
        expanded[0, 0, 0] = 9
        row[:] = row[::-1]
        return a, row, turned, deep, a[::-1], np.diagonal(a)

    check(model, X)


def test_augmented_assignment_and_aliases() -> None:
    def model(x: Any, y: Any) -> Any:
        z = x
        x = x + 0
        x += y
        x **= 2
        x[0] -= 5
        x[1:, 1:] /= 2
        u = w = x.copy()
        u @= np.eye(6)
        return z, x, w, (x > 3).any(), abs(-x), divmod(x, 3)[0], 2**y

    check(model, X, X[0])


def test_an_array_made_in_the_model_can_be_written_to() -> None:
    def model(x: Any) -> Any:
        out = np.zeros((4, 6))
        out[1:-1, 1:-1] = (x[:-2, 1:-1] + x[2:, 1:-1]) / 2
        rows = zeros((0, 6))
        for i in range(4):
            rows = np.vstack([rows, x[i] * i])
        total = np.empty(4)
        for i, row in enumerate(x):
            total[i] = row.sum()
        mask = np.zeros((4, 6), bool)
        mask[np.triu_indices(4)] = True
        grid = np.full((4, 6), 2.5)
        grid[np.arange(4), np.arange(4)] += 1
        return out, rows, total, np.where(mask, x, 0), grid, np.ones(3).sum() * x

    check(model, X)


def test_an_integer_array_takes_no_float_in_place() -> None:
    def model(y: Any) -> Any:
        y = y.copy()
        y += 1.5
        return y

    with pytest.raises(TargetError, match=r"test_models\.py:\d+: the model raises TypeError.*float64.*int64"):
        run(model, Y)


def test_a_reshape_in_use_must_be_copied_before_writing() -> None:
    def model(x: Any) -> Any:
        y = (x + 1).reshape(-1)
        y += 1  # nothing else can see it
        z = y.reshape(4, 6)
        z[0] = 0
        return y, z

    with pytest.raises(UnsupportedError, match=r"test_models\.py:\d+: writing .* reshape .*copy\(\)"):
        run(model, X)


def test_a_read_only_view_is_not_written_to() -> None:
    def model(x: Any) -> Any:
        y = np.broadcast_to(x[0], (4, 6))
        y[0] = 1
        return y

    with pytest.raises(UnsupportedError, match="read-only"):
        run(model, X)


def test_weak_numbers_and_strong_scalars_promote_as_in_numpy() -> None:
    x = np.arange(4, dtype=np.float32)
    check(lambda x: (x * 2.5, x * np.float64(2.5), x + True, np.float32(3) * x, 1 / x, x // 2, -x % 3), x)
    h = np.arange(4, dtype=np.int8)
    check(lambda h: (h * 2, h / 2, h + np.int16(1), h * 1.5, h**2, ~h, h << 1, np.sqrt(h)), h)


def test_scipy_functions_and_helpers_of_other_kinds() -> None:
    def helper(x: Any) -> Any:
        return np.asarray([[x.mean(), 1.0], [x.max(), x.size]])

    def model(x: Any) -> Any:
        return softmax(x, axis=-1), scipy.special.logsumexp(x, axis=0), scipy.special.erf(x / 9), helper(x)

    check(model, X)


def test_control_flow_over_shapes_and_known_values_is_followed() -> None:
    def model(x: Any) -> Any:
        n = len(x) if x.ndim == 2 and x.shape[1] > 3 else 0
        steps = np.ones(3)
        if steps.sum() == 3 and isinstance(x, np.ndarray) and x.dtype == np.float64:
            x = x * int(steps.sum())
        k = np.arange(n)
        return x[:n] + np.fft.fftfreq(6) + k[-1] + math.sqrt(np.ones(4).sum())

    check(model, X)


def refused(model: Callable[..., Any], match: str, *arrays: np.ndarray) -> None:
    with pytest.raises(UnsupportedError, match=rf"^test_models\.py:\d+: .*{match}"):
        run(model, *(arrays or (X,)))


def test_branches_on_content_are_refused() -> None:
    def branch(x: Any) -> Any:
        if x.sum() > 0:
            return x
        return -x

    def loop(x: Any) -> Any:
        while x[0, 0] < 3:
            x = x + 1
        return x

    refused(branch, r"branch.*np\.where")
    refused(loop, r"branch.*np\.where")
    refused(lambda x: x if 3.0 in x else -x, r"branch.*np\.where")
    refused(lambda x: x and 1, r"np\.where")
    refused(lambda x: max(x[0], x[1]), r"np\.where")


def test_content_as_a_python_value_is_refused() -> None:
    refused(lambda x: x * float(x[0, 0]), r"float\(\).*shape \(\)")
    refused(lambda x: x * int(x[0, 0]), r"int\(\).*astype")
    refused(lambda x: x[: x[0, 0].astype(int)], r"index.*np\.take")
    refused(lambda x: x * math.exp(x[0, 0]), r"float\(\).*np instead of math")
    refused(lambda x: sum(range(x[0, 0].astype(int))) * x, "index")
    refused(lambda x: [1, 2, 3][x[0, 0].astype(int)] * x, "index")
    refused(lambda x: x * x[0, 0].item(), r"ndarray\.item.*leave it an array")


def test_shapes_that_depend_on_content_are_refused() -> None:
    refused(lambda x: x[x > 3], r"mask.*np\.where")
    refused(lambda x: np.where(x > 3), r"np\.where.*three arguments")
    refused(lambda x: np.nonzero(x), r"np\.nonzero")
    refused(lambda x: np.unique(x), r"np\.unique")
    refused(lambda x: np.repeat(x, x[0].astype(int), axis=1), "depends on content")
    refused(lambda x: np.compress(x[:, 0] > 2, x, axis=0), r"np\.where")


def assign_rows(x: Any) -> Any:
    y = x.copy()
    y[x > 3] = x[0, :2]
    return y


def test_unknown_functions_and_options_are_refused() -> None:
    refused(lambda x: np.linalg.svd(x), r"np\.linalg\.svd is not traced; .*compute it outside the model")
    refused(lambda x: np.linalg.pinv(x), r"np\.linalg\.pinv")
    refused(lambda x: np.emath.sqrt(x), r"not traced")
    refused(lambda x: scipy.special.gamma(x), "not traced")
    refused(lambda x: np.pad(x, 1, mode=lambda *_: None), r"np\.pad by a function.*np\.concatenate")
    refused(lambda x: np.subtract.reduceat(x, [0, 2]), "not traced")
    refused(lambda x: x.view(np.int64), r"ndarray\.view")
    refused(lambda x: x + np.random.normal(size=6), r"np\.random\.normal.*argument")
    refused(assign_rows, r"np\.where")


OUTSIDE = np.zeros((4, 6))


def test_arrays_made_outside_are_not_written_to() -> None:
    def item(x: Any) -> Any:
        OUTSIDE[0] = x[0]
        return OUTSIDE

    def out(x: Any) -> Any:
        return np.add(x, 1, out=OUTSIDE)

    refused(item, "known while tracing is written to.*np.where")
    refused(out, "made outside.*new name")
    assert not OUTSIDE.any()


def test_dtypes_that_are_not_numbers_are_refused() -> None:
    for bad in (np.zeros(2, complex), np.array(["a"]), np.array([None])):
        with pytest.raises(TypeMismatch, match="waxeq knows"):
            run(lambda x: x, bad)
    with pytest.raises(UnsupportedError, match=r"test_models\.py:\d+: dtype complex128"):
        run(lambda x: x + 1j, X)


def test_what_the_model_raises_is_told_with_its_place() -> None:
    def model(x: Any) -> Any:
        raise KeyError("no such layer")

    with pytest.raises(TargetError, match=r"test_models\.py:\d+: the model raises KeyError: 'no such layer'"):
        run(model, X)
    with pytest.raises((TypeMismatch, TargetError), match=r"test_models\.py:\d+.*broadcast"):
        run(lambda x: x + np.ones(5), X)


def test_the_place_of_an_error_is_the_models_and_no_module_of_pythons() -> None:
    """Regression: a recursion without end was told to be in `_weakrefset.py`."""

    def model(x: Any) -> Any:
        return json.loads(f"{x.shape[0]}, what is this?")

    with pytest.raises(TargetError, match=r"^test_models\.py:\d+: the model raises JSONDecodeError"):
        run(model, X)


def test_the_module_is_as_before_after_tracing_even_when_it_fails() -> None:
    before = dict(globals())
    run(lambda x: np.zeros_like(x), X)
    refused(lambda x: np.unique(x), "not traced")
    assert {k: v for k, v in globals().items() if before.get(k) is not v} == {}


def test_a_constant_is_as_it_was_when_it_was_used() -> None:
    def model(x: Any) -> Any:
        k = np.arange(6.0)
        y = x * k
        k[:] = 100
        return y + k

    check(model, X)


def test_a_model_that_sorts_in_place_and_gives_none_is_told_what_to_write() -> None:
    def model(x: Any) -> Any:
        return x.sort()

    def other(x: Any) -> None:
        np.sort(x)

    refused(model, r"is None; return arrays, .* \(x\.sort\(\) sorts in place and gives None: write np\.sort\(x\)\)")
    refused(other, r"is None; return arrays, or tuples, lists and dicts of them$")


def test_none_beside_results_stays_none() -> None:
    traced = wx.trace(lambda x: {"logits": x * 2, "cache": None, "rest": (None, [x.sum()])}, np.ones(3))
    assert traced.structure == {"logits": "logits", "cache": None, "rest": (None, ["rest10"])}
    assert [name for name, _ in traced.graph.outputs] == ["logits", "rest10"]
