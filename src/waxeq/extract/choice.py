"""The chosen calls: which candidate makes each state, in an order that runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from waxeq.cost.estimate import Estimate
from waxeq.extract.candidates import Candidate, State

Mood = Literal["hopeful", "expected", "cautious"]
"""Which end of its interval an estimate counts as, where nothing was measured: the least it may take, what it is
expected to take, or the most."""


_AT_BEST = 8.0
"""How many times faster than expected a call is hoped to be at most: with intervals as wide as those of what is like
nothing that was timed, calls of seconds would be timed in the hope of microseconds."""


@dataclass(frozen=True, slots=True)
class Priced:
    """A candidate and its predicted time. The price of what was not measured depends on the mood."""

    candidate: Candidate
    estimate: Estimate
    mood: Mood = "expected"

    @property
    def cost(self) -> float:
        e = self.estimate
        if e.source == "measured" or self.mood == "expected":
            return e.seconds
        return e.high if self.mood == "cautious" else max(e.low, e.seconds / _AT_BEST)


@dataclass(frozen=True)
class Problem:
    """Priced candidates by the state they make; `roots` must be made, `given` states are there for nothing. `spare` are
    candidates that no cheapest choice needs, as another one costs no more and reads no more."""

    makers: Mapping[State, tuple[Priced, ...]]
    roots: tuple[State, ...]
    given: frozenset[State]
    spare: Mapping[State, tuple[Priced, ...]] = field(default_factory=dict)

    @property
    def candidates(self) -> tuple[Priced, ...]:
        return tuple(p for rows in self.makers.values() for p in rows)

    def ways(self, state: State) -> tuple[Priced, ...]:
        """All candidates that make a state, those last that no cheapest choice needs."""
        return (*self.makers.get(state, ()), *self.spare.get(state, ()))

    def having(self, choice: Choice) -> Problem:
        """The same, with the calls of a choice among the candidates where another one makes them needless."""
        makers = dict(self.makers)
        for p in choice.in_order():
            if all(q is not p for q in makers[p.candidate.out]):
                makers[p.candidate.out] = (*makers[p.candidate.out], p)
        spare = {s: tuple(p for p in rows if all(p is not q for q in makers[s])) for s, rows in self.spare.items()}
        return replace(self, makers=makers, spare=spare)

    def alone(self, choice: Choice) -> Choice:
        """The same calls, those that were priced as parts of one loop each on its own."""
        own = {id(p.candidate): p for rows in (self.spare, self.makers) for ps in rows.values() for p in ps}
        made = {s: own[id(p.candidate)] for s, p in choice.made.items()}
        return replace(choice, made=made, cost=sum(p.cost for p in made.values()))


@dataclass(frozen=True)
class Choice:
    """One maker for each state that is needed. `cost` is the predicted seconds of all calls, shared work counted
    once. `timed_out`: the clock ended the search for it, so another run may choose otherwise.
    """

    made: Mapping[State, Priced]
    roots: tuple[State, ...]
    cost: float
    bound: float | None = None
    method: str = "greedy"
    runners_up: Mapping[State, Priced] = field(default_factory=dict)
    timed_out: bool = False

    @property
    def gap(self) -> float | None:
        """(cost - bound) / cost, when a bound was proved."""
        return None if self.bound is None or self.cost <= 0 else max(0.0, (self.cost - self.bound) / self.cost)

    def in_order(self) -> tuple[Priced, ...]:
        """The calls, operands before their users; only what the roots need."""
        done: dict[State, Priced] = {}
        stack: list[tuple[State, bool]] = [(s, False) for s in reversed(self.roots)]
        open_: set[State] = set()
        while stack:
            s, ready = stack.pop()
            if s in done or s not in self.made:
                continue
            if ready:
                done[s] = self.made[s]
                continue
            if s in open_:
                raise ValueError(f"the choice is cyclic at {s}")
            open_.add(s)
            stack.append((s, True))
            stack.extend((i, False) for i in reversed(self.made[s].candidate.inputs) if i not in done)
        return tuple(done.values())

    def check(self, problem: Problem) -> Choice:
        """Every root and every input is made or given, and nothing needs itself. Returns itself."""
        order = self.in_order()
        have = set(problem.given)
        for p in order:
            missing = [i for i in p.candidate.inputs if i not in have]
            if missing:
                raise ValueError(f"the choice reads {missing[0]}, which nothing makes before it")
            have.add(p.candidate.out)
        if any(r not in have for r in self.roots):
            raise ValueError("the choice does not make every root")
        return self
