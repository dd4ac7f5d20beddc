"""One optimization for ranges of sizes: plans searched at some sizes, lifted to all, compared over the range.

Kernels take part that are the same code at any size: those that need no compiler, and those whose text has the sizes
among its arguments. A call with another size finds everything made.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from waxeq.amounts import number_of
from waxeq.backend.kernel import Kernel
from waxeq.errors import BudgetError, FallbackError, PlanError, UnsupportedError, UsageError, WaxeqError
from waxeq.events import Deadline, StageFinished, StageStarted
from waxeq.frontend.trace import Traced
from waxeq.ir.blocks import cut
from waxeq.ir.graph import Graph, expand
from waxeq.memory.estimate import plan_estimate
from waxeq.naming import dims_option
from waxeq.plan.plan import Plan
from waxeq.runtime.sized import SizedProgram
from waxeq.runtime.turns import take_turns
from waxeq.runtime.verify import Accuracy
from waxeq.search.blocks import searched
from waxeq.search.curves import Contender, grid_of, intervals, key
from waxeq.search.lifting import OtherKernel, as_it_is, lifted
from waxeq.search.placing import on_cpu
from waxeq.search.session import Session
from waxeq.search.sized_trial import SizedTrial, tried
from waxeq.search.sized_work import Work, require_right
from waxeq.search.trial import searched_again
from waxeq.symbolic.dims import Dim, Sizes
from waxeq.symbolic.family import Family, samples
from waxeq.symbolic.graph import Sample, Sized, general, seen_from
from waxeq.symbolic.plan import UNTIMED, Interval, Point, SizedPlan, SizedPlans, of_ranges
from waxeq.symbolic.size import Size, written

_PLACES = 3
"""Sizes that plans are searched at."""
_SEARCH = 0.55
"""Part of the budget for searching."""
_GRID, _FEW = 9, 5
"""Points of a cost curve, along the only dim and along one of several."""
_TURN, _LEAST, _TURNS = 0.03, 3, 15
"""Seconds that a whole plan is timed at some sizes, and turns that it has at least and at most."""
_TRIALS = 2
"""Times that intervals are held against the model as written: once more when they were drawn anew for that."""
_SETTLED = 6
"""Times that intervals are drawn anew because a plan turned out not to run at an edge."""


@dataclass(frozen=True)
class SizedReport:
    """What happened on the way. `places`: sizes that were searched at; `contenders`: plans that were compared;
    `accuracy`: the largest errors met, by output; `checked`: at how many sizes; `trials`: what was held against the
    model as written."""

    places: tuple[Sizes, ...] = ()
    contenders: int = 0
    accuracy: tuple[Accuracy, ...] = ()
    checked: int = 0
    interrupted: bool = False
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    trials: tuple[SizedTrial, ...] = ()


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
        found = number_of(len(self.intervals), "interval")
        written = sum(i.plan.as_written for i in self.intervals)
        kept = f", {written} of them as written" if written else ""
        ratios = [t.trial.ratio for t in self.report.trials]
        speed = f", {min(ratios):.2f}x to {max(ratios):.2f}x the speed of the model as written" if ratios else ""
        return f"<SizedResult {self.plans.name} for {ranges}: {found}{kept}{speed}; .program runs it>"

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
    plain = as_it_is(first, model.graph, session.about())
    rows, grids = _contending(work, model, places, plain, notes)

    def made(found: tuple[Interval, ...], report: SizedReport = SizedReport()) -> SizedResult:
        plans = SizedPlans(first.name, family.dims, takes, found, {**session.about(), **first.about})
        return SizedResult(plans, first.tensors, first.inputs, work.kernels, report)

    found, trials = _proved(work, rows, grids, made, notes)
    notes += work.refusals([r.plan for r in rows])
    require_right(found, work)
    for i in found:
        _require_memory(work, i.plan, {n: b for n, (_, b) in i.box.ranges.items()})
    if session.options.strict and all(i.plan.as_written for i in found):
        raise FallbackError("no plan is faster than the model as written at any size")
    session.events.emit(StageFinished("trial", session.deadline.elapsed, ""))
    notes += [*first.notes, *family.notes]
    report = SizedReport(
        tuple(places), len(rows), tuple(work.worst.values()), len(work.checked), session.events.stop_requested,
        session.deadline.elapsed, tuple(dict.fromkeys(notes)), trials,
    )  # fmt: skip
    return made(found, report)


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
    except WaxeqError as e:
        where = f"where {written(sizes)}"
        if required and where in str(e):
            raise
        if required:
            raise type(e)(f"{e} ({where})") from e
        return None
    if any(x.kind == "state" for x in t.graph.leaves):
        raise UnsupportedError(f"a model with states has no plan for ranges of sizes; leave {dims_option()} out")
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
    rows = [key(dims, s.sizes) for s in model.alike if s.required and model.literals.apart(s.sizes)]
    rows = (
        [r for r in rows if all(map(_prime, r))] or rows or [key(dims, s.sizes) for s in model.alike if s.required][:1]
    )
    by_volume = sorted(set(rows), key=lambda r: (int(np.prod(r, dtype=object)), r))
    last = len(by_volume) - 1
    picks = dict.fromkeys(by_volume[round(i * last / (_PLACES - 1))] for i in range(_PLACES))
    return [{d.name: n for d, n in zip(dims, p, strict=True)} for p in picks]


def _prime(n: int) -> bool:
    return n > 1 and all(n % i for i in range(2, int(n**0.5) + 1))


def _contending(
    work: Work, model: Sized, places: Sequence[Sizes], plain: SizedPlan, notes: list[str]
) -> tuple[list[Contender], list[list[int]]]:
    """Plans of a model and the model as written, compared over a grid, and the grid. Where each plan is wrong at some
    size, plans of rules and kernels of less error are searched."""
    session, dropped = work.session, list[SizedPlan]()
    while True:
        plans = _searched(work, session, model, places, notes)
        if dropped:
            plans = _small(work, plans, notes)
        _stage(session, "trial")
        rows, grids = _compared(work, plans, plain)
        plans = [r.plan for r in rows if r.plan is not plain]
        wrong = plans and all(id(p) in work.wrong for p in plans)
        used = (s["kernel"] for p in plans for s in p.data["steps"])
        if not wrong or (tolerance := session.below(used)) is None:
            return rows, grids
        dropped += plans  # what is wrong is known by `id`, which no other plan may have
        notes += [*work.refusals(plans), searched_again(tolerance)]
        session = session.stricter(tolerance)


def _small(work: Work, plans: Sequence[SizedPlan], notes: list[str]) -> list[SizedPlan]:
    """The plans that need no more memory than is allowed at the largest sizes, where they hold there."""
    rows = list(plans)
    for p in plans:
        try:
            _require_memory(work, p, {d.name: d.high for d in work.family.dims})
        except BudgetError as e:
            notes.append(f"a plan was dropped: {e}")
            rows.remove(p)
        except PlanError:
            continue
    return rows


def _searched(work: Work, session: Session, model: Sized, places: Sequence[Sizes], notes: list[str]) -> list[SizedPlan]:
    """The plan found at each place, lifted to all sizes."""
    found: list[SizedPlan] = []
    whole = [replace(s, graph=expand(s.graph)) for s in model.alike]
    able = {n: k for n, k in session.kernels.items() if n in work.kernels}
    until = session.deadline.within(_SEARCH * session.deadline.left)
    for n, sizes in enumerate(places):
        share = None if until.seconds is None else max(0.0, until.left) / (len(places) - n)
        here = replace(session, kernels=able, deadline=Deadline(share), begun=0.0, notes=())
        while not here.events.stop_requested:
            try:
                found.append(_lifted(work, model, whole, here, sizes))
            except OtherKernel as e:
                notes.append(f"{e}, and is left out")
                able = {n: k for n, k in able.items() if e.kernel not in (n, f"{n.partition('.')[0]}.{k.variant_of}")}
                here = replace(here, kernels=able)
                continue
            except (PlanError, BudgetError, UnsupportedError) as e:
                notes.append(f"the plan found where {written(sizes)} holds there only: {e}")
            break
        notes += here.remarks
    return found


def _lifted(work: Work, model: Sized, whole: Sequence[Sample], session: Session, sizes: Sizes) -> SizedPlan:
    """The plan that a session finds at some sizes, lifted to all. `whole`: the model at sizes it was traced at,
    expanded. Raises PlanError, BudgetError, UnsupportedError."""
    traced = work.at(sizes)
    graph = expand(traced.graph)
    blocks = on_cpu(session, cut(graph))
    plans = searched(session, blocks)
    amounts = seen_from(next(s for s in whole if s.sizes == sizes), whole)[0].graph
    about, dims = session.about(), work.family.dims
    return lifted(traced, model, graph, amounts, blocks, plans, work.kernels, about, sizes, dims)


def _compared(work: Work, plans: Sequence[SizedPlan], plain: SizedPlan) -> tuple[list[Contender], list[list[int]]]:
    """What each distinct plan takes at the points of a grid, and the grid."""
    dims = work.family.dims
    distinct = list({repr(p.data["steps"]): p for p in (*plans, plain)}.values())
    grids = [grid_of(d, _GRID if len(dims) == 1 else _FEW) for d in dims]
    curves: list[dict[tuple[int, ...], Point]] = [{} for _ in distinct]
    turns: list[dict[tuple[int, ...], tuple[float, ...]]] = [{} for _ in distinct]
    for p in _points(grids):
        sizes = {d.name: n for d, n in zip(dims, p, strict=True)}
        for i, (point, taken) in _timed(work, distinct, sizes).items():
            curves[i][p], turns[i][p] = point, taken
    return [Contender(*r) for r in zip(distinct, curves, turns, strict=True)], grids


def _drawn(
    work: Work, rows: Sequence[Contender], grids: Sequence[Sequence[int]], notes: list[str]
) -> tuple[Interval, ...]:
    """Intervals with the best plan of each, every plan found right at the edges of those it is used in."""
    dims = work.family.dims
    for _ in range(_SETTLED):
        rows = [r for r in rows if id(r.plan) not in work.wrong]
        _require_any(work, rows)
        found = intervals(dims, grids, rows)
        unfit = [(i, s) for i in found for s in i.box.corners() if work.tried(i.plan, s) is None]
        if not unfit:
            return found
        for interval, sizes in unfit:
            rows = [_without(r, interval, key(dims, sizes)) for r in rows]
    notes.append("no plan holds at all edges of its interval: the model as written is used at all sizes")
    rows = [r for r in rows if r.plan.as_written]
    _require_any(work, rows)
    return intervals(dims, grids, rows)


def _require_any(work: Work, rows: Sequence[Contender]) -> None:
    """Raise UsageError where no plan, the model as written neither, runs at sizes that are left to choose from."""
    if not any(r.curve for r in rows):
        sizes, why = next(iter(work.refused.values()))[0]
        raise UsageError(
            f"the model cannot be run where {written(sizes)}: {why}; give {dims_option()} sizes that its inputs fit"
        )


def _proved(
    work: Work, rows: Sequence[Contender], grids: Sequence[Sequence[int]], made: Callable[..., SizedResult],
    notes: list[str],
) -> tuple[tuple[Interval, ...], tuple[SizedTrial, ...]]:  # fmt: skip
    """Intervals whose plans are faster than the model as written where they were held against it, in a process of its
    own; where one is not, the model as written is used at that size and those next to it."""
    session, dims = work.session, work.family.dims
    found, trials = _drawn(work, rows, grids, notes), dict[tuple[int, ...], SizedTrial]()
    for _ in range(_TRIALS if session.options.trial and session.options.measure else 0):
        result = made(found)
        try:
            known = tried(session, result.plans, result.program, lambda sizes: work.at(sizes).inputs)
        except WaxeqError as e:  # no room for the arrays, or the process ended before the trial did
            if session.options.strict:
                raise
            notes.append(f"the plans were not held against the model as written, as no process could do it: {e}")
            break
        if known is None:
            notes.append("there was no time to hold the plans against the model as written in a process of their own")
            break
        trials |= {key(dims, t.sizes): t for t in known}
        lost = {key(dims, t.sizes) for t in known if t.trial.verdict != "faster"}
        if not lost:
            break
        rows = [r if r.plan.as_written else _beaten(r, lost) for r in rows]
        found = _drawn(work, rows, grids, notes)
    return found, tuple(trials.values())


def _without(row: Contender, interval: Interval, point: tuple[int, ...]) -> Contender:
    """A contender that gives up the end of its curve at which it was found not to run."""
    if row.plan is not interval.plan or not row.curve:
        return row
    near = min(row.curve, key=lambda p: sum(abs(np.log(a / b)) for a, b in zip(p, point, strict=True)))
    return replace(row, curve={p: v for p, v in row.curve.items() if p != near})


def _beaten(row: Contender, points: Collection[tuple[int, ...]]) -> Contender:
    """A contender that gives up points at which no plan was found faster than the model as written."""
    return replace(row, curve={p: v for p, v in row.curve.items() if p not in points})


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
        return {i: (_predicted(work, p.plan, sizes), ()) for i, p in programs.items()}
    rivals = {str(i): partial(p.flat_results, inputs) for i, p in programs.items()}
    taken = take_turns(rivals, budget=_TURN * len(programs), rounds=_TURNS, fewest=_LEAST)
    return {i: (Point(dict(sizes), t.median, "measured"), t.seconds) for i in programs for t in (taken[str(i)],)}


def _predicted(work: Work, plan: Plan, sizes: Sizes) -> Point:
    """The sum of what the kernels of a plan take. The model as written has none: it counts as slow as can be, so that
    it is chosen where nothing else runs."""
    if plan.written:
        return Point(dict(sizes), 1e3, UNTIMED)
    calls = [s.call for s in plan.steps]
    for c in calls:  # a kernel for one size may not take what is left of a call at this one
        c.remember("features", partial(work.kernels[c.kernel].features, c))
    rows = work.session.prices.of(calls)
    basis = "kernels" if all(e.source == "measured" for e in rows) else "estimated"
    return Point(dict(sizes), sum(e.seconds for e in rows), basis)


def _require_memory(work: Work, plan: SizedPlan, largest: Sizes) -> None:
    """Raises BudgetError when a plan needs too much memory at some sizes."""
    plan_estimate(plan.at(largest, work.kernels)).require(work.session.options.max_memory, "the limit is")
