"""Plans of a whole model, held against the product of what its blocks allow."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waxeq.errors import PlanError
from waxeq.extract.ways import UNIT, Count, Row, Ways
from waxeq.search.paths import Menu, Part

pytestmark = pytest.mark.quick


@st.composite
def menus(draw: st.DrawFn) -> Menu:
    parts = []
    for _ in range(draw(st.integers(0, 3))):
        costs = draw(st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=3), min_size=1, max_size=2))
        rows = [Row(s, (s + 1,) if s + 1 < len(costs) else (), c) for s, group in enumerate(costs) for c in group]
        ways = Ways(tuple(rows), (0,))
        count = ways.count()
        parts.append(Part(draw(st.integers(1, 3)), ways, count, count, tuple({"n": i} for i in range(len(rows)))))
    return Menu("m", tuple(parts))


@given(menus())
def test_all_combinations_come_once_in_rising_cost(menu: Menu) -> None:
    found = list(menu.cheapest())
    lists = [[(c * p.repeats, rows) for c, rows in p.ways.cheapest()] for p in menu.parts]
    want = [(sum(c for c, _ in pick), tuple(r for _, r in pick)) for pick in itertools.product(*lists)]
    assert sorted((round(p.seconds / UNIT), p.rows) for p in found) == sorted(want)
    assert [p.seconds for p in found] == sorted(p.seconds for p in found)
    assert menu.count == Count(len(want), exact=True)
    assert menu.unlike.number >= menu.count.number


@given(menus())
def test_a_menu_survives_being_written(menu: Menu) -> None:
    assert Menu.from_json(menu.to_json()) == menu


def test_what_is_no_menu_is_refused() -> None:
    for data in ({}, {"version": 99}, {"version": 1, "model": "m", "parts": [{}]}):
        with pytest.raises(PlanError, match="remove it"):
            Menu.from_json(data)
