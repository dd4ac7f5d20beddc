"""The whole compiler in one file: what happens to a model between `waxeq optimize` and a plan."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Any, overload

from waxeq.backend.storage import storages
from waxeq.errors import BudgetError, UnsupportedError
from waxeq.events import Events
from waxeq.frontend.annotations import example_arguments, place
from waxeq.frontend.function import by_name, names, names_of, parameters
from waxeq.frontend.trace import Traced, trace
from waxeq.ir.blocks import Block, cut
from waxeq.ir.graph import Graph, expand
from waxeq.memory.estimate import plan_estimate, require_room
from waxeq.memory.plan import assign_plan
from waxeq.options import Options
from waxeq.plan.compose import compose
from waxeq.plan.looks import in_their_place
from waxeq.plan.plan import Plan
from waxeq.plan.sections import in_sections
from waxeq.search.block import Optimized
from waxeq.search.blocks import recalled, searched
from waxeq.search.itself import told, told_at_sizes
from waxeq.search.lock import reproduce, require_lockable
from waxeq.search.lock import write as write_lock
from waxeq.search.placing import cheapest, occurring, placings
from waxeq.search.result import Report, Result
from waxeq.search.rivals import rivals
from waxeq.search.session import Session
from waxeq.search.sized_lock import reproduce_sizes, write_sizes
from waxeq.search.sizes import SizedResult, optimize_sizes
from waxeq.search.tables import Opened
from waxeq.search.trial import Begun, Proofs, confirm, judged
from waxeq.search.whole_calls import in_whole_calls, overhead
from waxeq.symbolic.dims import dims_of
from waxeq.symbolic.family import Family, examples_of

_GROWN = 1.1
"""How much larger an arena may be where concatenations are not made: a copy of what is made early, and is little, costs
less than the room of the whole from there on."""


@overload
def optimize(
    fn: Callable[..., Any],
    /,
    *positional: Any,
    weights: Collection[str] = (),
    options: Options | None = None,
    events: Events | None = None,
    examples: Mapping[str, Any] | None = None,
    dims: None = None,
    **named: Any,
) -> Result: ...
@overload
def optimize(
    fn: Callable[..., Any],
    /,
    *positional: Any,
    weights: Collection[str] = (),
    options: Options | None = None,
    events: Events | None = None,
    examples: Mapping[str, Any] | Callable[..., Mapping[str, Any]] | None = None,
    dims: Mapping[str, Any],
    **named: Any,
) -> SizedResult: ...
def optimize(
    fn: Callable[..., Any],
    /,
    *positional: Any,
    weights: Collection[str] = (),
    options: Options | None = None,
    events: Events | None = None,
    examples: Any = None,
    dims: Mapping[str, Any] | None = None,
    **named: Any,
) -> Result | SizedResult:
    """Optimize a Python function on arrays for the shapes and dtypes of the example arguments: by position, by name, or
    in `examples` (by name too, for a parameter that is called `weights`, `options`, `events`, `examples` or `dims`).

    With `dims`, as {"T": (1, 512)}, for every size in these ranges. Which axes have a dim is said by annotations, by
    {"T": (1, 512, {"x": 0})}, or by `examples` when that is a function of the dims.

    `weights` names parameters that stay the same between calls: they are bound to the examples, and everything that
    depends on them alone is computed once. Parameters annotated `wx.Input`, `wx.Weight` or `wx.State` need no example.
    Raises UsageError when the examples do not fit the parameters, UnsupportedError for what cannot be traced,
    TargetError when the function itself raises, BudgetError when no plan was found, AccuracyError (with `strict`) when
    no plan is right.
    """
    require_awaited(fn)
    own = {"weights": names(weights), "events": events is None or isinstance(events, Events)}
    own["options"] = options is None or isinstance(options, Options)
    own["dims"] = dims is None or isinstance(dims, Mapping)
    if dims is not None:
        given: Any = examples if callable(examples) else by_name(fn, positional, named, examples, own)
        family = Family(fn, dims_of(dims), examples_of(fn, given, dims_of(dims)), names_of(weights))
        return optimize_family(Options.given(options), events or Events(), family)
    given = example_arguments(fn, by_name(fn, positional, named, examples, own))
    weights = parameters(fn, given, weights)
    options, events = Options.given(options), events or Events()
    require_lockable(options)
    if options.locked:
        return reproduce(options, events, trace(fn, given, weights=weights))
    with Session.open(options, events) as session:
        with events.told_if_long("tracing the model"):
            traced = trace(fn, given, weights=weights)
        return told(session, fn, given, traced, optimize_traced(session, traced))


def require_awaited(fn: Callable[..., Any]) -> None:
    """Raise UnsupportedError for a coroutine function: its calls compute nothing, and nobody would await them."""
    if inspect.iscoroutinefunction(fn) or inspect.isasyncgenfunction(fn):
        raise UnsupportedError(f"{place(fn)}: a coroutine function (async def) cannot be traced; make it a plain def")


def optimize_family(options: Options, events: Events, family: Family, opened: Opened | None = None) -> SizedResult:
    """Plans for a model at all sizes of its dims, searched or as they are locked. `opened`: the timing table, where it
    is not the one that the options say."""
    require_lockable(options)
    if options.locked:
        return reproduce_sizes(options, events, family, opened)
    with Session.open(options, events, opened) as session:
        result = told_at_sizes(session, family, optimize_sizes(session, family))
        write_sizes(session, family, result)
        return result


def optimize_traced(session: Session, traced: Traced) -> Result:
    """From a traced model to a checked plan. Errors add up, and a model may take the difference of what they are in:
    where no plan keeps the tolerance, plans of rules and kernels of less error are searched."""
    with ExitStack() as until:
        results, begun = runnable(session, traced, until)
        proofs = Proofs(session, traced, begun)
        here, found = session, judged(session, results, proofs)
        while (tolerance := found.below(here)) is not None:
            here = here.stricter(tolerance)
            try:
                results, _ = runnable(here, traced)
                again = judged(here, results, proofs, session.options.tolerance)
            except BudgetError as e:  # of memory; or some value only kernels of larger error compute
                found = found.last(tolerance, e)
                break
            found = again.after(found, tolerance)
        result = confirm(here, traced, found, begun)
    write_lock(session, traced, result)
    return result


def runnable(
    session: Session, traced: Traced, until: ExitStack | None = None
) -> tuple[list[Result], Begun | None]:  # fmt: skip
    """What is `proposed`, of kernels that can be made ready here: where some cannot, plans of others."""
    results, begun = proposed(session, traced, until)
    while not session.require_ready(s.call for r in results for s in r.plan.steps):
        results, _ = proposed(session, traced)
    return results, begun


def proposed(
    session: Session, traced: Traced, until: ExitStack | None = None
) -> tuple[list[Result], Begun | None]:  # fmt: skip
    """Plans of a traced model that nobody has run yet, the best predicted first, without those that there is no memory
    for; and what is begun to prove them, open `until` then: nothing, where that is not said. Raises BudgetError where
    there is memory for none."""
    session.model = traced.name
    graph = expand(traced.graph)
    ways = placings(session, graph, cut(graph))
    known = recalled(session, every := occurring(ways))
    new = [b for b in every if b.key not in known]
    begun = until.enter_context(closing(Begun.beside(session, traced))) if new and until is not None else None
    blocks, plans = cheapest(ways, known | searched(session, new, sole=all(len(blocks) == 1 for blocks in ways)))
    plans = in_whole_calls(session, graph, blocks, plans)
    results, refused = list[Result](), list[BudgetError]()
    for p in rivals(session, blocks, plans):
        try:
            results.append(assemble(session, traced, graph, blocks, p))
        except BudgetError as e:
            refused.append(e)
    if not results:
        raise refused[0]
    return results, begun


def _in_memory(session: Session, plan: Plan) -> Plan:
    """A plan with memory, parts written where the whole has them unless that takes far more than without, or more than
    there may be: a whole is kept from its first part on."""
    apart = assign_plan(plan, session.kernels).check()
    together = in_sections(plan, session.kernels)
    if together is plan:
        return apart
    placed = assign_plan(together, session.kernels).check()
    fits = plan_estimate(placed).peak_bytes <= session.options.max_memory
    return placed if fits and placed.arena_bytes <= _GROWN * apart.arena_bytes else apart


def assemble(
    session: Session, traced: Traced, graph: Graph, blocks: Sequence[Block], plans: Mapping[str, Optimized]
) -> Result:
    """Plans of blocks, by key, as one plan in one arena. Raises BudgetError where there is no memory for it."""
    about = {**session.about(), **traced.about}
    plan = compose(graph, blocks, [plans[b.key].plan for b in blocks], traced.name, traced.structure, about)
    plan = in_their_place(replace(plan, graph=traced.graph), session.kernels)
    plan = _in_memory(session, plan)
    plan = replace(plan, around=overhead(session, plan))
    plan_estimate(plan).require(session.options.max_memory, "the limit is")
    require_room(plan, storages(session.kernels.values()))
    return Result(
        plan,
        traced.tensors,
        session.kernels,
        tuple(plans.values()),
        Report(len(blocks), plan.predicted, notes=(*session.remarks, *traced.notes)),
    )
