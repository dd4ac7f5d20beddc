"""Plan files: NAME.plan.json (the plan, repeatable byte for byte) and NAME.plan.safetensors (weights, constants,
inputs).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from waxeq.errors import PlanError
from waxeq.plan.encode import decode, encode
from waxeq.plan.plan import Plan
from waxeq.runtime.files import read_bytes, write_atomically


@dataclass(frozen=True)
class Saved:
    """A plan with the tensors it is bound to and the inputs it was optimized with."""

    plan: Plan
    tensors: Mapping[str, np.ndarray]
    inputs: Mapping[str, np.ndarray]


def tensors_path(path: Path) -> Path:
    """Where the tensors of a plan file lie: beside it."""
    return path.with_suffix(".safetensors")


def save_plan(
    path: str | Path, plan: Plan, tensors: Mapping[str, np.ndarray], inputs: Mapping[str, np.ndarray] | None = None
) -> None:
    """Write both files; the tensors first, so that a plan file that exists is whole. Raises PlanError."""
    from safetensors.numpy import save

    path = Path(path)
    rows = {f"weight:{n}": a for n, a in tensors.items()}
    rows |= {f"constant:{n}": a for n, a in plan.graph.constants.items()}
    rows |= {f"input:{n}": a for n, a in (inputs or {}).items()}
    plain = {n: np.ascontiguousarray(a) for n, a in rows.items()}
    write_atomically(tensors_path(path), save(plain))
    write_atomically(path, (json.dumps(encode(plan), sort_keys=True, indent=1) + "\n").encode())


def load_plan(path: str | Path) -> Saved:
    """Read both files. Raises PlanError on missing, damaged or foreign files."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    path = Path(path)
    try:
        rows = load(read_bytes(tensors_path(path)))
    except SafetensorError as e:
        raise PlanError(f"{tensors_path(path)} is damaged ({e}); make the plan anew with `waxeq optimize`") from e
    try:
        data = json.loads(read_bytes(path))
    except ValueError as e:
        raise PlanError(f"{path} is not a plan: {e}") from e
    groups: dict[str, dict[str, np.ndarray]] = {"weight": {}, "constant": {}, "input": {}}
    for key, a in rows.items():
        kind, _, name = key.partition(":")
        groups[kind][name] = a
    return Saved(decode(data, groups["constant"]), groups["weight"], groups["input"])
