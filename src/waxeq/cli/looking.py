"""Commands that look at a model or a plan: explain, mem."""

from __future__ import annotations

from typing import TYPE_CHECKING

from waxeq.cli.console import finish, working
from waxeq.cli.options import SEARCH, SHOW, Search, Show
from waxeq.cli.work import Dims, is_plan, load, require_there, search_plan

if TYPE_CHECKING:
    from waxeq.events import Events
    from waxeq.search.result import Result


def explain(target: str, /, *, dim: Dims = (), search: Search = SEARCH, show: Show = SHOW) -> int:
    """Say, for each kernel of a plan, where it comes from, which rules led to it, and what it and the next best cost.

    For a model a plan is searched, and not written. For a plan, --backend is the only search option. Of a plan for
    ranges of sizes each interval is explained, at a size in the middle of it.

    Parameters
    ----------
    target
        FILE.py, FILE.py:NAME or a plan (NAME.plan.json).
    dim
        T=1:512 searches one plan for all sizes T from 1 to 512, as for `waxeq optimize`; may be repeated.
    """
    if is_plan(target):
        search.require_only("backend", target)
    require_there(target)
    with working(show) as events:
        from waxeq.cli.sizes import planned
        from waxeq.inspect.explain import explain_plan
        from waxeq.inspect.show import explain_view
        from waxeq.inspect.sizes import explain_sizes, explain_sizes_view
        from waxeq.runtime.sized import SizedSaved

        known, view = planned(target, dim, search, events), explain_view
        if known is None:
            data = searched(target, search, events).explain().to_json()
        elif isinstance(found := known[0], SizedSaved):
            data, view = explain_sizes(found.plans, known[1]), explain_sizes_view
        else:
            data = explain_plan(found.plan, known[1]).to_json()
    finish(show, data, view)
    return 130 if events.stop_requested else 0


def mem(target: str, /, *, dim: Dims = (), search: Search = SEARCH, show: Show = SHOW) -> int:
    """Say how much memory a plan takes, before it runs.

    For a model a plan is searched, and not written. For a plan, --max-memory is the only search option. Of a plan for
    ranges of sizes the peak is a function of the sizes, and a number at the edges of each interval.
    Exit code 7 when the plan takes more than --max-memory.

    Parameters
    ----------
    target
        FILE.py, FILE.py:NAME or a plan (NAME.plan.json).
    dim
        T=1:512 searches one plan for all sizes T from 1 to 512, as for `waxeq optimize`; may be repeated.
    """
    if is_plan(target):
        search.require_only("max_memory", target)
    require_there(target)
    with working(show) as events:
        from waxeq.cli.sizes import planned
        from waxeq.inspect.report import memory
        from waxeq.inspect.show import mem_view
        from waxeq.inspect.sizes import memory_sizes, memory_sizes_view
        from waxeq.memory.estimate import plan_estimate
        from waxeq.runtime.save import Saved
        from waxeq.runtime.sized import SizedSaved

        options = search.options()
        known, view = planned(target, dim, search, events), mem_view
        found = None if known is None else known[0]
        if known is not None and isinstance(found, SizedSaved):
            plans = [i.plan.at(s, known[1]) for i in found.plans.intervals for s in i.box.corners()]
            data, view = memory_sizes(found.plans, known[1]), memory_sizes_view
        else:
            plans = [found.plan if isinstance(found, Saved) else searched(target, search, events).plan]
            data = {"model": plans[0].name, "as_written": plans[0].written, **memory(plans[0])}
        for plan in plans if search.max_memory is not None else ():
            plan_estimate(plan).require(options.max_memory, "--max-memory allows")
    finish(show, data, view)
    return 130 if events.stop_requested else 0


def searched(target: str, search: Search, events: Events) -> Result:
    """What the search finds for a model, not timed against the model as written."""
    from waxeq.search.tables import table_to_look_with

    options = search.options(trial=False)
    traced = load(target, events)
    return search_plan(traced, options, events, table_to_look_with(options.table, events))
