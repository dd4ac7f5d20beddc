"""A plan file as something that runs."""

from __future__ import annotations

from pathlib import Path

from waxeq.backend.discover import backends, kernels
from waxeq.runtime.program import Program
from waxeq.runtime.save import load_plan


def load(path: str | Path) -> Program:
    """The program of a plan file: `load("mlp.plan.json")(x)`. Raises PlanError for a file that is missing, damaged, of
    another version, or needs a kernel that is not installed."""
    saved = load_plan(path)
    return Program(saved.plan, kernels(backends()), saved.tensors)
