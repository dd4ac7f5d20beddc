"""Options that commands share, as the command line takes them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Group, Parameter

if TYPE_CHECKING:
    from waxeq.options import Options

_SEARCH = Group("Search", sort_key=2)
_OUTPUT = Group("Output", sort_key=3)


@Parameter(name="*", group=_SEARCH, show_default=False)
@dataclass(frozen=True)
class Search:
    """How to search. What is not given keeps the default of `waxeq.Options`."""

    budget: str | None = None
    """Time to spend, as 30s, 2m or 500ms [default: 60s]."""
    tolerance: str | None = None
    """Relative RMS error allowed against float64: exact, reassociating (1e-5), approximate (1e-3) or a number
    [default: 1e-5]."""
    seed: int | None = None
    """Seed of everything random [default: 0]."""
    threads: int | None = None
    """Threads that plans may use [default: all cores this process may use]."""
    table: Path | None = None
    """Timing table to use [default: the user's own]."""
    max_memory: str | None = None
    """Most memory for the e-graph and for the plan, as 4GiB."""
    max_nodes: int | None = None
    """Most e-nodes for one block."""
    backend: Annotated[tuple[str, ...], Parameter(negative=())] = ()
    """Use this backend only; may be repeated [default: all that can be used here]."""
    rules: Annotated[tuple[Path, ...], Parameter(negative=())] = ()
    """A file of rewrite rules to use besides the installed ones, once it is certified; may be repeated."""
    strict: Annotated[bool, Parameter(negative=())] = False
    """Fail (exit code 5 or 6) rather than fall back to the model as written."""
    fresh: Annotated[bool, Parameter(negative=())] = False
    """Search again what the table remembers."""
    measure: Annotated[bool, Parameter(show=False)] = True
    trial: Annotated[bool, Parameter(show=False)] = True

    def options(self, **more: object) -> Options:
        """As options of an optimization. Raises UsageError."""
        from waxeq.options import Options

        given = {k: v for k, v in vars(self).items() if v is not None and k != "backend"}
        if self.backend:
            given["backends"] = self.backend
        return Options.of(**{**given, **more})


@Parameter(name="*", group=_OUTPUT, show_default=False)
@dataclass(frozen=True)
class Show:
    """What to print where."""

    json: Annotated[bool, Parameter(negative=())] = False
    """Print data as JSON on stdout."""
    quiet: Annotated[bool, Parameter(name=("--quiet", "-q"), negative=())] = False
    """No progress and no notes on stderr."""
    verbose: Annotated[bool, Parameter(name=("--verbose", "-v"), negative=())] = False
    """Every stage, with its time, on stderr."""
    traceback: Annotated[bool, Parameter(negative=())] = False
    """Print the Python traceback of an error."""


SEARCH, SHOW = Search(), Show()
