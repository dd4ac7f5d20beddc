"""Plans for ranges of sizes at the command line: `--dim`, `--at`, and running what was written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from waxeq.cli.console import finish, working
from waxeq.cli.keeping import place_of
from waxeq.errors import UsageError

if TYPE_CHECKING:
    from waxeq.backend.kernel import Kernel
    from waxeq.cli.options import Search, Show
    from waxeq.events import Events
    from waxeq.frontend.load import Target
    from waxeq.runtime.save import Saved
    from waxeq.runtime.sized import SizedSaved
    from waxeq.symbolic.dims import Dim, Sizes
    from waxeq.symbolic.family import Family


def optimize_dims(
    target: str, texts: Sequence[str], output: Path | None, search: Search, show: Show, **more: object
) -> int:
    """What `waxeq optimize --dim` does; `more`: options besides those of the search. Raises UsageError, TargetError,
    UnsupportedError, LockError."""
    with working(show) as events:
        from waxeq.cli.work import admit_rules
        from waxeq.compile import optimize_family
        from waxeq.inspect.sizes import sizes_report
        from waxeq.runtime.save import require_place
        from waxeq.runtime.sized import save_sized
        from waxeq.search.tables import open_table

        options = search.options(**more)
        family = family_of(target, texts)
        path = output or Path(f"{family.name}.plan.json")
        require_place(path)
        opened = open_table(options.table, events, strict=options.strict)
        admit_rules(options, events, opened.table)
        with events.on_interrupt():
            result = optimize_family(options, events, family, opened)
        place = place_of(path, interrupted=result.report.interrupted)
        save_sized(place.path, result.program.plans, result.program.tensors, result.inputs, "--output")
    from waxeq.inspect.sizes import sizes_view

    finish(show, place.told(sizes_report(result, str(place.path))), sizes_view)
    return 130 if result.report.interrupted else 0


def planned(
    target: str, texts: Sequence[str], search: Search, events: Events
) -> tuple[Saved | SizedSaved, Mapping[str, Kernel]] | None:
    """What a plan file holds, or the plan that is found for a model at the sizes of these dims, with the kernels it may
    use; None for a model of one size. Raises UsageError, PlanError, TargetError, UnsupportedError."""
    from waxeq.backend.discover import backends, kernels
    from waxeq.cli.work import is_plan
    from waxeq.runtime.load import read_saved

    if is_plan(target):
        if texts:
            raise UsageError(f"--dim is for models, but {target} is a plan already; leave it out")
        return read_saved(target), kernels(backends(search.backend))
    return searched(target, texts, search, events) if texts else None


def searched(
    target: str, texts: Sequence[str], search: Search, events: Events
) -> tuple[SizedSaved, Mapping[str, Kernel]]:
    """The plan that is found for a model at the sizes of these dims; it is not written."""
    from waxeq.cli.work import admit_rules
    from waxeq.compile import optimize_family
    from waxeq.runtime.sized import SizedSaved
    from waxeq.search.tables import table_to_look_with

    options = search.options()
    family = family_of(target, texts)
    opened = table_to_look_with(options.table, events)
    admit_rules(options, events, opened.table)
    with events.on_interrupt():
        found = optimize_family(options, events, family, opened)
    return SizedSaved(found.plans, found.tensors, found.inputs), found.kernels


def family_of(target: str, texts: Sequence[str]) -> Family:
    """The model at FILE.py[:NAME] with examples at any sizes of these dims. Raises UsageError, TargetError."""
    return _loaded(target, texts)[1]


def target_at(target: str, texts: Sequence[str], sizes: Sizes) -> Target:
    """The model at FILE.py[:NAME] with example arguments of some sizes, and the weights that its plan holds."""
    from waxeq.symbolic.family import samples

    found, family = _loaded(target, texts)
    family.arguments(samples(family)[0])
    return replace(found, example=family.arguments(sizes))


def _loaded(target: str, texts: Sequence[str]) -> tuple[Target, Family]:
    from waxeq.compile import require_awaited
    from waxeq.frontend.load import load_target
    from waxeq.symbolic.dims import Dim, dims_of
    from waxeq.symbolic.family import Family, examples_of

    dims = dims_of([Dim.parse(t) for t in texts])
    found = load_target(target, {d.name: min(d.high, max(d.low, 7)) for d in dims})
    require_awaited(found.fn)
    examples = examples_of(found.fn, found.at_sizes or found.given, dims)
    return found, Family(found.fn, dims, examples, found.weights, found.name, found.origin)


def asked(texts: Sequence[str], dims: Sequence[Dim]) -> list[dict[str, int]]:
    """The sizes that `--at T=128` or `--at B=2,T=128` name, each for all dims; the least and the greatest where none is
    named. Raises UsageError."""
    if not texts:
        least, greatest = ({d.name: d.low for d in dims}, {d.name: d.high for d in dims})
        return [least, greatest] if least != greatest else [least]
    return [_sizes(t, dims) for t in dict.fromkeys(texts)]


def _sizes(text: str, dims: Sequence[Dim]) -> dict[str, int]:
    rows = [(n.strip(), v.strip()) for n, _, v in (part.partition("=") for part in text.split(","))]
    wanted, given = ",".join(f"{d.name}={d.high}" for d in dims), dict(rows)
    if sorted(n for n, _ in rows) != sorted(d.name for d in dims) or not all(v.isdecimal() for _, v in rows):
        raise UsageError(f"--at {text}: give a size for each dim, as {wanted}")
    for d in dims:
        if int(given[d.name]) not in d:
            raise UsageError(f"--at {text}: {d.name} goes from {d.low} to {d.high}")
    return {d.name: int(given[d.name]) for d in dims}


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
