"""Kernels that travel with a plan: machine code for GPUs that it may meet, and what the virtual one runs.

A file is named by what it is for; one that does not fit the machine, or the text before the kernels here, is left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import Any

from waxeq.backend.call import Call
from waxeq.backend.kernel import Kernel
from waxeq.errors import UsageError
from waxeq_cupy import device
from waxeq_cupy.cubins import bring, capability
from waxeq_cupy.kernels import Launch, prelude
from waxeq_cupy.nvrtc import MissingCompiler, Nvrtc
from waxeq_cupy.virtual import Virtual

ARCHITECTURES = ("sm_80", "sm_90")
"""What all kernels are compiled for, but those that have instructions of one architecture alone."""
_ENTRIES, _VIRTUAL, _CUBIN = "kernels.json", "virtual.so", ".cubin"


def launches(rows: Iterable[tuple[Kernel, Call]]) -> dict[str, Launch]:
    """The launches of calls by name, for memory that begins at 16 bytes and for any other."""
    works = (getattr(k, "work")(c, aligned=a) for k, c in rows if hasattr(k, "work") for a in (True, False))  # noqa: B009
    return {x.name: x for w in works if w is not None for x in w.launches}


def images(
    found: Mapping[str, Launch], architectures: Sequence[str] = (), *, simulated: bool = True
) -> Mapping[str, bytes]:
    """Files with the code of kernels, by name: cubins where NVRTC is here, and, if `simulated`, what the virtual device
    runs, where it is the device. `architectures`: as `compiled_for`, which says what is raised; also UsageError for one
    that NVRTC does not know."""
    if not found:
        return {}
    parts = compiled_for(found, architectures)
    try:
        files = {f"{a}{_CUBIN}": code for a, code in _cubins(Nvrtc.found(), found, parts).items()}
    except MissingCompiler:
        parts, files = {}, {}
    named = {f"{a}{_CUBIN}": names for a, names in parts.items()}
    if simulated and (on := _virtual()) is not None:
        files[_VIRTUAL] = on.simulated.library_of(list(found.values()))
        named[_VIRTUAL] = sorted(found)
    if not files:
        return {}
    about: dict[str, Any] = {"prelude": _prelude(), "kernels": named}
    return {**files, _ENTRIES: json.dumps(about).encode()}


def architectures_of(files: Iterable[str]) -> tuple[str, ...]:
    """What files of `images`, by name, have machine code for; "virtual" is the device that is not there."""
    return tuple(f.rpartition(".")[0] for f in files if f != _ENTRIES)


def compiled_for(found: Mapping[str, Launch], architectures: Sequence[str] = ()) -> dict[str, list[str]]:
    """The names of the kernels that are compiled for each architecture: those of one architecture's own instructions
    for that alone. `architectures`: such as "sm_89", or "sm_90a", which is sm_90 [default: ARCHITECTURES]. Raises
    UsageError for what is none, is older than the oldest of ARCHITECTURES, or lacks instructions of a kernel."""
    chosen = [_checked(a) for a in architectures] or ARCHITECTURES
    own = sorted({x.architecture for x in found.values()} - {""})
    if architectures and (lacking := sorted(set(own) - {f"{a}a" for a in chosen})):
        raise UsageError(f"the plan has kernels with instructions of {lacking[0]} alone, and cannot run on others: "
                         f"name {lacking[0].removesuffix('a')}, or optimize for another GPU")  # fmt: skip
    wanted = {**dict.fromkeys(chosen, ""), **{a: a for a in own}}
    rows = {a: sorted(n for n, x in found.items() if x.architecture == which) for a, which in wanted.items()}
    return {a: names for a, names in rows.items() if names}


def _checked(architecture: str) -> str:
    """Without the letter of an architecture's own instructions. Raises UsageError."""
    m = re.fullmatch(r"(sm_\d+)a?", architecture)
    if m is None or capability(m[1]) < capability(ARCHITECTURES[0]):
        raise UsageError(f"{architecture!r} is no architecture that kernels are made for: {ARCHITECTURES[0]} or newer, "
                         "such as sm_90 for an H100 or H200")  # fmt: skip
    return m[1]


def _cubins(compiler: Nvrtc, found: Mapping[str, Launch], parts: Mapping[str, Sequence[str]]) -> dict[str, bytes]:
    oldest = capability(ARCHITECTURES[0])
    if unknown := sorted(set(parts) - set(compiler.architectures), key=capability):
        raise UsageError(f"NVRTC {compiler.version} does not know {unknown[0]}: it compiles for "
                         f"{', '.join(a for a in compiler.architectures if capability(a) >= oldest)}")  # fmt: skip
    with ThreadPoolExecutor() as pool:
        return dict(
            zip(parts, pool.map(lambda a: _cubin(compiler, a, [found[n] for n in parts[a]]), parts), strict=True)
        )


def _cubin(compiler: Nvrtc, architecture: str, kernels: Iterable[Launch]) -> bytes:
    return compiler.cubin(prelude() + "\n".join(x.source for x in kernels), architecture).code


def _virtual() -> Virtual | None:
    """The virtual device, where it is the device."""
    try:
        on = device.current()
    except device.MissingDevice:
        return None
    return on if isinstance(on, Virtual) and device.place() == device.CUDA else None


def bring_all(files: Mapping[str, bytes]) -> None:
    """Take in the code in these files."""
    if _ENTRIES not in files:
        return
    about = json.loads(files[_ENTRIES])
    if about["prelude"] != _prelude():
        return  # another version of waxeq made them: they are compiled again, or refused where that cannot be
    for name, kernels in about["kernels"].items():
        if name.endswith(_CUBIN):
            bring(name.removesuffix(_CUBIN), prelude(), dict.fromkeys(kernels, files[name]))
        elif name == _VIRTUAL and (on := _virtual()) is not None:
            on.simulated.bring(files[name], kernels)


def _prelude() -> str:
    return sha256(prelude().encode()).hexdigest()
