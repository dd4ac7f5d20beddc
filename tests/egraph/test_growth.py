"""How large e-graphs get: programs on which careless rules explode stay small, and no value is kept twice."""

from __future__ import annotations

import operator
from functools import reduce

import numpy as np
import pytest

from waxeq.egraph.saturate import Stop
from waxeq.egraph.snapshot import Snapshot
from waxeq.egraph.verify import verify


def softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def attention(q, k, v):
    return (softmax(q @ k.transpose(0, 2, 1) / 2.0) @ v).transpose(1, 0, 2).reshape(8, 8)


def heads(y):
    return y.reshape(8, 2, 4).transpose(1, 0, 2)


def norm_first(x, g, b, q, k, v, o, up, down, bq, bk, bv, bo, bu, bd):
    """A layer of the GPT kind: layer norms before attention and MLP, biases everywhere, gelu by tanh."""

    def norm(y):
        c = y - np.mean(y, axis=-1, keepdims=True)
        return c / np.sqrt(np.mean(c * c, axis=-1, keepdims=True) + 1e-5) * g + b

    y = norm(x)
    x = x + attention(heads(y @ q + bq), heads(y @ k + bk), heads(y @ v + bv)) @ o + bo
    h = norm(x) @ up + bu
    return x + (0.5 * h * (1 + np.tanh(0.79788 * (h + 0.044715 * h**3)))) @ down + bd


def rotary(x, g, g2, q, k, v, o, gate, up, down, cos, sin):
    """A layer of the LLaMA kind: RMS norms, rotary positions, a gated MLP."""

    def norm(y, g):
        return y / np.sqrt(np.mean(y * y, axis=-1, keepdims=True) + 1e-5) * g

    def turned(y):
        a, b = y[..., :2], y[..., 2:]
        return np.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)

    y = norm(x, g)
    x = x + attention(turned(heads(y @ q)), turned(heads(y @ k)), heads(y @ v)) @ o
    y = norm(x, g2)
    h = y @ gate
    return x + (h / (1 + np.exp(-h)) * (y @ up)) @ down


_SQUARE = dict.fromkeys("qkvo", (8, 8))
LAYERS = {
    "norm first": (norm_first, {"g": (8,), "b": (8,), **_SQUARE, "up": (8, 10), "down": (10, 8),
                                **dict.fromkeys(("bq", "bk", "bv", "bo", "bd"), (8,)), "bu": (10,)}),
    "rotary": (rotary, {"g": (8,), "g2": (8,), **_SQUARE, "gate": (8, 12), "up": (8, 12), "down": (12, 8),
                        "cos": (8, 2), "sin": (8, 2)}),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_a_transformer_layer_saturates_and_keeps_no_value_twice(forms, name):
    model, shapes = LAYERS[name]
    found = forms(model, " ".join(shapes), x=(8, 8), **shapes)
    assert found.saturation.stop is Stop.Saturated
    assert found.snapshot.nodes < 4000
    unfolded = forms(model, " ".join(shapes), "scalar", x=(8, 8), **shapes)  # that phase ends the algebra, so twins
    assert not twice(unfolded.snapshot)  # made there have no descendants


def twice(snapshot: Snapshot) -> list[list[int]]:
    """Groups of classes of tensors that have one value: what the rules should have found equal, and every rule then
    works on each of them."""
    values = verify(snapshot, 1).values
    groups: dict[tuple, list[int]] = {}
    for i, c in enumerate(snapshot.classes):
        order = tuple(sorted(c.axes))
        data = np.asarray(values[i].aligned(order), dtype=np.float64).ravel()
        scale = float(np.sqrt(np.mean(data**2)))
        if data.size > 1:
            groups.setdefault((order, c.dtype, f"{scale:.9g}", *np.round(data / scale, 8)), []).append(i)
    return [g for g in groups.values() if len(g) > 1]


@pytest.mark.parametrize("f", [operator.mul, operator.add])
def test_a_long_product_or_sum_of_elements_stays_as_it_is(forms, f):
    names = [f"x{i}" for i in range(16)]
    model = eval(f"lambda {', '.join(names)}: fold([{', '.join(names)}])", {"fold": lambda xs: reduce(f, xs)})
    found = forms(model, **dict.fromkeys(names, (4, 5)))
    assert found.saturation.stop is Stop.Saturated and found.snapshot.nodes < 100


@pytest.mark.parametrize(
    "model",
    [
        lambda x, w, b: (x + 0.0) * w + b,
        lambda x, w, b: np.maximum(x + b, 0.0) * 2.0 * w,
        lambda x, w, b: ((x * 0.0 + b) * 2.0 + 0.0) * 4.0 * w,
        lambda x, w, b: -(0.0 - x * 1.0) / 1.0 * 0.5 * 2.0 * w - 0.0 + b,
        lambda x, w, b: np.maximum(np.minimum(x, np.inf), -np.inf) * 3.0 * w + b,
        lambda x, w, b: np.sqrt(np.square(x * 2.0) * 4.0) * 0.5 / (1 / w) + b,
    ],
)
def test_what_changes_nothing_does_not_multiply(forms, model):
    found = forms(model, "w b", x=(4, 5), w=(5,), b=(5,))
    assert found.saturation.stop is Stop.Saturated and found.snapshot.nodes < 200


def test_a_long_chain_of_matrices(forms):
    names = [f"x{i}" for i in range(10)]
    model = eval(f"lambda {', '.join(names)}: {' @ '.join(names)}")
    found = forms(model, **{n: (4 + i, 5 + i) for i, n in enumerate(names)})
    assert found.saturation.stop is Stop.Saturated and found.snapshot.nodes < 1000


def test_many_projections_of_one_input(forms):
    names = [f"w{i}" for i in range(24)]
    model = eval(f"lambda x, {', '.join(names)}: ({', '.join(f'x @ {n}' for n in names)})")
    found = forms(model, " ".join(names), x=(4, 6), **dict.fromkeys(names, (6, 5)))
    assert found.saturation.stop is Stop.Saturated and found.snapshot.nodes < 3000
    whole = max(n for s, n in found.snapshot.sizes.items() if "+" in s)
    assert whole == 24 * 5


def test_a_gated_layer(forms, load_example):
    example = load_example("gated_mlp")
    found = forms(example.model, " ".join(example.WEIGHTS), x=(3, 4), w_gate=(4, 6), w_up=(4, 6), w_down=(6, 4))
    assert found.saturation.stop is Stop.Saturated and found.snapshot.nodes < 100


def test_numbers_that_differ_by_their_rounding_end_in_a_graph_of_some_size(forms):
    """x/n over the square of y/n: no two ways to multiply 20000, its reciprocal and their squares round alike, and what
    comes out of them was multiplied again, to a million nodes in 14 iterations: the time was up, nothing rewritten."""
    found = forms(lambda x, y: (x / 20000) / (y / 20000) ** 2, x=(8,), y=(8,))
    assert found.saturation.stop is Stop.NodeLimit and found.snapshot.nodes < 10000
    assert found.of('(Mul s (Zip "div" @x (Map "square" @y)))')
