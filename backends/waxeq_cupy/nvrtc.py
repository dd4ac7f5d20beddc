"""NVIDIA's run-time compiler: CUDA C++ to machine code, on machines with a GPU and on those without.

It is one shared library, which comes with CUDA, with the wheel `nvidia-cuda-nvrtc` (the extra `cuda-check`), and with
CuPy's own wheels; it needs no driver.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path

from waxeq.errors import WaxeqError
from waxeq_native.compiler import first_error

FLAGS = ("--std=c++17", "-default-device", "--ptxas-options=-v", "--diag-suppress=177,550")
"""What every kernel is built with; CUDA 12 takes lambdas with `auto` for functions of the CPU unless it is told
otherwise; the warnings are of variables that are not used. Never --use_fast_math: NaN,
infinities, subnormals and the rounding of divisions keep their meaning."""
INSTALL = "`pip install 'waxeq[cuda-check]'` brings it"


REGISTERS = 1 << 16
"""Of one multiprocessor."""
SHARED, MOST_SHARED = 48 << 10, 227 << 10
"""Bytes that a text may declare, and that a block may have if it asks."""
_TURNS, _STACK = ("sin", "cos", "tan"), 64
"""CUDA's own, for arguments of any size, and the bytes of a stack that they need."""
_OWN = 90
"""From this architecture on GPUs have instructions that no other has."""
_CALLED = 128
"""Bytes that kernels of float64 may store around subroutines: the rare half of a division on sm_80, and functions that
a text has twice on sm_90, for whole groups of elements and for what is left of them."""
MISSING = f"there is no NVRTC on this machine: {INSTALL}."


class MissingCompiler(WaxeqError):
    """NVRTC is not on this machine; says what to install."""

    exit_code = 5


class CompileFailed(WaxeqError):
    """NVRTC refused a generated source."""


@dataclass(frozen=True, slots=True)
class Resources:
    """What one kernel takes of a GPU: registers of a thread, bytes of a thread's stack, bytes that did not fit in
    registers (stored and loaded), bytes of a block's shared memory."""

    registers: int
    stack: int
    spilled: int
    shared: int

    def excess(self, text: str, threads: int, asked: int = 0) -> str:
        """What the kernel with this text takes that a GPU has not, or that makes it slow; "" where there is nothing.
        `threads`: of a block; `asked`: bytes of shared memory that a launch asks for besides."""
        stored = _CALLED * ("double" in text)
        if self.spilled > stored:
            return f"{self.spilled} bytes are spilled"
        if self.stack > self.spilled + _STACK * any(f"{f}(" in text or f"{f}f(" in text for f in _TURNS):
            return f"a stack of {self.stack} bytes"
        if not 0 < self.registers * threads <= REGISTERS:
            return f"{self.registers} registers for each of {threads} threads"
        if self.shared > SHARED or self.shared + asked > MOST_SHARED:
            return f"{self.shared} and {asked} bytes of shared memory"
        return ""


@dataclass(frozen=True)
class Cubin:
    """Machine code for one architecture, and what the compiler said when it was made."""

    code: bytes
    log: str

    @cached_property
    def kernels(self) -> Mapping[str, Resources]:
        """Every kernel by name."""
        parts = re.split(r"Compiling entry function '(\w+)' for '\w+'", self.log)
        return {name: _resources(said) for name, said in zip(parts[1::2], parts[2::2], strict=True)}


def _resources(said: str) -> Resources:
    def number(pattern: str) -> int:
        found = re.search(pattern, said)
        return int(found[1]) if found else 0

    spilled = number(r"(\d+) bytes spill stores") + number(r"(\d+) bytes spill loads")
    return Resources(
        number(r"Used (\d+) registers"), number(r"(\d+) bytes stack"), spilled, number(r"(\d+) bytes smem")
    )


class Nvrtc:
    """The library at `path`. Raises MissingCompiler where it cannot be loaded."""

    def __init__(self, path: str) -> None:
        try:
            self._library = ctypes.CDLL(path)
        except OSError as e:
            raise MissingCompiler(f"NVRTC cannot be loaded ({e}): {INSTALL}.") from None
        self.path = path

    @staticmethod
    def found() -> Nvrtc:
        """The first that loads of those that wheels bring and the one of the system. Raises MissingCompiler."""
        for path in libraries("libnvrtc", "cuda_nvrtc"):
            try:
                return Nvrtc(path)
            except MissingCompiler:
                continue
        raise MissingCompiler(MISSING[0].upper() + MISSING[1:])

    @cached_property
    def version(self) -> str:
        """ "13.1", say."""
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._check(self._library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
        return f"{major.value}.{minor.value}"

    @cached_property
    def architectures(self) -> tuple[str, ...]:
        """That it compiles for, in order, with those of one GPU's own instructions: "sm_80", "sm_90", "sm_90a"."""
        count = ctypes.c_int()
        self._check(self._library.nvrtcGetNumSupportedArchs(ctypes.byref(count)))
        numbers = (ctypes.c_int * count.value)()
        self._check(self._library.nvrtcGetSupportedArchs(numbers))
        return tuple(f"sm_{n}{a}" for n in sorted(numbers) for a in ("", *("a" * (n >= _OWN))))

    def cubin(self, source: str, architecture: str, flags: Sequence[str] = ()) -> Cubin:
        """Machine code for an architecture such as "sm_90". Raises CompileFailed."""
        return Cubin(*self._compiled(source, (f"--gpu-architecture={architecture}", *FLAGS, *flags), "CUBIN"))

    def ptx(self, source: str, architecture: str) -> str:
        """Text of the virtual machine for an architecture such as "compute_90". Raises CompileFailed."""
        return self._compiled(source, (f"--gpu-architecture={architecture}", *FLAGS), "PTX")[0].decode().rstrip("\0")

    def _compiled(self, source: str, flags: Sequence[str], kind: str) -> tuple[bytes, str]:
        program = ctypes.c_void_p()
        made = self._library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernels.cu", 0, None, None)
        self._check(made)
        try:
            line = (ctypes.c_char_p * len(flags))(*(f.encode() for f in flags))
            failed = self._library.nvrtcCompileProgram(program, len(flags), line)
            log = self._taken(program, "ProgramLog").decode(errors="replace").rstrip("\0")
            if failed:
                raise CompileFailed(f"NVRTC {self.version} refused a kernel: {first_error(log)}")
            return self._taken(program, kind), log
        finally:
            self._library.nvrtcDestroyProgram(ctypes.byref(program))

    def _taken(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._check(getattr(self._library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
        buffer = ctypes.create_string_buffer(size.value)
        self._check(getattr(self._library, f"nvrtcGet{what}")(program, buffer))
        return buffer.raw

    def _check(self, code: int) -> None:
        if code:
            self._library.nvrtcGetErrorString.restype = ctypes.c_char_p
            raise CompileFailed(f"NVRTC failed: {self._library.nvrtcGetErrorString(code).decode()}")


def libraries(name: str, wheel: str) -> Iterator[str]:
    """Where a library of CUDA may be, the newest first: in wheels (a folder for all of CUDA 13, or one of its own), an
    installed CUDA, the system."""
    spec = find_spec("nvidia")
    for place in (spec.submodule_search_locations or ()) if spec is not None else ():
        for folder in ("cu13", wheel):
            yield from (str(p) for p in sorted(Path(place, folder, "lib").glob(f"{name}.so.*"), reverse=True))
    for home in (os.environ.get("CUDA_PATH"), os.environ.get("CUDA_HOME"), "/usr/local/cuda"):
        if home:
            yield from (str(p) for p in sorted(Path(home, "lib64").glob(f"{name}.so.*"), reverse=True))
    yield from (f"{name}.so.13", f"{name}.so.12")
