"""What a call computes is found again by what it says and what it reads."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from waxeq.backend.discover import backends, kernels
from waxeq.egraph.kernels import patterns
from waxeq.egraph.lower import Lowered, lower
from waxeq.egraph.rules import load_rules
from waxeq.egraph.saturate import Limits, Worker, saturate
from waxeq.egraph.snapshot import Snapshot
from waxeq.extract.candidates import Candidate, Space
from waxeq.frontend.trace import trace
from waxeq.inspect.derive import whole
from waxeq.inspect.follow import Calls, Lies, Piece
from waxeq.inspect.match import Index
from waxeq.ir.blocks import Block
from waxeq.ir.graph import expand
from waxeq.search.block import grow_all, make_space
from waxeq.testing.planned import Part, Planner
from waxeq.testing.programs import random_program

PROGRAMS = 20


def softmax_of_product(x, w):
    e = np.exp(x @ w - (x @ w).max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def filtered(x, w):
    """Views of views, one of them of a tensor with its axes swapped, and a border of what no number is equal to."""
    y = np.pad(0.25 * x[:-2] + 0.5 * x[1:-1] + 0.25 * x[2:], 1, constant_values=np.nan).T
    return np.maximum(y[2:, 1:-1][::2], y[:-2, 1:-1][::2]) - 0.125


def folded_twice(x, w):
    """Two weights of one type, a product that sums over two axes, and a constant that rules compute."""
    return np.einsum("ij,ijk->k", x * (2.0 * 3.0), (w[:24] + w[24:]).reshape(6, 8, 24 // 8)) + (w[:3, 0] * w[:3, 1])


MODELS = {f.__name__: f for f in (softmax_of_product, filtered, folded_twice)}
SHAPES = {"softmax_of_product": ((6, 8), (8, 5)), "filtered": ((200, 150), (2,)), "folded_twice": ((6, 8), (48, 6))}


BOTH = ("numpy", "native")


def saturated(
    model: Callable[..., Any], shapes: tuple[tuple[int, ...], ...], worker: Worker, of: Sequence[str] = BOTH
) -> tuple[Lowered, Space]:
    able = kernels(backends(of))
    rng = np.random.default_rng(0)
    arrays = {n: rng.random(s, np.float32) for n, s in zip(("x", "w"), shapes, strict=True)}
    lowered = lower(expand(trace(model, arrays, weights={"w"}).graph))
    snapshot = saturate(lowered, load_rules("reassociating", patterns(able)), Limits(800), worker).snapshot
    return lowered, make_space(able, lowered, snapshot)[0]


def calls_in(snapshot: Snapshot, lowered: Lowered) -> Calls:
    known = patterns(kernels(backends(BOTH))).values()
    return Calls(Index.of(whole(snapshot, lowered)), {p.kernel: p for p in known})


@pytest.mark.parametrize("of", [BOTH, ("numpy",)], ids="-".join)
@pytest.mark.parametrize("name", MODELS)
def test_every_call_that_a_search_grows_is_found_by_what_it_reads(name: str, of: Sequence[str], worker: Worker) -> None:
    lowered, space = saturated(MODELS[name], SHAPES[name], worker, of)
    calls = calls_in(space.snapshot, lowered)
    rows = grow_all(space).rows
    forms = {space.kernels[c.call.kernel].form for c in rows}
    assert forms >= {"loops", "copy"}
    assert len(forms) > 2 or of is BOTH, "products have kernels of their own where loops do not make them"
    for c in rows:
        (found,) = calls.find(c.call, [Lies(s.number, space.dense(s)) for s in c.inputs])
        assert alike(c) == (found[0], set(found[1])), c.call.meaning


def alike(c: Candidate) -> tuple[int, set[Any]]:
    return c.out.number, set(c.nodes)


def test_another_call_is_not_taken_for_one_of_the_e_graph(worker: Worker) -> None:
    lowered, space = saturated(softmax_of_product, SHAPES["softmax_of_product"], worker)
    calls = calls_in(space.snapshot, lowered)
    rows = grow_all(space).rows
    c = next(c for c in rows if c.call.meaning.head == "Map" and c.inputs[0].number not in space.leaves)
    other = replace(c.call, meaning=type(c.call.meaning)("Map", "tanh", *c.call.meaning.terms))
    reads = [Lies(s.number, space.dense(s)) for s in c.inputs]
    assert calls.find(c.call, reads) and not calls.find(other, reads)
    moved = replace(c.call, operands=tuple(replace(v, offset=v.offset + 1) for v in c.call.operands))
    assert not calls.find(moved, reads)


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, PROGRAMS])
def test_random_plans_are_followed_to_their_results(first: int) -> None:
    """Whatever a plan is made of: all of its steps are found, and its results are in the classes of the model's."""
    programs = [random_program(random.Random(first + i)) for i in range(PROGRAMS)]
    with Planner.open() as planner:
        for i, part in enumerate(planner.saturated(programs)):
            follow(planner, part, random.Random(i))


def follow(planner: Planner, part: Part, rng: random.Random) -> None:
    plan = planner.plan(part, rng)
    # numbers of what was replaced are those of all programs together
    own = replace(part.snapshot, classes=tuple(replace(c, replaced=()) for c in part.snapshot.classes))
    calls = Calls(Index.of(whole(own, part.lowered)), {p.kernel: p for p in patterns(planner.kernels).values()})
    g = part.graph
    block = Block(g, {x.name: i for i, x in enumerate(g.leaves)}, dict(g.outputs), tuple(v for v, _ in g.values()), "")
    piece = Piece("b0.", block, dict(enumerate(plan.steps)), plan.folds)
    followed = piece.follow(calls, part.lowered, {x.name: (i,) for i, x in enumerate(g.leaves)})
    found = followed.nodes
    assert None not in found.values(), [str(plan.steps[i].call.meaning) for i, nodes in found.items() if nodes is None]
    values = dict(g.outputs)
    made = [o for o in plan.outputs if plan.buffers[o.buffer].role in ("temporary", "folded")]
    assert all(values[o.name] in followed.values[o.buffer] for o in made)
