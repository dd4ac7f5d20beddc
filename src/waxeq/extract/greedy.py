"""Greedy extraction by DAG cost: the cheapest way to every state, shared work counted once; then better makers one by
one.

After the greedy-dag extractor of the extraction gym: each state keeps its best maker with the *set* of calls below it,
so a call used twice is paid once. A set costs no less than any set it was made from, so states are settled in rising
cost (Knuth's generalisation of Dijkstra's algorithm): every candidate is priced once, and no maker runs in a circle.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from waxeq.events import FOREVER, Deadline
from waxeq.extract.candidates import State
from waxeq.extract.choice import Choice, Priced, Problem
from waxeq.extract.ways import members

K = TypeVar("K", bound=Hashable)
_GAIN = 1 - 1e-9


def greedy(problem: Problem, until: Deadline = FOREVER) -> Choice | None:
    """A good choice, or None when some root cannot be made. Changes are looked for `until` then; a choice that lacks
    some for that is `timed_out`."""
    net = _Net.of(problem)
    cheapest = _cheapest(net)
    if any(r not in cheapest for r in net.roots):
        return None
    local = _Local(net, cheapest)
    over = not local.improve(until)
    made = {p.candidate.out: p for p in (r.priced for r in local.found.values())}
    return Choice(made, problem.roots, sum(p.cost for p in made.values()), method="greedy", timed_out=over)


def followed(problem: Problem, made: Mapping[State, Priced], method: str) -> Choice | None:
    """The choice of what the roots need when states are made as `made` says; None when that lacks a maker or runs in a
    circle."""

    def reads(s: State) -> list[State] | None:
        return [i for i in made[s].candidate.inputs if i not in problem.given] if s in made else None

    order = _needed([r for r in problem.roots if r not in problem.given], reads)
    if order is None:
        return None
    return Choice({s: made[s] for s in order}, problem.roots, sum(made[s].cost for s in order), method=method)


def _needed(roots: Iterable[K], reads: Callable[[K], Iterable[K] | None]) -> list[K] | None:
    """What the roots need, operands first; None when that runs in a circle, or `reads` is None for some of it."""
    done: dict[K, None] = {}
    opened: set[K] = set()
    stack = [(r, False) for r in roots]
    while stack:
        s, ready = stack.pop()
        if s in done:
            continue
        if ready:
            done[s] = None
            continue
        inputs = None if s in opened else reads(s)
        if inputs is None:
            return None
        opened.add(s)
        stack.append((s, True))
        stack += [(i, False) for i in inputs if i not in done]
    return list(done)


@dataclass(frozen=True, slots=True)
class _Row:
    """A candidate: it makes state `out` from `inputs`, those that are given left out."""

    out: int
    inputs: tuple[int, ...]
    cost: float
    priced: Priced


@dataclass(frozen=True)
class _Net:
    """A problem with its states numbered, so that a set of states is an integer. `makers` are sorted by cost."""

    makers: Sequence[Sequence[_Row]]
    users: Sequence[Sequence[_Row]]
    roots: tuple[int, ...]

    @staticmethod
    def of(problem: Problem) -> _Net:
        number = {s: i for i, s in enumerate(problem.makers)}
        for r in problem.roots:
            number.setdefault(r, len(number))
        makers: list[list[_Row]] = [[] for _ in number]
        users: list[list[_Row]] = [[] for _ in number]
        for s, rows in problem.makers.items():
            for p in rows:
                reads = dict.fromkeys(i for i in p.candidate.inputs if i not in problem.given)
                if all(i in number for i in reads):
                    makers[number[s]].append(_Row(number[s], tuple(number[i] for i in reads), p.cost, p))
        for rows in makers:
            rows.sort(key=lambda r: r.cost)
            for r in rows:
                for i in r.inputs:
                    users[i].append(r)
        return _Net(makers, users, tuple(dict.fromkeys(number[r] for r in problem.roots if r not in problem.given)))


def _cheapest(net: _Net) -> dict[int, _Row]:
    """The maker of each state with the cheapest set of calls below it."""
    made: dict[int, _Row] = {}
    total: dict[int, float] = {}
    below: dict[int, int] = {}
    rows = [r for rows in net.makers for r in rows]
    place = {id(r): n for n, r in enumerate(rows)}
    missing = [len(r.inputs) for r in rows]
    heap = [(r.cost, n) for n, r in enumerate(rows) if not r.inputs]
    heapq.heapify(heap)
    while heap:
        price, n = heapq.heappop(heap)
        out = rows[n].out
        if out in made:
            continue
        made[out], total[out] = rows[n], price
        below[out] = 1 << out
        for i in rows[n].inputs:
            below[out] |= below[i]
        for u in net.users[out]:
            m = place[id(u)]
            missing[m] -= 1
            if missing[m] == 0 and u.out not in made:
                first = max(u.inputs, key=lambda i: total[i])
                more = 0
                for i in u.inputs:
                    more |= below[i]
                more &= ~below[first]
                heapq.heappush(heap, (u.cost + total[first] + sum(made[i].cost for i in members(more)), m))
    return made


class _Local:
    """A choice that is made better by small changes.

    The cheapest makers count sharing below a state, not between states: a maker that reads what another call makes
    anyway looks too dear to them. States a change needs and the choice lacks are made as `fallback` says.
    """

    def __init__(self, net: _Net, fallback: Mapping[int, _Row]) -> None:
        self.net, self.fallback = net, fallback
        self._take([fallback[i] for i in _needed(net.roots, lambda i: fallback[i].inputs) or ()])

    def improve(self, until: Deadline) -> bool:
        """Make changes while one makes the whole choice cheaper; whether all were looked at by then."""
        before = float("inf")
        while self.cost < before:
            before = self.cost
            for s in list(self.found):
                if until.expired:
                    return False
                self._make_otherwise(s)
            for s in self.fallback:
                if until.expired:
                    return False
                if s not in self.found:
                    self._share(s)
        return True

    def _take(self, rows: Iterable[_Row]) -> None:
        self.found = {r.out: r for r in rows}
        self.cost = sum(r.cost for r in self.found.values())
        self.uses = dict.fromkeys(self.found, 0)
        for i in (*self.net.roots, *(i for r in self.found.values() for i in r.inputs)):
            self.uses[i] += 1

    def _order(self, change: Mapping[int, _Row]) -> list[int] | None:
        return _needed(self.net.roots, lambda i: r.inputs if (r := self._maker(i, change)) else None)

    def _maker(self, i: int, change: Mapping[int, _Row]) -> _Row | None:
        return change.get(i) or self.found.get(i) or self.fallback.get(i)

    def _change(self, change: Mapping[int, _Row]) -> bool:
        """Take a change if it is for the better; whether it was."""
        order = self._order(change)
        rows = [r for i in order or () if (r := self._maker(i, change))]
        if order is None or sum(r.cost for r in rows) >= self.cost * _GAIN:
            return False
        self._take(rows)
        return True

    def _make_otherwise(self, s: int) -> None:
        """Try other makers of a state."""
        limit = self._freed((s,)) if s in self.found else 0.0
        for r in self.net.makers[s]:
            if r.cost >= limit:
                return  # so are all that follow, and nothing is gained that was not paid
            if r is not self.found[s] and self._change({s: r}):
                limit = self._freed((s,)) if s in self.found else 0.0

    def _share(self, s: int) -> None:
        """Try to make a state that is not made, and everything from it that would be cheaper so, at once."""
        change: dict[int, _Row] = {}
        for r in self.net.users[s]:
            now = change.get(r.out) or self.found.get(r.out)
            if now is not None and r.cost < now.cost and all(i == s or i in self.found for i in r.inputs):
                change[r.out] = r
        if len(change) > 1:
            spent = self.fallback[s].cost + sum(r.cost for r in change.values())
            if spent < self._freed(change):
                self._change(change)

    def _freed(self, states: Collection[int]) -> float:
        """The most that making these states otherwise can save: their makers, and what is made for these alone (the
        maximum fanout-free cone of logic synthesis)."""
        saved, left, stack = sum(self.found[s].cost for s in states), dict[int, int](), list(states)
        while stack:
            for i in self.found[stack.pop()].inputs:
                left[i] = left.get(i, self.uses[i]) - 1
                if left[i] == 0 and i not in states:
                    saved += self.found[i].cost
                    stack.append(i)
        return saved
