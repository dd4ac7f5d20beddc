"""Cuts: what may be computed together."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from waxeq.events import FOREVER, Deadline, Events
from waxeq.extract.multiplied import Products
from waxeq.frontend.trace import trace
from waxeq.ir.blocks import cut
from waxeq.ir.graph import expand
from waxeq.options import Options
from waxeq.search import block as block_search
from waxeq.search.block import grow, grow_all, make_space, saturated
from waxeq.search.session import Session

X = np.linspace(0.1, 1.0, 5_000, dtype=np.float32)


def steps(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two results of some eighty functions of elements, most of which they have in common."""
    for i in range(20):
        x, y = np.sqrt(x * y + (i + 1)), np.tanh(y)
    return x - y, x / y


def test_all_that_is_made_point_by_point_is_one_cut_whatever_the_time_is(tmp_path: Path) -> None:
    """In a search of 3 s a model of 124 such functions was twelve loops: growing cuts had not come to larger ones."""
    (block,) = cut(expand(trace(steps, {"x": X, "y": X + 1}).graph))
    options = Options.of(table=tmp_path / "t.duckdb", backends=("native",), threads=1)
    with Session.open(options, Events()) as session:
        at = saturated(session, block, session.rules.bare())
        space, roots = make_space(session.kernels, at.lowered, at.saturation.snapshot)
        found = grow_all(space, Deadline(0.0))
        leaves = set(space.leaves.values())
        whole = [c for c in found.rows if c.out in roots and set(c.inputs) <= leaves]
        assert not found.all
        assert {c.out for c in whole} == set(roots)
        assert all(len(c.nodes) > 80 for c in whole), "longer than cuts of other functions may be"


def decoding(
    x: np.ndarray, keys: np.ndarray, values: np.ndarray, wk: np.ndarray, wv: np.ndarray, wq: np.ndarray
) -> np.ndarray:
    """Attention of four queries that share keys, to those there are and to one that is projected from a norm."""
    h = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-5)
    q, k, v = (np.swapaxes((h @ w.T).reshape(1, -1, 16), 0, 1) for w in (wq, wk, wv))
    k, v = np.concatenate([keys, k], axis=1), np.concatenate([values, v], axis=1)
    scores = q.reshape(2, 4, 1, 16) @ np.swapaxes(k, -1, -2)[:, None] / 4.0
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True) @ v[:, None]


def chain(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    y = x @ w
    for _ in range(16):
        y = np.tanh(y * y + y)
    return y.sum(-1)


def test_what_lies_behind_a_product_is_looked_through_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of these steps reads the one before it three times: looked through by paths, sixteen are 43 million."""
    looks, made = [0], Products.of

    def product(self: Products, *args: Any) -> int | None:
        looks[0] += 1
        return made(self, *args)

    monkeypatch.setattr(Products, "of", product)
    (block,) = cut(expand(trace(chain, {"x": np.ones((8, 8), np.float32), "w": np.ones((8, 8), np.float32)}).graph))
    options = Options.of(table=tmp_path / "t.duckdb", backends=("native",), threads=1)
    with Session.open(options, Events()) as session:
        at = saturated(session, block, session.rules.bare())
        space, _ = make_space(session.kernels, at.lowered, at.saturation.snapshot)
        assert grow_all(space).all and looks[0] < 1_000_000


def test_attention_is_a_cut_without_what_projects_keys_and_values(tmp_path: Path) -> None:
    """With the projections inside it was no kernel's, and none without them was kept: a step of decoding had three
    kernels where one of attention does, and these took 33 us of its 89 on an H200."""
    shapes = {"x": (1, 64), "keys": (2, 96, 16), "values": (2, 96, 16), "wk": (32, 64), "wv": (32, 64), "wq": (128, 64)}
    arrays = {n: np.ones(s, np.float32) for n, s in shapes.items()}
    (block,) = cut(expand(trace(decoding, arrays, weights=("wk", "wv", "wq")).graph))
    options = Options.of(table=tmp_path / "t.duckdb", backends=("native",), threads=1)
    with Session.open(options, Events()) as session:
        at = saturated(session, block, session.rules)
        space, roots = make_space(session.kernels, at.lowered, at.saturation.snapshot)
        rows = [c for c in grow_all(space).rows if c.out in roots]
        folds = [sorted(e.head for _, e in c.nodes if e.head in ("Red", "Sum")) for c in rows]
        assert ["Red", "Sum", "Sum", "Sum"] in folds


def rotated(x: np.ndarray, cosine: np.ndarray, sine: np.ndarray) -> np.ndarray:
    """A rotary embedding: both halves are made of both halves."""
    a, b = x[..., :32], x[..., 32:]
    return np.concatenate([a * cosine - b * sine, b * cosine + a * sine], -1)


def updated(x: np.ndarray, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    return x + np.outer(u, v) - np.outer(v, u)


@pytest.mark.parametrize(
    "fn, shapes", [(rotated, ((8, 16, 512, 64), (512, 32), (512, 32))), (updated, ((1500, 1500), (1500,), (1500,)))]
)
def test_what_can_be_seen_in_another_form_of_itself_is_made_inside_loops_too(
    fn: Callable[..., np.ndarray], shapes: Sequence[tuple[int, ...]], tmp_path: Path
) -> None:
    """Half of it under other names of its axes, or its transpose, lay in memory: seen so it seemed to cost half, and
    the form that loops can have inside was pruned. An update with two outer products took 0.95 ms, and takes 0.29."""
    arrays = {n: np.ones(s, np.float32) for n, s in zip(inspect.signature(fn).parameters, shapes, strict=True)}
    (block,) = cut(expand(trace(fn, arrays).graph))
    options = Options.of(table=tmp_path / "t.duckdb", backends=("native",), threads=1)
    with Session.open(options, Events()) as session:
        at = saturated(session, block)
        space, roots = make_space(session.kernels, at.lowered, at.saturation.snapshot)
        leaves = set(space.leaves)
        whole = [c for c in grow(space, roots, FOREVER).rows if c.out in roots]
        assert any({s.number for s in c.inputs} <= leaves and len(c.nodes) > 3 for c in whole)


def moments(f: np.ndarray) -> tuple[np.ndarray, ...]:
    """Two results of many planes, and one that is made from these."""
    rho = sum(f[i] for i in range(9))
    a, b = (f[1] - f[3] + f[5] - f[6]) / rho, (f[2] - f[4] + f[7] - f[8]) / rho
    return a, b, 1.5 * (a * a + b * b)


def test_what_is_made_from_results_reads_them(tmp_path: Path) -> None:
    """Every cut of the last result had all planes inside or one e-node: results cost nothing more, as they are made."""
    f = np.ones((9, 64, 64), np.float32)
    (block,) = cut(expand(trace(moments, {"f": f}).graph))
    options = Options.of(table=tmp_path / "t.duckdb", backends=("native",), threads=1)
    with Session.open(options, Events()) as session:
        at = saturated(session, block)
        space, roots = make_space(session.kernels, at.lowered, at.saturation.snapshot)
        rows = grow(space, roots).rows
    *others, last = roots
    assert any(c.out == last and set(c.inputs) == set(others) for c in rows)


def recurrence(x: np.ndarray) -> np.ndarray:
    """Each result is made from the one before."""
    rows = [x]
    for _ in range(60):
        rows.append(np.sqrt(rows[-1] * np.float32(0.5) + np.float32(1.0)))
    return np.stack(rows)


def test_where_there_is_no_time_a_recurrence_is_not_written_out_for_each_of_its_results(tmp_path: Path) -> None:
    """Regression: each result was a cut of all before it, for each kernel of loops, which adds up to the square of what
    there is: blocks of an edit distance took 70 ms each after the budget was over, of which there were a hundred."""
    (block,) = cut(expand(trace(recurrence, {"x": X[:4]}).graph), most=1000)
    options = Options.of(table=tmp_path / "t.duckdb", backends=("native", "numpy"), threads=1)
    with Session.open(options, Events()) as session:
        at = saturated(session, block, session.rules.bare())
        space, roots = make_space(session.kernels, at.lowered, at.saturation.snapshot)
        rows = grow_all(space, Deadline(0.0)).rows
        classes = [c for c in space.snapshot.classes if not c.weights_only]
        assert block_search._whole(space, rows, roots), "there must be a plan"
        assert sum(len(c.nodes) for c in rows) < 12 * len(classes)
        loops = [c.out for c in rows if c.call.meaning.head in ("Map", "Mul", "Add", "Zip")]
        assert len(loops) < 1.1 * len(set(loops)), "one kernel each, but for what is a whole stretch too"
