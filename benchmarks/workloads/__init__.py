"""The benchmark set: every workload by name, in the order of the report."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

from benchmarks.workload import Workload
from benchmarks.workloads import arrays, elementwise, linear, mirage, norms, sentences, transformer, vision

_FAMILIES = (elementwise, norms, transformer, sentences, vision, arrays, linear, mirage)
WORKLOADS: Mapping[str, Workload] = {w.name: w for family in _FAMILIES for w in family.WORKLOADS}


def select(pattern: str) -> tuple[Workload, ...]:
    """Workloads whose names match one of several patterns, comma between them: `softmax*,minilm`. Raises ValueError."""
    patterns = [p.strip() for p in pattern.split(",")]
    found = tuple(w for n, w in WORKLOADS.items() if any(fnmatchcase(n, p) for p in patterns))
    if not found:
        raise ValueError(f"no row is called {pattern!r}; there are {', '.join(WORKLOADS)}")
    return found
