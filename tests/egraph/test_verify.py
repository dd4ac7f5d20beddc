"""The e-graph as a whole: after saturation every class is one value; a graph where one is not is found out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from waxeq.backend.discover import backends, kernels
from waxeq.basis.evaluate import Field, NamedArray, Native
from waxeq.egraph.engine import EGraph
from waxeq.egraph.kernels import patterns
from waxeq.egraph.lower import Lowered, lower
from waxeq.egraph.rules import load_rules
from waxeq.egraph.saturate import Limits, Worker, saturate
from waxeq.egraph.snapshot import EClass, ENode, Snapshot
from waxeq.egraph.verify import Verification, disagreements, verify
from waxeq.errors import AccuracyError
from waxeq.frontend.trace import trace
from waxeq.ir.blocks import cut
from waxeq.ir.graph import expand
from waxeq.ir.term import Term
from waxeq.options import Options
from waxeq.testing.strategies import programs, random_program

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted(p.stem for p in (ROOT / "examples").glob("*.py"))
PATTERNS = patterns(kernels(backends(Options().backends)))
PROGRAM = load_rules("reassociating", PATTERNS)  # approximate rules put unequal values in one class, on purpose


def meaning(constructor: str, args: tuple[Any, ...]) -> Term:
    return PATTERNS[constructor].meaning(args)


def verified(lowered: Lowered, nodes: int, worker: Worker, seed: int) -> Verification:
    """Saturate under every rule and every kernel; compare in the reals and over a prime field."""
    snapshot = saturate(lowered, PROGRAM, Limits(nodes, 60.0), worker).snapshot
    verify(snapshot, seed, Field(), meaning=meaning).check()
    return verify(snapshot, seed, meaning=meaning).check()


# -- graphs made by hand

I = frozenset({"i"})  # noqa: E741
X = ENode("In", ("x", I, "float32"), ())


def graph(*more: ENode, axes: frozenset[str] = I, dtype: str = "float32", constant: float | None = None) -> Snapshot:
    """Class 0 is x, class 1 holds 2 x and `more`."""
    double = EClass(axes, dtype, False, constant, (ENode("Add", (0, 0), (0, 1)), *more))
    two = EClass(frozenset(), "float32", True, 2.0, (ENode("Num", (2.0, "float32"), ()),))
    return Snapshot((EClass(I, "float32", False, None, (X,)), double, two), {"y": 1}, {"i": 3, "j": 2})


TWICE = ENode("Mul", (0, 2), (0, 1))
SQUARE = ENode("Mul", (0, 0), (0, 1))


@pytest.mark.parametrize("domain", [None, Native(), Field()], ids=["reals", "native", "field"])
def test_equal_nodes_agree(domain: Native | None) -> None:
    found = verify(graph(TWICE), 0, domain).check()
    assert (found.rows, found.classes, found.evaluated, found.compared) == (4, 3, 4, 1)
    assert found.values[1].data.shape == (3,)


@pytest.mark.parametrize("domain", [None, Native(), Field()], ids=["reals", "native", "field"])
def test_a_wrong_value_is_found(domain: Native | None) -> None:
    (wrong,) = disagreements(graph(SQUARE), 0, domain)
    assert (wrong.number, wrong.b) == (1, SQUARE)
    with pytest.raises(AccuracyError, match="Mul #0 #0"):
        verify(graph(SQUARE), 0, domain).check()


def test_a_wrong_type_is_found() -> None:
    other = ENode("Ren", ("i", "j", 0), (2,))
    assert any("axes" in d.message for d in disagreements(graph(other)))
    scalar = ENode("Sum", ("i", 0), (1,))
    assert any("against" in d.message for d in disagreements(graph(scalar))), "a scalar is broadcast, and differs"


def test_a_node_without_a_value_is_found() -> None:
    slice_past_the_end = ENode("Slice", ("i", "i", 2, 1, 0), (4,))
    assert any("cannot be evaluated" in d.message for d in disagreements(graph(slice_past_the_end)))


def test_a_wrong_constant_is_found() -> None:
    assert disagreements(graph(constant=4.0))


def test_bits_count_natively() -> None:
    signs = tuple(ENode("Map", (f, 0), (1,)) for f in ("neg", "abs"))
    zero = Snapshot(
        (
            EClass(frozenset(), "float32", False, None, (ENode("In", ("x", frozenset(), "float32"), ()),)),
            EClass(frozenset(), "float32", False, None, signs),
        ),
        {"y": 1},
    )
    leaves = {"x": NamedArray((), np.zeros((), np.float32))}
    assert not verify(zero, leaves).disagreements, "the reals have one zero"
    assert verify(zero, leaves, Native()).disagreements


def test_a_class_that_holds_itself_is_one_value() -> None:
    one = EClass(frozenset(), "float32", True, 1.0, (ENode("Num", (1.0, "float32"), ()),))
    x = EClass(I, "float32", False, None, (X, ENode("Mul", (0, 1), (0, 1))))
    assert verify(Snapshot((x, one), {"y": 0}, {"i": 3})).check().compared == 1


def test_a_kernel_is_what_it_means() -> None:
    call = ENode("K.twice", (0,), (0,))
    twice = {"K.twice": lambda x: Term("Add", x, x), "K.square": lambda x: Term("Mul", x, x)}
    assert verify(graph(call)).skipped == 1
    assert verify(graph(call), meaning=lambda c, a: twice[c](*a)).check().compared == 1
    wrong = graph(ENode("K.square", (0,), (0,)))
    assert disagreements(wrong, meaning=lambda c, a: twice[c](*a))


def test_an_unsound_rule_is_found_after_saturation() -> None:
    e = EGraph.of()
    e.run('(ruleset r)(rewrite (Sum k (Mul a b)) (Mul (Sum k a) (Sum k b)) :ruleset r :name "r/wrong")')
    x, y = (Term("In", n, frozenset({"i", "k"}), "float32") for n in "xy")
    e.run('(set (size "i") 2)(set (size "k") 3)')
    e.roots["out"] = e.add(Term("Sum", "k", Term("Mul", x, y)))
    e.step("(seq (saturate (run analysis)) (run r) (saturate (run analysis)))")
    assert verify(e.snapshot()).disagreements
    assert verify(e.snapshot(), 0, Field()).disagreements


# -- whole programs


def small_arguments(example: ModuleType) -> tuple[dict[str, Any], set[str]]:
    """The example's inputs with its dimensions made small, and the names of its weights."""
    if hasattr(example, "weights"):
        small = {384: 24, 1536: 36, 512: 32, 30522: 40}
        weights = {n: w[tuple(slice(small.get(d, d)) for d in w.shape)] for n, w in example.weights().items()}
        vars(example)["LAYERS"] = 2
        inputs = {n: v[:2, :7] % 40 for n, v in example.example_inputs().items()}
        return {**inputs, "weights": weights}, {"weights"}
    big = [n for n, v in vars(example).items() if n.isupper() and isinstance(v, int) and v > 7]
    vars(example).update({n: 4 + i for i, n in enumerate(big)})
    return example.example_inputs(), set(getattr(example, "WEIGHTS", ()))


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_every_class_of_an_example_is_one_value(
    name: str, load_example: Callable[[str], ModuleType], worker: Worker
) -> None:
    example = load_example(name)
    arguments, weights = small_arguments(example)
    graph = expand(trace(example.model, arguments, weights=weights).graph)
    for block in {b.key: b for b in cut(graph)}.values():
        found = verified(lower(block.graph), 6_000, worker, seed=len(name))
        assert found.unvalued == 0
        assert found.compared > 0


@pytest.mark.slow
@settings(max_examples=50)
@given(lowered=programs(3, 30))
def test_every_class_of_a_random_program_is_one_value(lowered: Lowered, worker: Worker) -> None:
    found = verified(lowered, 1_000, worker, seed=1)
    assert found.unvalued == 0


def test_random_programs_are_repeatable_and_of_the_size_asked_for() -> None:
    first, again = (random_program(np.random.default_rng(3), 20) for _ in range(2))
    assert first == again
    assert 10 <= len(first.roots) <= 60
    assert set(first.outputs) <= set(first.roots)
    heads = {
        x.term.head for seed in range(40) for x in random_program(np.random.default_rng(seed), 25).roots.values()
    }  # fmt: skip
    assert {"Add", "Mul", "Sum", "Zip", "Map", "Red", "Ren", "Cat", "Slice", "Pad", "Merge", "Split"} <= heads
