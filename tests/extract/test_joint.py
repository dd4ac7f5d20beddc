"""Results that one loop computes are priced together."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from waxeq.compile import optimize
from waxeq.events import Events
from waxeq.extract.joint import joined
from waxeq.extract.paths import paths
from waxeq.frontend.trace import trace
from waxeq.ir.blocks import cut
from waxeq.ir.graph import expand
from waxeq.options import Options
from waxeq.search import block as search_block
from waxeq.search.block import Optimized
from waxeq.search.session import Session

X = np.random.default_rng(3).uniform(0.1, 2.0, 300_001).astype(np.float32)


def both(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    e = np.exp(x) / (1 + np.sqrt(x))
    return e * x, e - x


def apart(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.exp(x), np.exp(x[:1000]) + 1


def options(path: Path, *backends: str) -> Options:
    return Options.of(table=path / "t.duckdb", backends=backends, trial=False, measure=False, threads=1)


def searched(path: Path, model: object, *backends: str) -> tuple[Session, Optimized]:
    session = Session.open(options(path, *backends), Events())
    (block,) = cut(expand(trace(model, {"x": X}).graph))
    return session, search_block.search_block(session, block)


def test_two_results_of_one_loop_are_paid_once(tmp_path: Path) -> None:
    session, found = searched(tmp_path, both, "native")
    with session:
        problem, choice = found.problem, found.choice
        assert problem is not None and choice is not None
        first, second = choice.in_order()
        alone = session.prices.of([first.candidate.call, second.candidate.call])
        reads = [[(s, 0) for s in p.candidate.inputs] for p in (first, second)]
        whole = session.prices.together([first.candidate.call, second.candidate.call], reads)
        assert whole is not None
        assert max(e.seconds for e in alone) <= whole.seconds < sum(e.seconds for e in alone)
        assert choice.cost == pytest.approx(whole.seconds)
        elsewhere = [reads[0], [("another", 0)]]
        assert session.prices.together([first.candidate.call, second.candidate.call], elsewhere) is None
        again = joined(problem, choice, session.prices.together)
        assert again is not None and again.cost == pytest.approx(choice.cost)
        assert all(c.cost > choice.cost for c in found.beaten)
        every = {out: (*rows, *problem.spare.get(out, ())) for out, rows in problem.makers.items()}
        listed = list(islice(paths(replace(problem, makers=every, spare={}), choice), 3))
        calls = {frozenset(id(p.candidate) for p in c.in_order()) for c in listed}
        assert listed[0] is choice and len(calls) == len(listed) > 1
    result = optimize(both, X, options=options(tmp_path, "native"))
    for got, want in zip(result.program(X), both(X.astype(np.float64)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("model", "backend"), [(apart, "native"), (both, "numpy")])
def test_results_that_no_loop_computes_together_are_paid_each(tmp_path: Path, model: object, backend: str) -> None:
    session, found = searched(tmp_path, model, backend)
    with session:
        assert found.problem is not None and found.choice is not None
        assert joined(found.problem, found.choice, session.prices.together) is None
        assert found.choice.cost == pytest.approx(sum(p.cost for p in found.choice.in_order()))
        prices = session.prices.of([p.candidate.call for p in found.choice.in_order()])
        assert found.choice.cost == pytest.approx(sum(e.seconds for e in prices))
