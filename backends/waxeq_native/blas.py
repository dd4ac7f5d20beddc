"""The BLAS that NumPy has loaded, as addresses that `blas_f32` and `blas_f64` of api.h call from any thread."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

INTEGERS = {"64_": 64, "_64": 64, "": 0}
"""Ends of names, and the bits of integers they tell: builds for 64-bit integers rename what they offer. Without an end,
what the library says of itself decides."""

STARTS = ("scipy_", "")

SYSTEMS = tuple(t + f for t in "sd" for f in ("trsm", "trsv", "getrf"))
"""What solves systems of equations: triangular ones by cblas, and triangular factors of others by LAPACK."""


@dataclass(frozen=True)
class Blas:
    """Functions of one loaded library: addresses, which live as long as the process.

    `sgemm`, `dgemm`: the cblas functions; `bits`: of their integers, 32 or 64; `set_threads`, `get_threads`: of
    OpenBLAS, None elsewhere. `systems`: the functions of `SYSTEMS`, by name, as far as it offers them. `name` and
    `version` are for reports.
    """

    path: Path
    name: str
    version: str
    bits: int
    sgemm: int
    dgemm: int
    set_threads: int | None
    get_threads: int | None
    systems: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class NoBlas:
    """Why no BLAS can be called: one clause."""

    reason: str


def find() -> Blas | NoBlas:
    """The BLAS that NumPy multiplies with in this process."""
    import numpy  # its import loads the library
    from threadpoolctl import threadpool_info

    loaded = [info for info in threadpool_info() if info["user_api"] == "blas"]
    ours = Path(numpy.__file__).parent
    near = [
        info for info in loaded if Path(info["filepath"]).parent in (ours.with_name("numpy.libs"), ours / ".dylibs")
    ]
    if not loaded:
        return NoBlas("NumPy has loaded no BLAS that threadpoolctl knows")
    refused = []
    for info in near or loaded[:1]:
        found = _functions(info)
        if isinstance(found, Blas):
            return found
        refused.append(found.reason)
    return NoBlas("; ".join(refused))


def _functions(info: dict) -> Blas | NoBlas:
    path = Path(info["filepath"])
    try:
        library = ctypes.CDLL(str(path))  # loaded already: this only names it
    except OSError as e:
        return NoBlas(f"{path.name} cannot be opened ({e})")
    for start, (end, bits) in ((s, e) for s in STARTS for e in INTEGERS.items()):
        sgemm, dgemm = (_address(library, f"{start}cblas_{t}gemm{end}") for t in "sd")
        if sgemm is None or dgemm is None:
            continue
        set_threads, get_threads = (_address(library, f"{start}openblas_{w}_num_threads{end}") for w in ("set", "get"))
        return Blas(
            path=path,
            name=info["internal_api"],
            version=str(info["version"]),
            bits=bits or _bits(library, start, end),
            sgemm=sgemm,
            dgemm=dgemm,
            set_threads=set_threads,
            get_threads=get_threads,
            systems=dict(_systems(library, start, end)),
        )
    return NoBlas(f"{path.name} offers no cblas_sgemm under a name that is known")


def _systems(library: ctypes.CDLL, start: str, end: str) -> Iterator[tuple[str, int]]:
    """Names of LAPACK end as Fortran's do, with one underscore, and before another that an end brings."""
    lapack = f"{start}{{}}{end}" if end == "_64" else f"{start}{{}}_{end.removeprefix('_')}"
    for name in SYSTEMS:
        address = _address(library, f"{start}cblas_{name}{end}" if name[1:3] == "tr" else lapack.format(name))
        if address is not None:
            yield name, address


def _bits(library: ctypes.CDLL, start: str, end: str) -> int:
    """Bits of an integer where the name does not tell: what OpenBLAS says it was built for, else 32, the usual."""
    address = _address(library, f"{start}openblas_get_config{end}")
    if address is None:
        return 32
    said = ctypes.CFUNCTYPE(ctypes.c_char_p)(address)() or b""
    return 64 if re.search(rb"\bUSE64BITINT\b", said) else 32


def _address(library: ctypes.CDLL, name: str) -> int | None:
    try:
        return ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    except AttributeError:
        return None
