"""The command `pareto`: latency against error against memory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from waxeq.cli.console import finish, working
from waxeq.cli.options import LOOSE, SHOW, Loose, Show
from waxeq.cli.profile import require_some
from waxeq.cli.work import admit_rules, is_plan, load, require_there
from waxeq.errors import UsageError

if TYPE_CHECKING:
    from waxeq.search.pareto import Offer


def pareto(
    target: str,
    /,
    *,
    plans: Annotated[int, Parameter(show_default=True)] = 3,
    plot: Path | None = None,
    search: Loose = LOOSE,
    show: Show = SHOW,
) -> int:
    """Show what can be had: how fast at which error in how much memory, from plans that were run.

    The model is searched under every tolerance up to --tolerance (1e-2 unless given) at which there is more to choose
    from: other rules, kernels that approximate, weights in sixteen bits. The cheapest plans of each are run side by
    side on the model's inputs, with their errors against float64. --budget is for all of it; none unless given; what it
    has no room for is noted.

    Parameters
    ----------
    target
        FILE.py or FILE.py:NAME.
    plans
        How many plans of each tolerance to run.
    plot
        Draw the plans into a .png or .svg file.
    """
    require_some(plans, "--plans")
    if is_plan(target):
        raise UsageError(f"{target} is a plan, which is one point; give the model, as FILE.py")
    require_there(target)
    with working(show) as events:
        from waxeq.cli.plot import require_plot
        from waxeq.compile import assemble
        from waxeq.inspect.paths import pareto_view
        from waxeq.search.pareto import offers
        from waxeq.search.tables import open_table

        if plot is not None:
            require_plot(plot)
        options = search.options(trial=False)
        traced = load(target)
        opened = open_table(options.table, events, strict=options.strict)
        admit_rules(options, events, opened.table)
        with events.on_interrupt():
            found = offers(options, events, opened, traced, assemble, plans)
        data = {
            "model": traced.name, "tolerance": options.tolerance, "plans": [offer_row(o) for o in found],
            "plot": None if plot is None else str(plot),
        }  # fmt: skip
        if plot is not None:
            from waxeq.cli.pictures import draw_front

            draw_front(data, plot)
    finish(show, data, pareto_view)
    return 130 if events.stop_requested else 0


def offer_row(o: Offer) -> dict[str, Any]:
    """A plan that ran, as plain data: times in seconds, memory in bytes."""
    r, plan = o.ran, o.result.plan
    low, high = r.quartiles
    return {
        "front": o.front, "seconds": r.seconds, "low": low, "high": high, "predicted": r.predicted,
        "rms": r.rms_error, "max": r.max_error, "peak": r.peak_bytes, "tolerance": o.tolerance,
        "as_written": plan.written, "rejected": o.rejected,
        "kernels": sorted({s.call.kernel for s in plan.steps}), "steps": len(plan.steps),
    }  # fmt: skip
