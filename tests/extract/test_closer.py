"""Of calls that take as long, those of less error are chosen."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from waxeq.cost.estimate import Estimate
from waxeq.extract.candidates import Candidate, State
from waxeq.extract.choice import Choice, Priced, Problem
from waxeq.extract.closer import closer, closer_within
from waxeq.extract.greedy import greedy

pytestmark = pytest.mark.quick

GIVEN, MIDDLE, END = (State(n, ()) for n in range(3))
ERRORS = {"own": 2e-7, "library": 3e-7, "alike": 2.8e-7, "untimed": None}
USUAL = Estimate(1.0, 0.98, 1.2, "measured")


def maker(out: State, inputs: tuple[State, ...], kernel: str, estimate: Estimate) -> Priced:
    call = cast(Any, SimpleNamespace(kernel=kernel))
    return Priced(Candidate(out, inputs, call, ()), estimate)


def chosen(other: Priced, usual: Estimate = USUAL, spare: bool = False) -> tuple[Problem, Choice]:
    """A problem of two steps, and its choice: the second step has another way."""
    first, last = maker(MIDDLE, (GIVEN,), "own", USUAL), maker(END, (MIDDLE,), "library", usual)
    rows: dict[State, tuple[Priced, ...]] = {MIDDLE: (first,), END: (last,)}
    apart: dict[State, tuple[Priced, ...]] = {END: (other,)} if spare else {}
    problem = Problem(rows if spare else {**rows, END: (last, other)}, (END,), frozenset({GIVEN}), spare=apart)
    choice = greedy(Problem(rows, (END,), frozenset({GIVEN})))
    assert choice is not None
    return problem, replace(choice, bound=1.9, timed_out=True)


def found(problem: Problem, choice: Choice) -> Choice | None:
    return closer(problem, choice, lambda c: ERRORS[c.call.kernel])


@pytest.mark.parametrize("spare", [False, True])
@pytest.mark.parametrize("seconds", [0.9, 1.0, 1.04])
def test_the_closer_one_of_two_that_take_as_long(seconds: float, spare: bool) -> None:
    other = maker(END, (MIDDLE,), "own", Estimate(seconds, seconds, seconds, "measured"))
    problem, choice = chosen(other, spare=spare)
    best = found(problem, choice)
    assert best is not None and best.made == {**choice.made, END: other}
    assert best.cost == pytest.approx(1.0 + seconds) and (best.bound, best.timed_out) == (1.9, True)
    best.check(problem)


@pytest.mark.parametrize(
    ("inputs", "kernel", "estimate", "usual"),
    [
        ((MIDDLE,), "own", Estimate(1.06, 1.06, 1.06, "measured"), USUAL),
        ((MIDDLE,), "own", Estimate(1.02, 1.02, 1.02, "measured"), Estimate(1.0, 1.0, 1.01, "measured")),
        ((MIDDLE,), "own", Estimate(0.9, 0.5, 1.0, "fitted"), USUAL),
        ((MIDDLE,), "own", Estimate(0.9, 0.9, 1.0, "measured"), Estimate(1.0, 0.5, 2.0, "fitted")),
        ((MIDDLE,), "alike", Estimate(1.0, 1.0, 1.0, "measured"), USUAL),
        ((MIDDLE,), "untimed", Estimate(1.0, 1.0, 1.0, "measured"), USUAL),
        ((GIVEN, MIDDLE), "own", Estimate(1.0, 1.0, 1.0, "measured"), USUAL),
    ],
    ids=["slower", "told apart", "a guess", "for a guess", "no closer", "of no known error", "reads more"],
)
def test_else_the_choice_stays(inputs: tuple[State, ...], kernel: str, estimate: Estimate, usual: Estimate) -> None:
    assert found(*chosen(maker(END, inputs, kernel, estimate), usual)) is None


@pytest.mark.parametrize(("seconds", "part", "swapped"), [(1.1, 0.06, True), (0.9, 0.0, True), (1.1, 0.04, False)])
def test_less_error_for_a_part_of_the_time_is_a_rival(seconds: float, part: float, swapped: bool) -> None:
    """Whatever the call alone takes more."""
    other = maker(END, (MIDDLE,), "own", Estimate(seconds, seconds, seconds, "measured"))
    problem, choice = chosen(other)
    near = closer_within(problem, choice, lambda c: ERRORS[c.call.kernel], part)
    assert (near is not None and near.made[END] is other) == swapped


def test_what_gains_most_for_its_time_comes_first() -> None:
    """Of three ways to make the end the best one that is paid for; nothing that gains nothing."""
    rows = {"own": 1.05, "nearly": 1.01, "alike": 0.5}
    ways = [maker(END, (MIDDLE,), k, Estimate(s, s, s, "measured")) for k, s in rows.items()]
    first, last = maker(MIDDLE, (GIVEN,), "own", USUAL), maker(END, (MIDDLE,), "library", USUAL)
    choice = greedy(Problem({MIDDLE: (first,), END: (last,)}, (END,), frozenset({GIVEN})))
    problem = Problem({MIDDLE: (first,), END: (last, *ways)}, (END,), frozenset({GIVEN}))
    assert choice is not None
    errors = {**ERRORS, "nearly": 2.2e-7}
    near = closer_within(problem, choice, lambda c: errors[c.call.kernel], 0.03)
    assert near is not None and near.made[END] is ways[1]
