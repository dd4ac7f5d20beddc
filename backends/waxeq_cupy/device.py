"""The device that kernels run on, as WAXEQ_CUDA says: "simulated" on the CPU, or "copied", a GPU that gets the operands
of each call and gives its result back.

Neither is ever chosen by itself: both are there to check, and slower than the CPU alone.
"""

from __future__ import annotations

import ctypes
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from waxeq.backend.kernel import Instruction
from waxeq.errors import UsageError, WaxeqError

if TYPE_CHECKING:
    from waxeq_cupy.kernels import Launch, Work

VARIABLE = "WAXEQ_CUDA"
SIMULATED, COPIED = "simulated", "copied"


class MissingDevice(WaxeqError):
    """There is no GPU to run on; says what is missing."""

    exit_code = 5


class Device(ABC):
    """Where launches run."""

    @property
    @abstractmethod
    def identity(self) -> str:
        """What decides how kernels run on it."""

    @property
    @abstractmethod
    def about(self) -> str:
        """What there is to say of it."""

    @abstractmethod
    def compiled(self, launches: Sequence[Launch]) -> None:
        """Compile what was not compiled yet, all at once."""

    @abstractmethod
    def aligned(self, arrays: Sequence[np.ndarray]) -> bool:
        """Whether all of these begin at multiples of 16 bytes."""

    @abstractmethod
    def bound(
        self, work: Work, operands: Sequence[np.ndarray], out: np.ndarray, workspace: np.ndarray
    ) -> Sequence[Instruction]:
        """Instructions that run the launches of a call."""


def current() -> Device:
    """The device that kernels run on. Raises MissingDevice, and UsageError for a WAXEQ_CUDA that means nothing."""
    chosen = os.environ.get(VARIABLE, "")
    if chosen == SIMULATED:
        return _simulated()
    if chosen == COPIED:
        return _copied()
    if chosen:
        raise UsageError(f"{VARIABLE} is {chosen!r}; it can be {SIMULATED!r} or {COPIED!r}")
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        raise MissingDevice(f"no NVIDIA driver is here; {VARIABLE}={SIMULATED} checks kernels without one") from None
    raise MissingDevice(f"no plan keeps its memory on a GPU yet; {VARIABLE}={COPIED} checks kernels on one")


def identity() -> str:
    """Of the current device; "none" where there is none."""
    try:
        return current().identity
    except MissingDevice:
        return "none"


@cache
def _simulated() -> Device:
    from waxeq_cupy.simulated import Simulated

    return Simulated.found()


@cache
def _copied() -> Device:
    from waxeq_cupy.copied import Copied
    from waxeq_cupy.nvrtc import MissingCompiler

    try:
        return Copied.found()
    except MissingCompiler as e:
        raise MissingDevice(str(e)) from None
