"""Commands that work on a model: optimize, run, bench."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from waxeq.cli.console import aside, finish, working
from waxeq.cli.keeping import place_of
from waxeq.cli.options import SEARCH, SHOW, Loose, Search, Show
from waxeq.errors import PlanError, TargetError, UsageError
from waxeq.events import Events, Note

if TYPE_CHECKING:
    from waxeq.cost.table import TimingTable
    from waxeq.frontend.trace import Traced
    from waxeq.options import Options
    from waxeq.search.result import Result
    from waxeq.search.tables import Opened

_VS = (
    "Peers to time as well: jax, torch, ort, comma between them (numpy is the original function, timed in any case). "
    "jax runs the function with jax.numpy as its np, torch compiles it as it is, ort (ONNX Runtime) runs the traced "
    "graph."
)
Output = Annotated[Path | None, Parameter(name=("--output", "-o"))]
Dims = Annotated[tuple[str, ...], Parameter(negative=(), show_default=False)]


def optimize(
    target: str,
    /,
    *,
    dim: Dims = (),
    output: Output = None,
    lock: Annotated[Path | None, Parameter(show_default=False)] = None,
    locked: Annotated[bool, Parameter(negative=(), show_default=False)] = False,
    pareto: Annotated[bool, Parameter(negative=(), show_default=False)] = False,
    plot: Annotated[Path | None, Parameter(show_default=False)] = None,
    search: Search = SEARCH,
    show: Show = SHOW,
) -> int:
    """Find the fastest program equal to a model, check it against float64, and write it as a plan.

    The file gives inputs by `example_inputs()` or annotations, and weights by `weights()` or `WEIGHTS`.

    Ctrl-C ends the search and writes the best plan found so far (exit code 130): beside a plan that is there already,
    as NAME.interrupted.plan.json (or NAME.interrupted-2.plan.json), and not over it.

    Parameters
    ----------
    target
        FILE.py (its function marked @wx.model, else `model`, else `forward`) or FILE.py:NAME.
    dim
        T=1:512 makes one plan for all sizes T from 1 to 512; may be repeated. Annotations (wx.Input["f32", "T", 64])
        or T=1:512@x.0,mask.1 say which axes are of size T; an example_inputs(T) of the file shows it.
    output
        Where to write the plan [default: FILE.plan.json, or NAME.plan.json, here]; its tensors go beside it.
    lock
        Also write the plan, and hashes of all it was made from, into this file, as waxeq.lock beside the model.
    locked
        Search nothing: take the plan from the lock [default: waxeq.lock beside the model], byte for byte, or say what
        is not as it was (exit code 9).
    pareto
        Show what can be had instead, as `waxeq pareto` does: latency against error against memory. No plan is written.
    plot
        With --pareto: draw that into a .png or .svg file.
    """
    if pareto or plot is not None:
        given = {"--dim": dim, "--output": output, "--lock": lock, "--locked": locked}
        return _front(target, pareto, [name for name, value in given.items() if value], plot, search, show)
    require_there(target)
    if dim:
        from waxeq.cli.sizes import optimize_dims

        return optimize_dims(target, dim, output, search, show, lock=lock, locked=locked)
    with working(show) as events:
        from waxeq.inspect.report import odd_values, report
        from waxeq.runtime.save import require_place, save_plan
        from waxeq.search.lock import require_lockable

        options = search.options(lock=lock, locked=locked)
        require_lockable(options)
        traced = load(target, events)
        path = output or Path(f"{traced.name}.plan.json")
        require_place(path)
        for text in odd_values(traced.tensors):
            events.emit(Note(text))
        result = search_plan(traced, options, events)
        place = place_of(path, interrupted=result.report.interrupted)
        save_plan(place.path, result.plan, result.tensors, traced.inputs, "--output")
    from waxeq.inspect.show import report_view

    finish(show, place.told(report(result, str(place.path))), report_view)
    return 130 if result.report.interrupted else 0


def _front(target: str, pareto: bool, given: Sequence[str], plot: Path | None, search: Search, show: Show) -> int:
    """What `waxeq optimize --pareto` does; `given`: options that were given and are for writing a plan."""
    from waxeq.cli.pareto import pareto as front

    if not pareto:
        raise UsageError("--plot is for --pareto; `waxeq bench --plot` draws the times of a plan")
    if given:
        raise UsageError(f"--pareto writes no plan, and takes no {given[0]}; leave it out")
    return front(target, plot=plot, search=Loose(**vars(search)), show=show)


def load(target: str, events: Events | None = None) -> Traced:
    """The traced model at FILE.py[:NAME]; `events` are told when that takes long. Raises TargetError,
    UnsupportedError."""
    from waxeq.compile import require_awaited
    from waxeq.frontend.load import load_target, parted
    from waxeq.frontend.trace import trace

    try:
        found = load_target(target)
    except TargetError as e:
        if isinstance(e.__cause__, TypeError) and (sizes := _wanted(Path(parted(target)[0]))):
            dims = " ".join(f"--dim {n}=1:512" for n in sizes)
            raise TargetError(f"example_inputs of {target} takes sizes: say which, as {dims}") from e
        raise
    require_awaited(found.fn)
    with (events or Events()).told_if_long("tracing the model"):
        return trace(found.fn, found.example, weights=found.weights, name=found.name, origin=found.origin)


def _wanted(path: Path) -> list[str]:
    """The parameters that `example_inputs` of a file that was loaded cannot do without."""
    from waxeq.frontend.load import module_name

    give = getattr(sys.modules.get(module_name(path)), "example_inputs", None)
    if not callable(give):
        return []
    given = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    found = inspect.signature(give).parameters.values()
    return [p.name for p in found if p.default is p.empty and p.kind not in given]


def require_there(target: str) -> None:
    """Raise TargetError or PlanError for a model or a plan that is no file, before what works on them is imported."""
    if not target:
        raise TargetError("an empty name is no model; give FILE.py or FILE.py:NAME")
    if target.endswith(".waxeq"):
        raise TargetError(f"{target} is a bundle, which `waxeq run` takes; give the plan or the model it was made of")
    if os.path.exists(target) and not os.path.isfile(target) and not os.path.isdir(target):
        raise TargetError(f"{target} is neither a file nor a folder; give FILE.py or FILE.py:NAME")
    if is_plan(target) and not os.path.lexists(target):
        raise PlanError(f"{target}: no such file; models are FILE.py or FILE.py:NAME, `waxeq optimize` writes plans")
    if is_plan(target):
        from waxeq.runtime.files import read_plan_bytes

        read_plan_bytes(Path(target))
    else:
        from waxeq.frontend.load import require_file

        require_file(target)


def is_plan(target: str) -> bool:
    """Whether a target is a plan file rather than a model."""
    return target.endswith(".json")


def search_plan(traced: Traced, options: Options, events: Events, opened: Opened | None = None) -> Result:
    """The best plan for a traced model. `opened`: the timing table, where it is not the one that the options say."""
    from waxeq.compile import optimize_traced
    from waxeq.search.lock import reproduce
    from waxeq.search.session import Session
    from waxeq.search.tables import open_table

    opened = opened or open_table(options.table, events, strict=options.strict)
    admit_rules(options, events, opened.table)
    if options.locked:
        return reproduce(options, events, traced, opened)
    with events.on_interrupt(), Session.open(options, events, opened) as session:
        return optimize_traced(session, traced)


def admit_rules(options: Options, events: Events, table: TimingTable) -> None:
    """Certify the rules of plug-ins and those named on the command line that have no certificate yet, which the table
    remembers. Raises RuleError with the counterexample of one that is refuted, TargetError for a plug-in whose rules
    cannot be had."""
    from waxeq.search.admission import admit, files_for, uncertified

    for file, rule in uncertified(table, files_for(options.rules)):
        from waxeq.testing.rule import check_rule

        events.emit(Note(f"certifying rule {rule.name} ({rule.place})"))
        admit(table, file, rule, str(check_rule(rule).check()))


def run(
    plan: Path,
    /,
    *,
    input: Annotated[tuple[str, ...], Parameter(negative=(), show_default=False)] = (),
    output: Output = None,
    threads: int | None = None,
    show: Show = SHOW,
) -> None:
    """Run a plan, on given inputs or on those it was made with, and time it.

    Parameters
    ----------
    plan
        A file that `waxeq optimize` or `waxeq bundle` wrote.
    input
        NAME=FILE.npy; may be repeated. Inputs not named are those that `waxeq optimize` saved with the plan.
    output
        Save the results as an .npz file.
    threads
        Threads of BLAS [default: all cores this process may use]; kernels of generated C have as many as the plan was
        made for.
    """
    from waxeq.runtime.files import read_plan_bytes

    if threads is not None and threads < 1:
        raise UsageError(f"--threads {threads}: give one at least")
    read_plan_bytes(plan)  # before what runs it is imported
    from waxeq.cli.running import run_plan
    from waxeq.inspect.show import run_view

    with aside():
        data = run_plan(plan, input, output, threads)
    finish(show, data, run_view)


def bench(
    target: str,
    /,
    *,
    dim: Dims = (),
    at: Dims = (),
    vs: Annotated[str, Parameter(show_default=False, help=_VS)] = "",
    plot: Path | None = None,
    seconds: float = 10.0,
    search: Search = SEARCH,
    show: Show = SHOW,
) -> int:
    """Time the plan against the model as written and the original function, by turns, in a fresh process.

    For a model a plan is searched, and not written. A plan is timed on the inputs it was made with.

    For a plan, --threads is the only search option, and ort the only peer: the others run the original function.

    Parameters
    ----------
    target
        FILE.py, FILE.py:NAME or a plan (NAME.plan.json).
    dim
        T=1:512 searches one plan for all sizes T from 1 to 512, as for `waxeq optimize`; may be repeated.
    at
        T=128 (of several dims B=2,T=128) times a plan for ranges of sizes at this size; may be repeated [default: the
        least and the greatest sizes].
    plot
        Draw the times into a .png or .svg file; those at the first size.
    seconds
        Seconds to spend on timing, at each size; fewer are taken where all ratios are known within 1 %. All take turns,
        three at least; what is over three times slower than the fastest ends when its turns took its share, of which
        all have the same, and has fewer samples.
    """
    if not seconds > 0:
        raise UsageError(f"--seconds {seconds:g}: give a time above zero")
    require_there(target)
    with working(show) as events:
        from waxeq.cli.bench import measured
        from waxeq.cli.plot import plot as draw
        from waxeq.cli.plot import require_plot

        versus = tuple(dict.fromkeys(n.strip() for n in vs.split(",") if n.strip()))
        if plot is not None:
            require_plot(plot)
        data = measured(target, dim, at, versus, seconds, search, events)
        if plot is not None:
            draw(data, plot)
    from waxeq.inspect.show import bench_view
    from waxeq.inspect.sizes import bench_sizes_view

    view = bench_sizes_view if "at" in data else bench_view
    finish(show, {**data, "plot": None if plot is None else str(plot)}, view)
    return 130 if events.stop_requested else 0
