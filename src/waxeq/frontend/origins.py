"""Whose code a source file is, and what of an error its user's code has met."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import FrameType, TracebackType

import numpy as np

LIBRARIES = {"jax": "jax", "jaxlib": "jax", "torch": "torch"}
"""Other libraries of arrays: what their modules are called, by the packages that they lie in."""
_OWN = f"{Path(__file__).resolve().parent.parent}{os.sep}"
_OUTSIDE = (_OWN, str(Path(np.__file__).resolve().parent))
_PYTHON = sys.base_prefix + "/lib/python"
_LIBRARIES = ("/scipy/", *(f"/site-packages/{name}/" for name in LIBRARIES))


@cache
def theirs(file: str) -> bool:
    """Whether a source file is the user's: neither of waxeq nor of a library of arrays, nor made up."""
    return not file.startswith((*_OUTSIDE, "<")) and not any(part in file for part in _LIBRARIES)


def installed(file: str) -> bool:
    """Whether a source file is of Python, of waxeq or of an installed package."""
    return "site-packages" in file or file.startswith((_OWN, _PYTHON, "<frozen"))


def place(trail: TracebackType | None) -> str:
    """file:line of the innermost frame of the user's program in a traceback, and not of Python's own modules, which it
    or waxeq may have called, where it has any."""
    found = inside = ""
    while trail is not None:
        file = trail.tb_frame.f_code.co_filename
        if theirs(file):
            inside = f"{file.rsplit('/', 1)[-1]}:{trail.tb_lineno}"
            found = found if file.startswith(_PYTHON) and "site-packages" not in file else inside
        trail = trail.tb_next
    return found or inside or "?"


def reached_user(e: BaseException) -> bool:
    """Whether an error was raised, and went through code that is not installed: what catches it there, or further out,
    may go on in a way of its own."""
    return any(not installed(f.f_code.co_filename) for f in frames(e.__traceback__))


def frames(trail: TracebackType | None) -> Iterator[FrameType]:
    """The frames of a traceback, the outermost first."""
    while trail is not None:
        yield trail.tb_frame
        trail = trail.tb_next
