"""Where output goes: data on stdout, everything else on stderr."""

from __future__ import annotations

import ctypes
import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from typing import Any

from waxeq.cli import say
from waxeq.cli.options import Show
from waxeq.events import Event, Events, Note, Progress, StageFinished, StageStarted

_WIDTH, _NARROWEST = 120, 40
"""Columns of what goes into a file or a pipe, where COLUMNS does not say otherwise; and the fewest anywhere: of tables
that are narrower whole columns would be left out."""


def finish(show: Show, data: Any, view: Callable[[Any], Any]) -> None:
    """Print the outcome of a command on stdout: the data as JSON, or how `view` shows it."""
    if show.json:
        sys.stdout.write(json.dumps(_finite(data), indent=1, allow_nan=False) + "\n")
    else:
        _print(view(data))
    sys.stdout.flush()


def _print(shown: Any) -> None:
    """On a terminal as wide as that; into a file or a pipe without the blanks that fill lines up."""
    from rich.console import Console

    if sys.stdout.isatty():
        terminal = Console(highlight=False)
        terminal.width = max(terminal.width, _NARROWEST)
        terminal.print(shown)
        return
    columns = os.environ.get("COLUMNS", "")
    wide = columns.isdigit() and int(columns) >= _NARROWEST
    console = Console(file=sys.stdout, width=int(columns) if wide else _WIDTH, highlight=False)
    with console.capture() as held:
        console.print(shown)
    sys.stdout.write("\n".join(line.rstrip(" ") for line in held.get().split("\n")))


def _finite(value: Any) -> Any:
    """JSON has no infinity and no NaN: they become text."""
    if isinstance(value, Mapping):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


@contextmanager
def aside() -> Iterator[None]:
    """Inside, what the user's model prints goes to stderr, also what its libraries in C and its processes do."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        ctypes.CDLL(None).fflush(None)  # C holds back what it prints until there is much of it
        os.dup2(kept, 1)
        os.close(kept)


@contextmanager
def working(show: Show) -> Iterator[Events]:
    """Events whose progress is shown on stderr. What the user's model prints goes to stderr too."""
    with aside(), _listener(show) as listen:
        yield Events(listen)


@contextmanager
def _listener(show: Show) -> Iterator[Callable[[Event], None]]:
    if show.quiet:
        yield lambda event: None
    elif show.verbose or not sys.stderr.isatty():
        yield _lines(show.verbose)
    else:
        with _bar() as listen:
            yield listen


def _lines(verbose: bool) -> Callable[[Event], None]:
    def listen(event: Event) -> None:
        if isinstance(event, Note):
            say(f"note: {event.text}")
        elif verbose and isinstance(event, StageStarted):
            say(f"{event.stage} {event.detail}".rstrip() + " ...")
        elif verbose and isinstance(event, StageFinished):
            say(f"{event.stage} done at {event.seconds:.2f} s {event.detail}")
        elif verbose and isinstance(event, Progress):
            say(f"{event.stage} {min(event.done + 1, event.total)}/{event.total} {event.detail}".rstrip())

    return listen


@contextmanager
def _bar() -> Iterator[Callable[[Event], None]]:
    """A line that says what is going on, while it goes on."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Line

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(20), MofNCompleteColumn())
    with Line(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as line:
        task = line.add_task("start", total=None)

        def listen(event: Event) -> None:
            if isinstance(event, Note):
                line.console.print(f"note: {event.text}", markup=False)
            elif isinstance(event, StageStarted):
                line.update(task, description=f"{event.stage} {event.detail}".rstrip(), total=None, completed=0)
            elif isinstance(event, Progress):
                what = f"{event.stage} {event.detail}".rstrip()
                line.update(task, description=what, total=event.total, completed=event.done)

        yield listen
