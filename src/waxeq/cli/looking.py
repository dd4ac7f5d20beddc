"""Commands that look at a model or a plan: explain, mem."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from waxeq.cli.console import finish, working
from waxeq.cli.options import SEARCH, SHOW, Search, Show
from waxeq.cli.work import is_plan, load, search_plan

if TYPE_CHECKING:
    from waxeq.events import Events
    from waxeq.plan.plan import Plan
    from waxeq.search.result import Result


def explain(target: str, /, *, search: Search = SEARCH, show: Show = SHOW) -> None:
    """Say, for each kernel of a plan, where it comes from, which rules led to it, and what it and the next best cost.

    For a model a plan is searched, and not written. For a plan, --backend is the only search option.

    Parameters
    ----------
    target
        FILE.py, FILE.py:NAME or a plan (NAME.plan.json).
    """
    with working(show) as events:
        from waxeq.inspect.explain import explain_plan

        if is_plan(target):
            search.require_only("backend", target)
            from waxeq.backend.discover import backends, kernels
            from waxeq.runtime.save import load_plan

            data = explain_plan(load_plan(target).plan, kernels(backends(search.backend))).to_json()
        else:
            data = searched(target, search, events).explain().to_json()
    from waxeq.inspect.show import explain_view

    finish(show, data, explain_view)


def mem(target: str, /, *, search: Search = SEARCH, show: Show = SHOW) -> None:
    """Say how much memory a plan takes, before it runs.

    For a model a plan is searched, and not written. For a plan, --max-memory is the only search option.
    Exit code 7 when the plan takes more than --max-memory.

    Parameters
    ----------
    target
        FILE.py, FILE.py:NAME or a plan (NAME.plan.json).
    """
    from waxeq.memory.estimate import plan_estimate

    with working(show) as events:
        from waxeq.inspect.report import memory

        options = search.options()
        if is_plan(target):
            search.require_only("max_memory", target)
        plan = the_plan(target, search, events)
        if search.max_memory is not None:
            plan_estimate(plan).require(options.max_memory, "--max-memory allows")
        data = {"model": plan.name, "as_written": plan.written, **memory(plan)}
    from waxeq.inspect.show import mem_view

    finish(show, data, mem_view)


def the_plan(target: str, search: Search, events: Events) -> Plan:
    """The plan in a plan file, or the one found for a model."""
    if is_plan(target):
        from waxeq.runtime.save import load_plan

        return load_plan(Path(target)).plan
    return searched(target, search, events).plan


def searched(target: str, search: Search, events: Events, **more: object) -> Result:
    """What the search finds for a model, not timed against the model as written."""
    from waxeq.search.tables import table_to_look_with

    options = search.options(trial=False, **more)
    traced = load(target)
    return search_plan(traced, options, events, table_to_look_with(options.table))
