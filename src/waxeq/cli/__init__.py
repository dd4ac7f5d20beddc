"""The `waxeq` command. Importing this loads nothing; `main` loads what the command at hand needs."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from typing import TextIO

from waxeq.cli.ending import cleared_away
from waxeq.naming import at_command_line

INTERRUPTED = 130
NOTHING_WRITTEN = "waxeq: interrupted; nothing was written"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code. Never raises for what a user may do."""
    argv = sys.argv[1:] if argv is None else list(argv)
    _open_what_is_closed()
    with cleared_away():
        try:
            if find_spec("cyclopts") is None:
                from waxeq.cli.bare import run
            else:
                from waxeq.cli.app import run
            with at_command_line():
                return run(argv)
        except BaseException as e:
            if _nobody_reads(e):
                discard(sys.stdout)
                return 0
            if not interrupted(e):
                raise
            say(NOTHING_WRITTEN)
            return INTERRUPTED


def interrupted(e: BaseException) -> bool:
    """Whether Ctrl-C is what an error comes from: Python makes a RuntimeError of it where a class was being made."""
    causes, cause = dict[int, BaseException](), e
    while cause is not None and id(cause) not in causes:  # `raise e from e` is its own
        causes[id(cause)] = cause
        cause = cause.__cause__
    return any(isinstance(c, KeyboardInterrupt) for c in causes.values())


def _nobody_reads(e: BaseException) -> bool:
    """Whether the reader of stdout is gone, as `head` soon is; of which rich makes an exit with 1."""
    return isinstance(e.__context__ if isinstance(e, SystemExit) else e, BrokenPipeError)


def say(text: str) -> None:
    """Something on stderr, as long as anybody reads that: Ctrl-C ends the reader of a pipe too, and what was found is
    to be written for all that."""
    try:
        sys.stderr.write(text.rstrip() + "\n")
    except BrokenPipeError:
        discard(sys.stderr)


def discard(output: TextIO) -> None:
    """Nobody reads any more; what is still buffered must not fail when Python ends."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), output.fileno())


def _open_what_is_closed() -> None:
    """What is written to an output that whoever called has closed (`>&-`) goes nowhere, and not into the next file that
    is opened, which would have its number."""
    for number, name in ((0, "stdin"), (1, "stdout"), (2, "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
            os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115 as long as Python
