"""Options that commands share, as the command line takes them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Group, Parameter

from waxeq.errors import OptionError, UsageError
from waxeq.naming import typed

if TYPE_CHECKING:
    from waxeq.options import Options

_SEARCH = Group("Search", sort_key=2)
_OUTPUT = Group("Output", sort_key=3)
_HIDDEN = ("measure", "trial")
_TOLERANCE = (
    "Relative RMS error allowed against float64: exact, reassociating (1e-5), approximate (1e-3) or a number "
    "[default: 1e-5]."
)
_FRESH = "Search, check and time plans again that the table remembers; its timings of kernels are used."
_LOOSEST = "1e-2"
"""The tolerance that a front is looked up to when none is given."""
_LOOSE = _TOLERANCE.replace("1e-5].", f"{_LOOSEST}].")
_BUDGET = (
    "Time for search, measuring, proof and trial, as 30s, 2m or 500ms; none has no end. With 0 no rule is tried and no "
    "kernel timed: the plan is a remembered one, or a guess [default: 60s]."
)
_LONG = "Time for all of it, of each model, as 30s or 2m [default: none]."


@Parameter(name="*", group=_SEARCH, show_default=False)
@dataclass(frozen=True)
class Measuring:
    """What kernels are timed, and where. What is not given keeps the default of `waxeq.Options`."""

    tolerance: Annotated[str | None, Parameter(help=_TOLERANCE)] = None
    seed: int | None = None
    """Seed of everything random [default: 0]."""
    threads: int | None = None
    """Threads that plans may use [default: all cores this process may use]."""
    table: Path | None = None
    """Timing table to use [default: the user's own, which `waxeq db status` names]."""
    backend: Annotated[tuple[str, ...], Parameter(negative=())] = ()
    """Use this backend only, one that `waxeq backends` lists; may be repeated [default: all that can be used here]."""
    fresh: Annotated[bool, Parameter(negative=())] = False
    """Time kernels again that the table knows."""

    def options(self, **more: object) -> Options:
        """As options of an optimization. Raises UsageError."""
        from waxeq.options import Options

        given = {k: v for k, v in vars(self).items() if v is not None and k != "backend"}
        if self.backend:
            given["backends"] = self.backend
        try:
            return Options.of(**{**given, **more})
        except OptionError as e:
            raise UsageError(f"{typed(e.option)}{e.said}") from None


@Parameter(name="*", group=_SEARCH, show_default=False)
@dataclass(frozen=True)
class Search(Measuring):
    """How to search. What is not given keeps the default of `waxeq.Options`."""

    fresh: Annotated[bool, Parameter(negative=(), help=_FRESH)] = False
    budget: Annotated[str | None, Parameter(help=_BUDGET)] = None
    max_memory: str | None = None
    """Most memory of the plan when it runs, as 4GiB or 512MB [default: 4GiB]."""
    search_memory: str | None = None
    """Most memory of the e-graph of one block while searching [default: 4GiB]."""
    max_nodes: int | None = None
    """Most e-nodes in the e-graph of one block of the model [default: 60000]."""
    device: str | None = None
    """Where inputs lie and results are wanted: cpu, or cuda, the memory of a GPU [default: cpu]."""
    rules: Annotated[tuple[Path, ...], Parameter(negative=())] = ()
    """A file of rewrite rules (.egg) to use besides the installed ones, once it is certified; may be repeated."""
    strict: Annotated[bool, Parameter(negative=())] = False
    """Fail (exit code 5 or 6) rather than fall back: to the model as written, or to a timing table in memory."""
    measure: Annotated[bool, Parameter(show=False)] = True
    trial: Annotated[bool, Parameter(show=False)] = True

    def require_only(self, used: str, target: str) -> None:
        """Raise UsageError for another option than `used`: a plan is not searched for again, so it has no effect."""
        for name, value in vars(self).items():
            if value != getattr(SEARCH, name) and name not in (used, *_HIDDEN):
                raise UsageError(f"{typed(name)} is for searching, but {target} is a plan already; leave it out")


@Parameter(name="*", group=_SEARCH, show_default=False)
@dataclass(frozen=True)
class Unhurried(Search):
    """The same for commands that go on until they are done."""

    budget: Annotated[str | None, Parameter(help=_LONG)] = None

    def options(self, **more: object) -> Options:
        """As options of an optimization, without a budget where none is given. Raises UsageError."""
        return super().options(**({} if self.budget else {"budget": None}), **more)


@Parameter(name="*", group=_SEARCH, show_default=False)
@dataclass(frozen=True)
class Loose(Unhurried):
    """The same for commands that look at what a larger error would bring."""

    tolerance: Annotated[str | None, Parameter(help=_LOOSE)] = None

    def options(self, **more: object) -> Options:
        """The same, with a large tolerance where none is given. Raises UsageError."""
        return super().options(**({} if self.tolerance else {"tolerance": _LOOSEST}), **more)


@Parameter(name="*", group=_OUTPUT, show_default=False)
@dataclass(frozen=True)
class Show:
    """What to print where."""

    json: Annotated[bool, Parameter(negative=())] = False
    """Print data as JSON on stdout: times in seconds, memory in bytes."""
    quiet: Annotated[bool, Parameter(name=("--quiet", "-q"), negative=())] = False
    """Print no progress and no notes on stderr."""
    verbose: Annotated[bool, Parameter(name=("--verbose", "-v"), negative=())] = False
    """Print every stage, and the seconds since the start when it ends, on stderr."""
    traceback: Annotated[bool, Parameter(negative=())] = False
    """Print the Python traceback of an error."""


MEASURING, SEARCH, UNHURRIED, LOOSE, SHOW = Measuring(), Search(), Unhurried(), Loose(), Show()
