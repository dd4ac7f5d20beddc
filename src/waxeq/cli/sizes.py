"""Plans for ranges of sizes at the command line: `waxeq optimize --dim`, and running what it wrote."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from waxeq.cli.console import finish, working

if TYPE_CHECKING:
    from waxeq.cli.options import Search, Show
    from waxeq.symbolic.family import Family


def optimize_dims(target: str, texts: Sequence[str], output: Path | None, search: Search, show: Show) -> int:
    """What `waxeq optimize --dim` does. Raises UsageError, TargetError, UnsupportedError."""
    with working(show) as events:
        from waxeq.cli.work import admit_rules
        from waxeq.inspect.sizes import sizes_report
        from waxeq.runtime.files import require_writable
        from waxeq.search.session import Session
        from waxeq.search.sizes import optimize_sizes
        from waxeq.search.tables import open_table

        options = search.options()
        family = family_of(target, texts)
        path = output or Path(f"{family.name}.plan.json")
        require_writable(path)
        opened = open_table(options.table, strict=options.strict)
        admit_rules(options, events, opened.table)
        with events.on_interrupt(), Session.open(options, events, opened) as session:
            result = optimize_sizes(session, family)
        result.save(path)
    from waxeq.inspect.sizes import sizes_view

    finish(show, sizes_report(result, str(path)), sizes_view)
    return 130 if result.report.interrupted else 0


def family_of(target: str, texts: Sequence[str]) -> Family:
    """The model at FILE.py[:NAME] with examples at any sizes of these dims. Raises UsageError, TargetError."""
    from waxeq.frontend.load import load_target
    from waxeq.symbolic.dims import Dim, dims_of
    from waxeq.symbolic.family import Family, examples_of

    dims = dims_of([Dim.parse(t) for t in texts])
    found = load_target(target, {d.name: min(d.high, max(d.low, 7)) for d in dims})
    examples = examples_of(found.fn, found.at_sizes or found.given, dims)
    return Family(found.fn, dims, examples, found.weights, found.name, found.origin)


def facts_of(program: Any, inputs: Any) -> dict[str, Any]:
    """What `waxeq run` says of a call of such a plan: its sizes, its interval, and what was predicted."""
    sizes = program.sizes(inputs)
    interval = program.plans.interval(sizes)
    point = interval.predicted(sizes)
    return {
        "model": program.plans.name,
        "as_written": interval.plan.as_written,
        "predicted_seconds": 0.0 if point is None else point.seconds,
        "sizes": sizes,
        "interval": {n: list(r) for n, r in interval.box.ranges.items()},
    }
