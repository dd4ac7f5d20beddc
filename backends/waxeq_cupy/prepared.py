"""Launches with their arguments, to be started in turn with others, or before those in front of them have ended.

Source: CUDA C++ Programming Guide, "Programmatic Dependent Launch and Synchronization".
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from waxeq_cupy.kernels import Launch
from waxeq_cupy.text import BEHIND

FEW = 4
"""Of all threads that a GPU runs at a time, as one of how many those may be that wait. Blocks come to where there is
room, and stay: where waiting ones leave room on a few processors alone, those behind them all run there. With no limit
a step of decoding took 135 us on an H200 by calls that take 90."""
_EARLY, _SINCE = "cuLaunchKernelEx", 12030
"""Launches with attributes, and the CUDA since which graphs keep that of overlap."""
_OVERLAP = 6
"""CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION"""
_WAITING = 90
"""Compute capability since which kernels can wait for those in front of them."""


class Attribute(ctypes.Structure):
    """CUlaunchAttribute, with a value that is one number."""

    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_int), ("rest", ctypes.c_int * 15))


class Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("blocks", ctypes.c_uint * 3), ("threads", ctypes.c_uint * 3), ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p), ("attributes", ctypes.POINTER(Attribute)), ("count", ctypes.c_uint),
    )  # fmt: skip


def early_here(library: Any, architecture: str, version: int) -> bool:
    """Whether launches may be started early on a GPU ("sm_90") by a driver for so new a CUDA (12030 is 12.3)."""
    able = int(architecture.removeprefix("sm_")) >= _WAITING and version >= _SINCE and hasattr(library, _EARLY)
    if able:
        getattr(library, _EARLY).argtypes = (ctypes.c_void_p,) * 4
    return able


class Prepared:
    """A launch on a stream (None: the one that all others wait for). `call`: of the driver. `arguments`: pointers to
    the parameters, and what they point to, which lives as long as this. `able`: launches may be started early here."""

    def __init__(
        self, call: Callable[..., None], kernel: int, x: Launch, stream: int | None, arguments: tuple[Any, Any], *,
        able: bool,
    ) -> None:  # fmt: skip
        self._call, self._arguments, self.threads = call, arguments, x.blocks * x.threads
        parameters, _ = arguments
        self._row = (kernel, x.blocks, 1, 1, x.threads, 1, 1, x.shared, stream, parameters, None)
        self._early = None
        if able and BEHIND in x.text and not x.shared:  # what asks for so much leaves no room to others while it waits
            own = ctypes.pointer(Attribute(_OVERLAP, 0, 1))
            config = Config((x.blocks, 1, 1), (x.threads, 1, 1), x.shared, stream, own, 1)
            self._early = (ctypes.byref(config), kernel, parameters, None)

    @property
    def waits(self) -> bool:
        """Whether it may be started `early`."""
        return self._early is not None

    def __call__(self) -> None:
        """Start it when all in front of it has ended."""
        self._call("cuLaunchKernel", *self._row)

    def early(self) -> None:
        """Start it before that: what a start takes is then over when that in front has ended, which it waits for."""
        assert self._early is not None
        self._call(_EARLY, *self._early)
