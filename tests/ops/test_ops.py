"""Every operator, on random attributes, shapes and dtypes: the type rule tells the reference's type, the lowered term
has the reference's value, a composite is its expansion, and graph text reads back. Ranges over the registry."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waxeq.basis.evaluate import Evaluator, NamedArray
from waxeq.basis.typing import sizes_fit, types
from waxeq.egraph.lower import lower
from waxeq.errors import TypeMismatch
from waxeq.frontend.trace import trace
from waxeq.ir.graph import Graph, GraphBuilder, expand
from waxeq.ir.interpret import interpret
from waxeq.ir.op import Composite
from waxeq.ir.term import postorder
from waxeq.ir.text import parse_graph, print_graph
from waxeq.ir.types import TensorType, is_float
from waxeq.ops import OPS
from waxeq.ops.contraction import Einsum
from waxeq.testing.programs import EPS, RandomCall, random_call, random_program, rms

EXAMPLES = 60


def graph_of(call: RandomCall) -> tuple[Graph, dict[str, np.ndarray]]:
    b = GraphBuilder()
    given_ = {f"x{i}": a for i, a in enumerate(call.arrays)}
    leaves = [b.leaf(n, TensorType.of(a)) for n, a in given_.items()]
    return b.finish([("y", b(call.op, *leaves))], keep=leaves), given_


def same(got: np.ndarray, want: np.ndarray) -> None:
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    dtype = TensorType.of(want).dtype
    if not is_float(dtype):
        np.testing.assert_array_equal(got, want)
        return
    g, w = got.astype(np.float64), want.astype(np.float64)
    scale = max(1.0, float(np.abs(w[np.isfinite(w)]).max(initial=0.0)))
    np.testing.assert_allclose(g, w, rtol=64 * EPS[dtype], atol=64 * EPS[dtype] * scale)


def lowered_value(graph: Graph, given_: dict[str, np.ndarray], name: str = "y") -> np.ndarray:
    """The value of a lowered graph's result, by the basis."""
    low = lower(expand(graph))
    leaves = {}
    for n, (leaf, axes) in low.leaves.items():
        kept = tuple(k for k in axes if k is not None)
        leaves[n] = NamedArray(kept, given_[n].reshape(tuple(low.sizes[k] for k in kept)))
        assert leaf.type == TensorType.of(given_[n])
    root = low.roots[name]
    assert sizes_fit(root.term, low.sizes)
    e = Evaluator(low.sizes)
    value = e.term(root.term, leaves)
    kind = types(root.term)[root.term]
    assert set(value.axes) == kind.axes
    order = tuple(k for k in root.axes if k is not None)
    assert kind.axes <= set(order)
    shape = tuple(1 if k is None else low.sizes[k] for k in root.axes)
    full = np.broadcast_to(value.aligned(order), tuple(low.sizes[k] for k in order))
    assert TensorType.of(value.data).dtype == kind.dtype
    return full.reshape(shape)


@pytest.mark.parametrize("name", OPS)
@settings(max_examples=EXAMPLES)
@given(seed=st.integers(0, 2**32))
def test_type_value_and_text(name: str, seed: int) -> None:
    call = random_call(random.Random(seed), name)
    graph, given_ = graph_of(call)
    with np.errstate(all="ignore"):
        want = np.asarray(call.op.reference(*call.arrays))
    assert graph.type(graph.outputs[0][1]).shape == want.shape
    assert is_float(TensorType.of(want).dtype) == is_float(graph.type(graph.outputs[0][1]).dtype)
    got = interpret(graph, given_)["y"]
    same(got, want.astype(got.dtype))
    same(lowered_value(graph, given_), got)
    if isinstance(call.op, Composite):
        same(interpret(expand(graph), given_)["y"], got)
    back = parse_graph(print_graph(graph), OPS)
    assert back == graph and back.check() == graph


@pytest.mark.parametrize("name", OPS)
def test_every_op_says_what_it_is(name: str) -> None:
    cls = OPS[name]
    assert cls.__doc__ and not cls.__doc__.startswith(f"{name}(")
    call = random_call(random.Random(0), name)
    assert hash(call.op) == hash(dataclasses.replace(call.op)) and call.op == dataclasses.replace(call.op)
    with pytest.raises(dataclasses.FrozenInstanceError):
        call.op.label = "x"  # pyright: ignore
    assert call.op.label and cls.arity in (None, len(call.arrays))


@pytest.mark.parametrize("name", [n for n in OPS if OPS[n].arity not in (0, 1)])
def test_operands_that_do_not_fit_are_refused(name: str) -> None:
    call = random_call(random.Random(1), name)
    *rest, last = map(TensorType.of, call.arrays)
    odd = TensorType("float64" if last.dtype != "float64" else "bool", (*last.shape, 17, 19))
    if rest:
        with pytest.raises(TypeMismatch):
            call.op.infer(*rest, odd)


@settings(max_examples=100)
@given(seed=st.integers(0, 2**32))
def test_random_programs_lower_to_what_they_mean(seed: int) -> None:
    p = random_program(random.Random(seed), (3, 12))
    given_ = {**p.inputs, **p.weights}
    want = interpret(p.graph, given_)
    same_text = parse_graph(print_graph(p.graph), OPS)
    assert same_text == p.graph
    for name, v in p.graph.outputs:
        got = lowered_value(p.graph, given_, name)
        assert (got.dtype, got.shape) == (want[name].dtype, want[name].shape)
        if is_float(p.graph.type(v).dtype):
            assert rms(got.astype(np.float64) - want[name].astype(np.float64)) <= p.allowed[name] * rms(want[name])
        else:
            np.testing.assert_array_equal(got, want[name])


@pytest.mark.parametrize("fn", [
    lambda z: z[0] + z[:, 0],
    lambda z: z.sum(0) + z.sum(1) * z[1],
    lambda z: z[::-1] - z.T,
    lambda z: z.max(0) @ z + z[:, 1],
])  # fmt: skip
def test_axes_along_which_a_value_is_constant_stay_apart_from_its_own(fn: Callable[[np.ndarray], np.ndarray]) -> None:
    """`z[0]` and `z[:, 0]` of rows that are all the same were one, as the rows' axis and that of z's rows had become
    one."""
    x = np.arange(4.0) + 1
    graph = trace(lambda x: fn(np.broadcast_to(x, (4, 4))), {"x": x}).graph
    np.testing.assert_allclose(lowered_value(graph, {"x": x}, "out"), fn(np.broadcast_to(x, (4, 4))))


def test_a_negative_zero_stays_one() -> None:
    """The e-graph has one zero."""
    graph = trace(lambda x: np.copysign(x, -0.0), {"x": np.ones(3)}).graph
    assert not any(t.head == "Num" and t.args[0] == 0 and math.copysign(1, t.args[0]) < 0
                   for t in postorder(lower(expand(graph)).roots["out"].term))  # fmt: skip
    np.testing.assert_array_equal(lowered_value(graph, {"x": np.ones(3)}, "out"), -np.ones(3))


def test_a_sum_of_products_is_of_two_operands() -> None:
    """Of three the third was left out where the operator became terms."""
    kinds = [TensorType("float32", (3,))] * 3
    with pytest.raises(TypeMismatch, match="more than two operands"):
        Einsum("a,a,a->a").infer(*kinds)
