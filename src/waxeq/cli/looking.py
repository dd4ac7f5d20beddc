"""Commands that look at a model or a plan: explain, paths, mem."""

from __future__ import annotations

from waxeq.cli.options import SEARCH, SHOW, Search, Show


def explain(target: str, /, *, search: Search = SEARCH, show: Show = SHOW) -> None:
    """Say, for each kernel of a plan, where it comes from, which rules led to it, and what it costs.

    Parameters
    ----------
    target
        FILE.py, FILE.py:NAME or a plan.
    """


def paths(target: str, /, *, limit: int = 10, search: Search = SEARCH, show: Show = SHOW) -> None:
    """List plans in rising predicted cost.

    Parameters
    ----------
    target
        FILE.py or FILE.py:NAME.
    limit
        How many.
    """


def mem(target: str, /, *, search: Search = SEARCH, show: Show = SHOW) -> None:
    """Say how much memory a plan takes, before it runs.

    Parameters
    ----------
    target
        FILE.py, FILE.py:NAME or a plan.
    """
