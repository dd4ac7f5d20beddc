"""`waxeq profile --scheduler`: kernels timed by the workers of a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from waxeq.cli.console import finish, working
from waxeq.cli.options import Show, Unhurried
from waxeq.cli.profile import code_of, each_model, session_for
from waxeq.cli.work import load

if TYPE_CHECKING:
    from waxeq.events import Events
    from waxeq.options import Options
    from waxeq.search.cluster import Cluster
    from waxeq.search.fleet import Spreading


def spread_models(
    targets: Sequence[str], scheduler: str, devices: Sequence[str], search: Unhurried, show: Show
) -> int:  # fmt: skip
    """Time the kernels of models on a cluster, and print what was done; the exit code."""
    from waxeq.search.cluster import Cluster

    with working(show) as events:
        options = search.options(trial=False, measure=False, fresh=True)
        with Cluster.at(scheduler) as cluster:
            rows = each_model(targets, events, partial(_spread, options, events, cluster, devices))
    from waxeq.inspect.paths import spread_view

    done = sum(r["failed"] is None and r["finished"] for r in rows)
    finish(show, {"models": rows, "total": len(targets), "finished": done}, spread_view)
    return code_of(rows, events)


def _spread(
    options: Options, events: Events, cluster: Cluster, devices: Sequence[str], target: str
) -> dict[str, Any]:  # fmt: skip
    from waxeq.events import Deadline
    from waxeq.search.fleet import Fleet, spread_out
    from waxeq.search.tables import saved_table

    clock, traced = Deadline(options.budget), load(target)
    with session_for(options, events, saved_table(options.table, events)) as session:
        fleet = Fleet(cluster, session, devices)
        fleet.gather()
        found = spread_out(fleet, traced, clock)
    return {"target": target, "failed": None, **spread_row(found)}


def spread_row(found: Spreading) -> dict[str, Any]:
    """What was timed for one model, as plain data."""
    from waxeq.inspect.report import count

    kinds = [
        {
            "device": k.device.id, "about": k.device.describe(), "machines": k.machines, "workers": k.workers,
            "timings": k.timings, "decisive": k.decisive, "unmeasured": k.unmeasured, "undecided": k.undecided,
        }
        for k in found.kinds
    ]  # fmt: skip
    return {
        "model": found.menu.model, "count": count(found.menu.count), "kinds": kinds, "refused": list(found.refused),
        "timings": sum(k.timings for k in found.kinds), "finished": found.finished, "seconds": found.seconds,
    }  # fmt: skip
