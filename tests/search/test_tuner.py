"""Variants of what was chosen: timed afterwards, and taken where they are faster."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from waxeq.backend.call import Call, View
from waxeq.backend.kernel import Kernel
from waxeq.cost.estimate import Estimate
from waxeq.cost.key import Timing, TimingKey
from waxeq.events import Events
from waxeq.extract.candidates import variants
from waxeq.extract.paths import paths
from waxeq.frontend.trace import trace
from waxeq.ir.blocks import cut
from waxeq.ir.graph import expand
from waxeq.options import Options
from waxeq.runtime.timing import Bench
from waxeq.search import block as blocks_search
from waxeq.search import choosing, tuner, widening
from waxeq.search.session import Session
from waxeq.search.tuner import promises


def _session(folder: Path, **more: Any) -> Session:
    return Session.open(Options.of(**{"table": folder / "t.duckdb", "threads": 2, "trial": False, **more}), Events())


def _found(session: Session) -> blocks_search.Optimized:
    """A chain over 64 x 64: one piece for the usual loops, several for narrow ones."""
    x = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    (block,) = cut(expand(trace(lambda x: np.maximum(x * x + x, 0) * x, {"x": x}).graph))
    if "native.loops_narrow" not in session.kernels:
        pytest.skip("no C compiler is installed")
    return blocks_search.search_block(session, block)


def _timed_as(monkeypatch: pytest.MonkeyPatch, variant: float) -> list[str]:
    """Timings by decree: a millisecond, and `variant` of that for variants. The kernels that were timed."""
    timed: list[str] = []

    def time_(self: object, kernel: Kernel, call: Call, key: TimingKey, seconds: float) -> Timing:
        timed.append(call.kernel)
        each = 1e-3 * (variant if kernel.variant_of else 1.0)
        return Timing(key, (each,) * 8, 0.0, 0.0, dict(kernel.features(call)), time.time())

    monkeypatch.setattr("waxeq.runtime.timing.Bench.time", time_)
    return timed


@pytest.mark.parametrize(("takes", "wins"), [(0.5, True), (0.99, False), (1.0, False), (2.0, False)])
def test_a_variant_is_taken_where_it_is_faster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, takes: float, wins: bool
) -> None:
    timed = _timed_as(monkeypatch, takes)
    with _session(tmp_path) as session:
        found = _found(session)
        used = {s.call.kernel for s in found.plan.steps}
        assert any(session.kernels[n].variant_of for n in timed)
        assert any(session.kernels[n].variant_of for n in used) == wins
        assert found.problem is not None and found.choice is not None
        found.choice.check(found.problem)
        # a variant that saves too little to be taken makes its like needless, which is what was chosen
        assert next(islice(paths(found.problem, found.choice), 1, None), None) is not found.choice


@pytest.mark.parametrize(("takes", "promised", "tried"), [
    (0.9, True, True), (1.1, True, True), (2.0, True, False), (0.5, True, False), (1.1, False, False),
])  # fmt: skip
def test_the_other_way_is_tried_too_where_both_took_about_as_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, takes: float, promised: bool, tried: bool
) -> None:
    """A shared machine may have been slow while the one was timed; whole plans are timed by turns."""
    _timed_as(monkeypatch, takes)
    monkeypatch.setattr(tuner, "_MUCH", -1e9 if promised else 1e9)
    with _session(tmp_path) as session:
        found = _found(session)
        assert found.problem is not None and found.choice is not None
        varied = [
            {p.candidate.out for p in c.in_order() if session.kernels[p.candidate.call.kernel].variant_of}
            for c in (found.choice, *found.beaten)
        ]
        assert bool(varied[0]) == (takes < 0.98)
        assert any(v != varied[0] for v in varied[1:] if v or varied[0]) == tried
        for c in found.beaten:
            c.check(found.problem)


def test_variants_are_compared_with_what_was_chosen_as_it_is_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call was timed in a quiet moment, and both take four times as long while they are timed by turns."""
    _timed_as(monkeypatch, 0.5)
    quiet = Bench.time
    seen = set[str]()

    def time_(self: Bench, kernel: Kernel, call: Call, key: TimingKey, seconds: float) -> Timing:
        found, slow = quiet(self, kernel, call, key, seconds), call.text in seen
        seen.add(call.text)
        return replace(found, samples=tuple(4 * s for s in found.samples)) if slow else found

    monkeypatch.setattr(Bench, "time", time_)
    with _session(tmp_path) as session:
        used = {s.call.kernel for s in _found(session).plan.steps}
        assert any(session.kernels[n].variant_of for n in used)


def test_variants_are_timed_last_and_only_of_what_was_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timed = _timed_as(monkeypatch, 0.5)
    with _session(tmp_path) as session:
        found = _found(session)
        kinds = [bool(session.kernels[n].variant_of) for n in timed]
        first = kinds.index(True)
        again = {n for n, varies in zip(timed[first:], kinds[first:], strict=True) if not varies}
        assert again and again <= set(timed[:first]), "variants come after the search, by turns with what was chosen"
        assert found.space is not None
        rows = blocks_search.grow(found.space, found.choice.roots if found.choice else ()).rows
        assert not any(session.kernels[c.call.kernel].variant_of for c in rows)
        ways = [v for c in rows for v in variants(found.space, c)]
        assert ways and all(session.kernels[v.call.kernel].variant_of for v in ways)


def test_what_promises_much_is_timed_before_choices_are_widened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A short search of convolutions ended after widening, and their way by fewer products was never timed."""
    timed = _timed_as(monkeypatch, 0.5)
    varied: list[bool] = []

    def widened(session: Session, space: Any, rows: Any, roots: Any, chosen: Any, text: Any = None) -> widening.Widened:
        varied.append(any(session.kernels[n].variant_of for n in timed))
        assert {id(p.candidate) for p in chosen.choice.in_order()} <= {id(c) for c in rows}
        return widening.Widened(chosen, rows)

    monkeypatch.setattr(blocks_search, "widened", widened)
    monkeypatch.setattr(blocks_search, "promises", lambda *_: True)
    with _session(tmp_path) as session:
        _found(session)
    assert varied == [True]


@pytest.mark.parametrize("much", [True, False])
def test_when_time_gets_short_the_rest_is_for_what_promises_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, much: bool
) -> None:
    """Other choices are not tried any more; without a promise they are, as long as there is time."""
    timed = _timed_as(monkeypatch, 0.5)
    monkeypatch.setattr(choosing, "_TUNING", float("inf"))
    monkeypatch.setattr(choosing, "promises", lambda *_: much)
    rounds: list[int] = []
    measure = Session.measure

    def counted(self: Session, calls: Sequence[Call], *args: Any, **more: Any) -> int:
        found = measure(self, calls, *args, **more)
        if not any(self.kernels[n].variant_of for n in timed):  # what comes after tuning may be timed again
            rounds.append(found)
        return found

    monkeypatch.setattr(Session, "measure", counted)
    with _session(tmp_path) as session:
        _found(session)
        assert any(session.kernels[n].variant_of for n in timed)
        assert (len(rounds) == 1) == much


@pytest.mark.parametrize(("part", "much"), [(0.5, True), (0.95, False)])
def test_a_variant_promises_much_that_is_expected_to_save_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: float, much: bool
) -> None:
    with _session(tmp_path, measure=False) as session:
        found = _found(session)
        assert found.space is not None and found.choice is not None
        each = part * min(p.cost for p in found.choice.in_order())
        guess = Estimate(each, 0.0, 1.0, "fitted")
        monkeypatch.setattr(type(session.prices), "of", lambda self, calls: [guess] * len(calls))
        assert promises(session, found.space, found.choice) == much
        measured = replace(guess, source="measured")
        monkeypatch.setattr(type(session.prices), "of", lambda self, calls: [measured] * len(calls))
        assert not promises(session, found.space, found.choice), "it was timed"


def test_nothing_is_tuned_that_is_not_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timed = _timed_as(monkeypatch, 0.5)
    with _session(tmp_path, measure=False) as session:
        assert not any(session.kernels[s.call.kernel].variant_of for s in _found(session).plan.steps)
    assert not timed


def test_a_variant_that_does_the_same_is_none(tmp_path: Path) -> None:
    with _session(tmp_path) as session:
        found = _found(session)
        (call,) = {s.call.kernel: s.call for s in found.plan.steps if s.call.kernel.startswith("native.")}.values()
        small = dict.fromkeys(call.sizes, 3)
        views = tuple(View.dense(v.axes, small, v.dtype) for v in call.operands)
        few = Call("native.loops_narrow", call.meaning, small, views, View.dense(call.out.axes, small, call.out.dtype))
        kernel = session.kernels["native.loops_narrow"]
        assert kernel.accepts(few) and not kernel.differs(few) and kernel.differs(replace(call, kernel=few.kernel))
