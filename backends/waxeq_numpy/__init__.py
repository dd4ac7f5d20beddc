"""The NumPy backend of waxeq: ufuncs with `out=` on cache-sized tiles, BLAS for contractions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType

from waxeq.backend.kernel import Backend, Kernel


class NumpyBackend(Backend):
    """Kernels that run on NumPy, on the CPU."""

    name = "numpy"
    device = "cpu"

    @cached_property
    def _kernels(self) -> Mapping[str, Kernel]:
        from waxeq_numpy import contraction, copying, direct, factored, fast, loops, padding

        modules = (contraction, loops, fast, copying, padding, direct, factored)
        found = [k() for m in modules for k in m.KERNELS]
        for k in found:
            k.blas = isinstance(k, (contraction.Gemm, *factored.KERNELS))
        return MappingProxyType({f"numpy.{k.name}": k for k in found})

    @property
    def kernels(self) -> Mapping[str, Kernel]:
        return self._kernels


def backend() -> Backend:
    """The entry point."""
    return NumpyBackend()
