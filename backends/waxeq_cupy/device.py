"""The device that kernels run on: a GPU, or one that is simulated on the CPU where WAXEQ_CUDA says so.

The simulated one is never chosen by itself: it is thousands of times slower than what it stands for.
"""

from __future__ import annotations

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
SIMULATED = "simulated"


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
    if chosen:
        raise UsageError(f"{VARIABLE} is {chosen!r}; the only value that it can have is {SIMULATED!r}")
    raise MissingDevice(_why_not())


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


def _why_not() -> str:
    """Why no GPU can be used."""
    from importlib.util import find_spec

    if find_spec("cupy") is None:
        return "CuPy is not installed: plans for NVIDIA GPUs need `pip install cupy-cuda12x` (or cupy-cuda13x)."
    return "plans run on the CPU only for now: kernels for NVIDIA GPUs are made and checked, and not yet run there."
