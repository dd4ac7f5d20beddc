"""The simulated device: kernels of CUDA C++ compiled by the machine's C++ compiler and run on the CPU, every access
checked (simulation/machine.h says for what).

The text of a kernel is the very text that a GPU gets. Only what are instructions of the GPU (conversions of float16 and
bfloat16, copies to shared memory, tensor cores) are functions here.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path

import numpy as np

from waxeq.backend.kernel import Instruction
from waxeq.errors import WaxeqError
from waxeq.ir.types import numpy_dtype
from waxeq_cupy.device import Device, MissingDevice
from waxeq_cupy.kernels import Launch, Slot, Work, prelude
from waxeq_cupy.tensormaps import RANK, TensorMap
from waxeq_native.compiler import CompileFailed, Compiler, first_error
from waxeq_native.library import Library, directory

FLAGS = ("-x", "c++", "-Og", "-std=c++17", "-fPIC", "-shared", "-w", "-fwrapv", "-ffp-contract=off", "-fno-exceptions")
ALIGNMENT = 16
_PARTS = ("machine", "memory", "warps", "copies", "tensor_cores", "mbarriers", "warpgroups", "schedule", "launches")
"""The files of the simulated device, each after those that it uses."""


class KernelFault(WaxeqError):
    """A kernel did on the simulated device what it must not do on a GPU."""


class Argument(ctypes.Structure):
    """`wx::Argument` of simulation/memory.h: where an array begins, and which elements may be touched, from and to."""

    _fields_ = (("base", ctypes.c_void_p), ("low", ctypes.c_int64), ("high", ctypes.c_int64))


class Described(ctypes.Structure):
    """`wx::Described` of simulation/mbarriers.h: what a tensor map is made from. Steps are bytes, from `low` up to
    `high` may be read."""

    _fields_ = (
        ("base", ctypes.c_void_p), ("low", ctypes.c_int64), ("high", ctypes.c_int64), ("item", ctypes.c_int32),
        ("rank", ctypes.c_int32), ("swizzled", ctypes.c_int32), ("rounded", ctypes.c_int32),
        ("sizes", ctypes.c_int64 * RANK), ("steps", ctypes.c_int64 * RANK), ("box", ctypes.c_int32 * RANK),
    )  # fmt: skip

    @staticmethod
    def of(m: TensorMap, a: np.ndarray) -> Described:
        """A map of an array."""
        inside, item, at = _argument(a), m.item, m.offset * m.item
        ends = (inside.low * a.itemsize - at, inside.high * a.itemsize - at)
        sizes, steps, box = m.sizes, tuple(s * item for s in m.steps), m.box
        return Described(
            (inside.base or 0) + at, *ends, item, len(sizes), True, m.rounded,
            (ctypes.c_int64 * RANK)(*sizes), (ctypes.c_int64 * RANK)(*steps), (ctypes.c_int32 * RANK)(*box),
        )  # fmt: skip


_RUN = ctypes.PYFUNCTYPE(  # it keeps Python's lock: there is one machine for all threads
    ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint64,
    ctypes.c_char_p, ctypes.c_int,
)  # fmt: skip


@cache
def header() -> str:
    """The text before functions.h."""
    here = Path(__file__).parent / "simulation"
    return "\n".join((here / f"{name}.h").read_text(encoding="utf-8") for name in _PARTS)


def compiler() -> Compiler:
    """The C++ compiler that CXX names; else the first that is there of c++, g++, clang++ and the one of the package
    ziglang. Raises MissingDevice."""
    for command in _candidates():
        try:
            said = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=60, check=False)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if said.returncode == 0:
            return Compiler(command, next(iter(said.stdout.splitlines()), ""), FLAGS, "")
    raise MissingDevice("The simulated device needs a C++ compiler: install g++, or `pip install ziglang`.")


def _candidates() -> Iterator[tuple[str, ...]]:
    chosen = shlex.split(os.environ.get("CXX", ""))
    if chosen:
        yield tuple(chosen)
        return
    for name in ("c++", "g++", "clang++"):
        if found := shutil.which(name):
            yield (found,)
    if importlib.util.find_spec("ziglang") is not None:
        yield (
            sys.executable,
            "-m",
            "ziglang",
            "cc",
        )  # "c++" would build a C++ library first


class Simulated(Device):
    """`order`: of threads and of blocks: 0 upwards, 1 downwards, any other number another shuffle."""

    def __init__(self, library: Library, order: int = 0) -> None:
        self.library, self.order = library, order
        self._runs: dict[str, Callable[..., int]] = {}

    @staticmethod
    def found() -> Simulated:
        """With this machine's compiler; what is compiled is kept with what other kernels are compiled to."""
        return Simulated(Library(directory(), compiler()))

    @property
    def identity(self) -> str:
        return sha256(f"simulated|{header()}|{self.library.compiler.identity}".encode()).hexdigest()

    @property
    def about(self) -> str:
        return (
            f"simulated on the CPU by {' '.join(self.library.compiler.command)}; no time that it takes means anything"
        )

    @property
    def warpgroups(self) -> bool:
        return True

    def compiled(self, launches: Sequence[Launch]) -> None:
        self.functions({x.name: x.source for x in launches})

    def functions(self, sources: dict[str, str]) -> None:
        """Compile kernels by name. Raises CompileFailed."""
        missing = {f"run_{n}": f"{text}\nWX_RUNS({n})\n" for n, text in sources.items() if n not in self._runs}
        if missing:
            found = self.library.functions(missing, header() + prelude())
            self._runs |= {n.removeprefix("run_"): _RUN(address) for n, address in found.items()}

    def library_of(self, launches: Sequence[Launch]) -> bytes:
        """One shared library of these kernels, for another process. Raises CompileFailed."""
        text = "\n".join((header(), prelude(), *(f"{x.source}\nWX_RUNS({x.name})\n" for x in launches)))
        with tempfile.TemporaryDirectory() as place:
            source, made = Path(place, "kernels.c"), Path(place, "kernels.so")
            source.write_text(text, encoding="utf-8")
            line = [*self.library.compiler.command, *FLAGS, str(source), "-o", str(made)]
            done = subprocess.run(line, capture_output=True, text=True, check=False)
            if done.returncode:
                raise CompileFailed(f"the simulated device's kernels do not compile: {first_error(done.stderr)}")
            return made.read_bytes()

    def bring(self, code: bytes, names: Sequence[str]) -> None:
        """Take in a library that `library_of` made of kernels of these names."""
        with tempfile.NamedTemporaryFile(suffix=".so") as file:
            file.write(code)
            file.flush()
            library = ctypes.CDLL(file.name)
        for n in names:
            address = ctypes.cast(getattr(library, f"run_{n}"), ctypes.c_void_p).value
            assert address is not None
            self._runs[n] = _RUN(address)

    def aligned(self, arrays: Sequence[np.ndarray]) -> bool:
        return all(a.ctypes.data % ALIGNMENT == 0 for a in arrays if a.size)

    def bound(
        self, work: Work, operands: Sequence[np.ndarray], out: np.ndarray, workspace: np.ndarray
    ) -> Sequence[Instruction]:
        self.compiled(work.launches)
        return tuple(self._step(x, operands, out, workspace) for x in work.launches)

    def _step(
        self, launch: Launch, operands: Sequence[np.ndarray], out: np.ndarray, workspace: np.ndarray
    ) -> Instruction:
        def part(s: Slot) -> np.ndarray:
            item = numpy_dtype(s.dtype).itemsize
            return workspace[s.at : s.at + s.elements * item].view(numpy_dtype(s.dtype))

        arrays = [operands[r] if isinstance(r, int) else part(r) for r in launch.reads]
        arrays.append(out if launch.writes is None else part(launch.writes))
        flag = np.zeros(1, np.int32) if launch.looked_up else None
        if flag is not None:
            arrays.append(flag)
        result, item = len(launch.reads), arrays[len(launch.reads)].itemsize
        maps = [Described.of(m, arrays[m.operand]) for m in launch.maps]
        arguments = [*map(_argument, arrays), *(Argument(ctypes.addressof(m), 0, 0) for m in maps)]

        def run(_: object = (arrays, maps)) -> None:  # what is pointed to lives as long as this
            self.started(launch.name, arguments, result, item, launch.blocks, launch.threads)
            if flag is not None and flag[0]:
                flag[0] = 0
                raise IndexError("an index is out of bounds for the axis it points into")

        return run

    def run(self, name: str, arrays: Sequence[np.ndarray], result: int, blocks: int, threads: int) -> None:
        """Launch a kernel that was compiled; array number `result` is written. Raises KernelFault."""
        item = arrays[result].itemsize
        self.started(name, [_argument(a) for a in arrays], result, item, blocks, threads)

    def started(
        self, name: str, arguments: Sequence[Argument], result: int, item: int, blocks: int, threads: int
    ) -> None:
        """The same by addresses; `item`: bytes of an element of what is written. Raises KernelFault."""
        rows = (Argument * len(arguments))(*arguments)
        message = ctypes.create_string_buffer(256)
        if not self._runs[name](rows, result, item, blocks, threads, self.order, message, len(message)):
            raise KernelFault(f"kernel {name}: {message.value.decode()}")


def _argument(a: np.ndarray) -> Argument:
    """Where an array begins, and which elements before and behind that belong to it."""
    if not a.size:
        return Argument(a.ctypes.data, 0, 0)
    ends = [(n - 1) * s // a.itemsize for n, s in zip(a.shape, a.strides, strict=True)]
    return Argument(a.ctypes.data, sum(e for e in ends if e < 0), sum(e for e in ends if e > 0) + 1)
