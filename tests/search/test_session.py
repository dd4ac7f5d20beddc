"""What a session does beside the search, and what is left of it when it is closed."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from waxeq.backend.call import Call
from waxeq.backend.kernel import Kernel
from waxeq.cost.estimate import Estimate
from waxeq.cost.key import Timing, TimingKey
from waxeq.cost.table import TimingTable
from waxeq.errors import RuleError
from waxeq.events import Deadline, Events
from waxeq.frontend.trace import trace
from waxeq.ir.blocks import cut
from waxeq.ir.graph import expand
from waxeq.options import Options
from waxeq.plan.schedule import BlockPlan
from waxeq.search import block as blocks_search
from waxeq.search import blocks
from waxeq.search.block import Optimized
from waxeq.search.choosing import choose
from waxeq.search.contest import foresee
from waxeq.search.session import Session


def opened(folder: Path, **more: object) -> Session:
    return Session.open(Options.of(**{"table": folder / "t.duckdb", "threads": 1, **more}), Events())


def test_the_collector_is_as_it_was_when_a_session_is_closed(tmp_path: Path) -> None:
    before = gc.get_threshold()
    with opened(tmp_path):
        assert gc.get_threshold()[0] > before[0]
    assert gc.get_threshold() == before
    gc.set_threshold(0)
    try:
        with opened(tmp_path):
            assert gc.get_threshold()[0] == 0, "who turned it off wants it off"
    finally:
        gc.set_threshold(*before)


def test_nothing_is_timed_while_something_is_worked_out_beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go, timed = threading.Event(), []
    with opened(tmp_path) as session:
        rows, _, _ = _candidates(session)
        slow = session.beside(lambda: go.wait(60))
        monkeypatch.setattr("waxeq.runtime.timing.Bench.time", lambda *a: timed.append(slow.done()) or _stop())
        threading.Timer(0.2, go.set).start()
        with pytest.raises(InterruptedError):
            session.measure([rows[0].call])
    assert timed == [True]


def test_of_several_visits_the_lower_quartile_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    took, order = iter((3.0, 30.0, 1.0, 10.0, 2.0, 20.0)), list[str]()

    def time(bench: object, kernel: object, call: Call, key: TimingKey, seconds: float) -> Timing:
        order.append(key.digest)
        return Timing(key, (next(took),), 0.0, 0.0, {}, 1.0)

    monkeypatch.setattr("waxeq.runtime.timing.Bench.time", time)
    with opened(tmp_path) as session:
        calls = [c.call for c in _candidates(session)[0][:2]]
        assert session.measure(calls, visits=3) == 2
        found = session.table.lookup(map(session.prices.key, calls))
    assert [found[session.prices.key(c)].samples for c in calls] == [(1.0,), (10.0,)]
    assert order == 3 * [session.prices.key(c).digest for c in calls], "each is timed again after all others"


def test_what_was_timed_is_kept_when_a_later_call_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A calibration times two thousand calls between two looks at the table."""
    seen = list[TimingKey]()

    def time(bench: object, kernel: object, call: Call, key: TimingKey, seconds: float) -> Timing:
        if seen:
            raise InterruptedError
        seen.append(key)
        return Timing(key, (1.0,), 0.0, 0.0, {}, 1.0)

    monkeypatch.setattr("waxeq.runtime.timing.Bench.time", time)
    with opened(tmp_path) as session:
        with pytest.raises(InterruptedError):
            session.measure([c.call for c in _candidates(session)[0][:3]])
        assert session.table.lookup(seen) and session.once == set(seen)


def test_what_fails_beside_fails_where_it_is_asked_for(tmp_path: Path) -> None:
    def fails() -> None:
        raise RuleError("no such rule")

    with opened(tmp_path) as session, pytest.raises(RuleError, match="no such rule"):
        session.beside(fails).result()


def test_slower_loops_are_looked_at_only_where_the_swift_ones_do_not_run(tmp_path: Path) -> None:
    with opened(tmp_path) as session:
        if "native.loops_fast" not in session.kernels:
            pytest.skip("no C compiler is installed")
        rows, space, roots = _candidates(session)
        makers = {r.call.kernel for r in rows}
        assert "native.loops_fast" in makers and not any(n.startswith("numpy.loops") for n in makers)
        without = {n: k for n, k in space.kernels.items() if not n.startswith("native.")}
        rest = {r.call.kernel for r in blocks_search.grow(replace(space, kernels=without), roots).rows}
        assert any(n.startswith("numpy.loops") for n in rest)


def test_products_run_on_the_threads_of_the_loops_around_them(tmp_path: Path) -> None:
    """A BLAS leaves its own spinning; and what would be the same call of it is timed once."""
    x, w = (np.random.default_rng(i).standard_normal((64, 64)).astype(np.float32) for i in range(2))
    with opened(tmp_path) as session:
        if "native.products" not in session.kernels:
            pytest.skip("no C compiler is installed")
        (block,) = cut(expand(trace(lambda x, w: np.tanh(x @ w), {"x": x, "w": w}).graph))
        at = blocks_search.saturated(session, block)
        space, roots = blocks_search.make_space(session.kernels, at.lowered, at.saturation.snapshot)
        makers = {(c.out, frozenset(c.inputs), c.call.kernel) for c in blocks_search.grow(space, roots).rows}
        ours = {row[:2] for row in makers if row[2].startswith("native.")}
        theirs = {row[:2] for row in makers if row[2] in ("numpy.gemm", "numpy.contract")}
        assert ours and not ours & theirs


def test_a_block_measures_for_its_share_of_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path) as session:
        rows, _, _ = _candidates(session)
        call = rows[0].call
        session.share(0.0)
        assert session.pressed and not session.hurried
        assert session.measure([call]) == 0 and session.skipped == 1
        session.share(1.0)
        assert not session.pressed
        now = [0.0]
        monkeypatch.setattr(session, "deadline", Deadline(10.0, lambda: now[0]))
        now[0] = 7.0
        session.share(1.0)
        assert session.pressed and session.hurried, "what is left is for the trial"


def test_growing_and_choosing_end_when_the_user_wants_to_stop(tmp_path: Path) -> None:
    """After Ctrl-C a search went on growing candidates for up to 27 s."""
    with opened(tmp_path) as session:
        growing, choosing = session.growing(), session.choosing()
        assert not growing.expired and not choosing.expired
        session.events.request_stop()
        assert growing.expired and choosing.expired and session.growing().expired


def test_a_call_that_takes_longer_than_there_is_time_is_not_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of 100 ms used up a budget of a second, for an estimate that is right within a tenth; others are timed."""
    with opened(tmp_path) as session:
        rows, _, _ = _candidates(session)
        long, short = list({session.prices.key(r.call): r.call for r in rows}.values())[:2]
        of, timed = session.prices.of, _noted(session, monkeypatch)

        def slower(calls: Sequence[Call]) -> list[Estimate]:
            return [replace(e, seconds=3.0 if c is long else 1e-3) for c, e in zip(calls, of(calls), strict=True)]

        monkeypatch.setattr(session.prices, "of", slower)
        session.deadline, session.kept = Deadline(5.0), 0.0
        session.measure([long, short])
        assert timed == [short] and session.skipped == 1


def test_what_there_is_no_time_to_time_is_not_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five kernels were compiled in what was left of a second, and none of them was timed then."""
    with opened(tmp_path) as session:
        rows, _, _ = _candidates(session)
        calls = list({session.prices.key(r.call): r.call for r in rows}.values())[:5]
        of, compiled, timed = session.prices.of, list[Call](), _noted(session, monkeypatch)
        monkeypatch.setattr(session.prices, "of", lambda calls: [replace(e, seconds=1.0) for e in of(calls)])
        monkeypatch.setattr("waxeq.search.readying.prepare", lambda rows, seconds: compiled.extend(c for _, c in rows))
        session.deadline, session.kept = Deadline(5.0), 0.0
        session.measure(calls)
        assert compiled == timed == calls[:2] and session.skipped == 3


def test_what_kernels_take_to_be_compiled_is_reckoned_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: all that a search of 8 s wanted to time was compiled for a GPU at once, and nothing was timed."""
    with opened(tmp_path) as session:
        rows, _, _ = _candidates(session)
        calls = list({session.prices.key(r.call): r.call for r in rows}.values())[:5]
        timed = _noted(session, monkeypatch)
        monkeypatch.setattr(Kernel, "compiling", 1.5)
        session.deadline, session.kept = Deadline(5.0), 0.0
        session.measure(calls)
        assert timed == calls[:3] and session.skipped == 2


def test_what_was_compiled_before_says_nothing_of_the_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path) as session:
        rows, _, _ = _candidates(session)
        calls = [rows[0].call, rows[-1].call]
        monkeypatch.setattr("waxeq.search.readying.prepare", lambda rows, seconds: None)
        assert session.require_ready(calls) and session.usual_seconds == 0.0
        monkeypatch.setattr("waxeq.search.readying.prepare", lambda rows, seconds: time.sleep(0.04))
        assert session.require_ready(calls) and session.usual_seconds > 0.1 > session.compiling_seconds


def test_a_search_looks_on_while_it_can_time_something(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is cautious from when nothing that matters can be timed any more, not from the first call left out."""
    moods, rounds = list[str](), list[int]()
    with opened(tmp_path) as session:
        rows, space, roots = _candidates(session)
        problem = session.prices.problem

        def asked(*given: object, mood: str) -> object:
            if mood != "hopeful":
                moods.append(mood)
            return problem(*given, mood=mood)  # pyright: ignore[reportArgumentType]

        def measure(calls: Sequence[Call], **more: object) -> int:
            rounds.append(len(calls))
            session.skipped += 1
            return int(len(rounds) == 1)

        monkeypatch.setattr(session.prices, "problem", asked)
        monkeypatch.setattr(session, "measure", measure)
        assert choose(session, space, rows, roots) is not None
    assert moods[:3] == ["expected", "expected", "cautious"]


def test_heavy_blocks_come_first_and_have_more_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = np.ones((8, 8), np.float32), np.ones((8, 8), np.float32)
    light, heavy = (
        cut(expand(trace(f, {"x": x, "w": w}).graph))[0]
        for f in (lambda x, w: np.tanh(np.exp(np.sin(x) + w) * x), lambda x, w: x @ w @ x @ w)
    )
    came: list[str] = []
    parts: list[float] = []
    found = Optimized(light, BlockPlan({}, (), (), {}), False)
    with opened(tmp_path) as session:
        monkeypatch.setattr(blocks, "search_block", lambda s, b, f: came.append(b.key) or replace(found, block=b))
        monkeypatch.setattr(blocks, "remember", lambda *a: None)
        monkeypatch.setattr(Session, "share", lambda s, part, of_all=None: parts.append(part))
        monkeypatch.setattr(Session, "hurried", True)
        blocks.searched(session, [light, heavy])
        blocks.searched(session, [light] * 99 + [heavy])
    assert came == [heavy.key, light.key, light.key, heavy.key], "what occurs often has most to compute"
    assert 0.5 < parts[0] < 1 and parts[1:3] == [1.0, 1.0], "the last one has what is left"


def test_a_quick_model_leaves_more_of_the_budget_for_searching(tmp_path: Path) -> None:
    with opened(tmp_path, budget=100.0) as session:
        usual = session.kept
        session.share(0.5)
        was = session.until
        foresee(session, 2.5, 0, begun=True)
        assert usual > session.kept > 0.39 and not session.took, "a slow one has hardly less"
        foresee(session, 3.0, 0, begun=True)
        assert 0.18 < session.kept < 0.19 and session.took == 3.0, "too slow for a contest: what few runs take"
        foresee(session, 0.01, 0, begun=True)
        assert session.kept < 0.03 and not session.took
        assert session.until == pytest.approx(was + 0.5 * 100 * (usual - session.kept)), "and the block its part of it"
        foresee(session, 0.01, 0, begun=False)
        assert session.kept < 0.03
    with opened(tmp_path, budget=100.0) as session:
        foresee(session, 0.01, 1 << 30, begun=True)
        assert 0.10 < session.kept < 0.11, "what is large takes long to prove"


def test_kernels_that_turn_out_not_to_run_are_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The block is grown again for those that are left, which were not looked at beside the others."""
    from waxeq.errors import WaxeqError

    def broken(rows: object) -> None:
        raise WaxeqError("the disk is full")

    with opened(tmp_path, trial=False) as session:
        native = [k for n, k in session.kernels.items() if n.startswith("native.")]
        if not native:
            pytest.skip("no C compiler is installed")
        for kind in {type(k) for k in native}:
            monkeypatch.setattr(kind, "prepare", staticmethod(broken))
        (block,) = cut(expand(_traced().graph))
        found = blocks_search.search_block(session, block)
        used = {s.call.kernel for s in found.plan.steps}
        assert used and not any(n.startswith("native.") for n in used)
        assert not found.note and any("the disk is full" in n for n in session.remarks)


def _noted(session: Session, monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """The calls that a session will be about to time: none of them is."""
    timed = list[Call]()
    monkeypatch.setattr(session, "_timed", lambda call, seconds: timed.append(call))
    monkeypatch.setattr(session, "_keep", lambda *rows: None)
    monkeypatch.setattr("waxeq.search.session._quiet", lambda found: SimpleNamespace(key=str(found)))
    return timed


def _stop() -> None:
    raise InterruptedError


def _traced():
    x = np.random.default_rng(0).standard_normal((40, 48)).astype(np.float32)
    return trace(lambda x: np.exp(x) * 2 + np.tanh(x), {"x": x})


def _candidates(session: Session):
    (block,) = cut(expand(_traced().graph))
    at = blocks_search.saturated(session, block)
    space, roots = blocks_search.make_space(session.kernels, at.lowered, at.saturation.snapshot)
    return blocks_search.grow(space, roots).rows, space, roots


@pytest.mark.parametrize(("budget", "when"), [(None, "tidy"), (3.0, "tidy_at_exit")])
def test_where_somebody_waits_the_table_is_tidied_when_the_process_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, budget: float | None, when: str
) -> None:
    found = list[str]()
    for name in ("tidy", "tidy_at_exit"):
        monkeypatch.setattr(TimingTable, name, lambda table, name=name: found.append(name))
    with Session.open(Options.of(table=tmp_path / "t.duckdb", budget=budget, threads=1), Events()):
        assert found == []
    assert found == [when]
