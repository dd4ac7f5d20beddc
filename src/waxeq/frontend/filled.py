"""Which arrays of known content a model goes on to write to, as its code says: those are traced from the beginning."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from types import CodeType

FILLED = ("array", "arange", "linspace", "logspace", "geomspace", "tri", "indices")
"""Creators of known arrays that a model may fill, beside those of handlers.MUTABLE."""

_LOADS = ("LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_DEREF", "LOAD_NAME", "LOAD_GLOBAL")
_STORES = ("STORE_FAST", "STORE_DEREF", "STORE_NAME", "STORE_GLOBAL")


def is_filled(theirs: Callable[[str], bool]) -> bool:
    """Whether what the innermost call of the user's program gives gets a name through which that code writes to
    elements. `theirs`: whether a source file is the user's."""
    frame = sys._getframe(1)
    while frame is not None and not theirs(frame.f_code.co_filename):
        frame = frame.f_back
    return frame is not None and frame.f_lasti in _fills(frame.f_code)


@cache
def _fills(code: CodeType) -> frozenset[int]:
    """Offsets of calls whose result gets such a name, to where the next step begins: a frame may stand anywhere in
    them."""
    steps = list(dis.get_instructions(code))
    names = {_start(s): s.argval for s in steps if s.opname in _LOADS}
    written = {names[_start(s)] for s in steps if _is_write(s) and _start(s) in names}
    stored = ((s, after) for s, after in pairwise(steps) if after.opname in _STORES and after.argval in written)
    return frozenset(n for s, after in stored for n in range(s.offset, after.offset))


def _start(step: dis.Instruction) -> tuple[int | None, int | None]:
    """Where the source of a step begins."""
    p = step.positions
    return (None, None) if p is None else (p.lineno, p.col_offset)


def _is_write(step: dis.Instruction) -> bool:
    """`a[i] = v` and `a += v`, whose source begins with the name that is loaded."""
    return step.opname == "STORE_SUBSCR" or (step.opname == "BINARY_OP" and step.argrepr.endswith("="))
