"""The device that kernels run on: the first GPU, or what WAXEQ_CUDA says instead of one.

"virtual" is a GPU that is not there: the simulated device with memory of its own, on which plans run as they do on a
GPU. "simulated" and "copied" have kernels work on what lies in the memory of the CPU: on the CPU, or on a GPU that gets
the operands of each call and gives its result back. None of the three is ever chosen by itself: all are there to check,
and slower than the CPU alone.
"""

from __future__ import annotations

import ctypes
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from threading import RLock
from typing import TYPE_CHECKING, Any

from waxeq.amounts import cores
from waxeq.backend.kernel import Instruction, Kernel
from waxeq.backend.storage import CPU, Storage
from waxeq.errors import UsageError, WaxeqError

if TYPE_CHECKING:
    from waxeq_cupy.cublaslt import Cublaslt, Multiplication
    from waxeq_cupy.kernels import Launch, Work

VARIABLE = "WAXEQ_CUDA"
SIMULATED, COPIED, VIRTUAL = "simulated", "copied", "virtual"
CUDA = "cuda"
"""The name of the device."""
_FINDING = RLock()
"""Held by the thread that looks for a device: all threads have the same one."""
_COMPILED, _ALONE = 0.45, 0.32
"""Seconds that NVRTC takes for a kernel with one thread, and the part of them that more threads do not share: 24
kernels took 10.9 s with one, 7.2 with two."""


class MissingDevice(WaxeqError):
    """There is no GPU to run on; says what is missing."""

    exit_code = 5


class Device(ABC):
    """Where launches run."""

    storage: Storage | None = None
    """Its memory, where kernels do not work on what lies in the memory of the CPU."""

    @property
    @abstractmethod
    def identity(self) -> str:
        """What decides how kernels run on it."""

    @property
    @abstractmethod
    def about(self) -> str:
        """What there is to say of it."""

    @property
    def ceilings(self) -> Mapping[str, Any] | None:
        """What it can do at most, as the fields of `waxeq.cost.device.Peaks`; None where nothing is known."""
        return None

    @property
    def warpgroups(self) -> bool:
        """Whether it multiplies by groups of warps what tensor maps bring: GPUs of compute capability 9.0 alone do."""
        return False

    @property
    def blas(self) -> Cublaslt | None:
        """NVIDIA's library of products, where the device has one and it is installed."""
        return None

    def multiplied(self, m: Multiplication, operands: Sequence[Any], out: Any, workspace: Any) -> Sequence[Instruction]:
        """Instructions that have the library make a product, where `blas` is there."""
        raise MissingDevice("The device has no library of products.")

    @abstractmethod
    def compiled(self, launches: Sequence[Launch]) -> None:
        """Compile what was not compiled yet, all at once."""

    @abstractmethod
    def aligned(self, arrays: Sequence[Any]) -> bool:
        """Whether all of these begin at multiples of 16 bytes."""

    @abstractmethod
    def bound(self, work: Work, operands: Sequence[Any], out: Any, workspace: Any) -> Sequence[Instruction]:
        """Instructions that run the launches of a call. Arrays are NumPy's, or in the memory of the device."""


class OnDevice(Kernel):
    """A kernel that works on the memory of the current device."""

    @property
    def device(self) -> str:
        return place()

    @property
    def compiling(self) -> float:
        return _COMPILED * (_ALONE + (1.0 - _ALONE) / cores())

    def storage(self) -> Storage | None:
        return current().storage if place() != CPU else None

    def ceilings(self) -> Mapping[str, Any] | None:
        return current().ceilings if place() != CPU else None


def place() -> str:
    """In whose memory kernels work."""
    return CPU if os.environ.get(VARIABLE) in (SIMULATED, COPIED) else CUDA


def current() -> Device:
    """The device that kernels run on. Raises MissingDevice, and UsageError for a WAXEQ_CUDA that means nothing."""
    chosen = os.environ.get(VARIABLE, "")
    known = {SIMULATED: _simulated, VIRTUAL: _virtual, COPIED: _copied, "": _gpu}
    if chosen not in known:
        can = ", ".join(repr(n) for n in known if n)
        raise UsageError(f"{VARIABLE} is {chosen!r}; it can be {can}")
    with _FINDING:
        return known[chosen]()


def identity() -> str:
    """Of the current device; "none" where there is none."""
    try:
        return current().identity
    except MissingDevice:
        return "none"


def multiplies() -> tuple[bool, bool]:
    """Whether the current device has NVIDIA's library of products, and groups of warps that multiply."""
    try:
        return current().blas is not None, current().warpgroups
    except MissingDevice:
        return False, False


@cache
def _simulated() -> Device:
    from waxeq_cupy.simulated import Simulated

    return Simulated.found()


@cache
def _virtual() -> Device:
    from waxeq_cupy.simulated import Simulated
    from waxeq_cupy.virtual import Virtual

    return Virtual(Simulated.found())


@cache
def _copied() -> Device:
    from waxeq_cupy.copied import Copied
    from waxeq_cupy.nvrtc import MissingCompiler

    try:
        return Copied.found()
    except MissingCompiler as e:
        raise MissingDevice(str(e)) from None


def driver_library() -> ctypes.CDLL:
    """The library that the NVIDIA driver comes as. Raises MissingDevice where there is none."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        raise MissingDevice(
            "no NVIDIA driver is here (libcuda.so.1 cannot be loaded); WAXEQ_CUDA=virtual checks plans without one"
        ) from None


@cache
def _gpu() -> Device:
    try:
        driver_library()  # on machines without one nothing of what a GPU needs is imported, which takes a while

        from waxeq_cupy.gpu import Gpu

        return Gpu.found()
    except MissingDevice as e:
        has = "CuPy is installed, but " if find_spec("cupy") is not None else ""
        raise MissingDevice(f"{has}{e}") from None
