"""Choosing among the candidates of a block: choose, measure what the choice hangs on, choose again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from waxeq.backend.call import Call
from waxeq.extract.candidates import Candidate, Space, State
from waxeq.extract.choice import Choice, Mood, Problem
from waxeq.extract.exact import polish
from waxeq.extract.greedy import greedy
from waxeq.search.doubts import decisive, doubted
from waxeq.search.session import Session
from waxeq.search.tuner import promises

_ROUNDS = 12
_HOPEFUL_ROUNDS = 8
_GAIN = 0.98
"""Part of a choice's cost that another must not exceed to be worth measuring for."""
_LOOKS = 2
"""Times that calls which decide are timed again at most."""
_LONG = 0.02
"""Seconds of a call from which on one more visit tells what two tell of a shorter one."""
_POLISHES = 2
"""Times that HiGHS is asked at most: once more when its choice used what was not measured."""
_TUNING = 2.0
"""Rounds as long as the longest so far that there must be time for, or the rest is for tuning, which is one of them."""
_SHARE = 1.5
"""How much of the time that choosing took so far there must be left, or the rest is for tuning too."""


@dataclass(frozen=True)
class Chosen:
    """A choice with the problem it solves, at the prices known when it was made; `beaten` are those that it took
    the place of, the next best first. `measured` counts the timings taken on the way."""

    problem: Problem
    choice: Choice
    beaten: tuple[Choice, ...]
    measured: int


def choose(session: Session, space: Space, rows: Sequence[Candidate], roots: tuple[State, ...]) -> Chosen | None:
    """Choose, measure what the choice hangs on, choose again, until nothing that matters is unmeasured; then polish,
    and measure what only the polished choice uses. None when some root cannot be made.

    What matters is what is chosen when every guess counts as the least it may be: a plan that is no better even so need
    not be tried. After some rounds a guess must promise a gain even at its worst, as there is always one more that
    looks a little better than what was measured; and where there is no time to find out, from the start. In between,
    once, what is doubted is measured, and what was timed a single time and decides is timed again.

    Where its share of the time is over nothing is polished: that would be at guesses, and others wait. When time gets
    short and another way to do what was chosen promises much, the rest of it is for tuning.

    Whatever was measured last, the choice and the greedy one it is better than are priced alike, by the problem given.
    Once a kernel turned out not to run here, the choice is of no use.
    """
    rounds = _Rounds(session, space, rows, roots)
    found = rounds.one()
    while found is not None and not rounds.over:
        found = rounds.one()
    return found


@dataclass
class _Rounds:
    """How far choosing for one space has come."""

    session: Session
    space: Space
    rows: Sequence[Candidate]
    roots: tuple[State, ...]
    over: bool = False
    """Whether there is no reason for another round."""
    count: int = 0
    longest: float = 0.0
    """Seconds that the longest round took."""
    spent: float = 0.0
    """Seconds that all rounds took."""
    measured: int = 0
    polished: int = 0
    doubts: int = 0
    looks: int = 0
    short: bool = False
    """Whether calls that matter are left untimed for want of time: guesses are no longer given the benefit."""
    tight: bool = False
    """Whether the rest of the time is for tuning."""

    def one(self) -> Chosen | None:
        """A choice at the prices of now, once what it hangs on was measured; None when some root cannot be made."""
        session, begun = self.session, self.session.deadline.elapsed
        hurried = session.hurried
        looking = session.measuring and self.count < _HOPEFUL_ROUNDS
        looking = looking and not (self.polished or self.short or self.tight or hurried)
        unusable = len(session.prices.excluded)
        problem = self._problem("expected" if looking or not session.measuring else "cautious")
        choice = start = greedy(problem, session.choosing())
        if start is None or choice is None:
            return None
        session.chose = session.deadline.elapsed - begun
        if all(p.estimate.source == "measured" for p in start.made.values()):
            session.promised(start.cost)
        if self.tight:
            self.over = True
            return Chosen(problem, choice, (), self.measured)
        new = self._looked(start, looking) or self._looked_again(problem, start)
        untold = looking and self.short  # nobody has the time to find out
        if new == 0 and not untold and session.options.polish and not session.pressed:
            self.polished += 1
            choice = polish(problem, start, polish_seconds(session), seed=session.options.seed)
            new = self._timed(choice)
        self.measured, self.count = self.measured + new, self.count + 1
        self.over = (new == 0 and not untold) or len(session.prices.excluded) > unusable or self.count > _ROUNDS
        took = session.deadline.elapsed - begun
        self.longest, self.spent = max(self.longest, took), self.spent + took
        if not self.over and not hurried:
            seconds = max(_TUNING * self.longest, _SHARE * self.spent)
            short = session.measuring and not session.hurried and session.searching < seconds
            self.tight = short and promises(session, self.space, start)
        return Chosen(problem, choice, (start,) if choice.method == "polished" else (), self.measured)

    def _problem(self, mood: Mood) -> Problem:
        return self.session.prices.problem(self.space, self.rows, self.roots, mood=mood)

    def _looked(self, start: Choice, looking: bool) -> int:
        """Time what a choice uses and, while looking, what would be chosen if every guess took the least it may, when
        that would be a gain; how many calls."""
        skipped, tried = self.session.skipped, [start]
        if looking and not self.session.hurried:
            hopeful = greedy(self._problem("hopeful"), self.session.choosing())
            tried += [hopeful] if hopeful is not None and hopeful.cost < _GAIN * start.cost else []
        new = self._timed(*tried)
        self.short = self.short or (new == 0 and self.session.skipped > skipped)
        return new

    def _looked_again(self, problem: Problem, start: Choice) -> int:
        """Time what is doubted, once; then what decides and was timed a single time; how many calls."""
        if not self.session.measuring or self.polished:
            return 0
        new = 0
        if not self.doubts:
            self.doubts, new = 1, self.session.measure(doubted(problem, start))
        if new == 0 and self.looks < _LOOKS:
            self.looks, new = self.looks + 1, again(self.session, problem, start)
        return new

    def _timed(self, *choices: Choice) -> int:
        """Time what choices use; how many calls. Nothing in the last round: its choice would not reckon with it."""
        last = self.count == _ROUNDS or self.polished == _POLISHES
        return self.session.measure(_unmeasured(choices)) if self.session.measuring and not last else 0


def again(session: Session, problem: Problem, choice: Choice) -> int:
    """Time anew what decides and was timed a single time; how many calls. Long ones once more, and the faster time
    counts: within one of them a machine has many moments."""
    if session.pressed or not session.once:
        return 0
    key, known = session.prices.key, session.prices.model.measured
    calls = decisive(problem, choice, key, session.once, session.choosing())
    long = [c for c in calls if known[key(c)].seconds > _LONG]
    timed = session.measure([c for c in calls if c not in long], visits=2) + session.measure(long, again=True)
    session.once.difference_update(map(key, long))
    return timed


def _unmeasured(choices: Iterable[Choice]) -> list[Call]:
    """The calls of choices that were not measured, each once."""
    calls = (p.candidate.call for c in choices for p in c.in_order() if p.estimate.source != "measured")
    return list({(c.kernel, c.text, c.dims, c.layout): c for c in calls}.values())


def polish_seconds(session: Session) -> float:
    """Seconds that HiGHS may take now, which are of the share of the block that is searched, or but a moment more: what
    others are chosen of would be guesses, if there were no time left to measure their calls."""
    return min(session.options.polish_seconds, session.deadline.share(0.2), max(session.least, session.searching))
