"""A budget ends each step of a search with what there is by then; a clock that is told the time says when."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from waxeq.backend.call import Call
from waxeq.compile import optimize_traced
from waxeq.egraph.written import as_written
from waxeq.events import Deadline, Events, Note
from waxeq.extract.exact import polish
from waxeq.extract.greedy import followed, greedy
from waxeq.frontend.trace import Traced, trace
from waxeq.ir.blocks import Block, cut
from waxeq.ir.graph import expand
from waxeq.options import Options
from waxeq.runtime.measure import Samples
from waxeq.search import block as block_search
from waxeq.search import blocks as blocks_search
from waxeq.search import pareto, trials
from waxeq.search.block import Optimized
from waxeq.search.session import Session
from waxeq.search.trial import Proofs


@dataclass
class Clock:
    """Seconds that pass when they are told to, and `each` time that somebody looks."""

    now: float = 0.0
    each: float = 0.0

    def __call__(self) -> float:
        self.now += self.each
        return self.now


def opened(folder: Path, events: Events | None = None, **more: object) -> Session:
    return Session.open(Options.of(**{"table": folder / "t.duckdb", "threads": 1, **more}), events or Events())


def traced() -> Traced:
    def model(x):
        e = np.exp(x - x.max(-1, keepdims=True))
        return np.tanh(e / e.sum(-1, keepdims=True)) * 2

    return trace(model, {"x": np.random.default_rng(0).standard_normal((40, 48)).astype(np.float32)})


def test_growing_that_is_cut_short_leaves_candidates_of_a_whole_plan(tmp_path: Path) -> None:
    with opened(tmp_path) as session:
        (block,) = cut(expand(traced().graph))
        at = block_search.saturated(session, block)
        space, roots = block_search.make_space(session.kernels, at.lowered, at.saturation.snapshot)
        whole = block_search.grow(space, roots).rows
        counts = []
        for seconds in (0.0, 9.0, 1e9):
            rows = block_search.grow(space, roots, Deadline(seconds, Clock(each=1.0))).rows
            again = block_search.grow(space, roots, Deadline(seconds, Clock(each=1.0))).rows
            assert rows == again and greedy(session.prices.problem(space, rows, roots)) is not None
            counts.append(len(rows))
        assert rows == whole and counts == sorted(counts) and counts[0] < counts[-1]


def smoothed(x):
    """What rules write in thousands of ways."""
    for _ in range(5):
        x = 0.25 * x[:-2] + 0.5 * x[1:-1] + 0.25 * x[2:]
    return x


def rectified(x):
    """The same, and what a rule puts a simpler e-node in the place of."""
    y = smoothed(x)
    return np.where(y > 0, y, np.float32(0)) * y**3


@pytest.mark.parametrize("seconds", [-1.0, 0.0, 0.25])
@pytest.mark.parametrize("model", [smoothed, rectified])
def test_where_there_is_no_time_for_all_the_text_of_the_model_is_fused(
    tmp_path: Path, model: Callable[..., Any], seconds: float
) -> None:
    """It is among the candidates however little time is left; and no time goes into all that rules made of it."""
    with opened(tmp_path) as session:
        (block,) = cut(expand(trace(model, {"x": np.ones(100_000, np.float32)}).graph))
        at = block_search.saturated(session, block)
        space, roots = block_search.make_space(session.kernels, at.lowered, at.saturation.snapshot)
        assert space.snapshot.nodes > 2500
        grown = block_search.grow(space, roots, Deadline(seconds, Clock(each=1e-5)))
        rows = grown.rows
        text = as_written(at.lowered, space.snapshot, dict)
        own = {n for c in text.classes for n in c.nodes}
        assert greedy(session.prices.problem(space, rows, roots)) is not None
    whole = [c for c in rows if c.out in roots and {s.number for s in c.inputs} <= set(space.leaves)]
    assert seconds > 0 or not grown.all
    if seconds > 0:
        assert any(session.kernels[c.call.kernel].form == "sweeps" for c in whole)
    few = [c for c in rows if all(n in own for _, n in c.nodes)]
    assert len(few) > len(rows) / 2 if seconds <= 0 else len(rows) > len(few) > 0
    assert len({c.looks for c in rows}) == len(rows)


def test_choosing_that_is_cut_short_leaves_a_whole_choice(tmp_path: Path) -> None:
    with opened(tmp_path) as session:
        (block,) = cut(expand(traced().graph))
        at = block_search.saturated(session, block)
        space, roots = block_search.make_space(session.kernels, at.lowered, at.saturation.snapshot)
        problem = session.prices.problem(space, block_search.grow(space, roots).rows, roots)
        best, first = greedy(problem), greedy(problem, Deadline(0.0))
    assert best is not None and not best.timed_out
    assert first is not None and first.timed_out and first.cost >= best.cost
    assert followed(problem, first.made, "greedy") is not None
    assert polish(problem, first, 0.0, work=0.0).cost <= first.cost


def light(x, w):
    return np.tanh(np.exp(np.sin(x) + w) * x)


def block_of(model: Callable[..., Any]) -> Block:
    x, w = np.ones((8, 8), np.float32), np.ones((8, 8), np.float32)
    return cut(expand(trace(model, {"x": x, "w": w}).graph))[0]


def test_a_plan_that_time_ran_out_for_counts_for_no_larger_budget(tmp_path: Path) -> None:
    """It is taken as it is, with a note, for the same budget and smaller ones; a larger one goes on, and what came to
    its end is not replaced."""
    block = block_of(light)
    with opened(tmp_path, measure=False) as session:

        def begun(seconds: float | None, each: float = 20.0) -> Session:
            session.deadline = Deadline(seconds, Clock(each=each))
            return session

        def known(seconds: float | None) -> list[Optimized]:
            return list(blocks_search.recalled(begun(seconds), [block]).values())

        (first,) = blocks_search.searched(begun(60.0), [block]).values()
        same, less = known(60.0), known(6.0)
        assert same == less and same[0].plan == first.plan and same[0].remembered and not first.remembered
        assert not known(61.0) and not known(None)
        notes = [blocks_search.said([o])[0] for o in (first, *same)]
        assert all("not all ways to fuse were looked at" in n for n in notes)
        assert ["these plans are remembered" in n for n in notes] == [False, True]

        blocks_search.searched(begun(6.0, each=2.0), [block])
        assert known(60.0) == same, "a shorter search does not replace a longer one"
        (whole,) = blocks_search.searched(begun(None), [block]).values()
        blocks_search.searched(begun(60.0), [block])
        (found,) = known(60.0)
        assert found.plan == whole.plan and not (found.left or blocks_search.said([found]))


def test_what_a_profile_looked_through_is_remembered_as_whole(tmp_path: Path) -> None:
    """The search before it may have had no time; by then all choices were looked at and all calls timed."""
    block = block_of(light)
    with opened(tmp_path, measure=False) as session:
        session.deadline = Deadline(0.0, Clock())
        (found,) = blocks_search.searched(session, [block]).values()
        session.deadline = Deadline(None)
        hasty = replace(found, left=("not all calls that matter were timed", "choosing was stopped"))
        for timed in (False, True):
            blocks_search.remember(session, hasty.looked_through(timed=timed))
            rows = blocks_search.recalled(session, [block])
            assert bool(rows) is timed
        assert not rows[block.key].left
        assert replace(found, left=("not all ways to fuse were looked at",)).looked_through(timed=True).left


@pytest.mark.parametrize(("budget", "stopped"), [(0.0, False), (60.0, True)])
def test_a_guess_without_any_time_and_what_was_stopped_are_not_remembered(
    tmp_path: Path, budget: float, stopped: bool
) -> None:
    events, block = Events(), block_of(light)
    with opened(tmp_path, events, measure=False) as session:
        session.deadline = Deadline(budget, Clock())
        if stopped:
            events.request_stop()
        (found,) = blocks_search.searched(session, [block]).values()
        assert found.left and not blocks_search.recalled(session, [block])


def test_a_block_is_given_more_where_there_are_fewer_others(tmp_path: Path) -> None:
    one, other = block_of(light), block_of(lambda x, w: x @ w @ x @ w)
    with opened(tmp_path, measure=False) as session:
        session.deadline = Deadline(60.0, Clock(each=20.0))
        both = blocks_search.searched(session, [one, other])
        alone = blocks_search.recalled(session, [one])
        again = blocks_search.recalled(session, [other, one])
    assert sum(b.seconds or 0.0 for b in both.values()) == pytest.approx(60.0)
    assert both[one.key].left and not alone, "alone it has time for more"
    assert {k: b.seconds for k, b in again.items()} == {k: b.seconds for k, b in both.items()}


def test_no_more_is_compiled_than_there_is_time_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path) as session:
        (block,) = cut(expand(traced().graph))
        at = block_search.saturated(session, block)
        space, roots = block_search.make_space(session.kernels, at.lowered, at.saturation.snapshot)
        calls = [c.call for c in block_search.grow(space, roots).rows]
        session.deadline = Deadline(100.0, clock := Clock())
        compiled: list[Call] = []

        def prepare(rows: Any, seconds: float) -> None:
            compiled.extend(c for _, c in rows)
            clock.now += 40.0

        monkeypatch.setattr("waxeq.search.readying.prepare", prepare)
        monkeypatch.setattr(Session, "_timed", lambda *given: pytest.fail("there is no time for this"))
        assert session.measure(calls) == 0
    assert 0 < len(compiled) < len(calls), "two groups, and then what is left is for the trial"


def test_a_front_is_of_the_plans_that_there_is_time_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[str] = []
    events = Events(lambda e: notes.append(e.text) if isinstance(e, Note) else None)
    given: list[float] = []
    clock = Clock()

    def run(*args: Any, fewest: int, **_: Any) -> Any:
        _, _, group, seconds, *_ = args
        assert fewest == (2 if group[0] == 0 else 0), "the best plan and the model as written run in any case"
        given.append(seconds)
        clock.now += 2.0 + seconds
        return list(group)

    monkeypatch.setattr(pareto, "run_plans", run)
    with opened(tmp_path, events) as session:
        plans: list[Any] = [*range(20)]
        proofs = Proofs(session, traced(), None)
        assert pareto._ran(proofs, plans, Deadline(4.0, clock)) == plans[:8]
        assert pareto._ran(proofs, plans, Deadline(None, clock)) == plans
    assert given == [0.5, 8.0, 8.0, 4.0]
    assert notes == ["the budget was spent before 12 of 20 plans were run"]


def test_plans_are_held_against_float64_while_there_is_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, fewest = Clock(), list[int]()

    def proved(proofs: object, result: object) -> tuple[float, float]:
        clock.now += 1.0
        return 0.0, 0.0

    def timed(session: Session, model: Traced, results: Sequence[Any], seconds: float, rounds: int, _: Deadline) -> Any:
        fewest.append(rounds)
        return [Samples((1e-3,)) for _ in results]

    monkeypatch.setattr(trials, "_errors", proved)
    monkeypatch.setattr(trials, "_timed", timed)
    given: dict[str, Any] = {"measure": False, "trial": False, "polish": False, "budget": 0}
    with opened(tmp_path, **given) as session:
        rows = [optimize_traced(session, traced())] * 5
        counts = [len(trials.run_plans(session, traced(), rows, 1.0, 4, Deadline(s, clock))) for s in (None, 2.5, 0.0)]
        assert len(trials.run_plans(session, traced(), rows, 1.0, 4, Deadline(0.0, clock), fewest=2)) == 2
    assert counts == [5, 3, 1]
    assert fewest[0] > fewest[-1], "with an end, fewer rounds do"


def test_times_of_a_plan_are_those_of_its_kernels_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a kernel that was changed since, a profile showed what the plan took with the one before, and ran nothing."""
    monkeypatch.setenv("WAXEQ_TIMING_LOCK", str(tmp_path / "lock"))
    monkeypatch.setattr(trials, "in_fresh_process", lambda fn, args, **_: [(1e-3,) * 9 for _ in args[1]])
    with opened(tmp_path, measure=False, trial=False, polish=False, budget=0) as session:
        rows = [optimize_traced(session, traced())]
        kernel = rows[0].kernels[rows[0].plan.steps[0].call.kernel]
        remembered = [trials.run_plans(session, traced(), rows)[0].remembered for _ in range(2)]
        monkeypatch.setattr(type(kernel), "code", "another text")
        remembered += [trials.run_plans(session, traced(), [replace(rows[0])])[0].remembered]  # in another process
    assert remembered == [False, True, False]


def test_where_there_is_no_time_each_value_is_still_made_alone(tmp_path: Path) -> None:
    """Of a table that is filled cell by cell the cheapest cuts are long texts: those of twenty cells took eight seconds
    of a budget of none."""

    def filled(x: np.ndarray) -> np.ndarray:
        table = np.zeros_like(x)
        for i in range(1, 4):
            for j in range(1, 4):
                table[i, j] = np.minimum(table[i - 1, j], table[i, j - 1]) + x[i, j]
        return table

    block = cut(expand(trace(filled, {"x": np.ones((4, 4), np.float32)}).graph))[0]
    with Session.open(Options.of(table=tmp_path / "t.duckdb", threads=1), Events()) as session:
        at = block_search.saturated(session, block)
        space, roots = block_search.make_space(session.kernels, at.lowered, at.saturation.snapshot)
        every, few = (block_search.grow_all(space, until).rows for until in (Deadline(None), Deadline(0.0)))
        assert len(few) < len(every) / 2
        assert block_search._whole(space, few, roots), "there must be a plan"
