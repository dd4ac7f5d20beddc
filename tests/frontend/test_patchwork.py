"""Arrays that are filled part by part: what is written and read back, through views too, and how few ops that takes."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waxeq.errors import TargetError
from waxeq.frontend.trace import trace
from waxeq.ir.interpret import interpret

pytestmark = pytest.mark.quick

R = np.random.default_rng(0).standard_normal


def check(fn: Callable[..., Any], *arrays: np.ndarray) -> Counter[str]:
    """`fn` gives what NumPy gives: values, dtypes and shapes. Returns how many of which ops it was traced to."""
    want = fn(*(a.copy() for a in arrays))
    traced = trace(fn, dict(zip(inspect.signature(fn).parameters, arrays, strict=True)))
    got = list(interpret(traced.graph, {**traced.inputs, **traced.tensors}).values())
    for g, w in zip(got, want if isinstance(want, (tuple, list)) else [want], strict=True):
        assert (g.dtype, g.shape) == (np.asarray(w).dtype, np.shape(w))
        np.testing.assert_allclose(g, w, rtol=1e-12)
    return Counter(type(n.op).__name__ for n in traced.graph.nodes)


# -- any writes

KINDS = ["int", "slice", "all", "new", "back", "second"]
INDEX = st.tuples(st.sampled_from(KINDS), st.integers(0, 9), st.integers(0, 9))
STEP = st.tuples(
    st.sampled_from(["put", "put", "put", "add", "number", "read", "view", "turn", "copy", "use", "fill"]),
    st.integers(0, 9),
    st.integers(0, 9),
    st.lists(INDEX, max_size=4),
    st.lists(INDEX, max_size=4),
)


def index_of(shape: tuple[int, ...], drawn: list[tuple[str, int, int]]) -> tuple[Any, ...]:
    """An index that fits an array."""
    sizes, parts = list(shape), []
    for kind, a, b in drawn:
        if kind == "new" and parts.count(None) == 0:
            parts.append(None)
        elif sizes and kind != "new":
            n = sizes.pop(0)
            lo, hi = sorted((a % (n + 1), b % (n + 1)))
            runs = {"slice": slice(lo, hi), "all": slice(None), "back": slice(None, None, -1)}
            parts.append(a % (2 * n) - n if kind == "int" and n else runs.get(kind, slice(lo, hi, 2)))
    return tuple(parts)


def fits(part: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(part, whole) == whole
    except ValueError:
        return False


def played(steps: list[Any], x: Any, y: Any) -> list[Any]:
    """What steps make of arrays, each of which may be a view of another."""
    rows, results = [x * 1, y * 1], []
    for kind, i, j, first, second in steps:
        a, b = rows[i % len(rows)], rows[j % len(rows)]
        at, of = index_of(a.shape, first), index_of(b.shape, second)
        if kind in ("put", "add"):
            value = b[of]
            value = value if fits(value.shape, a[at].shape) else b.sum().astype(b.dtype)
            if a.dtype != b.dtype:  # of what is out of range NumPy says nothing, or raises
                value = np.maximum(np.minimum(value, 9), -9)
            if kind == "put" or a.dtype != b.dtype:
                a[at] = value
            else:
                a[at] += value
        elif kind == "number":
            a[at] = i % 2
        elif kind == "fill":
            a[...] = j
        elif kind == "use":
            results.append(a.sum())
        else:
            new = {"read": lambda: a[at] * 1, "turn": lambda: a.T, "copy": a.copy, "view": lambda: a[at]}[kind]()  # noqa: B023
            rows += [new] if new.ndim else []
    return rows + results


@settings(max_examples=400, deadline=None)
@given(st.lists(STEP, max_size=14), st.sampled_from(["f8", "f4", "i8", "i1", "?"]), st.sampled_from(["f8", "i4", "?"]))
def test_writes_and_reads_are_as_in_numpy(steps: list[Any], one: str, other: str) -> None:
    x, y = (np.arange(12) % 5).reshape(3, 4).astype(one), (np.arange(3) - 1).astype(other)
    check(lambda x, y: played(steps, x, y), x, y)


# -- what is written is read back


def test_elements_are_read_as_they_were_written() -> None:
    """No op joins a table of which only elements are read, and cells next to its edge read the number it is full of."""

    def model(x: Any) -> Any:
        d = np.full((4, 5), np.inf)
        d[0, 0] = 0
        for i in range(1, 4):
            for j in range(1, 5):
                d[i, j] = x[i, j] + np.minimum(np.minimum(d[i - 1, j], d[i, j - 1]), d[i - 1, j - 1])
        return d[-1, -1]

    assert not check(model, R((4, 5))) & Counter(["Concat", "Gather", "BroadcastTo"])


def test_a_table_that_is_filled_is_joined_once() -> None:
    def model(x: Any) -> Any:
        d = np.empty((4, 5))
        for i in range(4):
            for j in range(5):
                d[i, j] = np.exp(x[i, j]) if j == 0 else x[i, j] * d[i, j - 1]
        return d

    assert check(model, R((4, 5)))["Concat"] == 1


def test_rows_and_columns_are_joined_along_their_axis() -> None:
    def model(x: Any) -> Any:
        q, r = np.zeros((6, 4)), np.zeros((4, 4))
        for j in range(4):
            v = x[:, j] * 1
            for i in range(j):
                r[i, j] = q[:, i] @ v
                v -= r[i, j] * q[:, i]
            r[j, j] = np.sqrt(v @ v)
            q[:, j] = v / r[j, j]
        return q, r

    assert check(model, R((6, 4)))["Concat"] == 2

    def rows(x: Any) -> Any:
        y = np.zeros_like(x)
        y[0] = x[0]
        for t in range(1, 6):
            y[t] = x[t] + 0.5 * y[t - 1]
        return y

    assert check(rows, R((6, 4)))["Concat"] == 1


def test_rows_of_rows_are_lists_of_lists() -> None:
    def model(x: Any) -> Any:
        d = np.zeros((5, 6))
        for i in range(1, 5):
            for j in range(1, 6):
                d[i][j] = x[i, j] + d[i - 1][j] * d[i][j - 1]
        return d[4][5]

    assert not check(model, R((5, 6)))["Concat"]


def test_what_is_read_across_writes_is_joined_alone() -> None:
    """The rest of the factor, which is written later, is not joined for the part of a row that a sum is over."""

    def model(x: Any) -> Any:
        a = x @ x.T + 9 * np.eye(5)
        low = np.zeros_like(a)
        for i in range(5):
            for j in range(i + 1):
                s = a[i, j] - np.sum(low[i, :j] * low[j, :j])
                low[i, j] = np.sqrt(s) if i == j else s / low[j, j]
        return low

    assert check(model, R((5, 7)))["Concat"] == 1 + 2 + 3 + 1


def test_a_table_that_is_used_as_a_whole_between_writes_is_joined_from_what_it_was() -> None:
    def model(x: Any) -> Any:
        y, s = np.zeros(6), []
        for i in range(6):
            y[i] = x[i] + (s[-1] if s else 0)
            s.append(y.sum())
        return y, np.stack(s)

    assert check(model, R(6))["Concat"] == 6 + 1


def test_writes_through_views_are_seen() -> None:
    def model(x: Any) -> Any:
        y = x * 1
        turned, part, back, row = y.T, y[1:, 1:], y[::-1], y[2]
        y[0, 0] = turned[1, 2]
        turned[3, 0] = y[0, 0] + 1
        part[0, 0] = turned[3, 0] * 2
        back[0, 0] = part[0, 0]
        row[1:3] = row[:2]
        row += part[0, 0]
        return y, turned[0], part * 1, back[1], row[3], turned[0, 1:][0]

    check(model, R((4, 4)))


def test_a_register_that_is_shifted_is_one_at_each_step() -> None:
    def model(x: Any) -> Any:
        held, out = np.zeros(3), np.zeros(200)
        for t in range(200):
            held[1:] = held[:-1].copy()
            held[0] = x[t]
            out[t] = held[0] - 0.5 * held[2]
        return out

    check(model, R(200))


def test_dtypes_are_cast_to_and_what_does_not_fit_is_refused() -> None:
    def model(x: Any) -> Any:
        a, b, c = np.zeros(3, np.int8), np.zeros(3, bool), np.zeros(3, np.float32)
        a[0], a[1] = x[0], 7
        b[0], b[1] = x[1], 0.0
        c[0], c[2] = x[0], 0.1
        return a, a[0] * 2, b, b[0], c, c[2] + x[0]

    check(model, np.array([3.7, -2.0]))

    def outside(x: Any) -> Any:
        y = x * 1
        y[0] = 1
        return y[5]

    def wide(x: Any) -> Any:
        y = x.astype(np.int8)
        y[1] = 300
        return y

    for fn, error in ((outside, "index 5 is out of bounds for axis with size 2"), (wide, "out of bounds for int8")):
        with pytest.raises(TargetError, match=rf"^test_patchwork.py:\d+: .*{error}"):
            trace(fn, {"x": np.zeros(2)})


# -- programs of tables


def edit_distance(a: Any, b: Any) -> Any:
    d = np.zeros((len(a) + 1, len(b) + 1), dtype=np.int64)
    d[:, 0] = np.arange(len(a) + 1)
    d[0, :] = np.arange(len(b) + 1)
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            changed = d[i - 1, j - 1] + np.where(a[i - 1] == b[j - 1], 0, 1)
            d[i, j] = np.minimum(np.minimum(d[i - 1, j], d[i, j - 1]) + 1, changed)
    return d[-1, -1]


def tridiagonal(a: Any, b: Any, c: Any, d: Any) -> Any:
    n = len(d)
    over, right, x = np.zeros(n), np.zeros(n), np.zeros(n)
    over[0], right[0] = c[0] / b[0], d[0] / b[0]
    for i in range(1, n):
        m = b[i] - a[i] * over[i - 1]
        over[i] = c[i] / m
        right[i] = (d[i] - a[i] * right[i - 1]) / m
    x[-1] = right[-1]
    for i in range(n - 2, -1, -1):
        x[i] = right[i] - over[i] * x[i + 1]
    return x


def factors(a: Any) -> Any:
    n = len(a)
    upper, lower = a.copy(), np.eye(n)
    for k in range(n):
        for i in range(k + 1, n):
            lower[i, k] = upper[i, k] / upper[k, k]
            upper[i, k:] -= lower[i, k] * upper[k, k:]
    return lower, upper


def likeliest_states(move: Any, seen: Any) -> Any:
    steps, states = seen.shape
    best, back, path = np.zeros((steps, states)), np.zeros((steps, states), int), np.zeros(steps, int)
    best[0] = seen[0]
    for t in range(1, steps):
        scores = best[t - 1][:, None] + move
        back[t] = np.argmax(scores, axis=0)
        best[t] = np.max(scores, axis=0) + seen[t]
    path[-1] = np.argmax(best[-1])
    for t in range(steps - 2, -1, -1):
        path[t] = back[t + 1, path[t + 1]]
    return path, best


def filtered(x: Any, b: Any, a: Any) -> Any:
    y = np.zeros_like(x)
    y[0] = b[0] * x[0]
    y[1] = b[0] * x[1] + b[1] * x[0] - a[1] * y[0]
    for i in range(2, len(x)):
        y[i] = b[0] * x[i] + b[1] * x[i - 1] + b[2] * x[i - 2] - a[1] * y[i - 1] - a[2] * y[i - 2]
    return y


def option(spot: Any, up: Any) -> Any:
    n = 8
    value = np.zeros((n + 1, n + 1))
    for j in range(n + 1):
        value[n, j] = np.maximum(spot * up ** (2 * j - n) - 1, 0)
    for i in range(n - 1, -1, -1):
        for j in range(i + 1):
            value[i, j] = 0.5 * (value[i + 1, j] + value[i + 1, j + 1])
    return value[0, 0]


def bent(x: Any) -> Any:
    """The second derivatives of a natural spline, from a matrix that is filled in."""
    n = len(x)
    m, right = np.zeros((n, n)), np.zeros(n)
    m[0, 0] = m[-1, -1] = 1
    for i in range(1, n - 1):
        m[i, i - 1] = m[i, i + 1] = 1
        m[i, i] = 4
        right[i] = 6 * (x[i + 1] - 2 * x[i] + x[i - 1])
    return np.linalg.solve(m, right)


@pytest.mark.parametrize(
    ("fn", "arrays", "joins"),
    [
        (edit_distance, (np.arange(6) % 3, np.arange(5) % 2), 0),
        (tridiagonal, (R(9), R(9) + 6, R(9), R(9)), 1),
        (factors, (R((5, 5)) + 5 * np.eye(5),), 2),
        (likeliest_states, (R((4, 4)), R((7, 4))), 2),
        (filtered, (R(12), R(3), R(3)), 1),
        (option, (np.float64(1.1), np.float64(1.05)), 0),
        (bent, (R(7),), 5),
    ],
)
def test_tables_are_programs_of_their_elements(fn: Any, arrays: Any, joins: int) -> None:
    assert check(fn, *arrays)["Concat"] == joins


def test_many_pieces_are_put_together_a_few_at_a_time() -> None:
    """As one they were added one by one, all before them copied each time: half a million copies for a thousand."""

    def model(x: Any) -> Any:
        y = np.zeros(300)
        for i in range(1, 300):
            y[i] = x[i] + y[i - 1]
        return y

    found = trace(model, {"x": R(300)}).graph
    most = max(len(n.inputs) for n in found.nodes if type(n.op).__name__ == "Concat")
    assert most <= 24 and check(model, R(300))["Concat"] < 30
