"""A plan file, or a bundle, as something that runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from waxeq.backend.discover import backends, kernels
from waxeq.plan.encode import decode
from waxeq.runtime.bundle import is_bundle, read_bundle
from waxeq.runtime.program import Program
from waxeq.runtime.save import load_data

if TYPE_CHECKING:
    from waxeq.runtime.sized import SizedProgram


def load(path: str | Path) -> Program | SizedProgram:
    """The program of a plan file or a bundle: `load("mlp.plan.json")(x)`. One that was made for ranges of sizes takes
    inputs of any size in them. Raises PlanError for a file that is missing, damaged, of another version, or needs a
    kernel that is not installed."""
    return opened(path)[0]


def opened(path: str | Path) -> tuple[Program | SizedProgram, Mapping[str, np.ndarray]]:
    """The program of a plan file or a bundle, and the inputs that were saved with it. Raises PlanError."""
    if is_bundle(path):
        return read_bundle(path)
    data, groups = load_data(path)
    installed = kernels(backends())
    if "sized" in data:
        from waxeq.runtime.sized import SizedProgram
        from waxeq.symbolic.file import decode_sized

        plans = decode_sized(data, groups["constant"])
        return SizedProgram(plans, installed, groups["weight"]), groups["input"]
    return Program(decode(data, groups["constant"]), installed, groups["weight"]), groups["input"]
