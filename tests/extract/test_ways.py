"""Counting and listing choices, held against trying every set of rows."""

from __future__ import annotations

import itertools
import math
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waxeq.cost.estimate import Estimate
from waxeq.extract.detour import detours, worth
from waxeq.extract.ways import Row, TooMany, Ways

pytestmark = pytest.mark.quick


@st.composite
def some_ways(draw: st.DrawFn) -> Ways:
    """Up to five states and ten rows, circles and states that nothing makes among them."""
    states = st.integers(0, draw(st.integers(1, 4)))
    row = st.builds(
        Row, states, st.lists(states, max_size=2, unique=True).map(tuple), st.integers(1, 5)
    )  # fmt: skip
    rows = draw(st.lists(row, min_size=1, max_size=9))
    return Ways(tuple(rows), tuple(draw(st.lists(states, min_size=1, max_size=2, unique=True))))


def is_choice(ways: Ways, rows: tuple[int, ...]) -> bool:
    """One maker for each state that the roots need, none for any other, no circle."""
    made = {ways.rows[i].out: ways.rows[i] for i in rows}
    if len(made) != len(rows):
        return False
    have: set[int] = set()
    while new := [s for s, r in made.items() if s not in have and have.issuperset(r.inputs)]:
        have.update(new)
    needed, stack = set(), list(ways.roots)
    while stack:
        s = stack.pop()
        if s not in have:
            return False
        if s not in needed:
            needed.add(s)
            stack += made[s].inputs
    return needed == set(made)


def all_choices(ways: Ways) -> list[tuple[int, ...]]:
    places = range(len(ways.rows))
    return [c for n in range(len(ways.rows) + 1) for c in itertools.combinations(places, n) if is_choice(ways, c)]


@given(some_ways())
def test_every_choice_is_listed_once_in_rising_cost(ways: Ways) -> None:
    want = all_choices(ways)
    listed = list(ways.cheapest())
    assert ways.count().exact and ways.count().number == len(want)
    assert sorted(tuple(sorted(rows)) for _, rows in listed) == sorted(want)
    costs = [cost for cost, _ in listed]
    assert costs == sorted(costs) == [sum(ways.rows[i].cost for i in rows) for _, rows in listed]


@given(some_ways())
def test_a_bound_is_no_less_than_the_count(ways: Ways) -> None:
    few = Ways(ways.rows, ways.roots, nodes=0)
    assert not few.count().exact and few.count().number >= ways.count().number
    with pytest.raises(TooMany):
        next(few.cheapest())


@given(some_ways())
def test_ways_survive_being_written(ways: Ways) -> None:
    assert Ways.from_json(ways.to_json()) == ways


@given(some_ways())
def test_a_detour_costs_what_a_choice_with_that_row_costs(ways: Ways) -> None:
    found = next(ways.cheapest(), None)
    if found is None:
        return
    choices = all_choices(ways)
    for row, cost in enumerate(detours(ways, found[1])):
        having = {sum(ways.rows[i].cost for i in c) for c in choices if row in c}
        assert cost == math.inf or cost in having
        if row in found[1]:
            assert cost == found[0]


def test_the_first_of_very_many_come_at_once() -> None:
    chain = tuple(Row(i, (i + 1,) if i < 199 else (), cost) for i in range(200) for cost in (3, 5, 9))
    ways = Ways(chain, (0,))
    assert ways.count().number == 3**200
    assert [cost for cost, _ in islice(ways.cheapest(), 203)] == [600] + [602] * 200 + [604] * 2


def test_what_is_surely_slower_is_worth_nothing_to_time() -> None:
    sure, unsure = Estimate(1.0, 0.9, 1.1, "fitted"), Estimate(1.0, 0.2, 5.0, "roofline")
    assert worth(sure, 0.5).gain < 1e-6 and not worth(sure, 0.5).possible
    assert worth(unsure, 0.5).gain > 0.01 and worth(unsure, 0.5).possible
    assert worth(unsure, 0.0).gain == 0.0
    assert worth(unsure, 2.0).gain > worth(unsure, 1.0).gain > worth(unsure, 0.5).gain
