"""What writing in place reaches and what it must not: scalars, views by data, memory that may be shared."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import waxeq as wx
from waxeq.errors import UnsupportedError, WaxeqError
from waxeq.frontend.array import TracedArray
from waxeq.frontend.trace import trace
from waxeq.ir.interpret import interpret

pytestmark = pytest.mark.quick

X = np.arange(1.0, 7.0)
M = np.arange(24.0).reshape(4, 6)
IDS = np.array([1, 3])
ONE = np.int64(1)


def run(fn: Callable[..., Any], *arrays: Any, states: tuple[str, ...] = ()) -> dict[str, np.ndarray]:
    traced = trace(fn, dict(zip(inspect.signature(fn).parameters, arrays, strict=True)), states=states)
    return interpret(traced.graph, {**traced.inputs, **traced.tensors})


def check(fn: Callable[..., Any], *arrays: Any) -> None:
    want = fn(*(a.copy() for a in arrays))
    got = list(run(fn, *arrays).values())
    for g, w in zip(got, want if isinstance(want, tuple) else [want], strict=True):
        assert (g.dtype, g.shape) == (np.asarray(w).dtype, np.shape(w))
        np.testing.assert_allclose(g, w)


def refused(fn: Callable[..., Any], match: str, *arrays: Any) -> None:
    with pytest.raises(UnsupportedError, match=rf"^test_writing\.py:\d+: .*{match}"):
        run(fn, *arrays)


# -- scalars


def test_an_element_that_is_added_to_is_no_part_of_its_array() -> None:
    def model(x: Any) -> Any:
        s = x[0]
        s += x[1]
        return x * s

    check(model, X)
    assert set(run(model, X, states=("x",))) == {"out"}


def test_an_element_is_as_it_was_when_it_was_read() -> None:
    def model(x: Any, i: Any) -> Any:
        y = x * 1
        s, t = y[0], y[i]
        y[:2] = 9
        return y, s, t

    check(model, X, ONE)


def test_adding_to_a_sum_leaves_its_other_names() -> None:
    def model(x: Any) -> Any:
        s = x.sum()
        a = s
        s += 1
        b = c = np.mean(x)
        b *= 2
        d = e = np.float32(x[0])
        d -= 1
        return a, s, b, c, d, e

    check(model, X)


def test_a_scalar_takes_another_dtype_or_shape_in_place() -> None:
    def model(x: Any) -> Any:
        n = (x > 3).sum()
        n /= 2
        s = x.sum()
        s += x
        return n, s

    check(model, X)


def test_arrays_without_axes_are_written_to() -> None:
    def model(x: Any, y: Any) -> Any:
        z = np.zeros(())
        v = x * 1
        w = np.where(x[0] > 0, x[1], x[2])
        rows = [z, v[..., 0], w, np.asarray(x[3]), np.copy(x.sum()), y, y.astype(np.float32), np.full_like(x[0], 2)]
        names = list(rows)
        for r in rows:
            r += 1
        return (v, *rows, *names)

    check(model, X, np.array(2.5))


def test_an_argument_is_a_scalar_where_its_example_is_one() -> None:
    def model(s: Any) -> Any:
        t = s
        s += 1
        return s, t

    check(model, np.float64(2.5))
    check(model, np.array(2.5))


SINGLE = [
    *(np.sum, np.max, np.mean, np.std, np.median, np.ptp, np.argmax, np.linalg.norm, np.count_nonzero, np.all, np.sqrt),
    *(
        np.add.reduce,
        np.trunc,
        np.round,
        np.nan_to_num,
        np.copy,
        np.zeros_like,
        np.ones_like,
        np.real,
        np.imag,
        np.flip,
    ),
    *(np.transpose, np.squeeze, np.conjugate, np.real_if_close, np.isreal, np.isposinf, np.broadcast_arrays),
    *(lambda x: x.copy(), lambda x: x.conj(), lambda x: x.real, lambda x: x.imag, lambda x: x.T, lambda x: x.sum()),
    *(lambda x: x.astype("f4"), lambda x: x.squeeze(), lambda x: x.transpose(), lambda x: x.round(), lambda x: x[()]),
    *(lambda x: x[...], lambda x: -x, lambda x: x > 1, lambda x: x * 2, lambda x: divmod(x, 2), lambda x: x.clip(0, 1)),
    *(lambda x: x.reshape(()), lambda x: np.reshape(x, ()), lambda x: np.broadcast_to(x, ()), lambda x: np.dot(x, x)),
    *(lambda x: np.where(x > 1, x, 2), lambda x: np.isin(x, [1]), lambda x: np.select([x > 1], [x])),
    *(lambda x: np.tensordot(x, x, 0), lambda x: np.tile(x, ()), lambda x: np.clip(x, 0, 1), lambda x: np.roll(x, 0)),
    *(
        lambda x: np.inner(x, x),
        lambda x: np.einsum("->", x),
        lambda x: np.full_like(x, 2),
        lambda x: np.add.outer(x, x),
    ),
]


@pytest.mark.parametrize("f", SINGLE)
def test_what_has_no_axes_is_a_scalar_or_an_array_as_in_numpy(f: Callable[..., Any]) -> None:
    def model(x: Any) -> Any:
        y = f(x)
        y = y[0] if isinstance(y, tuple) else y
        found.append((np.shape(y), y.scalar if isinstance(y, TracedArray) else not isinstance(y, np.ndarray)))
        return x

    for x in (np.float64(2.5), np.array(2.5), np.array([2.5])):
        found: list[tuple[tuple[int, ...], bool]] = []
        try:
            model(x)
        except (ValueError, IndexError, TypeError):
            continue
        trace(model, {"x": x})
        (shape, scalar), got = found
        assert got[0] == shape
        assert shape or got[1] == scalar


def test_an_array_made_of_a_scalar_is_its_own() -> None:
    def model(x: Any) -> Any:
        s = x.sum()
        a, b, c, d = s[None], np.atleast_1d(s), s.reshape(1), np.asarray(s)
        for y in (a, b, c, d):
            y += 1
        return s, a, b, c, d

    check(model, X)


def test_a_scalar_cannot_be_written_to() -> None:
    def out(x: Any) -> Any:
        s = x.sum()
        np.add(s, 1, out=s)
        return s

    def item(x: Any) -> Any:
        s = x[0]
        s[...] = 1
        return s

    refused(out, r"a scalar is written to.*s = s \+ 1", X)
    refused(item, r"a scalar is written to.*s = s \+ 1", X)


# -- views by an index that is data


def test_a_row_by_a_traced_scalar_is_a_view() -> None:
    def model(cache: Any, i: Any, ids: Any, v: Any) -> Any:
        c = cache * 1
        c[i][:] = v
        row = c[ids[1]]
        row += v
        c[ids[0], 2:] *= 3
        turned = c[:, i].T
        turned -= v[:4]
        c[0] = 7
        return c, row, c[i, ids[0]]

    check(model, M, ONE, IDS, X)
    check(model, M, np.int64(0), IDS - 1, X)


def test_a_row_by_an_array_without_axes_is_a_copy() -> None:
    def model(cache: Any, i: Any, v: Any) -> Any:
        c = cache * 1
        a, b = c[i], c[np.array(2)]
        a += v
        b += v
        c[i] += v
        return c, a, b

    check(model, M, np.array(1), X)


def test_a_state_is_written_through_a_row_at_an_input() -> None:
    def model(cache: wx.State["f64", 4, 6], at: wx.Input["int64"], v: wx.Input["f64", 6]) -> None:  # noqa: F821, UP037
        row = cache[at]
        row += v

    found = wx.trace(model)
    state = interpret(found.graph, {"cache": M, "at": np.array(2), "v": X})["cache"]
    np.testing.assert_array_equal(state[2], M[2] + X)


def test_adding_to_a_row_writes_once() -> None:
    def model(x: Any, i: Any, v: Any) -> Any:
        y = x * 1
        y[i] += v
        return y

    ops = [type(n.op).__name__ for _, n in trace(model, {"x": M, "i": ONE, "v": X}).graph.values()]
    assert ops.count("Scatter") == 1


# -- memory that may be shared


def add_one(view: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def model(x: Any) -> Any:
        y = x * 2
        z = view(y)
        z += 1
        return y, z

    return model


def test_a_reshape_of_a_reshape_is_not_written_to() -> None:
    def there(x: Any) -> Any:
        y = x * 2
        b = y.reshape(-1).reshape(2, 3)
        y += 1
        return b

    refused(add_one(lambda y: y.reshape(-1).reshape(2, 3)), r"reshape.*copy\(\)", X)
    refused(add_one(lambda y: y.reshape(2, 3).T.reshape(-1).reshape(1, -1)), r"reshape.*copy\(\)", X)
    refused(there, r"reshape.*copy\(\)", X)
    check(add_one(lambda y: y.reshape(-1).reshape(2, 3).copy()), X)


def test_what_may_be_the_same_array_is_not_written_to() -> None:
    for view in (
        lambda y: np.ascontiguousarray(y),
        lambda y: np.asarray(y, order="C"),
        lambda y: np.einsum("ij->ji", y),
        lambda y: np.einsum("ij", y),
        lambda y: np.meshgrid(y[0], y[1], copy=False)[0],
    ):
        refused(add_one(view), r"copy\(\)", M)

    def diagonal(x: Any) -> Any:
        m = x * 1
        np.einsum("ii->i", m)[:] = 1
        return m

    refused(diagonal, r"einsum.*copy\(\)", M[:, :4])


def test_what_is_the_same_array_is_written_to() -> None:
    for view in (
        lambda y: np.asarray(y),
        lambda y: np.asanyarray(y),
        lambda y: np.array(y, copy=False),
        lambda y: np.squeeze(y),
        lambda y: np.atleast_1d(y),
        lambda y: np.transpose(y),
        lambda y: np.real(y),
        lambda y: y.real,
        lambda y: y.conj(),
        lambda y: y.astype(float, copy=False),
        lambda y: np.nan_to_num(y, copy=False),
    ):
        check(add_one(view), M)
    check(add_one(lambda y: np.nan_to_num(y, copy=False)), M.astype(int))


def test_what_is_a_copy_is_its_own() -> None:
    for view in (
        lambda y: np.array(y),
        lambda y: np.asarray(y, np.float32),
        lambda y: np.asarray(y, copy=True),
        lambda y: np.ascontiguousarray(y, np.float32),
        lambda y: np.full_like(y, y[0]),
        lambda y: np.einsum("ij->j", y),
        lambda y: np.einsum("ij,ij->ij", y, y),
        lambda y: np.conjugate(y),
    ):
        check(add_one(view), M)


# -- arrays of known content


def write_to_known(write: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def model(x: Any) -> Any:
        m = np.zeros((3, 3))
        m[0, 2] = 5
        write(m)
        return m * x[0]

    return model


def test_writes_that_would_reach_a_temporary_are_refused() -> None:
    for write in (
        lambda m: m.resize((9,)),
        lambda m: m.setflags(write=False),
    ):
        refused(write_to_known(write), "not traced.*by index", X)


def rigid(x: Any) -> Any:
    m, low = np.eye(4), np.identity(3)
    m[:2, 3] = x[:2]
    m[2, :3] = [x[0], 2.0, x[1]]
    low[1, 0] -= x[2] / 2
    like = np.zeros_like(np.arange(3.0)) + np.arange(3.0)
    like[1] = x[0]
    return m, low, like, np.eye(3, k=1, dtype=np.int32)[0] * 2, np.linalg.inv(np.eye(2) * 4)[0] * x[0], m @ np.eye(4, 2)


def test_an_identity_is_written_to() -> None:
    """A rigid transform, the left factor of a matrix: the way they are filled in."""
    check(rigid, X)


@pytest.mark.parametrize("make", [lambda: np.arange(3.0), lambda: np.array([1.0, 2, 3])])
def test_a_known_array_that_is_written_to_is_refused_with_the_way_out(make: Callable[[], Any]) -> None:
    def element(x: Any) -> Any:
        a = make()
        a[1] = x[0]
        return a

    def several(x: Any) -> Any:
        a = make()
        a[:2] = [x[0], 1.0]
        return a

    def somewhere(x: Any) -> Any:
        a = make()
        a[x[:2].astype(int)] = 1
        return a

    for model in (element, several, somewhere):
        with pytest.raises(UnsupportedError, match=r"test_writing\.py:\d+: an array that is known .*zeros_like"):
            run(model, X)


def test_writes_to_known_arrays_that_are_traced() -> None:
    for write in (
        lambda m: m.sort(),
        lambda m: m.fill(3),
        lambda m: np.copyto(m, 4),
        lambda m: np.putmask(m, m == 0, 4),
        lambda m: np.fill_diagonal(m, 3),
        lambda m: np.put(m, [0], 1),
        lambda m: np.place(m, m == 0, 1),
        lambda m: np.put_along_axis(m, np.zeros((3, 1), int), 7, 1),
        lambda m: m.put([0], 1),
        lambda m: m.partition(1),
    ):
        check(write_to_known(write), X)


def test_what_is_made_of_known_content_is_no_second_array() -> None:
    for view in (lambda m: np.asfortranarray(m[0]), lambda m: np.trim_zeros(m[0])):
        with pytest.raises(WaxeqError, match=r"test_writing\.py:\d+: .*(read-only|copy\(\))"):
            run(write_to_known(lambda m, view=view: view(m).fill(2)), X)


def test_content_that_is_known_may_be_copied_and_written_to() -> None:
    def model(x: Any) -> Any:
        plain = np.ones(3).tolist()
        copied = np.zeros(3).__array__(copy=True)
        copied[0] = 4
        return x[:3] * copied + plain

    check(model, X)


# -- arguments of one memory


def test_a_model_that_writes_to_an_argument_passed_twice_is_refused() -> None:
    """NumPy finds what was written in the other one, too; a plan took the old content."""

    def steps(a: Any, b: Any) -> Any:
        a += 1
        return a * b

    for other in (M, M[:, ::-1], M[1:]):
        b = other[: len(M)] if other.shape == M.shape else np.broadcast_to(other[0], M.shape)
        refused(steps, r"the model writes to a, which shares memory with b; .*a = a\.copy\(\)", M, b)
    check(steps, M, M.copy())
    check(lambda a, b: steps(a.copy(), b), M, M)
    run(steps, M[:, ::2], M[:, 1::2])  # they lie among each other, and share nothing


def test_a_structured_array_is_named() -> None:
    rows = np.zeros(3, [("mass", "f4"), ("charge", "f4")])
    with pytest.raises(WaxeqError, match=r"input 'x' is a structured array; .*{'mass': x\['mass'\], 'charge'"):
        run(lambda x: x["mass"] * 2, rows)
