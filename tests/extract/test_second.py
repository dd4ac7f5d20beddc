"""The next best way to make a tensor, held against trying everything."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from waxeq.cost.estimate import SOURCES, Estimate
from waxeq.extract.candidates import Candidate, State
from waxeq.extract.choice import Choice, Priced, Problem
from waxeq.extract.greedy import greedy
from waxeq.extract.second import runners_up

pytestmark = pytest.mark.quick
NO_CALL: Any = None


def priced(out: State, inputs: tuple[State, ...], cost: float, source: str = "measured") -> Priced:
    return Priced(Candidate(out, inputs, NO_CALL, ()), Estimate(cost, cost, cost, source))


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    count = draw(st.integers(2, 7))
    states = [State(i, ()) for i in range(count)]
    given_ = frozenset({states[0]})
    makers: dict[State, tuple[Priced, ...]] = {}
    for s in states[1:]:
        rows = draw(
            st.lists(
                st.tuples(st.lists(st.sampled_from(states), max_size=3), st.integers(1, 9)), min_size=1, max_size=3
            )
        )
        makers[s] = tuple(priced(s, tuple(inputs), float(cost)) for inputs, cost in rows if s not in inputs)
    return Problem({s: m for s, m in makers.items() if m}, (states[-1],), given_)


def by_trying(problem: Problem, choice: Choice, s: State) -> float | None:
    """The cheapest other way, by relaxing every candidate until nothing changes."""
    lost = {s}
    while more := {t for t, p in choice.made.items() if t not in lost and lost & set(p.candidate.inputs)}:
        lost |= more
    cost = dict.fromkeys((problem.given | set(choice.made)) - lost, 0.0)
    changed = True
    while changed:
        changed = False
        for p in problem.candidates:
            out, inputs = p.candidate.out, p.candidate.inputs
            if out != s and all(i in cost for i in inputs):
                total = p.cost + sum(cost[i] for i in inputs)
                if total < cost.get(out, float("inf")):
                    cost[out], changed = total, True
    ways = [
        p.cost + sum(cost[i] for i in p.candidate.inputs)
        for p in problem.makers[s]
        if p is not choice.made[s] and all(i in cost for i in p.candidate.inputs)
    ]
    return min(ways, default=None)


@given(problems())
def test_runners_up_are_the_cheapest_other_way(problem: Problem) -> None:
    choice = greedy(problem)
    assume(choice is not None)
    assert choice is not None
    found = runners_up(problem, choice)
    assert set(found) <= set(choice.made)
    for s in choice.made:
        want = by_trying(problem, choice, s)
        assert (found[s].cost if s in found else None) == want


def test_what_it_needs_besides_is_counted() -> None:
    a, b, c = (State(i, ()) for i in range(3))
    direct, detour, step = priced(c, (a,), 5.0), priced(c, (b,), 1.0), priced(b, (a,), 7.0)
    problem = Problem({c: (direct, detour), b: (step,)}, (c,), frozenset({a}))
    choice = greedy(problem)
    assert choice is not None and choice.made[c] is direct
    assert runners_up(problem, choice)[c].cost == 8.0


@pytest.mark.parametrize("last", SOURCES)
@pytest.mark.parametrize("before", SOURCES)
def test_a_runner_up_is_as_sure_as_the_least_sure_of_what_it_needs(last: str, before: str) -> None:
    a, b, c = (State(i, ()) for i in range(3))
    direct, detour, step = priced(c, (a,), 5.0), priced(c, (b,), 1.0, last), priced(b, (a,), 7.0, before)
    problem = Problem({c: (direct, detour), b: (step,)}, (c,), frozenset({a}))
    choice = greedy(problem)
    assert choice is not None
    found = runners_up(problem, choice)[c].estimate.source
    assert SOURCES.index(found) == max(SOURCES.index(last), SOURCES.index(before))
