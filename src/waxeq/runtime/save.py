"""Plan files: NAME.plan.json (the plan, repeatable byte for byte) and NAME.plan.safetensors (weights, constants,
inputs). The plan file holds a digest of both, so that damage, or two files that do not belong together, are noticed
before anything is made of them.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from waxeq.errors import PlanError, UsageError
from waxeq.ir.types import DTYPES, numpy_dtype
from waxeq.plan.encode import VERSION, decode, encode
from waxeq.plan.plan import Plan
from waxeq.runtime.files import read_bytes, read_plan_bytes, require_writable, write_together

_KINDS = ("weight", "constant", "input")
"""What the names of tensors begin with."""


@dataclass(frozen=True)
class Saved:
    """A plan with the tensors it is bound to and the inputs it was optimized with."""

    plan: Plan
    tensors: Mapping[str, np.ndarray]
    inputs: Mapping[str, np.ndarray]


def tensors_path(path: Path) -> Path:
    """Where the tensors of a plan file lie: beside it."""
    return path.with_suffix(".safetensors")


def require_place(path: Path, option: str = "--output") -> None:
    """Raise PlanError where a plan cannot be written to `path`, or would take the place of what is no plan: before the
    work, not after it. `option` names another place."""
    require_writable(path, option)
    _require_name(path, f"name another with {option}")
    _require_own(path)


def _require_name(path: Path, instead: str) -> None:
    """Raise PlanError for what no plan is called: the tensors beside it are found by its name, and other files have
    others. `instead` says what to do."""
    if path.suffix != ".json":
        bundled = "; `waxeq bundle` makes a .waxeq file of a plan" if path.suffix == ".waxeq" else ""
        raise PlanError(f"{path}: plans are called NAME.json; {instead}, as {path.stem}.plan.json{bundled}")


def _require_own(path: Path) -> None:
    """Raise PlanError where something lies that is no plan, or the tensors of none."""
    for p, known in ((path, _is_plan), (tensors_path(path), _is_of_plan)):
        if os.path.exists(p) and not known(p):
            raise PlanError(f"{p} is there already, and belongs to no plan; name another place, or remove it")


def _is_plan(path: Path) -> bool:
    """Whether a plan lies there, even one of another version or a damaged one."""
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(data, dict) and {"waxeq", "tensors"} <= data.keys()


def _is_of_plan(path: Path) -> bool:
    """Whether the tensors of a plan lie there, be it gone or not: they have names of their own."""
    try:
        with open(path, "rb") as f:
            names = json.loads(f.read(int.from_bytes(f.read(8), "little"))).keys()
    except (OSError, ValueError, AttributeError, OverflowError, MemoryError):
        return False
    return all(n.partition(":")[0] in _KINDS for n in names if n != "__metadata__")


def save_plan(
    path: str | Path,
    plan: Plan,
    tensors: Mapping[str, np.ndarray],
    inputs: Mapping[str, np.ndarray] | None = None,
    option: str = "",
) -> None:
    """Write both files, or neither. Raises PlanError; `option` names another place."""
    save_data(path, encode(plan), by_kind(tensors, plan.graph.constants, inputs), option)


def by_kind(
    tensors: Mapping[str, np.ndarray],
    constants: Mapping[str, np.ndarray],
    inputs: Mapping[str, np.ndarray] | None = None,
) -> dict[str, Mapping[str, np.ndarray]]:
    """The arrays that are kept with a plan, by what they are to it."""
    return {"weight": tensors, "constant": constants, "input": inputs or {}}


def save_data(
    path: str | Path, plan: Mapping[str, Any], groups: Mapping[str, Mapping[str, np.ndarray]], option: str = ""
) -> None:
    """Write the files of a plan that is JSON values already; arrays by kind and name. Raises PlanError; `option` names
    another place."""
    from safetensors.numpy import save

    path = _place(path)
    if os.path.isdir(path):
        raise PlanError(f"{path} is a folder; name a file in it, as {path / 'model.plan.json'}")
    _require_name(path, "give another name")
    _require_own(path)
    rows = {f"{kind}:{n}": a for kind, arrays in groups.items() for n, a in arrays.items()}
    packed = save({n: np.asarray(a, order="C") for n, a in rows.items()})  # ascontiguousarray gives scalars an axis
    data = {**plan, "tensors": hashlib.sha256(packed).hexdigest()}
    text = json.dumps(_sorted({**data, "sha256": _digest(data)}), indent=1) + "\n"
    write_together({tensors_path(path): packed, path: text.encode()}, option)


def load_plan(path: str | Path) -> Saved:
    """Read both files. Raises PlanError on missing, damaged or foreign files."""
    data, groups = load_data(path)
    if "sized" in data:
        raise PlanError(f"{path} is a plan for ranges of sizes, where one for one size is needed")
    return Saved(decode(data, groups["constant"]), groups["weight"], groups["input"])


def load_data(path: str | Path) -> tuple[dict[str, Any], dict[str, dict[str, np.ndarray]]]:
    """What the files of a plan hold: JSON values, and arrays by kind and name. Raises PlanError."""
    path = _place(path)
    data = _read(path)
    beside = tensors_path(path)
    packed = read_bytes(beside, f"it holds the weights of {path.name} and belongs beside it")
    if data["tensors"] != hashlib.sha256(packed).hexdigest():
        raise PlanError(f"{beside} is damaged or belongs to another plan; {_ANEW}")
    groups: dict[str, dict[str, np.ndarray]] = {kind: {} for kind in _KINDS}
    for key, a in _unpacked(packed).items():
        kind, _, name = key.partition(":")
        groups[kind][name] = a
    return data, groups


_ANEW = "make the plan anew with `waxeq optimize`"


def _place(path: str | Path) -> Path:
    if not isinstance(path, (str, os.PathLike)) or not str(path):
        raise UsageError(f"{path!r} is not the path of a plan file; give one, as 'model.plan.json'")
    return Path(path)


def _read(path: Path) -> dict[str, Any]:
    """The content of a plan file that is whole and of this version. Raises PlanError."""
    text = read_plan_bytes(path)
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as e:
        if not text.strip():
            raise PlanError(f"{path} is empty; {_ANEW}") from e
        if text.lstrip().startswith(b"{"):
            raise PlanError(f"{path} is damaged or cut off; {_ANEW}") from e
        raise PlanError(f"{path} is not a plan; give the .json file that `waxeq optimize` wrote") from e
    if not isinstance(data, dict) or "waxeq" not in data:
        raise PlanError(f"{path} is not a plan that waxeq wrote")
    if data["waxeq"] != VERSION:
        raise PlanError(f"{path} is not a waxeq plan of version {VERSION}; {_ANEW}")
    if data.pop("sha256", None) != _digest(data) or "tensors" not in data:
        raise PlanError(f"{path} is damaged; {_ANEW}")
    return data


def _sorted(value: Any) -> Any:
    """Keys in order, so that a plan is written alike each time; those of results stay as the model gives them."""
    if isinstance(value, Mapping):
        return {k: value[k] if k == "structure" else _sorted(value[k]) for k in sorted(value)}
    return [_sorted(v) for v in value] if isinstance(value, (list, tuple)) else value


def _digest(data: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


_NAMES = {"BOOL": "bool", "BF16": "bfloat16"} | {
    {"f": "F", "i": "I", "u": "U"}[d[0]] + d.lstrip("floatuin"): d for d in DTYPES if d not in ("bool", "bfloat16")
}
"""Dtypes by the names that safetensors gives them. Its own NumPy reader knows no bfloat16."""


def _unpacked(packed: bytes) -> dict[str, np.ndarray]:
    from safetensors import deserialize

    rows = {n: (r["data"], numpy_dtype(_NAMES[r["dtype"]]), r["shape"]) for n, r in deserialize(packed)}
    return {n: np.frombuffer(data, dtype).reshape(shape) for n, (data, dtype, shape) in rows.items()}
