"""In which order a profile times calls, that it begins none its budget has no room for, and which plan was fastest."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from waxeq.cost.estimate import Estimate
from waxeq.events import Deadline, Events
from waxeq.extract.detour import Worth
from waxeq.runtime.measure import Samples
from waxeq.search.paths import Path
from waxeq.search.profile import BATCH, Profiled, _kernels, _side_by_side
from waxeq.search.trials import Ran

pytestmark = pytest.mark.quick


class Stage:
    """A model laid out whose calls are `sizes` bytes large; those named in `decisive` could change the winner. Each
    timing takes a second of a clock of its own."""

    def __init__(self, sizes: dict[str, int], decisive: str) -> None:
        self.now, self.timed, self.decisive = 0.0, [], decisive
        self.calls = [SimpleNamespace(name=n, bytes_read=0, out=SimpleNamespace(bytes=b)) for n, b in sizes.items()]
        prices = SimpleNamespace(key=lambda c: c.name, of=lambda calls: [Estimate(0.01, 0, 1, "fitted")] * len(calls))
        self.session: Any = SimpleNamespace(
            prices=prices, events=Events(), stopped=False, measure=self.measure, share=lambda part: None
        )

    def ranked(self) -> list[tuple[Worth, Any]]:
        rows = [(Worth(0.0, 0.0, c.name in self.decisive), c) for c in self.calls if c.name not in self.timed]
        return sorted(rows, key=lambda row: not row[0].possible)

    def measure(self, calls: list[Any], seconds: float) -> int:
        assert self.session.deadline.clock == self.clock, "the session's own clock is what ends a batch"
        assert len(calls) <= BATCH
        for c in calls:
            self.timed.append(c.name)
            self.now += 1.0
        return len(calls)

    def clock(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def own_lock(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAXEQ_TIMING_LOCK", str(tmp_path / "lock"))


def test_what_could_change_the_winner_is_timed_before_all_others() -> None:
    names = "".join(map(chr, range(ord("a"), ord("a") + 2 * BATCH)))
    stage: Any = Stage(dict.fromkeys(names, 1000), names[-BATCH - 3 :])
    assert _kernels(stage, Deadline(None, stage.clock)) == (len(names), BATCH + 3)
    assert "".join(stage.timed) == names[-BATCH - 3 :] + names[: -BATCH - 3]


def test_a_call_that_the_budget_has_no_room_for_is_not_begun() -> None:
    stage: Any = Stage({"a": 1000, "L": 3 << 30, "b": 1000}, "L")
    assert _kernels(stage, Deadline(8.0, stage.clock)) == (2, 0)
    stage = Stage({"a": 1000, "L": 3 << 30, "b": 1000}, "a")
    assert _kernels(stage, Deadline(8.0, stage.clock)) == (2, 1) and "L" not in stage.timed
    stage = Stage({"a": 1000, "L": 3 << 30, "b": 1000}, "a")
    assert _kernels(stage, Deadline(60.0, stage.clock)) == (3, 1)


class Rivals:
    """A block that one call makes, any of several: what each took the first time, and what it takes at best."""

    def __init__(self, first: dict[str, float], best: dict[str, float]) -> None:
        self.seconds, self.best, self.turns = dict(first), best, list[str]()
        self.calls = [SimpleNamespace(name=n) for n in first]
        self.session: Any = SimpleNamespace(
            prices=SimpleNamespace(key=lambda c: c.name), events=Events(), stopped=False, once=set(first),
            measure=self.measure,
        )  # fmt: skip

    def listings(self) -> dict[str, Any]:
        return {
            "block": SimpleNamespace(calls=[SimpleNamespace(candidate=SimpleNamespace(call=c)) for c in self.calls])
        }

    def menu(self, listings: dict[str, Any]) -> Any:
        cheapest = sorted(range(len(self.calls)), key=lambda i: self.seconds[self.calls[i].name])
        return SimpleNamespace(cheapest=lambda: (Path(1.0, ((i,),)) for i in cheapest))

    def measure(self, calls: list[Any], each: float, visits: int) -> int:
        assert visits > 1
        for c in calls:
            self.turns.append(c.name)
            self.session.once.discard(c.name)
            self.seconds[c.name] = self.best[c.name]
        return len(calls)


def test_calls_of_the_cheapest_plans_are_timed_again_until_they_are_the_cheapest_still() -> None:
    """One that was lucky the first time falls behind, and what takes its place is timed again too; nothing else is."""
    rivals: Any = Rivals({"a": 1.0, "b": 2.0, "c": 3.0, "d": 9.0}, {"a": 5.0, "b": 2.0, "c": 2.5, "d": 1.0})
    assert _side_by_side(rivals, 2, Deadline(None)) == 3
    assert rivals.turns == ["a", "b", "c"]
    rivals.session.once = {"d"}
    assert _side_by_side(rivals, 2, Deadline(None)) == 0, "what was timed at several moments is left as it is"
    over: Any = Rivals({"a": 1.0}, {"a": 1.0})
    assert _side_by_side(over, 1, Deadline(0.0)) == 0


def test_plans_that_no_timing_tells_from_the_fastest_are_named() -> None:
    """Of two whose calls are slow and fast in the same rounds, the one that is always a tenth slower is told apart; the
    one that is a little slower now and a little faster then is not, though its median is above the least."""
    rounds = [1.0, 1.3, 0.9, 2.0, 1.1, 1.0, 0.95, 1.6, 1.2, 1.05, 0.92, 1.4]
    off = [1.01, 0.99, 1.01, 1.02, 0.98, 1.01, 1.01, 0.99, 1.01, 1.0, 0.98, 1.02]
    took = [[r * 1.1 for r in rounds], rounds, [r * f for r, f in zip(rounds, off, strict=True)]]
    menu: Any = None
    plans = tuple((Path(1.0, ()), Ran(Samples(tuple(s)), 0.0, 0.0, 0, 1.0, 1)) for s in took)
    done = Profiled(0, 0, 0, 0, plans, menu, finished=True, interrupted=False, seconds=0.0)
    assert done.fastest == {1, 2} and done.winner in done.fastest
    assert Profiled(0, 0, 0, 0, (), menu, finished=True, interrupted=False, seconds=0.0).fastest == frozenset()
