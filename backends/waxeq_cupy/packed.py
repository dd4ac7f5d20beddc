"""Kernels that travel with a plan: machine code for GPUs that it may meet, and what the virtual one runs.

A file is named by what it is for; one that does not fit the machine, or the text before the kernels here, is left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import Any

from waxeq.backend.call import Call
from waxeq.backend.kernel import Kernel
from waxeq_cupy import device
from waxeq_cupy.cubins import bring
from waxeq_cupy.kernels import Launch, prelude
from waxeq_cupy.nvrtc import MissingCompiler, Nvrtc
from waxeq_cupy.virtual import Virtual

ARCHITECTURES = ("sm_80", "sm_90")
"""What all kernels are compiled for, but those that have instructions of one architecture alone."""
_ENTRIES, _VIRTUAL = "kernels.json", "virtual.so"


def launches(rows: Iterable[tuple[Kernel, Call]]) -> dict[str, Launch]:
    """The launches of calls by name, for memory that begins at 16 bytes and for any other."""
    works = (getattr(k, "work")(c, aligned=a) for k, c in rows if hasattr(k, "work") for a in (True, False))  # noqa: B009
    return {x.name: x for w in works if w is not None for x in w.launches}


def images(found: Mapping[str, Launch], *, simulated: bool = True) -> Mapping[str, bytes]:
    """Files with the code of kernels, by name: cubins where NVRTC is here, and, if `simulated`, what the virtual device
    runs, where it is the device."""
    files: dict[str, bytes] = {}
    if not found:
        return files
    parts = {f"{a}.cubin": names for a, names in compiled_for(found).items()}
    try:
        compiler = Nvrtc.found()
        with ThreadPoolExecutor() as pool:
            made = pool.map(lambda f: _cubin(compiler, f.removesuffix(".cubin"), [found[n] for n in parts[f]]), parts)
            files |= dict(zip(parts, made, strict=True))
    except MissingCompiler:
        parts = {}
    if simulated and device.place() != "cpu" and isinstance(on := device.current(), Virtual):
        files[_VIRTUAL] = on.simulated.library_of(list(found.values()))
        parts[_VIRTUAL] = sorted(found)
    if not files:
        return files
    about: dict[str, Any] = {"prelude": _prelude(), "kernels": parts}
    return {**files, _ENTRIES: json.dumps(about).encode()}


def compiled_for(found: Mapping[str, Launch]) -> dict[str, list[str]]:
    """The names of the kernels that are compiled for each architecture: those of one architecture's own instructions
    for that alone."""
    own = sorted({x.architecture for x in found.values()} - {""})
    wanted = {**dict.fromkeys(ARCHITECTURES, ""), **{a: a for a in own}}
    rows = {a: sorted(n for n, x in found.items() if x.architecture == which) for a, which in wanted.items()}
    return {a: names for a, names in rows.items() if names}


def _cubin(compiler: Nvrtc, architecture: str, kernels: Iterable[Launch]) -> bytes:
    return compiler.cubin(prelude() + "\n".join(x.source for x in kernels), architecture).code


def bring_all(files: Mapping[str, bytes]) -> None:
    """Take in the code in these files."""
    if _ENTRIES not in files:
        return
    about = json.loads(files[_ENTRIES])
    if about["prelude"] != _prelude():
        return  # another version of waxeq made them: they are compiled again, or refused where that cannot be
    for name, kernels in about["kernels"].items():
        if name.endswith(".cubin"):
            bring(name.removesuffix(".cubin"), prelude(), dict.fromkeys(kernels, files[name]))
        elif name == _VIRTUAL and isinstance(on := device.current(), Virtual):
            on.simulated.bring(files[name], kernels)


def _prelude() -> str:
    return sha256(prelude().encode()).hexdigest()
