"""One optimization for ranges of sizes: plans searched at some sizes, lifted to all, compared over the range.

Kernels take part that are the same code at any size: those that need no compiler, and those whose text has the sizes
among its arguments. A call with another size finds everything made.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from waxeq.backend.kernel import Kernel
from waxeq.errors import AccuracyError, BudgetError, FallbackError, PlanError, UnsupportedError, UsageError, WaxeqError
from waxeq.events import Deadline, StageFinished, StageStarted
from waxeq.frontend.trace import Traced
from waxeq.ir.blocks import cut
from waxeq.ir.graph import Graph, expand
from waxeq.memory.estimate import plan_estimate
from waxeq.plan.plan import Plan
from waxeq.runtime.program import Program
from waxeq.runtime.sized import SizedProgram
from waxeq.runtime.verify import Accuracy, Truth, require
from waxeq.search.block import searched
from waxeq.search.curves import Contender, grid_of, intervals, key
from waxeq.search.lifting import OtherKernel, as_it_is, lifted
from waxeq.search.placing import on_cpu
from waxeq.search.session import Session
from waxeq.symbolic.dims import Dim, Sizes
from waxeq.symbolic.family import Family, samples
from waxeq.symbolic.graph import Sample, Sized, general, seen_from
from waxeq.symbolic.plan import Interval, Point, SizedPlan, SizedPlans, of_ranges
from waxeq.symbolic.size import Size, written

_PLACES = 3
"""Sizes that plans are searched at."""
_SEARCH = 0.55
"""Part of the budget for searching."""
_GRID, _FEW = 9, 5
"""Points of a cost curve, along the only dim and along one of several."""
_TURN, _TURNS = 0.03, 15
"""Seconds and most calls of one timing of a whole plan."""
_SETTLED = 6
"""Times that intervals are drawn anew because a plan turned out not to run at an edge."""


@dataclass(frozen=True)
class SizedReport:
    """What happened on the way. `places`: sizes that were searched at; `contenders`: plans that were compared;
    `accuracy`: the largest errors met, by output; `checked`: at how many sizes."""

    places: tuple[Sizes, ...] = ()
    contenders: int = 0
    accuracy: tuple[Accuracy, ...] = ()
    checked: int = 0
    interrupted: bool = False
    seconds: float = 0.0
    notes: tuple[str, ...] = ()


@dataclass
class Work:
    """What is known at some sizes: the traced model and what it should compute, worked out once. Plans by `id`:
    `refused` where they do not run, or are `wrong`, which is the end of them."""

    session: Session
    family: Family
    kernels: Mapping[str, Kernel]
    traced: dict[tuple[int, ...], Traced] = field(default_factory=dict)
    truths: dict[tuple[int, ...], Truth] = field(default_factory=dict)
    worst: dict[str, Accuracy] = field(default_factory=dict)
    checked: set[tuple[int, ...]] = field(default_factory=set)
    wrong: set[int] = field(default_factory=set)
    refused: dict[int, list[tuple[Sizes, str]]] = field(default_factory=dict)

    def at(self, sizes: Sizes) -> Traced:
        k = key(self.family.dims, sizes)
        if k not in self.traced:
            self.traced[k] = self.family.traced(sizes)
        return self.traced[k]

    def truth(self, sizes: Sizes) -> Truth:
        k = key(self.family.dims, sizes)
        if k not in self.truths:
            t = self.at(sizes)
            self.truths[k] = Truth.of(t.graph, t.inputs, t.tensors)
        return self.truths[k]

    def tried(self, plan: SizedPlan, sizes: Sizes) -> Program | None:
        """A plan at some sizes, found right. None where a kernel does not take its call, and where it is wrong: a plan
        that is so anywhere is trusted nowhere."""
        if id(plan) in self.wrong:
            return None
        try:
            return self._right(plan, sizes)
        except (PlanError, AccuracyError) as e:
            self.refused.setdefault(id(plan), []).append((sizes, str(e)))
            self.wrong |= {id(plan)} if isinstance(e, AccuracyError) and not plan.as_written else set()
        return None

    def _right(self, plan: SizedPlan, sizes: Sizes) -> Program:
        traced = self.at(sizes)
        p = Program(plan.at(sizes, self.kernels), self.kernels, traced.tensors)
        rows = self.truth(sizes).accuracy(p.flat_results(traced.inputs))
        require(rows, self.session.options.tolerance)
        self.checked.add(key(self.family.dims, sizes))
        for r in rows:
            if r.output not in self.worst or r.plan[1] > self.worst[r.output].plan[1]:
                self.worst[r.output] = r
        return p

    def refusals(self, plans: Sequence[SizedPlan]) -> list[str]:
        """A sentence for each plan that is not used somewhere."""
        rows = []
        for p in plans:
            for sizes, why in self.refused.get(id(p), ())[:1]:
                others = len({key(self.family.dims, s) for s, _ in self.refused[id(p)]}) - 1
                where = "at no size" if id(p) in self.wrong else f"at all but {others + 1} of the sizes tried"
                rows.append(f"one of {len(plans)} plans is used {where}: where {written(sizes)}, {why}")
        return rows


@dataclass(frozen=True, repr=False)
class SizedResult:
    """The outcome of an optimization for ranges of sizes. `tensors`: weights; `inputs`: an example of a call."""

    plans: SizedPlans
    tensors: Mapping[str, np.ndarray]
    inputs: Mapping[str, np.ndarray]
    kernels: Mapping[str, Kernel]
    report: SizedReport

    @property
    def intervals(self) -> tuple[Interval, ...]:
        """The intervals of sizes, each with its plan and its cost curve."""
        return self.plans.intervals

    @cached_property
    def program(self) -> SizedProgram:
        """What runs the plans: `result.program(*inputs)`, of any size in the ranges."""
        return SizedProgram(self.plans, self.kernels, self.tensors)

    def __repr__(self) -> str:
        ranges = ", ".join(map(str, self.plans.dims))
        return f"<SizedResult {self.plans.name} for {ranges}: {len(self.intervals)} intervals; .program runs it>"

    def save(self, path: str | Path) -> None:
        """Write the plan, and its weights beside it; `waxeq run PATH` and `waxeq.load(PATH)` take it."""
        self.program.save(path, self.inputs)


def optimize_sizes(session: Session, family: Family) -> SizedResult:
    """Plans for all sizes in the ranges of a model's dims.

    Raises UnsupportedError, with the place in the model, where it is not one program at all sizes; UsageError where no
    input tells a dim; BudgetError when a plan needs more memory than is allowed.
    """
    work = Work(session, family, of_ranges(session.kernels))
    _stage(session, "trace")
    model = model_of(family, work.at)
    first = work.at(model.first.sizes)
    takes = _takes(model.graph, family.dims)
    notes: list[str] = [*session.notes]
    places = _representatives(model, family.dims)
    plans = _searched(work, model, places, notes)
    plain = as_it_is(first, model.graph, session.about())
    _stage(session, "trial")
    found, count = _compared(work, [*plans, plain], plain, notes)
    require_right(found, work)
    result = SizedPlans(first.name, family.dims, takes, found, session.about())
    _require_memory(session, work, result)
    if session.options.strict and all(i.plan.as_written for i in found):
        raise FallbackError("no plan is faster than the model as written at any size")
    session.events.emit(StageFinished("trial", session.deadline.elapsed, ""))
    notes += family.notes
    report = SizedReport(
        tuple(places), count, tuple(work.worst.values()), len(work.checked), session.events.stop_requested,
        session.deadline.elapsed, tuple(dict.fromkeys(notes)),
    )  # fmt: skip
    return SizedResult(result, first.tensors, first.inputs, work.kernels, report)


def require_right(found: Sequence[Interval], work: Work) -> None:
    """Raises AccuracyError when even the model as written, at all sizes, is not the model."""
    for i in found:
        for sizes in i.box.corners():
            if work.tried(i.plan, sizes) is None:
                raise AccuracyError(f"no plan is right where {written(sizes)}: {work.refused[id(i.plan)][-1][1]}")


def _stage(session: Session, name: str) -> None:
    session.events.emit(StageStarted(name, ""))


def model_of(family: Family, at: Callable[[Sizes], Traced]) -> Sized:
    """The one graph that a model is at all sizes; `at` traces it at some. Raises UnsupportedError."""
    rows = [_sample(family, at, s) for s in samples(family)]
    return general([r for r in rows if r is not None])


def _sample(family: Family, at: Callable[[Sizes], Traced], sizes: Sizes) -> Sample | None:
    """The model traced at some sizes. None where it cannot be at sizes that are out of range."""
    required = all(sizes[d.name] in d for d in family.dims)
    try:
        t = at(sizes)
    except WaxeqError:
        if required:
            raise
        return None
    if any(x.kind == "state" for x in t.graph.leaves):
        raise UnsupportedError("a model with states has no plan for ranges of sizes; leave --dim out")
    return Sample(sizes, t.graph, {**t.inputs, **t.tensors}, required)


def _takes(graph: Graph, dims: Sequence[Dim]) -> dict[str, tuple[int | str | Size, ...]]:
    """What each input's axes are. Raises UsageError for a dim that no input has."""
    names = {d.name for d in dims}

    def axis(n: int | Size) -> int | str | Size:
        return str(n.expr) if isinstance(n, Size) and str(n.expr) in names else n

    rows = {x.name: tuple(axis(n) for n in x.type.shape) for x in graph.leaves if x.kind == "input"}
    for d in dims:
        if d.low < d.high and not any(d.name in t for t in rows.values()):
            raise UsageError(
                f"no input of the model has an axis of size {d.name}, so a call could not say what {d.name} is"
            )
    return rows


def _representatives(model: Sized, dims: Sequence[Dim]) -> list[Sizes]:
    """Sizes to search at: low, high and between, among those whose graph is the general one; primes if there are."""
    rows = [key(dims, s.sizes) for s in model.alike if s.required and _generic(model, s.sizes)]
    rows = (
        [r for r in rows if all(map(_prime, r))] or rows or [key(dims, s.sizes) for s in model.alike if s.required][:1]
    )
    by_volume = sorted(set(rows), key=lambda r: (int(np.prod(r, dtype=object)), r))
    last = len(by_volume) - 1
    picks = dict.fromkeys(by_volume[round(i * last / (_PLACES - 1))] for i in range(_PLACES))
    return [{d.name: n for d, n in zip(dims, p, strict=True)} for p in picks]


def _prime(n: int) -> bool:
    return n > 1 and all(n % i for i in range(2, int(n**0.5) + 1))


def _generic(model: Sized, sizes: Sizes) -> bool:
    """Whether no size that depends on a dim happens to be another number of the model, and none is 1."""
    known: dict[int, object] = {0: 0, 1: 1, 2: 2}
    for t in (*(x.type for x in model.graph.leaves), *(n.type for n in model.graph.nodes)):
        for n in t.shape:
            at: int = n.at(sizes) if isinstance(n, Size) else n
            if known.setdefault(at, n) != n and (isinstance(n, Size) or isinstance(known[at], Size)):
                return False
    return True


def _searched(work: Work, model: Sized, places: Sequence[Sizes], notes: list[str]) -> list[SizedPlan]:
    """The plan found at each place, lifted to all sizes."""
    found: list[SizedPlan] = []
    whole = [replace(s, graph=expand(s.graph)) for s in model.alike]
    able = {n: k for n, k in work.session.kernels.items() if n in work.kernels}
    for n, sizes in enumerate(places):
        seconds = work.session.deadline.seconds
        share = (
            None if seconds is None else max(0.0, _SEARCH * seconds - work.session.deadline.elapsed) / (len(places) - n)
        )
        session = replace(work.session, kernels=able, deadline=Deadline(share), notes=())
        while not session.events.stop_requested:
            try:
                found.append(_lifted(work, model, whole, session, sizes))
            except OtherKernel as e:
                notes.append(f"{e}, and is left out")
                able = {n: k for n, k in able.items() if e.kernel not in (n, f"{n.partition('.')[0]}.{k.variant_of}")}
                session = replace(session, kernels=able)
                continue
            except (PlanError, BudgetError, UnsupportedError) as e:
                notes.append(f"the plan found where {written(sizes)} holds there only: {e}")
            break
        notes += session.notes
    return found


def _lifted(work: Work, model: Sized, whole: Sequence[Sample], session: Session, sizes: Sizes) -> SizedPlan:
    """The plan that a session finds at some sizes, lifted to all. `whole`: the model at sizes it was traced at,
    expanded. Raises PlanError, BudgetError, UnsupportedError."""
    traced = work.at(sizes)
    graph = expand(traced.graph)
    blocks = on_cpu(session, cut(graph))
    plans = searched(session, list({b.key: b for b in blocks}.values()))
    amounts = seen_from(next(s for s in whole if s.sizes == sizes), whole)[0].graph
    about, dims = session.about(), work.family.dims
    return lifted(traced, model.graph, graph, amounts, blocks, plans, work.kernels, about, sizes, dims)


def _compared(
    work: Work, plans: Sequence[SizedPlan], plain: SizedPlan, notes: list[str]
) -> tuple[tuple[Interval, ...], int]:
    """Intervals with the best plan of each, every plan found right at the edges of those it is used in."""
    dims = work.family.dims
    distinct = list({repr(p.data["steps"]): p for p in plans}.values())
    grids = [grid_of(d, _GRID if len(dims) == 1 else _FEW) for d in dims]
    curves: list[dict[tuple[int, ...], Point]] = [{} for _ in distinct]
    turns: list[dict[tuple[int, ...], tuple[float, ...]]] = [{} for _ in distinct]
    for p in _points(grids):
        sizes = {d.name: n for d, n in zip(dims, p, strict=True)}
        for i, (point, taken) in _timed(work, distinct, sizes).items():
            curves[i][p], turns[i][p] = point, taken
    rows = [Contender(*r) for r in zip(distinct, curves, turns, strict=True)]
    for _ in range(_SETTLED):
        rows = [r for r in rows if id(r.plan) not in work.wrong]
        found = intervals(dims, grids, rows)
        unfit = [(i, s) for i in found for s in i.box.corners() if work.tried(i.plan, s) is None]
        if not unfit:
            break
        for interval, sizes in unfit:
            rows = [_without(r, interval, key(dims, sizes)) for r in rows]
    else:
        notes.append("no plan holds at all edges of its interval: the model as written is used at all sizes")
        found = intervals(dims, grids, [r for r in rows if r.plan is plain])
    notes += work.refusals(distinct)
    return found, len(distinct)


def _without(row: Contender, interval: Interval, point: tuple[int, ...]) -> Contender:
    """A contender that gives up the end of its curve at which it was found not to run."""
    if row.plan is not interval.plan or not row.curve:
        return row
    near = min(row.curve, key=lambda p: sum(abs(np.log(a / b)) for a, b in zip(p, point, strict=True)))
    return replace(row, curve={p: v for p, v in row.curve.items() if p != near})


def _points(grids: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    rows: list[tuple[int, ...]] = [()]
    for g in grids:
        rows = [(*r, n) for r in rows for n in g]
    return rows


def _timed(work: Work, plans: Sequence[SizedPlan], sizes: Sizes) -> dict[int, tuple[Point, tuple[float, ...]]]:
    """What each plan takes at some sizes, and the timings that it rests on: whole plans by turns, while the budget
    lasts; else what is known of their kernels."""
    programs = {i: p for i, plan in enumerate(plans) if (p := work.tried(plan, sizes)) is not None}
    o, inputs = work.session.options, work.at(sizes).inputs
    if not (o.trial and o.measure) or work.session.deadline.expired or work.session.events.stop_requested:
        return {i: (_predicted(work.session, p.plan, sizes), ()) for i, p in programs.items()}
    taken: dict[int, list[float]] = {i: [] for i in programs}
    begun = time.perf_counter()
    for turn in range(_TURNS):
        for i, p in programs.items():
            start = time.perf_counter()
            p.flat_results(inputs)
            taken[i].append(time.perf_counter() - start)
        if turn > 3 and time.perf_counter() - begun > _TURN * len(programs):
            break
    return {i: (Point(dict(sizes), statistics.median(t), "measured"), tuple(t)) for i, t in taken.items()}


def _predicted(session: Session, plan: Plan, sizes: Sizes) -> Point:
    """The sum of what the kernels of a plan take. The model as written has none: it counts as slow as can be, so that
    it is chosen where nothing else runs."""
    if plan.written:
        return Point(dict(sizes), 1e3, "estimated")
    rows = session.prices.of([s.call for s in plan.steps])
    basis = "kernels" if all(e.source == "measured" for e in rows) else "estimated"
    return Point(dict(sizes), sum(e.seconds for e in rows), basis)


def _require_memory(session: Session, work: Work, plans: SizedPlans) -> None:
    """Raises BudgetError when some interval needs too much memory at its largest sizes."""
    for i in plans.intervals:
        corner = {n: b for n, (_, b) in i.box.ranges.items()}
        plan_estimate(i.plan.at(corner, work.kernels)).require(session.options.max_memory, "the limit is")
