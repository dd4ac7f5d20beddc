"""What of a budget is for searching, and what for all that comes after, to the moment in which a user has the plan."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from waxeq.compile import optimize_traced
from waxeq.events import Deadline, Events
from waxeq.extract.choice import Choice, Problem
from waxeq.extract.paths import paths
from waxeq.frontend.trace import Traced, trace
from waxeq.ir.blocks import cut
from waxeq.ir.graph import expand
from waxeq.options import Options
from waxeq.runtime.measure import Samples
from waxeq.search import choosing, contest, session
from waxeq.search.block import UNPOLISHED, search_block
from waxeq.search.contest import foresee
from waxeq.search.pace import CLOSING
from waxeq.search.rivals import rivals
from waxeq.search.session import Session


class Clock:
    """Seconds that pass only when told to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def opened(folder: Path, **more: object) -> Session:
    folder.mkdir(exist_ok=True)
    return Session.open(Options.of(**{"table": folder / "t.duckdb", "threads": 1, **more}), Events())


def traced() -> Traced:
    x, w = (np.random.default_rng(i).standard_normal((40, 40)).astype(np.float32) for i in range(2))
    return trace(lambda x, w: np.tanh(x @ w) * 2.0 + x @ w, {"x": x, "w": w})


def test_the_budget_begins_before_anything_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: to look for backends, 0.05 s, came on top of it."""
    found = session.found_backends

    def looked() -> Any:
        time.sleep(0.1)
        return found()

    monkeypatch.setattr(session, "found_backends", looked)
    with opened(tmp_path) as s:
        assert s.deadline.elapsed >= 0.1


def test_a_brief_trial_leaves_time_to_close_the_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: its turns went on until the last moment of the budget, and what came then was on top of it."""
    given: list[float] = []

    def turns(rivals: Mapping[str, Any], *, budget: float, **more: object) -> dict[str, Samples]:
        given.append(budget)
        return {n: Samples((1.0,)) for n in rivals}

    monkeypatch.setattr(contest, "take_turns", turns)
    for left in (0.0, 0.5, 60.0):
        clock = Clock()
        with opened(tmp_path, measure=False, fresh=True, top_k=1) as s:
            s.deadline = Deadline(60.0, clock)
            clock.now = 60.0 - left
            monkeypatch.setattr(contest, "_PROCESS", 60.0)
            optimize_traced(s, traced())
    assert given == [0.0, pytest.approx(0.5 - CLOSING, abs=1e-3), 1.0]


def test_where_compiling_takes_long_more_is_kept_for_the_last_one(tmp_path: Path) -> None:
    with opened(tmp_path) as s:
        s.deadline = Deadline(10.0, clock := Clock())
        foresee(s, 0.01, 0, begun=True)
        s.share(1.0)
        clock.now = 10.0 - s.after - 0.1
        assert not s.hurried and s.searching == pytest.approx(0.1)
        s.compiled_seconds, s.usual_seconds = 2.0, 0.5
        assert s.hurried and s.searching < 0.0
        s.kept = 0.0
        assert not s.hurried, "where no plan is chosen there is no last one"


def test_a_block_is_chosen_anew_in_the_time_for_searching(tmp_path: Path) -> None:
    """Regression: calls were timed up to the end of it, and choosing among candidates came on top."""
    with opened(tmp_path) as s:
        s.deadline = Deadline(10.0, Clock())
        s.share(1.0)
        most = s.searching - 0.01
        assert s.affords(most)
        s.chose = 1.0
        assert not s.affords(most) and s.affords(most - 0.5)


def test_what_growing_left_of_a_short_share_is_enough_to_time_calls(tmp_path: Path) -> None:
    """Regression: of three blocks in five seconds the first had a quarter of a second left once its candidates were
    grown, in which no call can be compiled and timed: all of PageRank was chosen at guesses, and took three times as
    long as it may."""
    clock = Clock()
    with opened(tmp_path, budget=5.0) as s:
        s.deadline = Deadline(5.0, clock)
        s.share(0.4)
        clock.now = s.searching / 2
        left, all_left = s.searching, s.deadline.left - s.after
        s.share_again()
        assert s.searching == pytest.approx(0.4 * all_left) and s.searching > left
        s.share(1.0)
        most = s.searching
        s.share_again()
        assert s.searching == pytest.approx(most), "there is no more than all"


def test_nothing_is_polished_in_the_time_of_other_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: HiGHS was asked three times, for most of a second each, about a block that had no time left to time
    its calls; those that followed were chosen at guesses for it."""
    asked: list[float] = []

    def polish(problem: Problem, start: Choice, seconds: float, seed: int = 0) -> Choice:
        asked.append(seconds)
        return start

    monkeypatch.setattr(choosing, "polish", polish)
    with opened(tmp_path, budget=60.0, measure=False) as s:
        (block,) = cut(expand(traced().graph))
        for part in (0.0, 0.1):
            s.share(part)
            found = search_block(s, block)
            assert bool(asked) == bool(part)
            assert (UNPOLISHED in found.left) != bool(part)
        assert max(asked) < 0.1 * 60.0


def test_one_plan_is_made_where_there_is_no_time_for_a_contest(tmp_path: Path) -> None:
    """Regression: others were compiled and proved, and only the first was timed then."""
    with opened(tmp_path, measure=False, top_k=2) as s:
        blocks = cut(expand(traced().graph))
        found = search_block(s, blocks[0])
        assert found.problem is not None and found.choice is not None
        *_, other = (c for c, _ in zip(paths(found.problem, found.choice), range(4), strict=False))
        best = {blocks[0].key: replace(found, beaten=(replace(other, cost=found.choice.cost),))}
        s.deadline = Deadline(60.0, Clock())
        for took, most in ((0.01, 2), (100.0, 1)):
            foresee(s, took, 0, begun=True)
            assert len(rivals(s, blocks, best)) == most


def test_a_plan_that_is_far_ahead_needs_little_of_a_trial(tmp_path: Path) -> None:
    """A GELU over 64 MB takes a twentieth of NumPy's time: what a close call would need is for searching."""
    with opened(tmp_path) as s:
        s.deadline = Deadline(10.0, Clock())
        foresee(s, 0.5, 0, begun=True)
        kept = s.kept
        s.promised(0.01)
        assert s.took and s.kept == kept, "other blocks may be what takes long"
        s.sole = True
        s.promised(0.4)
        assert s.kept == kept
        s.promised(0.01)
        assert s.after < 0.5 < 10.0 * kept


def test_of_a_model_on_several_threads_it_is_not_known_how_far_a_plan_is_ahead(tmp_path: Path) -> None:
    """What the model took is the time of one core."""
    with opened(tmp_path, threads=2) as s:
        s.deadline, s.sole = Deadline(10.0, Clock()), True
        foresee(s, 0.5, 0, begun=True)
        kept = s.kept
        s.promised(0.01)
        assert s.kept == kept


def test_without_a_trial_no_time_is_kept_for_one(tmp_path: Path) -> None:
    with opened(tmp_path, trial=False) as s:
        s.deadline = Deadline(10.0, Clock())
        foresee(s, 0.5, 0, begun=False)
        assert s.after < 1.0


def test_what_was_compiled_before_says_nothing_of_compilers(tmp_path: Path) -> None:
    """Regression: looking up what is there, many times, made a machine look slow, and a fifth of a budget was kept."""
    with opened(tmp_path) as s:
        for _ in range(1000):
            s._compile([])
        assert s.compiling_seconds > 0.0 and s.slow == 1.0


def test_a_model_is_one_block_where_that_occurs_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: a stack of equal layers was taken for one of them, and the trial of all had next to no time."""
    seen: list[bool] = []

    def searched(session: Session, blocks: Any, *, sole: bool) -> Any:
        seen.append(sole)
        raise InterruptedError

    def layers(x, w, n):
        for _ in range(n):
            x = np.tanh(x @ w) + np.exp(-x) * x
        return x

    monkeypatch.setattr("waxeq.compile.searched", searched)
    x = np.ones((8, 8), np.float32)
    for n in (1, 60):
        with opened(tmp_path / str(n)) as s, pytest.raises(InterruptedError):
            optimize_traced(s, trace(lambda x, w, n=n: layers(x, w, n), {"x": x, "w": x}))
    assert seen == [True, False]


def test_the_longer_a_budget_is_over_the_less_is_begun(tmp_path: Path) -> None:
    """A table that was filled cell by cell, of 55 cells, was 35 blocks: with no budget at all each took half a
    second."""
    clock = Clock()
    with opened(tmp_path, budget=2.0) as s:
        s.deadline = Deadline(2.0, clock)
        moments = []
        for clock.now in (0.0, 2.0, 4.0, 12.0, 100.0):
            moments.append(s.least)
        assert moments[0] == moments[1] > moments[2] > moments[3] > moments[4] > 0.0
        assert s.growing().left == pytest.approx(s.least)


def test_the_only_block_has_time_for_what_there_must_be_however_late_it_is(tmp_path: Path) -> None:
    """Regression: where saturating the one block of a model took long beyond the budget, as on a machine in use, what
    was left for its candidates was too little for any other than its text's, of which one product took as long as all
    of the model as NumPy runs it."""
    clock = Clock()
    with opened(tmp_path, budget=2.0) as s:
        s.deadline, s.sole = Deadline(2.0, clock), True
        before, clock.now = s.least, 12.0
        assert s.least == before == s.growing().left


def test_many_blocks_share_the_time_for_what_there_must_be(tmp_path: Path) -> None:
    """Regression: each of a hundred blocks had a quarter of a second beyond the budget."""
    with opened(tmp_path, budget=2.0) as s:
        s.deadline = Deadline(2.0, Clock())
        alone = s.least
        s.share(0.01)
        assert alone == 0.25 and s.least == pytest.approx(0.01)
