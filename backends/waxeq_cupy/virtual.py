"""A GPU that is not there: the simulated device, with memory of its own.

Its addresses mean nothing to the CPU, and everything that is done by address (launches, copies) must lie in one block
that was allocated and not given back. Fresh memory is poison. What it computes is right; what time it takes means
nothing.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

import numpy as np

from waxeq.backend.kernel import Instruction
from waxeq.backend.storage import LINE, DeviceArray, Memory, Storage
from waxeq.errors import WaxeqError
from waxeq_cupy.device import CUDA, Device
from waxeq_cupy.exchange import CudaArray, Wire, taken
from waxeq_cupy.kernels import Launch, Work
from waxeq_cupy.simulated import Simulated

_FIRST = 1 << 60
"""The first address: no process of the CPU has memory there."""
_ROOM = 2 << 30
_POISON = 0xEE
_WIRE = Wire(1, lambda stream: None, lambda stream: None)
"""Nothing here happens later than it is asked for."""


class WildAddress(WaxeqError):
    """Memory of the device was touched that was never allocated, or no longer is."""


class VirtualStorage(Storage):
    """`size`: bytes there are."""

    device = CUDA

    def __init__(self, size: int = _ROOM) -> None:
        self._size, self._next = size, _FIRST
        self._blocks: dict[int, np.ndarray] = {}
        self._starts: list[int] = []
        self.uploads = self.downloads = 0
        """Copies from and to the CPU that were made."""

    @property
    def room(self) -> int:
        return self._size - sum(b.size for b in self._blocks.values())

    @property
    def blocks(self) -> int:
        """How many blocks are allocated."""
        return len(self._blocks)

    def allocated(self, size: int) -> Memory:
        self.require(size, "an allocation")
        raw = np.full(max(size, 1) + LINE, _POISON, np.uint8)
        begin = -raw.ctypes.data % LINE
        address, self._next = self._next, self._next + (size // LINE + 2) * LINE
        self._blocks[address] = raw[begin : begin + max(size, 1)]
        insort(self._starts, address)
        return Memory(address, size, self._freed)

    def _freed(self, address: int) -> None:
        del self._blocks[address]
        self._starts.remove(address)

    def bytes_at(self, address: int, size: int) -> np.ndarray:
        """The bytes from an address on. Raises WildAddress."""
        n = bisect_right(self._starts, address) - 1
        if n >= 0:
            block = self._blocks[self._starts[n]]
            at = address - self._starts[n]
            if at + size <= block.size:
                return block[at : at + size]
        raise WildAddress(f"{size} bytes at {address:#x} of the virtual device lie in no block that is allocated")

    def within(self, a: Any) -> np.ndarray:
        """An array of the device as the simulated kernels see it; one of the CPU is itself. Raises WildAddress."""
        if isinstance(a, np.ndarray):
            return a
        if not a.size:
            return np.empty(a.shape, a.dtype)
        low, high = a.extent
        raw = self.bytes_at(a.address + low, high - low)
        return np.ndarray(a.shape, a.dtype, raw, -low, a.strides)

    def upload(self, to: DeviceArray, host: np.ndarray) -> None:
        self.uploads += 1
        np.copyto(self.within(to), host)

    def download(self, host: np.ndarray, a: DeviceArray) -> None:
        self.downloads += 1
        np.copyto(host, self.within(a))

    def copy(self, to: DeviceArray, a: DeviceArray) -> None:
        np.copyto(self.within(to), self.within(a))

    def seen(self, value: Any) -> DeviceArray | None:
        return taken(self, value, _WIRE)

    def handed(self, a: DeviceArray) -> Any:
        return CudaArray.of(a, _WIRE)


class Virtual(Device):
    """`simulated`: what runs its kernels."""

    storage: VirtualStorage

    def __init__(self, simulated: Simulated, storage: VirtualStorage | None = None) -> None:
        self.simulated, self.storage = simulated, storage or VirtualStorage()

    @property
    def identity(self) -> str:
        return sha256(f"virtual|{self.simulated.identity}".encode()).hexdigest()

    @property
    def about(self) -> str:
        return f"virtual: {self.simulated.about}"

    @property
    def ceilings(self) -> Mapping[str, Any]:
        """Round numbers of a large GPU, so that rooflines choose as they might for one."""
        flops = {"float16": 5e14, "bfloat16": 5e14, "float32": 5e13, "float64": 2e13}
        return {"flops": flops, "bandwidth": 4e12, "cache_bandwidth": 1.6e13, "launch": 1e-6}

    @property
    def warpgroups(self) -> bool:
        return self.simulated.warpgroups

    def compiled(self, launches: Sequence[Launch]) -> None:
        self.simulated.compiled(launches)

    def aligned(self, arrays: Sequence[Any]) -> bool:
        return self.simulated.aligned([self.storage.within(a) for a in arrays])

    def bound(self, work: Work, operands: Sequence[Any], out: Any, workspace: Any) -> Sequence[Instruction]:
        arrays = (*operands, out, workspace)
        seen = [self.storage.within(a) for a in arrays]
        lent = [replace(a, owner=None) for a in arrays if isinstance(a, DeviceArray)]
        return [self._started(f, lent) for f in self.simulated.bound(work, seen[:-2], seen[-2], seen[-1])]

    def _started(self, start: Instruction, lent: Sequence[DeviceArray]) -> Instruction:
        """An instruction that keeps no memory, as those of a GPU do not. It raises WildAddress where some was given
        back."""

        def run() -> None:
            for a in lent:
                self.storage.within(a)
            start()

        return run
