"""A plan with all that it needs to run in one file: weights, inputs and compiled code. Where such a file is run, only
NumPy has to be installed beside waxeq, and what the devices of the plan need.

It is a zip file of plan.json, arrays as .npy files and code as the backends made it.
"""

from __future__ import annotations

import io
import json
import struct
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from waxeq.backend.discover import backends, installed, kernels
from waxeq.backend.kernel import Backend, Kernel
from waxeq.errors import PlanError, UsageError
from waxeq.ir.types import numpy_dtype
from waxeq.plan.encode import VERSION, decode, encode
from waxeq.plan.plan import Plan
from waxeq.runtime.files import read_bytes, write_atomically
from waxeq.runtime.program import Program
from waxeq.runtime.save import by_kind

SUFFIX = ".waxeq"
_PLAN = "plan.json"


@dataclass(frozen=True, slots=True)
class Made:
    """What a bundle has of its kernels. `built`: by backend, the architectures that they are compiled for; `later`:
    backends whose kernels are compiled only where it is run, and why, if there is more to say."""

    built: Mapping[str, tuple[str, ...]]
    later: Mapping[str, str]


def write_bundle(
    path: str | Path,
    plan: Plan,
    tensors: Mapping[str, np.ndarray],
    inputs: Mapping[str, np.ndarray] | None = None,
    of: Iterable[Backend] | None = None,
    architectures: Sequence[str] = (),
    option: str = "",
) -> Made:
    """Write a plan, its weights, the inputs it may be tried on, and what its kernels are compiled to. `of`: backends
    that compile [default: all that are installed]; `architectures`: what for, as the backends call them [default: what
    each thinks likely]; `option` names another place. Raises PlanError, and UsageError for architectures that nothing
    is compiled for."""
    groups = by_kind(tensors, plan.graph.constants, inputs)
    made = io.BytesIO()
    usable = kernels(backends())
    later = {s.call.kernel.partition(".")[0]: "" for s in plan.steps if _compiles(s.call.kernel, usable)}
    built: dict[str, tuple[str, ...]] = {}
    with zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as z:
        z.writestr(_PLAN, json.dumps(encode(plan), sort_keys=True))
        for kind, arrays in groups.items():
            for name, a in arrays.items():
                z.writestr(f"{kind}/{name}.{a.dtype.name}.npy", _npy(a))
        for b in installed() if of is None else of:
            own = [s.call for s in plan.steps if s.call.kernel.partition(".")[0] == b.name]
            found = b.packed(own, architectures)
            for file, data in found.items():
                z.writestr(f"code/{b.name}/{file}", data)
            if found:
                built[b.name] = b.built_for(found)
                later.pop(b.name, None)
            elif b.name in later:
                later[b.name] = b.unpacked()
    if architectures and not built:
        raise UsageError(_nothing(architectures, later))
    write_atomically(path, made.getvalue(), option)
    return Made(built, dict(sorted(later.items())))


def _nothing(architectures: Sequence[str], later: Mapping[str, str]) -> str:
    why = " ".join(filter(None, later.values())) or "no backend that compiles beforehand has a kernel in the plan"
    return f"nothing can be compiled for {', '.join(architectures)}: {why}"


def _compiles(kernel: str, there: Mapping[str, Kernel]) -> bool:
    """Whether a kernel, by its full name, is compiled before it runs, or is not here, so that nobody can tell."""
    return kernel not in there or type(there[kernel]).prepare is not Kernel.prepare


def is_bundle(path: str | Path) -> bool:
    """Whether a file is called as bundles are."""
    return str(path).endswith(SUFFIX)


def contents(path: str | Path) -> dict[str, int]:
    """What lies in a bundle: the bytes of each file by name."""
    with zipfile.ZipFile(path) as z:
        return {i.filename: i.file_size for i in z.infolist()}


def read_bundle(path: str | Path) -> tuple[Program, dict[str, np.ndarray]]:
    """The program in a bundle and the inputs that lie with it. Raises PlanError."""
    try:
        with zipfile.ZipFile(io.BytesIO(read_bytes(path))) as z:
            files = {n: z.read(n) for n in z.namelist()}
        data = json.loads(files[_PLAN])
        if not isinstance(data, dict) or data.get("waxeq") != VERSION:
            raise PlanError(f"{path} is not a waxeq plan of version {VERSION}; make it anew")
        groups, code = _unpacked(files)
    except _DAMAGED as e:
        raise PlanError(f"{path} is no bundle of a plan, or damaged; make it anew") from e
    usable = backends()
    for b in usable:
        b.unpack(code.get(b.name, {}))
    return Program(decode(data, groups["constant"]), kernels(usable), groups["weight"]), groups["input"]


_DAMAGED = (
    *(zipfile.BadZipFile, zlib.error, struct.error, EOFError),
    *(KeyError, ValueError, TypeError, RuntimeError),
)
"""What reading files of a zip file raises that is none, or damaged: a RuntimeError where one says of itself that it is
encrypted, or packed in a way that nobody knows."""


def _unpacked(files: Mapping[str, bytes]) -> tuple[dict[str, dict[str, np.ndarray]], dict[str, dict[str, bytes]]]:
    """Arrays by kind and name, and code by backend and name."""
    groups: dict[str, dict[str, np.ndarray]] = {"weight": {}, "constant": {}, "input": {}}
    code: dict[str, dict[str, bytes]] = {}
    for file, content in files.items():
        kind, _, rest = file.partition("/")
        if kind in groups:
            name, dtype, _ = rest.rsplit(".", 2)
            a = np.load(io.BytesIO(content), allow_pickle=False)
            groups[kind][name] = a.view(numpy_dtype(dtype)).reshape(a.shape)
        elif kind == "code":
            backend, _, name = rest.partition("/")
            code.setdefault(backend, {})[name] = content
    return groups, code


def _npy(a: np.ndarray) -> bytes:
    out = io.BytesIO()
    plain = a.view(np.uint16) if a.dtype.name == "bfloat16" else a
    np.save(out, plain, allow_pickle=False)
    return out.getvalue()
