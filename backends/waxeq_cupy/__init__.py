"""The CUDA backend of waxeq: generated CUDA C++ for NVIDIA GPUs, and a simulated GPU to check it on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType

from waxeq.backend.kernel import Backend, Kernel


class CupyBackend(Backend):
    """Kernels of generated CUDA C++."""

    name = "cupy"

    @property
    def device(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """ "cuda"; "cpu" where WAXEQ_CUDA has kernels work on what lies in the memory of the CPU."""
        from waxeq_cupy.device import VARIABLE

        return "cpu" if os.environ.get(VARIABLE) else "cuda"

    @cached_property
    def _kernels(self) -> Mapping[str, Kernel]:
        from waxeq_cupy import kernels

        return MappingProxyType({f"cupy.{k.name}": k() for k in kernels.KERNELS})

    @property
    def kernels(self) -> Mapping[str, Kernel]:
        return self._kernels

    def unusable(self) -> str | None:
        from waxeq_cupy.device import MissingDevice, current

        try:
            current()
        except MissingDevice as e:
            return str(e)
        return None

    def about(self) -> str:
        from waxeq_cupy.device import current

        return current().about


def backend() -> Backend:
    """The entry point."""
    return CupyBackend()
