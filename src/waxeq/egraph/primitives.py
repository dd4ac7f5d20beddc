"""What egglog's primitives compute, in Python: for those who decide a guard without running the e-graph."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any


class Undecided(Exception):
    """What only the e-graph itself could say."""


PRIMITIVES: Mapping[str, Callable[..., Any]] = {
    "set-contains": operator.contains,
    "set-not-contains": lambda s, k: k not in s,
    "set-union": operator.or_,
    "set-intersect": operator.and_,
    "set-diff": operator.sub,
    "set-insert": lambda s, k: s | {k},
    "set-remove": lambda s, k: s - {k},
    "set-empty": frozenset,
    "set-of": lambda *ks: frozenset(ks),
    "set-length": len,
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "+": operator.add,
    "-": lambda a, b=None: -a if b is None else a - b,
    "*": operator.mul,
}
"""By name. Sets are frozensets of axis names."""
