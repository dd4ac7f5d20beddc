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
from waxeq.runtime.save import Saved, load_data

if TYPE_CHECKING:
    from waxeq.runtime.sized import SizedProgram, SizedSaved


def load(path: str | Path) -> Program | SizedProgram:
    """The program of a plan file or a bundle: `load("mlp.plan.json")(x)`. One that was made for ranges of sizes takes
    inputs of any size in them. Raises PlanError for a file that is missing, damaged, of another version, or needs a
    kernel that is not installed."""
    return opened(path)[0]


def opened(path: str | Path) -> tuple[Program | SizedProgram, Mapping[str, np.ndarray]]:
    """The program of a plan file or a bundle, and the inputs that were saved with it. Raises PlanError."""
    if is_bundle(path):
        return read_bundle(path)
    found = read_saved(path)
    installed = kernels(backends())
    if isinstance(found, Saved):
        return Program(found.plan, installed, found.tensors), found.inputs
    from waxeq.runtime.sized import SizedProgram

    return SizedProgram(found.plans, installed, found.tensors), found.inputs


def read_saved(path: str | Path) -> Saved | SizedSaved:
    """What lies in the files of a plan. Raises PlanError on missing, damaged or foreign files."""
    data, groups = load_data(path)
    if "sized" in data:
        from waxeq.runtime.sized import SizedSaved
        from waxeq.symbolic.file import decode_sized

        return SizedSaved(decode_sized(data, groups["constant"]), groups["weight"], groups["input"])
    return Saved(decode(data, groups["constant"]), groups["weight"], groups["input"])
