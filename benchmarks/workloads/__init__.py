"""The benchmark set: every workload by name, in the order of the report. It is imported when it is asked for: some of
its families need packages that others do without."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from benchmarks.workload import Workload

if TYPE_CHECKING:
    WORKLOADS: Mapping[str, Workload]

_FAMILIES = ("elementwise", "norms", "transformer", "sentences", "vision", "arrays", "linear", "mirage")


@cache
def _workloads() -> Mapping[str, Workload]:
    families = (import_module(f"{__name__}.{family}") for family in _FAMILIES)
    return {w.name: w for family in families for w in family.WORKLOADS}


def __getattr__(name: str) -> Any:
    if name == "WORKLOADS":
        return _workloads()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def select(pattern: str) -> tuple[Workload, ...]:
    """Workloads whose names match one of several patterns, comma between them: `softmax*,minilm`. Raises ValueError."""
    patterns = [p.strip() for p in pattern.split(",")]
    known = _workloads()
    found = tuple(w for n, w in known.items() if any(fnmatchcase(n, p) for p in patterns))
    if not found:
        raise ValueError(f"no row is called {pattern!r}; there are {', '.join(known)}")
    return found
