"""A plan file as something that runs."""

from __future__ import annotations

from pathlib import Path

from waxeq.backend.discover import backends, kernels
from waxeq.runtime.program import Program
from waxeq.runtime.save import Saved, load_data, load_plan
from waxeq.runtime.sized import SizedProgram
from waxeq.symbolic.file import KEY, decode_sized


def load(path: str | Path) -> Program | SizedProgram:
    """The program of a plan file: `load("mlp.plan.json")(x)`. One that was made for ranges of sizes takes inputs of any
    size in them. Raises PlanError for a file that is missing, damaged, of another version, or needs a kernel that is
    not installed."""
    data, groups = load_data(path)
    if KEY in data:
        return SizedProgram(decode_sized(data, groups["constant"]), kernels(backends()), groups["weight"])
    saved: Saved = load_plan(path)
    return Program(saved.plan, kernels(backends()), saved.tensors)
