"""Which other choices are held against the best one where whole plans are timed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from waxeq.cost.estimate import Estimate
from waxeq.events import FOREVER
from waxeq.extract.candidates import Candidate, State
from waxeq.extract.choice import Priced, Problem
from waxeq.extract.greedy import greedy
from waxeq.search.rivals import _fewer

pytestmark = pytest.mark.quick
SESSION: Any = SimpleNamespace(choosing=lambda: FOREVER)
NO_CALL: Any = None
STATES = [State(i, ()) for i in range(5)]


def problem(whole: float) -> Problem:
    """What is made in four calls of 1 s each, in two of 2.2 s, or in one that takes `whole`."""
    rows = [*((i, i + 1, 1.0) for i in range(4)), (0, 2, 2.2), (2, 4, 2.2), (0, 4, whole)]
    makers = {
        out: tuple(
            Priced(Candidate(out, (STATES[i],), NO_CALL, ()), Estimate(cost, cost, cost, "measured"))
            for i, j, cost in rows
            if STATES[j] == out
        )
        for out in STATES[1:]
    }
    return Problem(makers, (STATES[-1],), frozenset(STATES[:1]))


@pytest.mark.parametrize(("whole", "calls"), [(5.0, 1), (6.3, 2), (20.0, 2)])
def test_one_of_fewer_calls_is_the_one_of_fewest_that_does_not_look_too_slow(whole: float, calls: int) -> None:
    """Half as slow again at most. Regression: where the fewest were too slow there was none."""
    p = problem(whole)
    first = greedy(p)
    assert first is not None and len(first.made) == 4
    assert [len(c.made) for c in _fewer(SESSION, p, first)] == [calls]


def test_there_is_none_of_fewer_calls_where_the_first_has_the_fewest() -> None:
    p = problem(1.0)
    first = greedy(p)
    assert first is not None and len(first.made) == 1
    assert not [*_fewer(SESSION, p, first)]
