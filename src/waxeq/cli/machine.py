"""Commands about what waxeq knows and where it runs: calibrate, rules, backends, doctor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from waxeq.cli import say
from waxeq.cli.console import aside, finish, working
from waxeq.cli.options import MEASURING, SHOW, Measuring, Show
from waxeq.errors import UsageError

if TYPE_CHECKING:
    from waxeq.cost.table import TimingTable

Table = Path | None


def calibrate(
    *,
    output: Annotated[Path | None, Parameter(name=("--output", "-o"))] = None,
    quick: Annotated[bool, Parameter(negative=(), show_default=False)] = False,
    again: Annotated[bool, Parameter(negative=(), show_default=False)] = False,
    search: Measuring = MEASURING,
    show: Show = SHOW,
) -> int:
    """Time the kernels on this machine over a grid of shapes, so that later estimates are good.

    Without --quick it goes on until all of the grid is timed.
    Ctrl-C keeps what was timed (exit code 130).

    Parameters
    ----------
    output
        Also write all timings of this machine as a Parquet file, or into a folder as DEVICE.parquet.
    quick
        Time a coarse grid, for one minute at most.
    again
        Time what the table knows too, and keep the faster timing of each call: at another hour, for a machine that is
        shared, as what others do only ever adds.
    """
    from waxeq.inspect.show import calibrate_view

    options = search.options()
    with working(show) as events:
        from waxeq.search.calibrate import calibrate as measure

        with events.on_interrupt():
            found = measure(options, events, out=output, quick=quick, again=again)
    data = {
        "device": found.device,
        "timings": found.rows,
        "left": found.left,
        "seconds": found.seconds,
        "path": None if found.path is None else str(found.path),
        "note": found.note,
    }
    finish(show, data, calibrate_view)
    return 130 if events.stop_requested else 0


def rules_list(*, show: Show = SHOW) -> None:
    """List every installed rewrite rule: its name, class and law; with --json also its file and line."""
    from waxeq.inspect.knowledge import rule_rows
    from waxeq.inspect.show import rules_view

    finish(show, rule_rows(), rules_view)


def rules_check(*files: Path, samples: int | None = None, seed: int = 0, table: Table = None, show: Show = SHOW) -> int:
    """Try rules on typed samples made to break them.

    Exit code 0 when every rule is certified, 6 when one is not or is ill-typed, 3 when a file cannot be
    read.

    Parameters
    ----------
    files
        Rule files (.egg) [default: every installed rule].
    samples
        Samples to try on which a rule applies, for each rule; with fewer than by default no certificate is remembered
        [default: 50].
    seed
        Seed of the samples.
    table
        Timing table that is to remember the certificates [default: the user's own, which `waxeq db status` names].
    """
    from waxeq.inspect.show import certificates_view

    with aside():
        from waxeq.egraph.installed import rule_files
        from waxeq.testing.rule import SAMPLES, check_files

        if samples is not None and samples < 1:
            raise UsageError(f"--samples {samples}: give one at least")
        if seed < 0:
            raise UsageError(f"--seed {seed}: give none below zero")
        files = tuple(dict.fromkeys(p.resolve() for p in files))
        enough = samples is None or samples >= SAMPLES  # a certificate stands for the usual number
        store = _where_certificates_go(table, show) if files and enough else None
        found = check_files(
            files or rule_files(),
            samples=SAMPLES if samples is None else samples,
            seed=seed,
            progress=(lambda c: say(str(c))) if show.verbose else None,
        )
        if store is not None:
            _remember(store, files, {c.place: str(c) for c in found if c.admitted})
    data = [
        {"rule": c.rule, "place": c.place, "class": c.cls, "verdict": c.verdict, "tried": c.tried, "met": c.met,
         "admitted": c.admitted, "said": str(c)}
        for c in found
    ]  # fmt: skip
    finish(show, data, certificates_view)
    return 0 if all(c.admitted for c in found) else 6


def _where_certificates_go(named: Table, show: Show) -> TimingTable:
    from waxeq.search.tables import open_table

    opened = open_table(named)
    for text in opened.notes:
        if not show.quiet:
            say(f"note: {text}")
    return opened.table


def _remember(store: TimingTable, files: Sequence[Path], admitted: Mapping[str, str]) -> None:
    """Keep new certificates, which are by the places of their rules; installed rules need none."""
    from waxeq.search.admission import admit, uncertified

    for file, rule in uncertified(store, files):
        if rule.place in admitted:
            admit(store, file, rule, admitted[rule.place])


def backends(*, show: Show = SHOW) -> None:
    """List the installed backends, with their kernels."""
    from waxeq.inspect.show import backends_view

    with aside():
        from waxeq.inspect.knowledge import backend_rows

        data = backend_rows()
    finish(show, data, backends_view)


def doctor(*, table: Table = None, show: Show = SHOW) -> int:
    """Check the installation: versions, machine, backends, rules, e-graph, timing table.

    Exit code 0 when all is well, else that of the first check that failed.

    Parameters
    ----------
    table
        Timing table to look at [default: the user's own].
    """
    from waxeq.inspect.show import doctor_view

    with aside():
        from waxeq.cli.doctor import examine

        data = examine(table)
    finish(show, data, doctor_view)
    return next((row["exit_code"] for row in data if not row["ok"]), 0)
