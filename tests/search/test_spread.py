"""Plans of a model in rising predicted cost: each once, the one of joint loops and the one remembered among them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from waxeq.compile import assemble
from waxeq.errors import BudgetError
from waxeq.events import Deadline, Events
from waxeq.frontend.trace import trace
from waxeq.options import Options
from waxeq.search.blocks import recalled, remember
from waxeq.search.profile import profile
from waxeq.search.session import Session
from waxeq.search.spread import Spread

X = np.random.default_rng(3).uniform(0.1, 2.0, 300_001).astype(np.float32)


def three(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    e = np.exp(x) / (1 + np.sqrt(x))
    return e * x, e - x, e


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    monkeypatch.setenv("WAXEQ_TIMING_LOCK", str(tmp_path / "lock"))
    options = Options.of(table=tmp_path / "t.duckdb", backends=("native",), trial=False, measure=False, threads=1)
    with Session.open(options, Events()) as opened:
        yield opened


def test_results_of_one_loop_are_a_plan_of_their_own(session: Session) -> None:
    """A profile listed plans at the prices of calls alone, and kept one that took 1.4 times the plan that it lacked."""
    spread = Spread(session, trace(three, {"x": X}))
    listings = spread.listings()
    rows = list(islice(spread.plans(assemble, listings), 12))
    seconds = [w.seconds for w, _ in rows]
    assert seconds == sorted(seconds) and len({r.runs for _, r in rows}) == 12
    assert len(rows[0][1].plan.steps) == 3 and seconds[0] < next(spread.menu(listings).cheapest()).seconds


def test_what_is_remembered_is_run_as_well_and_kept_where_it_wins(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    traced = trace(three, {"x": X})
    first = Spread(session, traced)
    (key,) = first.found
    slow = list(islice(first.ways(first.listings()), 40))[-1].blocks[key]
    remember(session, slow)
    assert recalled(session, first.blocks)[key].plan == slow.plan
    took: list[int] = []

    def run_plans(session: Session, traced: object, results: list, *rest: object, **more: object) -> list:
        from waxeq.runtime.measure import Samples
        from waxeq.search.trials import Ran

        kept = [[s.call for s in o.plan.steps] == [s.call for s in slow.plan.steps] for r in results for o in r.blocks]
        took.append(sum(kept))
        return [Ran(Samples((1.0 if k else 2.0,) * 9), 0.0, 0.0, 0, 1.0, 1) for k in kept]

    monkeypatch.setattr("waxeq.search.profile.run_plans", run_plans)
    session.kept = 0.0
    found = profile(session, traced, assemble, plans=60, clock=Deadline(None), together=6, kernels=Deadline(0.0))
    assert sum(took) == 1 and found.winner is not None
    assert [s.call for s in recalled(session, first.blocks)[key].plan.steps] == [s.call for s in slow.plan.steps]


def test_plans_that_need_more_memory_than_allowed_are_left_out_unless_all_do(session: Session) -> None:
    spread = Spread(session, trace(three, {"x": X}))
    listings = spread.listings()

    def refusing(sizes: range):
        count = iter(range(1000))

        def made(*args):
            if next(count) in sizes:
                raise BudgetError("it is too large")
            return assemble(*args)

        return made

    every, kept = (
        [w.seconds for w, _ in spread.plans(made, listings, 6)] for made in (assemble, refusing(range(1, 3)))
    )
    assert every[0] in kept and set(kept) < set(every)
    with pytest.raises(BudgetError, match="too large"):
        list(spread.plans(refusing(range(6)), listings, 6))
