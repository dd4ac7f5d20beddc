"""Choosing calls: on random small problems, with cycles and sharing, against trying everything."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice, product
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waxeq.cost.estimate import Estimate
from waxeq.extract.candidates import Candidate, State
from waxeq.extract.choice import Choice, Priced, Problem
from waxeq.extract.exact import _Model, polish
from waxeq.extract.greedy import followed, greedy
from waxeq.extract.paths import paths
from waxeq.extract.price import _undominated

pytestmark = pytest.mark.quick


def state(n: int) -> State:
    return State(n, ())


def maker(out: int, inputs: tuple[int, ...], cost: float) -> Priced:
    candidate = Candidate(state(out), tuple(map(state, inputs)), cast(Any, None), ())
    return Priced(candidate, Estimate(cost, cost, cost, "measured"))


def problem(rows: list[tuple[int, tuple[int, ...], float]], roots: tuple[int, ...], given: tuple[int, ...]) -> Problem:
    makers: dict[State, list[Priced]] = {}
    for out, inputs, cost in rows:
        makers.setdefault(state(out), []).append(maker(out, inputs, cost))
    return Problem({s: tuple(p) for s, p in makers.items()}, tuple(map(state, roots)), frozenset(map(state, given)))


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Up to seven states beside a given one; makers may read anything, so that cycles are common."""
    count = draw(st.integers(2, 7))
    rows = []
    for out in range(1, count + 1):
        for _ in range(draw(st.integers(1, 3))):
            reads = draw(st.lists(st.integers(0, count), min_size=1, max_size=3, unique=True))
            rows.append((out, tuple(r for r in reads if r != out) or (0,), float(draw(st.integers(1, 30)))))
        if draw(st.booleans()):
            rows.append((out, (draw(st.integers(0, out - 1)),), float(draw(st.integers(1, 60)))))
    roots = tuple(sorted({count, draw(st.integers(1, count))}))
    return problem(rows, roots, (0,))


def every_choice(p: Problem) -> Iterator[Choice]:
    """All acyclic choices, by trying every maker of every state."""
    states = list(p.makers)
    seen: set[frozenset[int]] = set()
    for pick in product(*(p.makers[s] for s in states)):
        made = dict(zip(states, pick, strict=True))
        needed: dict[State, Priced] = {}
        stack = [r for r in p.roots if r not in p.given]
        while stack:
            s = stack.pop()
            if s not in needed and s in made:
                needed[s] = made[s]
                stack += [i for i in made[s].candidate.inputs if i not in p.given]
        choice = Choice(needed, p.roots, sum(q.cost for q in needed.values()))
        try:
            choice.check(p)
        except ValueError:
            continue
        key = frozenset(map(id, needed.values()))
        if key not in seen:
            seen.add(key)
            yield choice


@given(problems())
@settings(max_examples=150, deadline=None)
def test_greedy_is_acyclic_and_finds_something_where_there_is_something(p: Problem) -> None:
    best = min((c.cost for c in every_choice(p)), default=None)
    found = greedy(p)
    assert (found is None) == (best is None)
    if found is not None and best is not None:
        found.check(p)
        assert found.cost >= best - 1e-9


@given(problems(), st.booleans())
@settings(max_examples=90, deadline=None)
def test_polished_is_the_best_there_is(p: Problem, walked: bool) -> None:
    """Found by walking through all choices, or by HiGHS."""
    start = greedy(p)
    if start is None:
        return
    best = min(c.cost for c in every_choice(p))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("waxeq.extract.exact._NODES", 6000 if walked else 0)
        if walked:
            patched.setattr(_Model, "solve", lambda self: pytest.fail("HiGHS is asked"))
        found = polish(p, start, 5.0).check(p)
    assert found.cost == pytest.approx(best)
    assert found.gap == pytest.approx(0.0, abs=1e-3)


@given(problems())
@settings(max_examples=25, deadline=None)
def test_paths_are_all_choices_in_rising_cost(p: Problem) -> None:
    start = greedy(p)
    if start is None:
        return
    found = list(islice(paths(p, polish(p, start, 5.0)), 12))
    costs = [c.cost for c in found]
    assert costs == pytest.approx(sorted(c.cost for c in every_choice(p))[: len(costs)])
    assert len({frozenset(map(id, c.in_order())) for c in found}) == len(found)
    if len(found) < 12:
        assert len(found) == sum(1 for _ in every_choice(p))


def test_paths_end_where_the_next_best_is_not_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a search that was cut short had found by then was listed as if nothing were cheaper."""
    p = problem([(1, (0,), c) for c in (1.0, 2.0, 3.0, 4.0)], (1,), (0,))
    start = polish(p, cast(Choice, greedy(p)), 5.0)
    assert [c.cost for c in paths(p, start)] == [1.0, 2.0, 3.0, 4.0]

    def cut_short(p: Problem, current: Choice, *given: Any, **options: Any) -> Choice:
        found = polish(p, current, *given, **options)
        return replace(found, bound=found.cost * 0.9) if found.cost == 3.0 else found

    monkeypatch.setattr("waxeq.extract.paths.polish", cut_short)
    assert [c.cost for c in paths(p, start)] == [1.0, 2.0]
    assert [c.cost for c in paths(p, start, proved=False)] == [1.0, 2.0, 3.0, 4.0]


@given(problems())
@settings(max_examples=80, deadline=None)
def test_dominated_makers_are_never_missed(p: Problem) -> None:
    fewer = Problem({s: _undominated(ps)[0] for s, ps in p.makers.items()}, p.roots, p.given)
    before = min((c.cost for c in every_choice(p)), default=None)
    assert before == min((c.cost for c in every_choice(fewer)), default=None)


def test_shared_work_is_counted_once() -> None:
    """Two users of one dear state: each alone would rather recompute, together they share."""
    rows: list[tuple[int, tuple[int, ...], float]] = [
        (1, (0,), 10.0), (2, (1,), 1.0), (2, (0,), 9.0), (3, (1,), 1.0), (3, (0,), 9.0), (4, (2, 3), 1.0)
    ]  # fmt: skip
    found = greedy(problem(rows, (4,), (0,)))
    assert found is not None and found.cost == 13.0


def test_what_cannot_be_made_is_none() -> None:
    assert greedy(problem([(1, (2,), 1.0), (2, (1,), 1.0)], (1,), (0,))) is None


@given(problems())
@settings(max_examples=150, deadline=None)
def test_no_other_maker_of_one_state_makes_a_greedy_choice_cheaper(p: Problem) -> None:
    """Bounds on what a change can save keep greedy extraction from trying most of them: none that gains is left out."""
    found = greedy(p)
    if found is None:
        return
    for s, now in found.made.items():
        for other in p.makers[s]:
            change = followed(p, {**found.made, s: other}, "greedy")
            assert other is now or change is None or change.cost >= found.cost * (1 - 1e-8)


@given(problems())
@settings(max_examples=40, deadline=None)
def test_highs_starts_from_the_choice_it_is_given(p: Problem) -> None:
    """With no time to search, the warm start is what it answers."""
    start = greedy(p)
    if start is None or not start.made:
        return
    chosen, _ = _Model(p, start, 0, 0.0, (), 0).solve()
    assert chosen is not None and sum(q.cost for q in chosen) <= start.cost + 1e-6


def tangled(states: int, seed: int = 1) -> Problem:
    """A problem that takes HiGHS a while: cycles everywhere, makers of about equal costs."""
    rng = random.Random(seed)
    rows = [
        (out, tuple({rng.randrange(states) for _ in range(rng.randint(1, 3))} - {out}) or (0,), rng.uniform(10.0, 12.0))
        for out in range(1, states)
        for _ in range(4)
    ]
    return problem(rows, (states - 1, states - 2, states - 3), (0,))


def slowly(count: Callable[[_Model], None], delay: float, asked: list[float]) -> Callable[[_Model], None]:
    """`_Model._count` on a machine where HiGHS takes longer to get from one step to the next."""

    def counted(self: _Model) -> None:
        count(self)
        self.h.cbMipInterrupt.subscribe(lambda event: (asked.append(delay), time.sleep(delay)))

    return counted


def test_polishing_ends_by_work_done_however_long_that_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    p = tangled(60)
    start = greedy(p)
    assert start is not None
    asked: list[float] = []

    def polished(delay: float) -> tuple[Any, ...]:
        with monkeypatch.context() as patched:
            patched.setattr(_Model, "_count", slowly(_Model._count, delay, asked))
            c = polish(p, start, 60.0, work=0)
        assert not c.timed_out and (c.gap is None or c.gap > 0.01), "this problem is to be cut short"
        return c.bound, c.cost, [id(q) for q in c.in_order()]

    assert polished(0.0) == polished(0.02)
    assert asked.count(0.0) == asked.count(0.02) > 0


def test_a_choice_says_that_time_ended_its_search() -> None:
    p = tangled(60)
    start = greedy(p)
    assert start is not None
    assert polish(p, start, 0.0).timed_out and not polish(problem([(1, (0,), 1.0)], (1,), (0,)), start, 5.0).timed_out


def test_what_lacks_a_maker_or_needs_itself_is_not_followed() -> None:
    p = problem([(1, (2,), 1.0), (2, (1,), 1.0), (2, (0,), 5.0)], (1,), (0,))
    (one,), (circle, direct) = p.makers[state(1)], p.makers[state(2)]
    assert followed(p, {state(1): one}, "any") is None
    assert followed(p, {state(1): one, state(2): circle}, "any") is None
    whole = followed(p, {state(1): one, state(2): direct}, "any")
    assert whole is not None and whole.cost == 6.0 and list(whole.in_order()) == [direct, one]
