"""Turns: all rivals are timed side by side, and one that is hopeless does not use up the time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import numpy as np
import pytest

from waxeq.runtime.measure import Samples
from waxeq.runtime.turns import take_turns


def test_turns_are_taken_by_all_and_far_slower_ones_end() -> None:
    calls = {"quick": 0, "slow": 0}

    def called(name: str, work: int) -> Callable[[], object]:
        def call() -> object:
            calls[name] += 1
            return np.sum(np.ones(work))

        return call

    times = take_turns({"quick": called("quick", 10), "slow": called("slow", 2_000_000)}, budget=100.0, rounds=9)
    assert len(times["slow"].seconds) == 3 and len(times["quick"].seconds) == 9
    assert calls["quick"] > 9


def test_who_is_settled_has_no_more_turns() -> None:
    def unsettled(found: Mapping[str, Samples]) -> list[str]:
        rounds = len(found["a"].seconds)
        return ["a", "b"] if rounds < 3 else ["a"] if rounds < 6 else []

    times = take_turns({"a": lambda: None, "b": lambda: None}, budget=100.0, unsettled=unsettled)
    assert {n: len(t.seconds) for n, t in times.items()} == {"a": 6, "b": 3}


def test_few_rounds_are_taken_even_without_time() -> None:
    times = take_turns({"a": lambda: None, "b": lambda: None}, budget=0.0)
    assert {n: len(t.seconds) for n, t in times.items()} == {"a": 5, "b": 5}


def test_no_round_begins_that_would_end_after_its_time() -> None:
    """Regression: turns of a short trial, each after a rest of 0.1 s, took twice what was left of the budget."""
    calls = {n: lambda: time.sleep(0.06) for n in "ab"}
    times = take_turns(calls, budget=0.2, rounds=9, fewest=1, ran=dict.fromkeys("ab", 0.06))
    assert {n: len(t.seconds) for n, t in times.items()} == {"a": 1, "b": 1}


def test_who_ran_just_now_needs_no_first_call() -> None:
    calls = list[str]()
    take_turns({n: lambda n=n: calls.append(n) for n in "ab"}, budget=0.0, rounds=1, ran={"a": 1.0})
    assert calls.count("a") == 1 and calls.count("b") > 2


def test_long_calls_are_timed_from_the_first_on() -> None:
    calls = list[str]()

    def slow() -> None:
        calls.append("slow")
        time.sleep(0.002)

    take_turns({"slow": slow}, budget=0.0, rounds=2, fewest=2, long=0.001)
    assert len(calls) <= 1 + 2 * 3, "a first one, and two that count, each at most three times"
    calls.clear()
    take_turns({"slow": slow}, budget=0.0, rounds=2, fewest=2)
    assert len(calls) > 1 + 2 * 3


def test_what_a_rival_raises_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        take_turns({"a": lambda: 1 // 0}, budget=0.0)


def test_what_is_beside_neither_ends_nor_ends_others() -> None:
    """A copy, or a function alone, takes turns with contestants: one that took no time ended all of them."""

    def work(size: int) -> Callable[[], object]:
        return lambda: np.sum(np.ones(size))

    rivals = {"brief": work(10), "a": work(300_000), "b": work(300_000)}
    times = take_turns(rivals, budget=100.0, rounds=6, beside=["brief"])
    assert [len(times[n].seconds) for n in rivals] == [6, 6, 6]
    times = take_turns({"a": work(10), "long": work(600_000)}, budget=100.0, rounds=6, beside=["long"])
    assert [len(t.seconds) for t in times.values()] == [6, 6]


def test_far_slower_ones_have_their_share_of_the_time_where_it_is_shared() -> None:
    """Regression: `waxeq bench --seconds 10` had three samples of what was slower, however much time there was."""
    calls = {"quick": lambda: time.sleep(1e-4), "slow": lambda: time.sleep(0.01), "slowest": lambda: time.sleep(0.3)}
    begun = time.perf_counter()
    times = take_turns(calls, budget=3.0, rounds=100_000, shared=True)
    quick, slow, slowest = (len(times[n].seconds) for n in calls)
    assert time.perf_counter() - begun < 5.0
    assert slowest in (2, 3, 4) and 12 < slow <= quick, "who is slower by far has a third of the time"


def test_who_alone_is_left_beside_the_best_has_all_of_the_time() -> None:
    calls = {"quick": lambda: time.sleep(1e-4), "slow": lambda: time.sleep(0.05)}
    times = take_turns(calls, budget=1.5, rounds=100_000, shared=True)
    assert len(times["slow"].seconds) == len(times["quick"].seconds) > 8


def test_far_slower_ones_end_where_the_time_is_over() -> None:
    calls = {"quick": lambda: time.sleep(1e-4), "slow": lambda: time.sleep(0.05)}
    times = take_turns(calls, budget=0.0, rounds=100_000, shared=True)
    assert [len(times[n].seconds) for n in calls] == [5, 3]


def test_turns_that_others_disturbed_are_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("waxeq.runtime.turns.sample", lambda run: (1e-3, False))
    assert take_turns({"a": lambda: None}, budget=0.0, rounds=1)["a"].disturbed
