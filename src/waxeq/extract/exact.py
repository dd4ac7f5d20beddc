"""Polishing a choice: the best one of all, where they can be walked through; else with HiGHS, the same problem as a
mixed-integer program, warm-started, under a cap of work, gap reported.

One binary per candidate. A needed state has exactly one maker; a maker needs its inputs; a level per state forbids
cycles (Miller-Tucker-Zemlin), only within strongly connected components, where cycles can be. Sources: SPORES (VLDB
2020), Tensat (MLSys 2021) for the formulation.

What ends the search is counted, not timed, for the same problem must have the same answer on a busy machine. Nodes and
improvements would not do: the first node of a large problem takes longer than all of a small one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import isfinite
from typing import Any

from waxeq.extract.candidates import State
from waxeq.extract.choice import Choice, Priced, Problem
from waxeq.extract.greedy import followed
from waxeq.extract.ways import TooMany, ways_of

WORK = 15e6
"""How often HiGHS may ask whether to go on, times the nonzeros of the problem to the power of 1.5, as what lies between
takes about that much longer in larger ones: about half a second of one core."""
_NODES = 6_000
"""Sets of states that are looked at before HiGHS is asked: about a quarter of a second."""
_ASKS = 10
"""It may ask so often at least."""


def polish(
    problem: Problem,
    start: Choice,
    seconds: float,
    *,
    forbid: Iterable[frozenset[int]] = (),
    seed: int = 0,
    work: float = WORK,
) -> Choice:
    """The best choice of all, or the best that HiGHS finds with `work`; never worse than `start`, with the proved lower
    bound.

    `seconds` are for what takes far longer than its work; where they ended the search, the choice is `timed_out`.
    `forbid`: sets of candidate positions (in `problem.candidates`) that must not all be chosen again.
    """
    if not forbid:
        best = _least(problem, start)
        if best is not None:
            return best
    model = _Model(problem, start, seed, seconds, tuple(forbid), work)
    chosen, bound = model.solve()
    late = model.timed_out or start.timed_out
    if chosen is not None:
        made = {p.candidate.out: p for p in chosen}
        found = followed(problem, made, "polished")
        if found is not None and (found.cost < start.cost or model.forbid):
            return Choice(found.made, found.roots, found.cost, bound, "polished", timed_out=late)
    return Choice(start.made, start.roots, start.cost, bound, start.method, timed_out=late)


def _least(problem: Problem, start: Choice) -> Choice | None:
    """The best choice of all, where few states are needed at a time: then it is known soon. None elsewhere."""
    calls = tuple(_relevant(problem).values())
    try:
        found = next(ways_of(calls, problem, _NODES).cheapest(), None)
    except TooMany:
        return None
    if found is None:
        return None
    best = followed(problem, {calls[i].candidate.out: calls[i] for i in found[1]}, "polished")
    if best is None or best.cost >= start.cost:
        return replace(start, bound=start.cost, timed_out=False)
    return replace(best, bound=best.cost)


class _Model:
    def __init__(
        self,
        problem: Problem,
        start: Choice,
        seed: int,
        seconds: float,
        forbid: tuple[frozenset[int], ...],
        work: float,
    ) -> None:
        import highspy

        self.problem, self.start, self.forbid, self.work = problem, start, forbid, work
        self.timed_out = False
        self.rows = _relevant(problem)
        self.h = highspy.Highs()
        for option, value in (("output_flag", False), ("time_limit", seconds), ("random_seed", seed), ("threads", 1)):
            self.h.setOptionValue(option, value)
        self.unit = max(start.cost, 1e-12) / 1000  # seconds are tiny numbers: scale so that tolerances mean something
        self.x = {i: self.h.addBinary(obj=p.cost / self.unit) for i, p in self.rows.items()}
        self._constrain()

    def _constrain(self) -> None:
        makers: dict[State, list[int]] = {}
        for i, p in self.rows.items():
            makers.setdefault(p.candidate.out, []).append(i)
        for r in self.problem.roots:
            if r not in self.problem.given:
                self.h.addConstr(self.h.qsum(self.x[i] for i in makers[r]) >= 1)
        readers: dict[State, dict[State, list[int]]] = {s: {} for s in makers}
        for j, p in self.rows.items():
            for s in dict.fromkeys(p.candidate.inputs):
                if s in readers:
                    readers[s].setdefault(p.candidate.out, []).append(j)
        for s, rows in makers.items():
            for out, group in readers[s].items():
                # of the makers of one state at most one is chosen: one row for all of them; and what is made from s
                # needs s made from something else
                other = [i for i in rows if out not in self.rows[i].candidate.inputs]
                self.h.addConstr(self.h.qsum(self.x[i] for i in other) - self.h.qsum(self.x[j] for j in group) >= 0)
            if s not in self.problem.roots:
                self.h.addConstr(self.h.qsum(self.x[i] for i in rows) <= 1)
        self._forbid_cycles(makers)
        for old in self.forbid:
            inside = [i for i in old if i in self.x]
            self.h.addConstr(self.h.qsum(self.x[i] for i in inside) <= len(inside) - 1)

    def _forbid_cycles(self, makers: dict[State, list[int]]) -> None:
        self.component = component = _components(self.rows.values(), makers)
        self.level = level = {s: self.h.addVariable(0, n - 1) for s, (_, n) in component.items() if n > 1}
        for i, p in self.rows.items():
            out = p.candidate.out
            for s in dict.fromkeys(p.candidate.inputs):
                if s in level and out in level and component[s][0] == component[out][0]:
                    n = component[s][1]
                    self.h.addConstr(level[out] - level[s] >= 1 - n * (1 - self.x[i]))

    def solve(self) -> tuple[list[Priced] | None, float | None]:
        import highspy

        if not self.forbid:
            self._warm_start()
        self._count()
        self.h.minimize()
        info = self.h.getInfo()
        bound = info.mip_dual_bound * self.unit
        status = self.h.getModelStatus()
        self.timed_out = status == highspy.HighsModelStatus.kTimeLimit
        known = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
        if status == highspy.HighsModelStatus.kInfeasible or not known:
            return None, bound if isfinite(bound) else None
        values = self.h.getSolution().col_value
        return [p for i, p in self.rows.items() if values[self.x[i].index] > 0.5], bound if isfinite(bound) else None

    def _count(self) -> None:
        """Have HiGHS stop when it has asked often enough; it asks between the steps of its search, whatever they
        take."""
        left = max(_ASKS, int(self.work / max(1, self.h.getNumNz()) ** 1.5))

        def asked(event: Any) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                event.interrupt()

        self.h.cbMipInterrupt.subscribe(asked)

    def _warm_start(self) -> None:
        import highspy

        chosen = {id(p) for p in self.start.made.values()}
        values = [0.0] * self.h.getNumCol()
        for i, p in self.rows.items():
            values[self.x[i].index] = 1.0 if id(p) in chosen else 0.0
        place = {p.candidate.out: n for n, p in enumerate(self.start.in_order())}
        within: dict[int, list[State]] = {}
        for state in sorted(self.level, key=lambda k: place.get(k, -1)):
            if state in place:
                within.setdefault(self.component[state][0], []).append(state)
        for states in within.values():
            for rank, state in enumerate(states):
                values[self.level[state].index] = float(rank)
        s = highspy.HighsSolution()
        s.col_value = values  # what it gives when asked is a copy: it cannot be filled in place
        self.h.setSolution(s)


def _relevant(problem: Problem) -> dict[int, Priced]:
    """Candidates on some way from the roots, by position, that can be made at all."""
    numbered = dict(enumerate(problem.candidates))
    possible: set[State] = set(problem.given)
    todo = True
    while todo:
        todo = False
        for p in numbered.values():
            if p.candidate.out not in possible and all(i in possible for i in p.candidate.inputs):
                possible.add(p.candidate.out)
                todo = True
    feasible = {i: p for i, p in numbered.items() if all(s in possible for s in p.candidate.inputs)}
    by_out: dict[State, list[int]] = {}
    for i, p in feasible.items():
        by_out.setdefault(p.candidate.out, []).append(i)
    keep: dict[int, Priced] = {}
    stack, seen = [r for r in problem.roots if r not in problem.given], set()
    while stack:
        s = stack.pop()
        if s in seen:
            continue
        seen.add(s)
        for i in by_out.get(s, ()):
            keep[i] = feasible[i]
            stack.extend(k for k in feasible[i].candidate.inputs if k not in problem.given)
    return dict(sorted(keep.items()))


def _components(rows: Iterable[Priced], makers: dict[State, list[int]]) -> dict[State, tuple[int, int]]:
    """For each state: (number of its strongly connected component, how many states that has)."""
    import rustworkx

    states: Sequence[State] = list(makers)
    at = {s: i for i, s in enumerate(states)}
    g = rustworkx.PyDiGraph()
    g.add_nodes_from(range(len(states)))
    g.add_edges_from_no_data([(at[s], at[p.candidate.out]) for p in rows for s in p.candidate.inputs if s in at])
    found = {}
    for number, group in enumerate(rustworkx.strongly_connected_components(g)):
        for i in group:
            found[states[i]] = (number, len(group))
    return found
