"""A model at many sizes is one graph, or is refused with the place that makes it another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import waxeq as wx
from waxeq.errors import UnsupportedError, UsageError
from waxeq.ir.graph import Graph
from waxeq.symbolic.dims import dims_of
from waxeq.symbolic.family import Family, examples_of, samples
from waxeq.symbolic.graph import Sample, at, general, matched
from waxeq.symbolic.size import Size


def one(fn: Callable[..., Any], given: Any, **dims: Any) -> tuple[Graph, Family]:
    family = Family(fn, dims_of(dims), examples_of(fn, given, dims_of(dims)))
    rows = []
    for s in samples(family):
        t = family.traced(s)
        rows.append(Sample(s, t.graph, {**t.inputs, **t.tensors}))
    return general(rows).graph, family


def shapes(g: Graph) -> list[str]:
    return [f"[{', '.join(str(getattr(n, 'expr', n)) for n in g.type(v).shape)}]" for _, v in g.outputs]


def token_mean(x: wx.Input["f32", "B", "T", 8]):  # noqa: F821, UP037
    flat = x.reshape(x.shape[0] * x.shape[1], 8)
    return x.mean(1), flat * 2.0, x[:, 1:] - x[:, :-1]


def test_sizes_become_functions() -> None:
    g, family = one(token_mean, {}, T=(2, 300), B=(1, 9))
    assert shapes(g) == ["[B, 8]", "[B*T, 8]", "[B, T - 1, 8]"]
    for sizes in ({"T": 2, "B": 2}, {"T": 299, "B": 5}):
        t = family.traced(sizes)
        assert not isinstance(matched(at(g, sizes), t.graph), str)
        assert [at(g, sizes).type(v) for _, v in g.outputs] == [t.graph.type(v) for _, v in t.graph.outputs]
        assert at(g, sizes).check()


def test_plain_functions_name_the_axes_or_show_them() -> None:
    def model(x, y):
        return x @ y

    x, y = np.ones((4, 6), np.float32), np.ones((6, 4), np.float32)
    by_axes, _ = one(model, {"x": x, "y": y}, T=(1, 64, {"x": 0, "y": 1}))
    by_examples, _ = one(model, lambda T: {"x": np.ones((T, 6), "f"), "y": np.ones((6, T), "f")}, T=(1, 64))
    assert shapes(by_axes) == shapes(by_examples) == ["[T, T]"]
    with pytest.raises(UsageError, match="no input has an axis of size T"):
        one(model, {"x": x, "y": y}, T=(1, 64))
    with pytest.raises(UsageError, match="axis of input 'zz', but the model takes x, y"):
        one(model, {"x": x, "y": y}, T=(1, 64, {"zz": 0}))


def test_a_branch_on_the_size_is_refused_with_its_place() -> None:
    def model(x):
        if x.shape[0] > 100:
            return np.tanh(x)
        return np.exp(x)

    with pytest.raises(UnsupportedError) as e:
        one(model, {"x": np.ones(4, np.float32)}, T=(1, 512, {"x": 0}))
    assert "test_family.py:" in str(e.value) and "another one where T = " in str(e.value)


@pytest.mark.parametrize(
    ("mode", "width", "low"), [("reflect", 1, 1), ("reflect", 2, 1), ("symmetric", 20, 1), ("wrap", 20, 18)]
)
def test_a_border_wider_than_the_array_is_at_some_sizes_is_refused(mode: Any, width: int, low: int) -> None:
    """There it is other pieces, of which some do not fit, or are not there."""

    def model(x):
        return np.pad(x, ((width, width), (0, 0)), mode=mode)

    with pytest.raises(UnsupportedError, match="give a range that has one of these alone"):
        one(model, lambda N: {"x": np.ones((N, 6), np.float32)}, N=(low, 60))
    g, _ = one(model, lambda N: {"x": np.ones((N, 6), np.float32)}, N=(width + 1, 60))
    assert g is not None


def test_results_that_are_one_value_at_some_sizes_only_are_refused() -> None:
    def model(x):
        t = np.tanh(x)
        h = np.exp(t)
        return (t, h) if x.shape[0] == 100 else (h, h)

    with pytest.raises(UnsupportedError, match=r"another one where T = .*its results are others"):
        one(model, {"x": np.ones(4, np.float32)}, T=(1, 512, {"x": 0}))


def test_sizes_that_a_model_asks_for_are_tried_whatever_other_numbers_it_has() -> None:
    def equal(x):
        y = x * 2 + 3 - 4 + 5 - 6 + 7 - 8 + 9 - 10 + 11 - 12 + 13 - 14 + 15 - 16
        return np.exp(y) if x.shape[0] == 400 else y

    def among(x):
        y = x * 2 + 3 - 4 + 5 - 6 + 7 - 8 + 9 - 10 + 11 - 12 + 13 - 14 + 15 - 16
        return np.exp(y) if x.shape[0] in (300, 400) else y

    for model in (equal, among):
        with pytest.raises(UnsupportedError, match="what is exp at one size, at another it is sub"):
            one(model, {"x": np.ones(4, np.float32)}, T=(1, 512, {"x": 0}))


@pytest.mark.parametrize(
    ("axes", "said"),
    [
        ({"x": 7}, r"T is to be axis 7 of input 'x', whose example has the shape \(\d+, 6\) where T = \d+$"),
        ({"y": 0}, r"T is to be axis 0 of input 'y', whose example has the shape \(6, 4\)"),
        ({"zz": 0}, "T is to be an axis of input 'zz', but the examples are of x, y"),
    ],
)
def test_axes_that_examples_of_any_size_do_not_have_are_refused(axes: Any, said: str) -> None:
    def model(x, y):
        return x @ y

    with pytest.raises(UsageError, match=said):
        one(model, lambda T: {"x": np.ones((T, 6), "f"), "y": np.ones((6, 4), "f")}, T=(1, 64, axes))


def test_an_axis_of_two_dims_is_refused() -> None:
    with pytest.raises(UsageError, match="axis 0 of input 'x' is to be of size T and of size S"):
        one(np.tanh, {"x": np.ones(4, np.float32)}, T=(1, 64, {"x": 0}), S=(1, 64, {"x": 0}))


@pytest.mark.parametrize("example", [np.ones, np.zeros])
def test_a_branch_that_changes_nothing_for_the_examples_alone_is_refused(example: Any) -> None:
    """Of ones x * 2 is x + 1, of zeros x * 3."""

    def model(x):
        if x.shape[0] > 100:
            return x * 2
        return x + 1 if example is np.ones else x * 3.0 * x

    with pytest.raises(UnsupportedError, match="the model is another one where T = "):
        one(model, {"x": example(4, np.float32)}, T=(1, 512, {"x": 0}))


def test_a_branch_that_changes_nothing_is_none() -> None:
    def model(x):
        return x * 1.0 if x.shape[0] == 1 else x + np.zeros_like(x)

    g, _ = one(model, {"x": np.ones(4, np.float32)}, T=(1, 64, {"x": 0}))
    assert shapes(g) == ["[T]"]


def test_sizes_that_are_no_polynomial_are_refused() -> None:
    def model(x):
        return x[: x.shape[0] // 2]

    with pytest.raises(UnsupportedError, match=r"test_family.py:\d+: Slice depends on a dim .* no polynomial"):
        one(model, {"x": np.ones(4, np.float32)}, T=(2, 64, {"x": 0}))


def test_edges_of_several_ranges_at_once_are_tried() -> None:
    """At T = S = 1 this is one element, and everywhere else two: each was looked at alone at its least size."""

    def model(x: wx.Input["f32", "T", "S"]):  # noqa: F821, UP037
        return x.reshape(-1)[-2:]

    with pytest.raises(UnsupportedError, match="another one where T = 1, S = 1"):
        one(model, {"x": np.ones((4, 4), np.float32)}, T=(1, 64), S=(1, 64))


@pytest.mark.parametrize("by", [2, -2])
def test_a_piece_that_begins_before_the_array_does_is_no_piece(by: int) -> None:
    """Rolled by two a row of one element is its last element and all but two of it, which came out right by luck."""

    def model(x: wx.Input["f32", "T"]):  # noqa: F821, UP037
        return np.roll(x, by)

    with pytest.raises(UnsupportedError, match="give a range that has one of these alone"):
        one(model, {"x": np.ones(4, np.float32)}, T=(1, 64))


def test_arrays_made_while_tracing_are_refused() -> None:
    table = np.arange(512, dtype=np.float32)

    def model(x):
        return x + np.array(table[: x.shape[0]] * 2)

    with pytest.raises(UnsupportedError, match="is another array at another size"):
        one(model, {"x": np.ones(4, np.float32)}, T=(2, 64, {"x": 0}))


def test_weights_have_no_dims() -> None:
    def model(x: wx.Input["f32", "T"], w: wx.Weight["f32", "T"]):  # noqa: F821, UP037
        return x * w

    with pytest.raises(UsageError, match="weight 'w' has an axis of size T"):
        one(model, {"w": np.ones(4, np.float32)}, T=(2, 64))


def test_a_size_of_one_is_the_same_program_where_it_broadcasts() -> None:
    def model(x, y):
        return x[:, None] * y[None, :] + x.sum()

    g, _ = one(model, {"x": np.ones(4, "f"), "y": np.ones(3, "f")}, T=(1, 33, {"x": 0}))
    assert g.type(g.outputs[0][1]).shape == (Size.of("T"), 3)


def test_what_is_empty_at_the_least_size_is_the_same_slice() -> None:
    """At T = 1 nothing is left of x[1:]; it begins at 1 there, too."""

    def steps(x: wx.Input["f32", "T"]):  # noqa: F821, UP037
        return x[1:] - x[:-1], np.diff(x, axis=0), x[1:].sum() / (x.shape[0] - 1.0)

    g, family = one(steps, {}, T=(1, 16))
    assert shapes(g) == ["[T - 1]", "[T - 1]", "[]"]
    for T in (1, 2, 16):
        assert at(g, {"T": T}).check()
        assert not isinstance(matched(at(g, {"T": T}), family.traced({"T": T}).graph), str)


@pytest.mark.parametrize(
    ("cut", "said"),
    [
        (lambda x: x[2:], "1 where T = 1; 2 where T = 2; .*: where T = 1 it is another: give a range from 2"),
        (lambda x: x[5:], "where T < 5 it is another: give a range from 5"),
        (lambda x: x[1 : min(x.shape[0], 15)], "where T = 16 it is another: give a range up to 15"),
    ],
)
def test_a_refusal_names_the_size_that_is_another_and_the_range_without_it(cut: Any, said: str) -> None:
    def model(x: wx.Input["f32", "T"]):  # noqa: F821, UP037
        return cut(x) * 2.0

    with pytest.raises(UnsupportedError, match=said):
        one(model, {}, T=(1, 16))
