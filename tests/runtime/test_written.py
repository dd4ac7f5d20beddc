"""The model as written: results are arrays of their own, whatever the model returns."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest

from waxeq.errors import UsageError
from waxeq.frontend.trace import trace
from waxeq.ir.graph import GraphBuilder
from waxeq.ir.types import TensorType
from waxeq.ops.movement import Reshape, Slice
from waxeq.runtime.written import Written

pytestmark = pytest.mark.quick

C = np.arange(6.0).reshape(2, 3)
MODELS: dict[str, Callable[..., Any]] = {
    "input": lambda x, w: x,
    "view of an input": lambda x, w: x.T,
    "part of an input": lambda x, w: (x[1:], x[:, ::-1]),
    "weight": lambda x, w: (w, w[0]),
    "constant": lambda x, w: (C, x + C),
    "twice": lambda x, w: (y := x + 1, y),
    "with its view": lambda x, w: (y := x * w, y.T, y[0]),
    "view of a temporary": lambda x, w: (x * w + 1).T[1:],
    "over dead operands": lambda x, w: np.exp(-(x * w + 1)),
    "broadcast": lambda x, w: np.broadcast_to(x[0], (4, 3)),
    "number": lambda x, w: ((x * w).sum(), np.float64(2)),
    "fold over nothing": lambda x, w: np.sum(x, axis=()),
    "product": lambda x, w: (x @ w.T, np.einsum("ij,kj->ki", x, w)),
}


@pytest.mark.parametrize("model", MODELS.values(), ids=list(MODELS))
def test_results_share_no_memory(model: Callable[..., Any]) -> None:
    x, w = np.arange(6.0).reshape(2, 3) + 1, np.arange(6.0).reshape(2, 3) - 2
    traced = trace(model, {"x": x, "w": w}, weights=("w",))
    run = Written(traced.graph, traced.tensors)
    before = [a.copy() for a in (x, w, C)]
    first = run.run([x])
    arrays = [*first, x, w, C, *run.tensors.values(), *run.run([x])]
    for i, j in combinations(range(len(first)), 2):
        assert not np.shares_memory(first[i], first[j])
    for i, a in enumerate(first):
        assert type(a) is np.ndarray and not any(np.shares_memory(a, b) for b in arrays[i + 1 :])
    for a in first:
        if a.size:
            a[...] = -1
    for a, b in zip((x, w, C), before, strict=True):
        np.testing.assert_array_equal(a, b)
    want = model(x, w)
    for got, y in zip(run.run([x]), want if isinstance(want, tuple) else (want,), strict=True):
        np.testing.assert_allclose(got, y)


def test_a_result_that_is_also_the_next_state_is_the_callers_alone() -> None:
    def model(x: Any, total: Any) -> Any:
        total += x
        return total, total[1:]

    x = np.ones(3)
    traced = trace(model, {"x": x, "total": np.zeros(3)}, states=("total",))
    run = Written(traced.graph, traced.tensors)
    for n in (1, 2, 3):
        whole, part = run.run([x])
        assert whole.tolist() == [n] * 3 and part.tolist() == [n] * 2
        whole[...] = part[...] = -9
    assert run.tensors["total"].tolist() == [3] * 3 and not traced.tensors["total"].any()


def test_a_model_with_states_is_for_one_thread_at_a_time() -> None:
    """The next state of one call would be lost to that of the other."""

    def model(x: Any, total: Any) -> Any:
        total += x
        return total * 1

    traced = trace(model, {"x": np.ones(3), "total": np.zeros(3)}, states=("total",))
    run = Written(traced.graph, traced.tensors)
    with ThreadPoolExecutor(1) as other:

        def inside() -> None:
            with pytest.raises(UsageError, match="running in another thread"):
                other.submit(run.run, [np.ones(3)]).result()

        run._context.run(inside)
    run.run([np.ones(3)])
    assert run.tensors["total"].tolist() == [1] * 3


def test_a_state_that_is_an_input_is_a_copy_of_it() -> None:
    def model(x: Any, last: Any) -> Any:
        y = last + 0
        last[...] = x
        return y

    x = np.ones(3)
    traced = trace(model, {"x": x, "last": np.zeros(3)}, states=("last",))
    run = Written(traced.graph, traced.tensors)
    run.run([x])
    x[:] = 7
    assert run.run([x])[0].tolist() == [1, 1, 1]


def test_warnings_of_numpy_are_not_shown_and_settings_stay(recwarn: pytest.WarningsRecorder) -> None:
    traced = trace(lambda x: np.log(x) / x, {"x": np.zeros(3)})
    before = np.geterr()
    assert np.isneginf(Written(traced.graph, {}).run([np.zeros(3)])[0]).all()
    assert not recwarn.list and np.geterr() == before


def test_parts_of_an_axis_are_views_whichever_way_they_run() -> None:
    x = np.arange(21.0).reshape(3, 7)
    for start, step, count in product(range(7), (-3, -2, -1, 1, 2, 3), range(8)):
        if count and not 0 <= start + step * (count - 1) < 7:
            continue
        part = Slice(1, start, step, count)
        np.testing.assert_array_equal(part.reference(x), np.take(x, [start + step * i for i in range(count)], axis=1))
        assert part.reference(x).base is not None
        b = GraphBuilder()
        y = b(Reshape((count, 3)), b(part, b.leaf("x", TensorType.of(x))))
        np.testing.assert_array_equal(
            Written(b.finish([("y", y)]), {})({"x": x})["y"], part.reference(x).reshape(-1, 3)
        )


@pytest.mark.parametrize(
    ("dtype", "value"), [(np.float32, -1.5), (np.float32, np.nan), (np.float16, np.inf), (np.int16, 0), (np.int16, -2)]
)
def test_axes_that_are_padded_together_are_copied_once(dtype: type, value: float) -> None:
    """Each axis was a copy of its own: a ResNet kept as written took 1.3 times what its function does."""
    given = {"x": np.arange(24).reshape(2, 3, 4).astype(dtype)}

    def model(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        y = np.pad(x, ((0, 1), (2, 0), (3, 3)), constant_values=dtype(value))
        z = np.pad(np.pad(x, ((1, 1), (0, 0), (0, 0))), ((0, 0), (0, 2), (0, 0)), constant_values=dtype(1))
        w = np.pad(x[:, :0], ((0, 0), (1, 1), (0, 2)), constant_values=dtype(value))
        return y, z, w

    t = trace(model, given)
    for got, right in zip(Written(t.graph, t.tensors)(given).values(), model(**given), strict=True):
        assert got.dtype == right.dtype
        np.testing.assert_array_equal(got, right)


def test_what_is_padded_on_the_way_and_read_is_there() -> None:
    given = {"x": np.arange(6, dtype=np.float32).reshape(2, 3)}

    def model(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        y = np.pad(x, ((1, 0), (0, 0)))
        return y, np.pad(y, ((0, 0), (1, 2)))

    t = trace(model, given)
    for got, right in zip(Written(t.graph, t.tensors)(given).values(), model(**given), strict=True):
        np.testing.assert_array_equal(got, right)
