"""Commands about what waxeq knows and where it runs: calibrate, rules, backends, db, doctor."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from waxeq.cli.console import finish, working
from waxeq.cli.options import SEARCH, SHOW, Search, Show

Table = Path | None


def calibrate(
    *,
    output: Annotated[Path | None, Parameter(name=("--output", "-o"))] = None,
    quick: Annotated[bool, Parameter(negative=())] = False,
    search: Search = SEARCH,
    show: Show = SHOW,
) -> None:
    """Measure the kernels of this machine over a grid of shapes, so that later estimates are good.

    Parameters
    ----------
    output
        Also write the timings as a Parquet file.
    quick
        A coarse grid, in about a minute.
    """


def rules_list(*, show: Show = SHOW) -> None:
    """List every rewrite rule: its name, class, law and place."""
    from waxeq.inspect.knowledge import rule_rows
    from waxeq.inspect.show import rules_view

    finish(show, rule_rows(), rules_view)


def rules_check(files: tuple[Path, ...], /, *, samples: int | None = None, seed: int = 0, show: Show = SHOW) -> int:
    """Check rules on typed samples before they may run; exit code 6 when one is not sound.

    Parameters
    ----------
    files
        Rule files (.egg) [default: every installed rule].
    samples
        Typed samples for each rule.
    seed
        Seed of the samples.
    """
    return 0


def backends(*, show: Show = SHOW) -> None:
    """List the installed backends, with their kernels."""
    from waxeq.inspect.knowledge import backend_rows
    from waxeq.inspect.show import backends_view

    with working(show):
        data = backend_rows()
    finish(show, data, backends_view)


def db_status(*, table: Table = None, show: Show = SHOW) -> None:
    """Say what the timing table holds.

    Parameters
    ----------
    table
        Timing table to look at [default: the user's own].
    """
    from waxeq.cost.table import TimingTable
    from waxeq.inspect.show import db_view
    from waxeq.search.session import calibration_tables

    finish(show, TimingTable.open(table, extra=calibration_tables()).status(), db_view)


def doctor(*, table: Table = None, show: Show = SHOW) -> int:
    """Check the installation: versions, backends, rules, timing table, devices.

    Parameters
    ----------
    table
        Timing table to look at [default: the user's own].
    """
    return 0
