"""Graph text reads back to the graph it was written from."""

from __future__ import annotations

import math
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waxeq.errors import PlanError
from waxeq.frontend.load import load_target
from waxeq.frontend.trace import trace
from waxeq.ir.graph import GraphBuilder, expand
from waxeq.ir.term import Term, dump, parse
from waxeq.ir.text import parse_graph, print_graph
from waxeq.ir.types import TensorType
from waxeq.ops import OPS
from waxeq.ops.movement import Pad
from waxeq.ops.source import Const
from waxeq.testing.programs import random_program

EXAMPLES = sorted(p.stem for p in (Path(__file__).resolve().parents[2] / "examples").glob("*.py"))


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_reads_back(name: str, root: Path) -> None:
    target = load_target(str(root / "examples" / f"{name}.py"))
    traced = trace(target.fn, target.example, weights=target.weights)
    for graph in (traced.graph, expand(traced.graph)):
        text = print_graph(graph)
        back = parse_graph(text, OPS, graph.constants)
        assert back == graph and back.check() == graph
        assert print_graph(back) == text


@settings(max_examples=100)
@given(seed=st.integers(0, 2**32))
def test_random_programs_read_back(seed: int) -> None:
    graph = random_program(random.Random(seed)).graph
    assert parse_graph(print_graph(graph), OPS) == graph
    assert parse_graph(print_graph(expand(graph)), OPS) == expand(graph)


@given(value=st.floats(), name=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12))
def test_any_number_and_any_name_read_back(value: float, name: str) -> None:
    b = GraphBuilder()
    x = b.leaf(name, TensorType("float64", (2,)), "state")
    y = b(Pad(0, 1, 0, value), x)
    c = b(Const(value, "float64"))
    graph = b.finish([(name, c), ("out", y)], [(name, y)])
    back = parse_graph(print_graph(graph), OPS)
    assert repr(back) == repr(graph) and (back == graph or math.isnan(value))


def test_damage_is_told_with_its_line() -> None:
    text = "input x: float32[2]\n%1 = Map(%0) f='exp' : float32[2]\noutput y = %1\n"
    assert parse_graph(text, OPS).check().outputs == (("y", 1),)
    for bad in (text.replace("Map", "Mop"), text.replace("f='exp'", "f=exp("), text.replace("%1 = Map(%0)", "Map")):
        with pytest.raises(PlanError, match=r"line 2 of the graph.*%?1?"):
            parse_graph(bad, OPS)
    with pytest.raises(PlanError, match="line 1"):
        parse_graph("input x: float99[2]\n", OPS)


def test_constants_are_named_and_given_apart() -> None:
    traced = trace(lambda x: x + np.arange(3.0), {"x": np.ones(3)})
    text = print_graph(traced.graph)
    assert "constant constant0: float64[3]" in text
    back = parse_graph(text, OPS, traced.graph.constants)
    np.testing.assert_array_equal(back.constants["constant0"], np.arange(3.0))


@given(names=st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=12), min_size=1, max_size=3))
def test_a_term_with_any_names_reads_back(names: list[str]) -> None:
    """Weights have the names that users give them, with blanks, brackets and quotes."""
    leaves = [Term("Par", n, frozenset({"a0", "a1"}), "float32") for n in names]
    whole = leaves[0]
    for x in leaves[1:]:
        whole = Term("Add", Term("Gather", "a0", Term("Num", -1.5, "float32"), whole), x)
    assert parse(dump(whole)) is whole


@pytest.mark.parametrize("text", ["", "Par", "()", '(Par "open', "(Add $7 $8)"])
def test_a_damaged_term_is_refused(text: str) -> None:
    with pytest.raises((ValueError, IndexError)):
        parse(text)
