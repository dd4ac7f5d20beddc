"""Candidates near a choice: loops that do what two calls or a library's did, and variants of what was not chosen."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import waxeq as wx
from waxeq.backend.call import Call
from waxeq.backend.kernel import Kernel
from waxeq.cost.key import Timing, TimingKey
from waxeq.events import Events
from waxeq.extract.candidates import Candidate, Space
from waxeq.extract.choice import Choice, Problem
from waxeq.extract.greedy import greedy
from waxeq.extract.near import instead, merged, split
from waxeq.frontend.trace import trace
from waxeq.ir.blocks import cut
from waxeq.ir.graph import expand
from waxeq.ir.term import postorder
from waxeq.options import Options
from waxeq.search import widening
from waxeq.search.block import grow, make_space, saturated
from waxeq.search.choosing import choose
from waxeq.search.session import Session

RNG = np.random.default_rng(0)


def skinned(v: np.ndarray, w: np.ndarray, idx: np.ndarray, bones: np.ndarray) -> np.ndarray:
    """Points moved by four weighted bones each."""
    m = (w[:, :, None, None] * bones[idx]).sum(1)
    return np.einsum("nij,nj->ni", m[:, :3, :3], v) + m[:, :3, 3]


SKINNED = {
    "v": RNG.standard_normal((200, 3)).astype(np.float32),
    "w": RNG.random((200, 4), dtype=np.float32),
    "idx": RNG.integers(0, 60, (200, 4)),
    "bones": RNG.standard_normal((60, 4, 4)).astype(np.float32),
}


def quantized(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """A product of numbers that are rounded to eight bits on the way."""
    q = np.clip(np.rint(x / np.float32(0.03)) + np.float32(128), 0, 255).astype(np.uint8)
    return (q.astype(np.int32) - np.int32(128)) @ w.astype(np.int32)


QUANTIZED = {
    "x": RNG.standard_normal((64, 512)).astype(np.float32),
    "w": RNG.integers(-128, 127, (512, 512)).astype(np.int8),
}


def _chain(x: np.ndarray) -> np.ndarray:
    """One piece for the usual loops, several for narrow ones."""
    return np.maximum(x * x + x, 0) * x


class Near(NamedTuple):
    space: Space
    problem: Problem
    choice: Choice


def heads(call: Call) -> set[str]:
    return {t.head for t in postorder(call.meaning)}


def folds(call: Call) -> int:
    return sum(t.head == "Sum" for t in postorder(call.meaning))


@pytest.fixture
def decreed(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Call], float]], None]:
    """Timings by decree: how long a call takes is asked of a function."""

    def decree(seconds: Callable[[Call], float]) -> None:
        def time_(self: object, kernel: Kernel, call: Call, key: TimingKey, least: float) -> Timing:
            return Timing(key, (seconds(call),) * 8, 0.0, 0.0, dict(kernel.features(call)), time.time())

        monkeypatch.setattr("waxeq.runtime.timing.Bench.time", time_)

    return decree


def optimized(
    model: Callable[..., Any], given: Mapping[str, np.ndarray], folder: Path, **more: Any
) -> tuple[list[Call], np.ndarray]:
    folder.mkdir(exist_ok=True)
    options = Options.of(table=folder / "t.duckdb", backends=("native", "numpy"), threads=1, trial=False, **more)
    found = wx.optimize(model, **given, options=options)
    return [s.call for s in found.plan.steps], found.program(*given.values())


def test_calls_that_were_chosen_are_merged_where_growing_cuts_ranked_other_loops_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, decreed: Callable[[Callable[[Call], float]], None]
) -> None:
    """Rough prices rank loops of all of it first, which take longest: a product of each small matrix was made, then its
    sum, then that with a column added, where one loop nest does these."""
    decreed(lambda c: 1e-2 if (folds(c) and "Gather" in heads(c) and "Add" in heads(c)) or folds(c) > 1 else 1e-3)
    calls, result = optimized(skinned, SKINNED, tmp_path)
    np.testing.assert_allclose(result, skinned(**SKINNED), rtol=1e-4, atol=1e-5)
    monkeypatch.setattr(widening, "_TIMES", 0)
    apart, _ = optimized(skinned, SKINNED, tmp_path / "apart")
    assert len(calls) < len(apart)


def near(
    model: Callable[..., Any], given: Mapping[str, np.ndarray], folder: Path, taken: Callable[[Call], bool]
) -> Near:
    """The choice of those calls alone that are taken, among all that there is to choose of."""
    (block,) = cut(expand(trace(model, given).graph))
    folder.mkdir(exist_ok=True)
    options = Options.of(table=folder / "t.duckdb", backends=("native", "numpy"), threads=1, measure=False)
    with Session.open(options, Events()) as session:
        at = saturated(session, block)
        space, roots = make_space(session.kernels, at.lowered, at.saturation.snapshot)
        rows = grow(space, roots).rows
        choice = greedy(session.prices.problem(space, [c for c in rows if taken(c.call)], roots))
        assert choice is not None
        return Near(space, session.prices.problem(space, rows, roots), choice)


def test_loops_of_what_a_library_was_chosen_for_are_tried(tmp_path: Path) -> None:
    """Loops take casts in for nothing by rough prices, and gcc makes no vectors of some of those: nobody timed loops
    of what was cast before, and NumPy's product was chosen, which takes four times as long."""
    found = near(quantized, QUANTIZED, tmp_path, lambda c: not folds(c) or c.kernel == "numpy.contract")
    (product,) = (p for p in found.choice.in_order() if folds(p.candidate.call))
    loops = [c for c, seconds in instead(found.space, found.choice) if seconds == product.cost]
    assert any(c.call.kernel == "native.loops" and c.inputs == product.candidate.inputs for c in loops)
    assert all(c.out == product.candidate.out for c in loops)


def test_what_a_call_computes_again_and_again_is_made_once(tmp_path: Path) -> None:
    """A cast inside of a product is made for each row of the other side: 64 x 512 x 512 took 0.83 ms for 0.42."""

    def taken(c: Call) -> bool:
        return not folds(c) or (c.kernel == "native.loops" and "Cast" in heads(c))

    found = near(quantized, QUANTIZED, tmp_path, taken)
    (product,) = (p for p in found.choice.in_order() if folds(p.candidate.call))
    rest = list(split(*found))
    assert any(folds(c.call) and "Cast" not in heads(c.call) for c, _ in rest)
    assert all(0 < seconds < product.cost and c.out in found.choice.made for c, seconds in rest)


def test_folds_are_timed_one_by_one_where_loops_of_several_take_long(
    tmp_path: Path, decreed: Callable[[Callable[[Call], float]], None]
) -> None:
    """Loops of both sums took 0.3 ms for the 0.08 that they were thought to. All folds were then thought to take four
    times as long, and one after the other, which takes 0.13, was never timed."""
    decreed(lambda c: 1e-2 if folds(c) > 1 else 1e-5)
    (block,) = cut(expand(trace(skinned, SKINNED).graph))
    options = Options.of(table=tmp_path / "t.duckdb", backends=("native", "numpy"), threads=1)
    with Session.open(options, Events()) as session:
        at = saturated(session, block)
        space, roots = make_space(session.kernels, at.lowered, at.saturation.snapshot)
        grown = grow(space, roots)
        nested = [c for c in grown.rows if c.folds > 1]
        chosen = choose(session, space, nested, roots)
        assert chosen is not None and grown.text is not None and widening._nested(chosen.choice)
        found = widening._fold_by_fold(session, space, grown.rows, roots, chosen, grown.text)
        assert not widening._nested(found.choice)
        assert found.choice.cost < chosen.choice.cost
        assert [c.made.keys() for c in found.beaten[-1:]] == [chosen.choice.made.keys()]
        assert found.measured > chosen.measured


def test_variants_of_calls_that_are_no_choice_without_them_are_looked_at(tmp_path: Path) -> None:
    """A product of whole numbers took 24 ms in the usual loops, 0.9 in narrow ones and 1.7 in NumPy: the second search
    of the same model chose NumPy, as variants were looked at for what was chosen alone."""
    x = RNG.standard_normal((64, 64)).astype(np.float32)
    chain = near(_chain, {"x": x}, tmp_path, lambda c: len(heads(c) - {"In", "Num"}) == 1)
    others = [c for c, _ in widening._others(*chain)]
    assert any(c.call.kernel == "native.loops_narrow" for c in others)


def test_variants_of_calls_that_do_the_work_of_two_are_looked_at(tmp_path: Path) -> None:
    """Minimal filtering with what comes after it was none of a convolution's loops alone, which take next to nothing,
    and loops of both took as long as both."""

    def rectified(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        return np.maximum(x @ w, 0)

    def both(call: Call) -> bool:
        return bool(folds(call)) and "Zip" in heads(call)

    given = {k: RNG.standard_normal(n).astype(np.float32) for k, n in (("x", (512, 1024)), ("w", (1024, 512)))}
    found = near(rectified, given, tmp_path, lambda call: not both(call))
    (last,) = found.choice.roots
    assert found.choice.made[last].cost < widening._LEAST * found.choice.cost
    others = {c.call.kernel: now for c, now in widening._others(*found) if both(c.call)}
    assert others["native.products_tall"] == pytest.approx(found.choice.cost)


@pytest.mark.parametrize(("model", "given"), [(skinned, SKINNED), (quantized, QUANTIZED)])
def test_what_is_near_a_choice_makes_the_same_of_no_more_than_there_is(
    model: Callable[..., Any], given: Mapping[str, np.ndarray], tmp_path: Path
) -> None:
    """Pairs of calls in one, loops in the place of libraries, and variants can stand in for what they are for."""
    found = near(model, given, tmp_path, lambda c: True)
    there = {s.number for s in found.problem.given | found.choice.made.keys()}
    made = there | {s.number for s in found.problem.makers}
    loops = [*merged(found.space, found.choice), *instead(found.space, found.choice)]
    for c, seconds in [*loops, *widening._others(*found), *split(*found)]:
        assert c.out in found.choice.made
        assert c.out not in c.inputs
        assert {s.number for s in c.inputs} <= made
        assert found.space.kernels[c.call.kernel].accepts(c.call)
        assert seconds > 0
    assert {s.number for c, _ in loops for s in c.inputs} <= there


def test_nothing_more_is_looked_at_once_time_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops of seventy functions put beside each other take long to build: all of those near were, and a search of 4 s
    took 7.5."""
    events, looked = Events(), list[int]()

    def many(space: Space, choice: Choice) -> Iterator[tuple[Candidate, float]]:
        for i in range(100):
            events.request_stop()
            looked.append(i)
            yield choice.in_order()[0].candidate, 1.0

    monkeypatch.setattr(widening, "merged", many)
    options = Options.of(table=tmp_path / "t.duckdb", backends=("native", "numpy"), threads=1, trial=False)
    wx.optimize(_chain, x=RNG.standard_normal(1000).astype(np.float32), options=options, events=events)
    assert looked == [0]
