"""The CUDA backend of waxeq: generated CUDA C++ for NVIDIA GPUs, and a simulated GPU to check it on."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import product
from types import MappingProxyType

from waxeq.backend.call import Call
from waxeq.backend.kernel import Backend, Kernel
from waxeq.backend.storage import CPU


class CupyBackend(Backend):
    """Kernels of generated CUDA C++."""

    name = "cupy"

    @property
    def device(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """ "cuda"; "cpu" where WAXEQ_CUDA has kernels work on what lies in the memory of the CPU."""
        from waxeq_cupy.device import place

        return place()

    @cached_property
    def _kernels(self) -> Mapping[tuple[bool, bool, bool], Mapping[str, Kernel]]:
        """With and without the copies from and to the CPU, the library of products, and products by groups of warps."""
        from waxeq_cupy import attention, blas, gemm, gemv, kernels, scan, transfer, wgmma, wgmma_attention

        own, *optional = (
            {f"cupy.{k.name}": k() for m in group for k in m.KERNELS}
            for group in ((kernels, scan, gemm, gemv, attention), (transfer,), (blas,), (wgmma, wgmma_attention))
        )
        found: dict[tuple[bool, bool, bool], Mapping[str, Kernel]] = {}
        for copies, library, groups in product((False, True), repeat=3):
            key = copies, library, groups
            chosen = (group for group, there in zip(optional, key, strict=True) if there)
            found[key] = MappingProxyType(dict(ChainMap(own, *chosen)))
        return found

    @property
    def kernels(self) -> Mapping[str, Kernel]:
        """With the copies from and to the CPU, where the device has memory of its own; with the products of NVIDIA's
        library, where it is installed; with those by groups of warps, on GPUs that have them."""
        from waxeq_cupy.device import multiplies

        return self._kernels[self.device != CPU, *multiplies()]

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

    def packed(self, calls: Sequence[Call], architectures: Sequence[str] = ()) -> Mapping[str, bytes]:
        """Cubins for `architectures` such as "sm_90", where NVRTC is here, and what the virtual device runs, where it
        is the device; no GPU is needed."""
        from waxeq_cupy.packed import images, launches

        every = self._kernels[True, True, True]
        return images(launches([(every[c.kernel], c) for c in calls]), architectures)

    def built_for(self, files: Iterable[str]) -> tuple[str, ...]:
        from waxeq_cupy.packed import architectures_of

        return architectures_of(files)

    def unpacked(self) -> str:
        from waxeq_cupy.nvrtc import MissingCompiler, Nvrtc

        try:
            Nvrtc.found()
        except MissingCompiler as e:
            return str(e)
        return ""

    def unpack(self, files: Mapping[str, bytes]) -> None:
        from waxeq_cupy.packed import bring_all

        bring_all(files)


def backend() -> Backend:
    """The entry point."""
    return CupyBackend()
