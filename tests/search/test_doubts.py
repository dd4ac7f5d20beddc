"""Doubts: what decides is timed even where the estimates speak against it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

from waxeq.backend.call import Call
from waxeq.cost.estimate import Estimate
from waxeq.cost.key import Timing
from waxeq.events import FOREVER, Events
from waxeq.extract.choice import Choice, Priced, Problem
from waxeq.extract.greedy import greedy
from waxeq.frontend.trace import trace
from waxeq.ir.blocks import cut
from waxeq.ir.graph import expand
from waxeq.options import Options
from waxeq.search import block as blocks_search
from waxeq.search.choosing import again
from waxeq.search.doubts import decisive, doubted
from waxeq.search.session import Session

X, W = (np.random.default_rng(i).standard_normal((64, 64)).astype(np.float32) for i in range(2))


IMAGE, FILTERS = X[:, :36].reshape(16, 12, 12), W[:, :36].reshape(16, 16, 3, 3)


def product(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    return np.tanh(x @ w)


def convolution(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    windows = sliding_window_view(np.pad(x, ((0, 0), (1, 1), (1, 1))), (3, 3), axis=(1, 2))
    return np.einsum("chwij,kcij->khw", windows, w)


def searched(session: Session, model: Callable[..., np.ndarray] = product, x: np.ndarray = X, w: np.ndarray = W):
    (block,) = cut(expand(trace(model, {"x": x, "w": w}).graph))
    at = blocks_search.saturated(session, block)
    space, roots = blocks_search.make_space(session.kernels, at.lowered, at.saturation.snapshot)
    return blocks_search.grow(space, roots).rows, space, roots


def at(problem: Problem, seconds: float, source: str = "fitted") -> Problem:
    """The problem with all calls that are not chosen predicted to take so long."""
    estimate = Estimate(seconds, seconds, seconds, source)  # pyright: ignore[reportArgumentType]
    makers = {s: tuple(Priced(p.candidate, estimate) for p in rows) for s, rows in problem.makers.items()}
    return replace(problem, makers=makers, spare={})


def priced(problem: Problem, choice: Choice, factor: float, seconds: float) -> Problem:
    """The problem with the calls of a choice `factor` times as dear as they are, and each other one at `seconds`; all
    were measured."""
    chosen = {id(p.candidate): factor * p.cost for p in choice.in_order()}

    def now(p: Priced) -> Priced:
        took = chosen.get(id(p.candidate), seconds)
        return Priced(p.candidate, Estimate(took, took, took, "measured"))

    makers = {s: tuple(map(now, rows)) for s, rows in problem.having(choice).makers.items()}
    return replace(problem, makers=makers, spare={})


def test_other_calls_for_the_same_work_are_doubted(tmp_path: Path) -> None:
    with Session.open(Options.of(table=tmp_path / "t.duckdb", threads=1, measure=False), Events()) as session:
        rows, space, roots = searched(session)
        problem = session.prices.problem(space, rows, roots, mood="expected")
        choice = greedy(problem)
        assert choice is not None
        have = set(choice.made) | problem.given
        heavy = max(p.cost for p in choice.in_order())
        found = doubted(at(problem, heavy), choice)
        assert found and len(found) == len({id(c) for c in found})
        made = {id(p.candidate.call): p.candidate for p in problem.candidates}
        assert all(set(made[id(c)].inputs) <= have and made[id(c)].out in choice.made for c in found)
        assert not doubted(at(problem, heavy, "measured"), choice), "nothing is left to find out"
        assert not doubted(at(problem, 1e3 * choice.cost), choice), "not those that are far slower"


def test_the_same_values_in_another_order_are_doubted(tmp_path: Path) -> None:
    """Both convolutions of a residual block kept images in an order that takes a sixth more time, as the calls that
    would read them in the other were predicted to take more, and none was ever timed."""
    with Session.open(Options.of(table=tmp_path / "t.duckdb", threads=1, measure=False), Events()) as session:
        rows, space, roots = searched(session, convolution, IMAGE, FILTERS)
        problem = session.prices.problem(space, rows, roots, mood="expected")
        choice = greedy(problem)
        assert choice is not None
        have = set(choice.made) | problem.given
        heavy = max(p.cost for p in choice.in_order())
        made = {id(p.candidate.call): p.candidate for p in problem.candidates}
        found = [made[id(c)] for c in doubted(at(problem, heavy / 2), choice)]
        turned = [c for c in found if not set(c.inputs) <= have]
        assert turned
        for c in turned:
            others = set(c.inputs) - have
            assert {s.number for s in others} <= {s.number for s in have}
            assert all(any(m.out == s and set(m.inputs) <= have for m in found) for s in others), "with what turns them"
        assert not [c for c in doubted(at(problem, heavy * 1.5), choice) if not set(made[id(c)].inputs) <= have]


def test_what_was_timed_once_and_decides_is_timed_again(tmp_path: Path) -> None:
    """On a machine that is slow for a while, the first to be timed lost against whatever was timed later."""
    with Session.open(Options.of(table=tmp_path / "t.duckdb", threads=1, measure=False), Events()) as session:
        rows, space, roots = searched(session)
        problem = session.prices.problem(space, rows, roots, mood="expected")
        choice, key = greedy(problem), session.prices.key
        assert choice is not None
        own = {key(p.candidate.call) for p in choice.in_order()}
        rival = greedy(priced(problem, choice, 1e3, 1e-9))
        assert rival is not None
        close = priced(problem, choice, 1.0, choice.cost / len(rival.in_order()))
        every = {key(p.candidate.call) for p in close.candidates}
        found = {key(c) for c in decisive(close, choice, key, every, FOREVER)}
        assert found & own and found - own, "of both, the chosen one may have been lucky"
        assert not decisive(close, choice, key, every & own, FOREVER), "others were timed well"
        assert not decisive(priced(problem, choice, 1.0, 1e3 * choice.cost), choice, key, every, FOREVER)


def test_long_calls_that_decide_are_timed_once_more_and_short_ones_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Session.open(Options.of(table=tmp_path / "t.duckdb", threads=1, measure=False), Events()) as session:
        rows, space, roots = searched(session)
        problem = session.prices.problem(space, rows, roots, mood="expected")
        choice, asked = greedy(problem), list[tuple[list[Call], int, bool]]()
        assert choice is not None
        short, long = (p.candidate.call for p in problem.candidates[:2])
        for c, seconds in ((short, 1e-3), (long, 0.1)):
            k = session.prices.key(c)
            session.prices.learn({k: Timing(k, (seconds,), 0.0, 0.0, {}, 1.0)})
            session.once.add(k)

        def measure(calls: Sequence[Call], visits: int = 1, again: bool = False) -> int:
            asked.append((list(calls), visits, again))
            return len(calls)

        monkeypatch.setattr("waxeq.search.choosing.decisive", lambda *_: [short, long])
        monkeypatch.setattr(session, "measure", measure)
        assert again(session, problem, choice) == 2
        assert asked == [([short], 2, False), ([long], 1, True)]
        assert session.prices.key(long) not in session.once, "it is not timed a third time"
