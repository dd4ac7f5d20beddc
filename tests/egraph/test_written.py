"""The model as it was written is found again in the e-graph that rules made of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from waxeq.basis.heads import HEADS
from waxeq.egraph.kernels import patterns
from waxeq.egraph.lower import Lowered, lower
from waxeq.egraph.rules import load_rules
from waxeq.egraph.saturate import Limits, Worker, saturate
from waxeq.egraph.snapshot import Snapshot
from waxeq.egraph.written import as_written
from waxeq.frontend.trace import trace
from waxeq.ir.graph import expand
from waxeq.ir.op import Named
from waxeq.ir.term import Term, postorder
from waxeq_numpy import backend


def smoothed(x, y):
    for _ in range(3):
        x = 0.25 * x[:-2] + 0.5 * x[1:-1] + 0.25 * x[2:]
    return x + y[3:-3]


def attention(x, y):
    s = x @ y.T
    e = np.exp(s - s.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True)) @ y


def twice(x, y):
    """Values that are equal, one that is a constant, one that is an input, a product with itself."""
    z = (x + y) * (y + x)
    return z @ z.T, x - x, x * 1.0


def bordered(x, y):
    """With what no number is equal to."""
    return np.pad(x, 1, constant_values=np.nan)[1:] * 2 + np.pad(y, 1)[1:]


MODELS = (smoothed, attention, twice, bordered)


def saturated(fn: Callable[..., Any], worker: Worker) -> tuple[Lowered, Snapshot]:
    x, y = (np.random.default_rng(i).standard_normal((12, 12)).astype(np.float32) for i in range(2))
    lowered = lower(expand(trace(fn, {"x": x, "y": y}).graph))
    rules = load_rules("reassociating", patterns(backend().kernels))
    return lowered, saturate(lowered, rules, Limits(2000, 60.0, 2 << 30), worker).snapshot


@pytest.mark.parametrize("fn", MODELS)
def test_every_value_has_the_e_node_it_was_written_as(fn: Callable[..., Any], worker: Worker) -> None:
    lowered, snapshot = saturated(fn, worker)
    text = as_written(lowered, snapshot, dict)
    assert text.roots == snapshot.roots and len(text.classes) == len(snapshot.classes)
    for name, x in lowered.roots.items():
        kept, was = text.classes[text.roots[name]].nodes, snapshot.classes[snapshot.roots[name]]
        heads = {n.head for n in kept} | {n.head for n in was.replaced}  # of one that is x as well, x itself is kept
        assert kept and set(kept) <= set(was.nodes) and x.term.head in heads, name
    terms = set(postorder(*(x.term for x in lowered.roots.values())))
    own = [n for c in text.classes if not c.weights_only for n in c.nodes if n.head in HEADS]
    assert len(own) <= len(terms) and {n.head for n in own} <= {t.head for t in terms}


def test_what_only_rules_made_is_left_out(worker: Worker) -> None:
    lowered, snapshot = saturated(smoothed, worker)
    assert as_written(lowered, snapshot, dict).nodes < snapshot.nodes / 4


def replaced(x, y):
    """What rules put something simpler in the place of."""
    return np.where(x > 0, x, np.float32(0)) + y**3


def test_where_a_rule_put_a_simpler_e_node_that_is_taken(worker: Worker) -> None:
    """With all that it needs, which nobody wrote."""
    lowered, snapshot = saturated(replaced, worker)
    gone = [i for i in (snapshot.roots[n] for n in lowered.roots) if snapshot.classes[i].replaced]
    assert gone, "rules replace nothing here any more"
    simplest = {i: min(c.nodes, key=lambda n: len(n.tensors)) for i, c in enumerate(snapshot.classes) if c.nodes}
    asked = []
    text = as_written(lowered, snapshot, lambda: asked.append(1) or simplest)
    assert asked == [1]
    need = [text.roots["out"]]
    for i in need:
        assert text.classes[i].nodes
        need += [a for n in text.classes[i].nodes for a in n.tensors if a not in need]


def test_a_term_over_what_no_class_holds_is_passed_over() -> None:
    """Rules may put a simpler e-node in the place of one that others are written over."""
    lowered, empty = Lowered({}, {}, (), {}), Snapshot((), {})
    assert as_written(lowered, empty, dict) == empty
    x = Term("Map", "exp", Term("In", "x", frozenset("i"), "float32"))
    assert as_written(Lowered({}, {"out": Named(x, ("i",))}, ("out",), {}), empty, dict) == empty
